"""campaign.json: what a campaign measures, in which order, and its progress.

klat replaces the whole file, and continues when the new file is on disk. After a power cut, the old file or
the new file is there, and it is complete.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from klat.base import files, owners
from klat.base.bounded_read import parse_json, read_open
from klat.base.errors import KlatError, SessionError
from klat.base.fields import Kind, ListOf, Maybe, Number, Object, OneOf, Text, Truth, Tuple, Whole
from klat.record.json_files import LARGEST_INTEGER, MOST_BOOTS, MOST_LOOKS, MOST_PAUSE_MS
from klat.record.json_files import MOST_SECONDS
from klat.record.plan_csv import MAX_RUNS, alternating_rounds, seed_of_boot

PANIC = "panic"  # the label of the boot whose kernel must panic


@dataclass(frozen=True)
class BootSetting:
    """What a label stands for: a boot entry, with words appended to the kernel's command line."""

    label: str
    entry: str  # as the boot loader names it
    append: str = ""


@dataclass(frozen=True)
class CampaignBoot:
    number: int  # from 1
    round: int  # from 1; each setting boots once in a round
    setting: BootSetting
    seed: int  # for the order of the boot's runs
    panics: bool = False  # the kernel must panic, and the default kernel must boot next


def boot_order(settings: Sequence[BootSetting], rounds: int, seed: int) -> list[CampaignBoot]:
    """All boots, in the order of alternating_rounds()."""
    drawn = alternating_rounds(len(settings), rounds, random.Random(seed), carries=True)
    places = ((in_round, index) for in_round, order in enumerate(drawn, 1) for index in order)
    return [
        CampaignBoot(number, in_round, settings[index], seed_of_boot("campaign", seed, number))
        for number, (in_round, index) in enumerate(places, 1)
    ]


# The kernel finds neither this program in the initramfs nor this root device, so it panics.
_PANICS = "rdinit=/klat-panics root=/dev/klat-panics init=/klat-panics"


SCHEMA = 1
_LARGEST = 1 << 26
_MOST_ATTEMPTS = 1 << 20

PLANNED, RUNNING, PAUSED, ENDED = PHASES = ("planned", "running", "paused", "ended")
# The outcomes of an attempt at a boot. An attempt under way has one of the first two.
ASKED, MEASURING, DONE, FELL_BACK, WRONG_KERNEL, INTERRUPTED, FAILED = OUTCOMES = (
    *("asked", "measuring", "done", "fell back", "wrong kernel", "interrupted", "failed"),
)
_UNDER_WAY = (ASKED, MEASURING)
# So many failures of a setting since its last measured boot end the campaign. An interruption can be a power
# cut, so only the second limit counts interruptions.
MOST_FAILURES = 2
MOST_INTERRUPTIONS = 5


@dataclass(frozen=True)
class BootAttempt:
    """One attempt at a planned boot. `seconds` has the duration of each part of the boot, in their order."""

    boot: int  # number of the planned boot
    outcome: str
    asked: str  # when klat requested the reboot
    from_boot: str  # the id of the boot in which klat requested it
    boot_id: str | None = None
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    # Before the first run, as klat.machine.kernel_files.celsius() returns it.
    celsius: dict[str, float] = field(default_factory=dict)

    @property
    def under_way(self) -> bool:
        return self.outcome in _UNDER_WAY


@dataclass(frozen=True)
class Campaign:
    """`sets` has the programs with their arguments, as klat.record.plan_csv makes them. In each boot
    there is a session under each load, with `runs` runs of each set.

    If `is_check`, then `phase`, `why` and `attempts` describe the check of the machine.
    """

    identity: str
    settings: tuple[BootSetting, ...]
    rounds: int  # the number of boots of each setting
    seed: int
    sets: tuple[tuple[str, tuple[str, ...]], ...]
    runs: int
    loads: tuple[str, ...]
    profile: str | None
    pause_ms: int
    time_limit_s: int
    output: str  # an absolute path
    loader: str
    default: str  # the boot loader's permanent default
    created: str
    is_check: bool = False
    phase: str = PLANNED
    why: str = ""  # the reason, if it ended before its last boot
    attempts: tuple[BootAttempt, ...] = ()
    files: dict[str, str] = field(default_factory=dict)  # of the boot loader, at the start: SHA-256
    changed: tuple[str, ...] = ()  # files of the boot loader that differ at the end
    notify: str | None = None
    copy_to: str | None = None
    looks: tuple[int, ...] = ()  # the rounds after which to compare; the last is the end
    looked_after: int = 0  # the last look that klat began was after these rounds
    is_settled: bool = False  # that look settled every metric, so the campaign ends
    default_words: tuple[str, ...] | None = None  # without a menu: of the default kernel
    boot_command: str | None = None
    releases: dict[str, str] = field(default_factory=dict)  # of the kernels, by their entries
    resumed_after: int = 0  # attempts before klat campaign resume continued it after its end

    def boots(self) -> list[CampaignBoot]:
        if self.is_check:
            # Each setting once, then one boot of the default in which the kernel panics: at its start, or by klat.
            boots = boot_order(self.settings, 1, self.seed)
            drill = BootSetting(PANIC, self.default, _PANICS if self.has_menu else "")
            return [*boots, CampaignBoot(len(boots) + 1, 1, drill, 0, panics=True)]
        rounds = self.looked_after if self.is_settled else self.rounds
        return boot_order(self.settings, rounds, self.seed)

    @property
    def has_menu(self) -> bool:
        """Whether a boot menu has klat's entries. It also records which of them it started."""
        return self.default_words is None

    @property
    def name(self) -> str:
        return "check" if self.is_check else "campaign"

    @property
    def is_complete(self) -> bool:
        return self.phase == ENDED and self.next_boot() is None

    @property
    def state(self) -> str:
        """For messages: `the campaign is running`."""
        return f"the {self.name} {'has' if self.phase == ENDED else 'is'} {self.phase}"

    def of_boots(self) -> Campaign:
        """The campaign as its boots measure it. A check measures one run of each set, and records it in
        the directory .check of the results."""
        if not self.is_check:
            return self
        return replace(self, runs=1, output=str(Path(self.output) / ".check"))

    @property
    def last(self) -> BootAttempt | None:
        return self.attempts[-1] if self.attempts else None

    def done(self) -> set[int]:
        """The numbers of the boots that were measured."""
        return {attempt.boot for attempt in self.attempts if attempt.outcome == DONE}

    def next_boot(self) -> CampaignBoot | None:
        """The first boot that was not measured. None if all were."""
        done = self.done()
        return next((boot for boot in self.boots() if boot.number not in done), None)

    def failures(self, label: str) -> list[BootAttempt]:
        """The failed attempts of a setting since its last measured boot, and since the campaign was resumed."""
        labels = {boot.number: boot.setting.label for boot in self.boots()}
        recent = self.attempts[self.resumed_after :]
        attempts = [a for a in recent if labels[a.boot] == label and not a.under_way]
        return [*takewhile(lambda attempt: attempt.outcome != DONE, reversed(attempts))]

    def with_last(self, **changes: Any) -> Campaign:
        """This campaign, with changes of its last attempt."""
        assert self.attempts
        last = replace(self.attempts[-1], **changes)
        return replace(self, attempts=(*self.attempts[:-1], last))

    @property
    def ended_early(self) -> bool:
        return self.phase == ENDED and not self.is_complete

    def resumed(self) -> Campaign:
        """This campaign, which ended early, with no attempt under way."""
        attempts = self.attempts
        if self.last and self.last.outcome == ASKED:
            attempts = attempts[:-1]
        elif self.last and self.last.outcome == MEASURING:
            reason = "the campaign was ended during the measurement"
            attempts = self.with_last(outcome=INTERRUPTED, reason=reason).attempts
        return replace(self, attempts=attempts, resumed_after=len(attempts))

    def facts(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


_TEXT = Text(1 << 16)
_SETTING = Object(
    dict.fromkeys(("label", "entry", "append"), _TEXT), frozenset({"label", "entry", "append"})
)
_ATTEMPT_FIELDS: dict[str, Kind] = {
    "boot": Whole(1, MOST_BOOTS),
    "outcome": OneOf(OUTCOMES),
    "asked": _TEXT,
    "from_boot": _TEXT,
    "boot_id": Maybe(_TEXT),
    "reason": _TEXT,
    "seconds": Object(others=Number(0, 1e9)),
    "celsius": Object(others=Number(-300, 1000)),
}
_FIELDS: dict[str, Kind] = {
    "schema": Whole(1, LARGEST_INTEGER),
    **dict.fromkeys(("identity", "output", "loader", "default", "created", "why"), _TEXT),
    "settings": ListOf(_SETTING, 4096, 1),
    "rounds": Whole(1, MOST_BOOTS),
    "seed": Whole(0, LARGEST_INTEGER),
    "sets": ListOf(Tuple((_TEXT, ListOf(_TEXT, 4096))), MAX_RUNS, 1),
    "runs": Whole(1, MAX_RUNS),
    "loads": ListOf(_TEXT, 4096, 1),
    "profile": Maybe(_TEXT),
    "pause_ms": Whole(0, MOST_PAUSE_MS),
    "time_limit_s": Whole(1, MOST_SECONDS),
    "is_check": Truth(),
    "files": Object(others=_TEXT),
    "changed": ListOf(_TEXT, 4096),
    "phase": OneOf(PHASES),
    "attempts": ListOf(Object(_ATTEMPT_FIELDS, frozenset(_ATTEMPT_FIELDS)), _MOST_ATTEMPTS),
    "notify": Maybe(_TEXT),
    "copy_to": Maybe(_TEXT),
}
_LATER: dict[str, Kind] = {
    "looks": ListOf(Whole(1, MOST_BOOTS), MOST_LOOKS),
    "looked_after": Whole(0, MOST_BOOTS),
    "is_settled": Truth(),
    "default_words": Maybe(ListOf(_TEXT, 4096)),
    "boot_command": Maybe(_TEXT),
    "releases": Object(others=_TEXT),
    "resumed_after": Whole(0, _MOST_ATTEMPTS),
}
# Earlier versions did not write all fields.
_FACTS = Object({**_FIELDS, **_LATER}, frozenset(_FIELDS))


def write_campaign(path: Path, campaign: Campaign) -> None:
    """Replace the file. It is on disk afterwards. KlatError if it cannot be written."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    text = json.dumps(campaign.facts(), indent=1) + "\n"
    files.write_whole(path, text.encode(), give=False)


def read_campaign(path: Path) -> Campaign:
    """KlatError if the file is missing or damaged, or if an untrusted user may have written it. Trusted are
    root, the user of this process, and the caller of sudo."""
    try:
        with files.directory(path.parent) as parent:
            opened = files.open_regular(parent, path.name, os.O_RDONLY)
            with open(opened, "rb", buffering=0) as file:
                for descriptor, place in ((parent, path.parent), (file.fileno(), path)):
                    doubt = owners.doubt(descriptor)
                    if doubt:
                        raise KlatError(f"{place} {doubt}, but root runs commands from {path}")
                facts = parse_json(path, read_open(file, path, _LARGEST), _FACTS)
    except FileNotFoundError:
        raise KlatError("there is no campaign; plan one with klat campaign plan") from None
    except SessionError as error:
        raise KlatError(str(error)) from None
    except OSError as error:
        raise KlatError(f"cannot read {path}: {error.strerror or error}") from error
    if facts.pop("schema") != SCHEMA:
        raise KlatError(
            f"{path}: another version of klat wrote it; use that version, or remove the file"
        )
    facts["settings"] = tuple(BootSetting(**fields) for fields in facts["settings"])
    facts["attempts"] = tuple(BootAttempt(**fields) for fields in facts["attempts"])
    facts["sets"] = tuple((name, tuple(words)) for name, words in facts["sets"])
    facts |= {name: tuple(facts[name]) for name in ("loads", "changed")}
    facts["looks"] = tuple(facts.get("looks", ()))
    if facts.get("default_words") is not None:
        facts["default_words"] = tuple(facts["default_words"])
    campaign = Campaign(**facts)
    last = len(campaign.boots())
    if any(attempt.boot > last for attempt in campaign.attempts):
        raise KlatError(
            f"{path} is damaged or was edited: it has an attempt at a boot after the last one, {last}"
        )
    return campaign
