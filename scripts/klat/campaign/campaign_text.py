"""A campaign in words, for a terminal of 80 columns."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from klat.campaign.boot_loader import BootEntry
from klat.campaign.campaign_file import ASKED, DONE, ENDED, PAUSED, BootAttempt, Campaign
from klat.report.text.columns import aligned, column_widths, wrapped
from klat.report.text.numbers import duration, plural

_BOOTS_SHOWN = 32


def _hanging(text: str) -> list[str]:
    return wrapped(text, "", "  ")


def entry_lines(entries: Sequence[BootEntry], default: BootEntry | None) -> Iterator[str]:
    """The boot entries as a table. `default` is None if no entry is the default."""
    rows = [["*" if e == default else "", e.release or "unknown", e.title] for e in entries]
    table = [["", "release", "entry"], *rows]
    widths = column_widths(table)
    for row in table:
        yield aligned(row, widths)
    if default:
        yield "* the default: the machine returns to it if a kernel fails, and at the end"


def left_out_lines(left_out: Mapping[str, str]) -> Iterator[str]:
    """The entries that klat cannot boot, with the reasons."""
    for title, why in left_out.items():
        yield from _hanging(f"a campaign cannot boot {title}: {why}")


def plan_lines(campaign: Campaign, entries: Sequence[BootEntry]) -> Iterator[str]:
    """What will happen. `entries` are those of the boot loader."""
    names = {entry.identity: _named(entry) for entry in entries}
    boots = campaign.boots()
    for setting in campaign.settings:
        words = f", with {setting.append}" if setting.append else ""
        yield from _hanging(f"{setting.label}: {names[setting.entry]}{words}")
    programs = Counter(name for name, _ in campaign.sets)
    named = ", ".join(programs)
    runs = campaign.runs * len(campaign.sets)
    loads = f" under each load ({', '.join(campaign.loads)})" if len(campaign.loads) > 1 else ""
    yield from _hanging(
        f"{plural(len(boots), 'boot')}: {campaign.rounds} of each, in blocks whose second half"
        f" reverses the first; in each boot {plural(runs, 'run')} of {named}{loads}"
    )
    if len(campaign.looks) > 1:
        early = ", ".join(map(str, campaign.looks[:-1]))
        yield from _hanging(
            f"looks after {early} of {campaign.rounds} rounds: the campaign ends if klat compare settles"
            " every metric"
        )
    order = [boot.setting.label for boot in boots]
    shown = " ".join(order[:_BOOTS_SHOWN])
    yield from _hanging(f"order: {shown}{' ...' if len(order) > _BOOTS_SHOWN else ''}")
    yield f"seed: {campaign.seed}"
    yield from _hanging(f"sessions go to {campaign.output}")
    yield from _hanging(f"default kernel: {names[campaign.default]}")


def _named(entry: BootEntry) -> str:
    """systemd-boot adds the release to a title that several entries share."""
    return entry.title if entry.release in entry.title else f"{entry.title} ({entry.release})"


def status_lines(campaign: Campaign, now: datetime) -> Iterator[str]:
    """The progress of the campaign."""
    boots = campaign.boots()
    done = len(campaign.done())
    phase = "complete" if campaign.is_complete else campaign.phase
    yield f"{campaign.name} {phase}: {done} of {plural(len(boots), 'boot')}"
    if campaign.is_settled:
        number = campaign.looks.index(campaign.looked_after) + 1
        saved = (campaign.rounds - campaign.looked_after) * len(campaign.settings)
        yield from wrapped(
            f"every metric was settled at look {number} of {len(campaign.looks)}, after"
            f" {campaign.looked_after} of {campaign.rounds} rounds: {plural(saved, 'boot')} saved",
            "  ",
        )
    if campaign.why:
        yield from wrapped(campaign.why, "  ")
    if campaign.ended_early and not campaign.is_check:
        yield "to continue: sudo klat campaign resume"
    last = campaign.last
    if last and last.under_way and campaign.phase != ENDED:
        setting = boots[last.boot - 1].setting.label
        what = "" if last.outcome == ASKED else ", measuring now"
        yield f"boot {last.boot}, {setting}: requested at {last.asked}{what}"
    left = time_left(campaign, now)
    if left is not None:
        yield f"about {duration(left)} left"
    whole = expected_seconds(campaign)
    if whole is not None:
        number = campaign.rounds * len(campaign.settings)
        yield f"the campaign takes about {duration(whole)} for {plural(number, 'boot')}"
        yield "next: sudo klat campaign start"
    if campaign.changed:
        files = ", ".join(campaign.changed)
        yield from _hanging(f"warning: these files have changed since the start: {files}")
    yield from _clock_jumps(campaign.attempts)
    yield from _without_sensor(campaign)
    yield from _failures(campaign)
    yield from _parts(campaign)


def unusable_lines(counts: Mapping[Path, tuple[int, int]]) -> Iterator[str]:
    """What klat.campaign.boot_sessions.unusable_runs() found."""
    for label, (unusable, runs) in counts.items():
        count = f"{unusable:,} of {plural(runs, 'run')} of {label.name} do not count"
        yield from _hanging(f"warning: {count}; klat summary {label} says why")


def _clock_jumps(attempts: Sequence[BootAttempt]) -> Iterator[str]:
    """A machine without a battery begins each boot at an old time. Only a jump back can be told from a pause."""
    asked = [_moment(attempt.asked) for attempt in attempts]
    back = [before - after for before, after in zip(asked, asked[1:]) if after < before]
    if back:
        times = "once" if len(back) == 1 else f"{len(back)} times"
        yield from _hanging(
            f"warning: the clock went back {times}, by up to {duration(max(back).total_seconds())}, so the dates"
            " of the sessions are not in the order of the boots, and the times here can be wrong"
        )


def _without_sensor(campaign: Campaign) -> Iterator[str]:
    """Kernels without a driver for a sensor, where another kernel has one."""
    boots = campaign.boots()
    # In the boot that panics nothing is measured.
    done = [a for a in campaign.attempts if a.outcome == DONE and a.seconds]
    labels = {(boots[a.boot - 1].setting.label, bool(a.celsius)) for a in done}
    cooled = {label for label, has_sensor in labels if has_sensor}
    others = sorted({label for label, _ in labels} - cooled)
    if cooled and others:
        yield from _hanging(
            f"warning: no sensor of temperature in the boots of {', '.join(others)}, so klat measures them without"
            f" waiting until the machine has cooled, unlike those of {', '.join(sorted(cooled))}"
        )


def _failures(campaign: Campaign) -> Iterator[str]:
    failed = [a for a in campaign.attempts if not a.under_way and a.outcome != DONE]
    if not failed:
        return
    counts = Counter(attempt.outcome for attempt in failed)
    kinds = ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
    yield from _hanging(f"attempts that do not count: {kinds}")
    label = campaign.boots()[failed[-1].boot - 1].setting.label
    yield from wrapped(
        f"the latest: boot {failed[-1].boot}, {label}, {failed[-1].asked}: {failed[-1].reason}",
        "  ",
    )


def _parts(campaign: Campaign) -> Iterator[str]:
    """The mean of each part of a boot's time."""
    seconds = [a.seconds for a in campaign.attempts if a.outcome == DONE and a.seconds]
    names = list(dict.fromkeys(name for parts in seconds for name in parts))
    if not names:
        return
    means = {name: statistics.mean(parts.get(name, 0.0) for parts in seconds) for name in names}
    text = ", ".join(f"{name} {duration(mean)}" for name, mean in means.items())
    yield from _hanging(f"mean time of a boot: {text}")


def time_left(campaign: Campaign, now: datetime) -> float | None:
    """The expected seconds to the end, from the median time of each setting's boots so far. None until the
    first boot is complete, while paused, and after the end.

    If the clock jumps during a boot, the time of this boot is wrong. The median is still right.
    """
    if campaign.phase in (ENDED, PAUSED):
        return None
    boots, took = campaign.boots(), boot_times(campaign.attempts)
    if not took:
        return None
    whole = statistics.median(took.values())
    by_label: dict[str, list[float]] = {}
    for boot, seconds in took.items():
        by_label.setdefault(boots[boot - 1].setting.label, []).append(seconds)
    usual = {label: statistics.median(times) for label, times in by_label.items()}
    done = campaign.done()
    rest = [usual.get(b.setting.label, whole) for b in boots if b.number not in done]
    last = campaign.attempts[-1]
    so_far = (now - _moment(last.asked)).total_seconds() if last.under_way else 0.0
    return sum(rest) - min(rest[0], max(0.0, so_far)) if rest else 0.0


def expected_seconds(campaign: Campaign) -> float | None:
    """How long the campaign takes, from its check. A boot of the check has one run of each program.
    None without a complete check."""
    if not (campaign.is_check and campaign.is_complete):
        return None
    runs = {a.boot: a.seconds.get("runs", 0.0) for a in campaign.attempts if a.outcome == DONE}
    took = boot_times(campaign.attempts)
    rest = [seconds + (campaign.runs - 1) * runs[boot] for boot, seconds in took.items()]
    return statistics.mean(rest) * campaign.rounds * len(campaign.settings) if rest else None


def boot_times(attempts: Sequence[BootAttempt]) -> dict[int, float]:
    """For each measured boot: its number, and the seconds from its request to the next request."""
    return {
        attempt.boot: max(0.0, (_moment(after.asked) - _moment(attempt.asked)).total_seconds())
        for attempt, after in zip(attempts, attempts[1:])
        if attempt.outcome == DONE
    }


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
