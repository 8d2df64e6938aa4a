"""The interim looks of a campaign: after which rounds they are, and whether one settles every metric."""

from __future__ import annotations

from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign.boot_sessions import label_under
from klat.campaign.campaign_file import Campaign
from klat.report.text.numbers import plural

_BLOCK = 2  # rounds


def planned_looks(rounds: int, count: int) -> tuple[int, ...]:
    """The rounds after which to look, at about equal shares of all rounds. The last look is at the end.

    Each earlier look comes after a whole block. The first look has enough rounds for a verdict at its level.
    KlatError if `count` looks do not fit.
    """
    first = _first_look(rounds)
    places = (rounds - first + _BLOCK - 1) // _BLOCK + 1
    if count > places == 1:
        raise KlatError(
            f"--looks {count}: {plural(rounds, 'boot')} of each are too few for a verdict before the end;"
            " give more --boots or --looks 1"
        )
    if count > places:
        raise KlatError(
            f"--looks {count}: {plural(rounds, 'boot')} of each allow at most {plural(places, 'look')},"
            f" because a verdict before the end needs {first} rounds; give more --boots or fewer --looks"
        )
    first = max(first, _whole_blocks(rounds / count))
    step = (rounds - first) / max(1, count - 1)
    early = [_whole_blocks(first + step * number) for number in range(count - 1)]
    return (*early, rounds)


def _whole_blocks(rounds: float) -> int:
    return _BLOCK * int(rounds / _BLOCK + 0.5)


def _first_look(rounds: int) -> int:
    """The smallest number of rounds, in whole blocks, after which a look has enough pairs for a verdict at
    its level. If there is none before the end, all rounds."""
    from klat.compare.verdicts import Rules
    from klat.stats.power import by_arrangement
    from klat.stats.multiplicity import Look

    for units in range(_BLOCK, rounds, _BLOCK):
        level = Look(units, (units, rounds), Rules().alpha).level()
        if by_arrangement(units, units, pairs=True) <= level:
            return units
    return rounds


def refuse_other_sessions(campaign: Campaign) -> None:
    """KlatError if a look would also compare sessions that exist before the campaign."""
    if not campaign.looks:
        return
    for label in (label for load in campaign.loads for label in _labels(campaign, load)):
        directory = Path(campaign.output) / label
        if any(not path.name.startswith(".") for path in directory.glob("*")):
            raise KlatError(f"--looks: {directory} already holds sessions; give another --output")


def _labels(campaign: Campaign, load: str) -> list[str]:
    return [label_under(setting.label, load, campaign.loads) for setting in campaign.settings]


def look_due(campaign: Campaign) -> int | None:
    """The number of complete rounds, if an early look is planned after them and has not begun. Else None."""
    boot = campaign.next_boot()
    if campaign.is_check or boot is None:
        return None
    done = boot.round - 1
    whole = boot.number == 1 + done * len(campaign.settings)
    return done if whole and done in campaign.looks and done > campaign.looked_after else None


def is_settled(campaign: Campaign) -> bool:
    """Whether klat compare settles every metric of the first setting against each other one, under each
    load, with its default options. KlatError or SessionError if it cannot compare."""
    from klat.compare.compare_sides import compare
    from klat.compare.comparison import Options
    from klat.compare.dataset import read_dataset

    for load in campaign.loads:
        directories = (Path(campaign.output) / label for label in _labels(campaign, load))
        base, *news = map(read_dataset, directories)
        comparison = compare(base, news, Options())
        look = comparison.options.rules.look
        if look is None or look.units != campaign.looked_after:
            raise KlatError(
                f"{base.path} and the other labels do not hold exactly the rounds of this look"
            )
        if not comparison.is_settled:
            return False
    return True
