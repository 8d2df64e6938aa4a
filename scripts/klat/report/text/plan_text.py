"""A plan of boots and runs as text for a terminal of 100 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from klat.compare.pilot import CAUTION, TOO_COARSE, Effort, Metric, Pilot
from klat.compare.pilot_blocks import BlockEffort, TurnsPilot
from klat.report.text.numbers import MISSING, boots, plural
from klat.report.text.comparison_text import wrapped
from klat.report.text.wording import FIXED_BEFOREHAND, percent, setting


def planning(pilot: Pilot) -> Iterator[str]:
    """The lines."""
    target = pilot.target
    yield from wrapped(
        f"pilot {pilot.label}: {boots(pilot.boots_of_metrics)}; a run of every benchmark takes"
        f" {duration(pilot.round_seconds)}; assumed for a reboot: {duration(target.boot_seconds)}"
        " (--boot-seconds)",
        "",
        "  ",
    )
    yield from wrapped(_aim(pilot), "", "  ")
    if pilot.effort:
        yield f"  {effort(pilot.effort)}"
        yield from _cautious(effort(pilot.cautious) if pilot.cautious else "", "boot")
        told = [effort(e) if e else "" for e in (pilot.same, pilot.cautious_same)]
        yield from _same(pilot, told, "boot")
    for deviation, found in pilot.assumed:
        needed = effort(found) if found else "no number of boots up to 1,000"
        yield f"  if boots vary by {percent(deviation)}: {needed}"
    if not pilot.effort and not pilot.assumed:
        yield from _none(pilot, "boot")
    yield ""
    yield from _table(pilot)
    yield ""
    for line in (*_reasons(pilot), *pilot.cannot_know):
        yield from wrapped(f"note: {line}", "", "  ")
    yield from wrapped(f"note: {FIXED_BEFOREHAND}", "", "  ")


def planning_turns(pilot: TurnsPilot) -> Iterator[str]:
    """The same for two settings that take turns."""
    yield from wrapped(
        f"pilot {' and '.join(pilot.labels)} in turns: {plural(pilot.blocks, 'block')}; a run of"
        f" every benchmark takes {duration(pilot.round_seconds)}, what goes before a turn"
        f" {duration(pilot.turn_seconds)}",
        "",
        "  ",
    )
    yield from wrapped(_aim(pilot), "", "  ")
    if pilot.effort:
        yield f"  {block_effort(pilot.effort)}"
        yield from _cautious(block_effort(pilot.cautious) if pilot.cautious else "", "block")
        told = [block_effort(e) if e else "" for e in (pilot.same, pilot.cautious_same)]
        yield from _same(pilot, told, "block")
    else:
        yield from _none(pilot, "block")
    yield ""
    rows = [["runs vary", "blocks vary", "alone", "benchmark and metric"]]
    for metric in pilot.metrics:
        alone = f"{metric.alone.blocks} x {metric.alone.runs}" if metric.alone else "over 1,000"
        rows.append(
            [
                MISSING if metric.run is None else percent(math.sqrt(metric.run / 2)),
                MISSING if metric.block is None else _seen(metric.block),
                metric.reason.partition(":")[0] or alone,
                f"{setting(metric.key)}: {metric.key[3]}, {metric.estimand}",
            ]
        )
    yield from _columns(rows)
    yield ""
    for line in (*_reasons(pilot), *pilot.cannot_know):
        yield from wrapped(f"note: {line}", "", "  ")
    yield from wrapped(f"note: {FIXED_BEFOREHAND}", "", "  ")


def _reasons(pilot: Pilot | TurnsPilot) -> Iterator[str]:
    """Of metrics that no plan can be made for, as far as the table has no room for them."""
    for metric in pilot.metrics:
        _, _, rest = metric.reason.partition(": ")
        if rest:
            yield f"{setting(metric.key)}: {metric.key[3]}, {metric.estimand}: {rest}"


def block_effort(found: BlockEffort) -> str:
    return (
        f"{plural(found.blocks, 'block')} of {plural(found.runs, 'run')} a turn,"
        f" {duration(found.seconds)}: --blocks {found.blocks} --runs-per-block {found.runs}"
    )


def _cautious(told: str, noun: str) -> list[str]:
    bound = f"the {noun}s' variation at its {percent(CAUTION)} bound"
    return wrapped(f"cautious: {told or f'none up to 1,000 {noun}s'} ({bound})", "  ", "    ")


def _same(pilot: Pilot | TurnsPilot, told: Sequence[str], noun: str) -> Iterator[str]:
    """What exit status 0 takes where nothing has changed."""
    target = pilot.target
    if not target.margin:
        yield "exit status 0 cannot be had with a margin of 0: nothing is shown to be the same"
        return
    aim = (
        f"to show that all are the same within {percent(target.margin)} where nothing has changed (exit"
        f" status 0), with a chance of {percent(target.power)}:"
    )
    yield from wrapped(aim, "", "  ")
    yield f"  {told[0] or f'no number of {noun}s up to 1,000 would do'}"
    yield from _cautious(told[1], noun)


def _none(pilot: Pilot | TurnsPilot, noun: str) -> list[str]:
    """That there is no plan: for no number would do, or for how many would is not known."""
    unknown = [m for m in pilot.metrics if m.reason and not m.reason.startswith(TOO_COARSE)]
    if pilot.planned or not unknown:
        return [f"  no number of {noun}s up to 1,000 would do"]
    why = ", ".join(dict.fromkeys(metric.reason for metric in unknown))
    more = {
        "one run": "what varies takes 2 runs in each of 2 boots at least to tell",
        "one block is complete": "how much they vary takes 2 at least to tell",
    }.get(why, "")
    told = f"how many {noun}s it takes is not known: {why}{f'; {more}' if more else ''}"
    return wrapped(told, "  ", "    ")


def _aim(pilot: Pilot | TurnsPilot) -> str:
    target, planned, every = pilot.target, len(pilot.planned), len(pilot.metrics)
    whose = " in each figure" if planned == every else f" in {planned} of {every} figures"
    if not planned:
        whose = ""
    return (
        f"to find a change of {percent(target.change)}{whose} with a chance of"
        f" {percent(target.power)}, beyond a margin of {percent(target.margin)}, at alpha"
        f" {percent(target.alpha)} by Holm over {plural(pilot.tests, 'test')}:"
    )


def _seen(variance: float) -> str:
    return percent(math.sqrt(variance)) if variance > 0 else "none seen"


def effort(found: Effort) -> str:
    """One sentence."""
    return (
        f"{plural(found.boots, 'boot')} of {plural(found.runs, 'run')} for each kernel,"
        f" {duration(found.seconds)} a kernel"
    )


def duration(seconds: float) -> str:
    """Of the size that is read at a glance."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _table(pilot: Pilot) -> Iterator[str]:
    rows = [["runs vary", "boots vary", "alone", "benchmark and metric"]]
    for metric in pilot.metrics:
        rows.append(
            [
                _deviation(metric.run, metric),
                _deviation(metric.boot, metric),
                _alone(metric),
                f"{setting(metric.key)}: {metric.key[3]}, {metric.estimand}",
            ]
        )
    yield from _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        first = "  ".join(text.rjust(width) for text, width in zip(row, widths)) + "  "
        yield from wrapped(row[3], first, " " * len(first))


def _deviation(variance: float | None, metric: Metric) -> str:
    if variance is None:
        return MISSING
    if variance == 0 and metric.runs == metric.boots:
        return MISSING
    return _seen(variance)


def _alone(metric: Metric) -> str:
    if metric.reason:
        return metric.reason.partition(":")[0]
    return f"{metric.alone.boots} x {metric.alone.runs}" if metric.alone else "over 1,000"
