"""A plan of boots and runs as a Document."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

from klat.compare.least_effort import CAUTION, TOO_COARSE, Effort, Metric
from klat.compare.pilot import ONE_BOOT, ONE_RUN, Pilot
from klat.compare.pilot_blocks import TurnsPilot
from klat.report.document import Block, Column, Document, Line, Note, Notes, Row, Section, Table
from klat.report.document import Word
from klat.report.text.numbers import MISSING, boots, duration, percent, plural
from klat.report.text.parameters import HIDDEN
from klat.report.text.wording import FIXED_BEFOREHAND, setting


def document(pilot: Pilot | TurnsPilot, boot_time: str) -> Document:
    """`boot_time` says where the time of a boot comes from, for a pilot of whole boots."""
    noun = pilot.noun
    blocks: list[Block] = [Line(_heading(pilot, boot_time)), Line(_aim(pilot))]
    if pilot.effort:
        blocks += [Line(effort(pilot.effort, pilot), 1), _cautious(pilot.cautious, pilot)]
        blocks += _same(pilot, noun)
    assumed = pilot.assumed if isinstance(pilot, Pilot) else ()
    for deviation, effort_needed in assumed:
        needed = effort(effort_needed, pilot) if effort_needed else "no number of boots up to 1,000"
        text = f"if the variation between boots is {percent(deviation)}: {needed}"
        blocks.append(Line(text, 1))
    if not pilot.effort and not assumed:
        blocks.append(_none(pilot, noun))
    notes = (*_of_soak(pilot), *_reasons(pilot), *pilot.cannot_know)
    blocks += [Line(""), *_table(pilot), Notes(tuple(map(Note, notes)))]
    section = Section("Plan", tuple(blocks))
    return Document("Plan", Word(""), 0, (section,), (FIXED_BEFOREHAND, HIDDEN))


def _heading(pilot: Pilot | TurnsPilot, boot_time: str) -> str:
    took = "one segment" if pilot.run_noun == "segment" else "one run of every benchmark"
    run = (
        "the time of a run is not recorded: in counted mode, the guest's clock counts instructions"
        if pilot.round_seconds is None
        else f"{took} took {duration(pilot.round_seconds)}"
    )
    if isinstance(pilot, Pilot):
        return f"pilot {pilot.label}: {boots(pilot.boots_of_metrics)}; {run}; {boot_time}"
    return (
        f"pilot {' and '.join(pilot.labels)} in turns: {plural(pilot.blocks, 'block')}; {run}, the"
        f" set-up of a turn {duration(pilot.turn_seconds)}"
    )


def _of_soak(pilot: Pilot | TurnsPilot) -> Iterator[str]:
    if pilot.run_noun == "segment":
        yield (
            "this plan is for klat compare, which compares these figures of two kernels; klat summary"
            " --limit LIMIT says how long a soak shows a share above a limit"
        )


def _reason(reason: str, pilot: Pilot | TurnsPilot) -> str:
    return f"one {pilot.run_noun}" if reason == ONE_RUN else reason


def _reasons(pilot: Pilot | TurnsPilot) -> Iterator[str]:
    """Why some metrics have no plan, if the table has no room for the reason."""
    keys = [metric.key for metric in pilot.metrics]
    for metric in pilot.metrics:
        _, _, rest = metric.reason.partition(": ")
        if rest:
            yield f"{setting(metric.key, keys)}: {metric.key[3]}, {metric.estimand}: {rest}"


def _cautious(least: Effort | None, pilot: Pilot | TurnsPilot) -> Line:
    noun = pilot.noun
    bound = f"the {noun}s' variation at its {percent(CAUTION)} bound"
    needed = effort(least, pilot) if least else f"none up to 1,000 {noun}s"
    return Line(f"cautious: {needed} ({bound})", 1)


def _same(pilot: Pilot | TurnsPilot, noun: str) -> Iterator[Line]:
    """What exit status 0 takes if nothing has changed."""
    target = pilot.target
    if not target.margin:
        yield Line(
            "exit status 0 is impossible with a margin of 0: no figure can be shown to be the same"
        )
        return
    aim = (
        f"to show that all are the same within {percent(target.margin)} where nothing has changed (exit"
        f" status 0), with a chance of {percent(target.power)}:"
    )
    yield Line(aim)
    needed = (
        effort(pilot.same, pilot) if pilot.same else f"no number of {noun}s up to 1,000 is enough"
    )
    yield Line(needed, 1)
    yield _cautious(pilot.cautious_same, pilot)


def _none(pilot: Pilot | TurnsPilot, noun: str) -> Line:
    """Why there is no plan: no number is enough, or the pilot does not show how many are."""
    unknown = [m for m in pilot.metrics if m.reason and not m.reason.startswith(TOO_COARSE)]
    if pilot.planned or not unknown:
        return Line(f"no number of {noun}s up to 1,000 is enough", 1)
    why = ", ".join(dict.fromkeys(metric.reason for metric in unknown))
    more = {
        ONE_RUN: f"measure at least 2 {pilot.run_noun}s in each of 2 boots",
        "one block is complete": "measure at least 2",
    }.get(why, "")
    text = f"the number of {noun}s is not known: {_reason(why, pilot)}{f'; {more}' if more else ''}"
    return Line(text, 1)


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
    return percent(math.sqrt(variance)) if variance > 0 else "none"


def effort(least: Effort, pilot: Pilot | TurnsPilot) -> str:
    """`5 boots of 5 runs for each kernel, 6 min a kernel`, or the options of klat ab."""
    noun, runs = pilot.noun, f"of {plural(least.runs, pilot.run_noun)}"
    if isinstance(pilot, Pilot) and pilot.segment_s and pilot.run_noun == "segment":
        soak = duration(least.runs * pilot.segment_s)
        runs = f"with a soak of {soak} ({plural(least.runs, 'segment')})"
    needed = f"{plural(least.units, noun)} {runs}"
    time = "" if least.seconds is None else f", {duration(least.seconds)}"
    if noun == "boot":
        return f"{needed} for each kernel" + (f"{time} a kernel" if time else "")
    return f"{needed} a turn{time}: --blocks {least.units} --runs-per-block {least.runs}"


def _table(pilot: Pilot | TurnsPilot) -> Iterator[Block]:
    """A row for each figure, named by its key and estimand, below its benchmark and parameters."""
    noun, metrics = pilot.noun, pilot.metrics
    titles = [f"between {pilot.run_noun}s", f"between {noun}s", f"{noun}s for it alone"]
    about = "variation, and what each figure needs by itself:"
    if all(metric.reason == ONE_BOOT for metric in metrics):
        titles, about = titles[:1], "variation:"
    keys = [metric.key for metric in metrics]
    rows: list[Row | Line] = []
    for name, of_setting in groupby(metrics, lambda metric: setting(metric.key, keys)):
        rows.append(Line(name))
        for m in of_setting:
            cells = _cells(m, pilot)[: len(titles)]
            rows.append(Row(f"{m.key[3]}, {m.estimand}", tuple(cells)))
    yield Line(about)
    yield Table("", tuple(map(Column, titles)), tuple(rows), "", 1)


def _cells(metric: Metric, pilot: Pilot | TurnsPilot) -> list[str]:
    least, noun = metric.alone, pilot.noun
    if noun == "boot":
        within, between = _deviation(metric.run, metric), _deviation(metric.unit, metric)
    else:
        within = MISSING if metric.run is None else percent(math.sqrt(metric.run / 2))
        between = MISSING if metric.unit is None else _seen(metric.unit)
    a_turn = "" if noun == "boot" else " a turn"
    needed = "over 1,000"
    if least:
        needed = f"{least.units:,} of {plural(least.runs, pilot.run_noun)}{a_turn}"
    return [within, between, _reason(metric.reason.partition(":")[0], pilot) or needed]


def _deviation(variance: float | None, metric: Metric) -> str:
    if variance is None or (variance == 0 and metric.runs == metric.units):
        return MISSING
    return _seen(variance)
