"""An explanation as text for a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from klat.explain import story
from klat.explain.explanation import (
    ExplainedSample,
    Explanation,
    Side,
    calls_in_order,
    differences,
    usual_least,
)
from klat.explain.story import Holdup, Stretch
from klat.report.text.columns import WIDTH, aligned, column_widths, params_text, wrapped


_NAME = 30
_MARK = " *"
_KINDS = 3
_SOURCE_LINES = 3  # a function has at most this many source lines
_INDENT = "  "  # before a source line
BY_NAME = (
    "The other kernel has no function of this name. Its compiler may have inlined the function into"
    " the caller. To check this, compare the callers in the columns 'with callees'."
)


def heading(explanation: Explanation) -> Iterator[str]:
    params = params_text(dict(explanation.params))
    metric = " ".join([explanation.metric, params]).strip()
    yield from wrapped(f"{metric}, {explanation.which}, in instructions", "")
    yield ""
    for side, name in zip(explanation.sides, ("BASE", "NEW")):
        start = f"{name:4}  " if len(explanation.sides) > 1 else ""
        yield from wrapped(f"{side.label}, {side.release}: {size(side.sample)}", start, "      ")
        if side.kinds:
            yield from wrapped(kinds(side), "      ")
        if side.sample.residual:
            yield f"      NOT EXPLAINED: {side.sample.residual:+,} instructions belong to no function"
        if side.sample.doubt:
            yield from wrapped(f"NOT EXPLAINED: {side.sample.doubt}", "      ")
    yield ""


def size(sample: ExplainedSample) -> str:
    if sample.windows == 1:
        return f"{sample.ticks:,}"
    return f"{sample.ticks // sample.windows:,}, the mean of {sample.windows}; the table has both"


def kinds(side: Side) -> str:
    """The shares of the samples by length, with the number of paths of each length."""
    total = sum(kind.count for kind in side.kinds)
    if len(side.kinds) == 1:
        return f"all {total:,} samples took the same path"
    counts: Counter[int] = Counter()
    for kind in side.kinds:
        counts[kind.ticks] += kind.count
    paths = Counter(kind.ticks for kind in side.kinds)
    lines = [
        f"{ticks // side.sample.windows:,} in {100 * count / total:.1f} %{_paths(paths[ticks])}"
        for ticks, count in counts.most_common(_KINDS)
    ]
    left = counts.most_common()[_KINDS:]
    if left:
        share = 100 * sum(count for _, count in left) / total
        lines.append(f"{len(left)} other length{'s' * (len(left) > 1)} in {share:.1f} %")
    return f"{total:,} samples: {', '.join(lines)}"


def _paths(count: int) -> str:
    return f" ({count} paths)" if count > 1 else ""


def table(explanation: Explanation, least: int | None = None) -> Iterator[str]:
    """The table by function. Functions below `least` instructions (default: usual_least()) share a line."""
    if least is None:
        least = usual_least(explanation.sides)
    if len(explanation.sides) > 1:
        yield from _differences(explanation.sides[0], explanation.sides[1], least)
    else:
        yield from _one_side(explanation.sides[0], least)


def largest(explanation: Explanation, most: int) -> Iterator[str]:
    """The `most` largest functions of one side, and a line for the others."""
    yield from _one_side(explanation.sides[0], 0, most)


def _one_side(side: Side, least: int, most: int | None = None) -> Iterator[str]:
    sample, functions = side.sample, side.sample.functions
    ordered = [(name, count) for name, count in functions.own.most_common() if count]
    shown = [(name, count) for name, count in ordered if count >= least][:most]
    rows = [["function", "own", "share", "calls", "with callees"]]
    for name, count in shown:
        numbers = [functions.calls[name], functions.with_callees[name]]
        rows.append(
            [name, f"{count:,}", _share(count, sample), *(f"{number:,}" for number in numbers)]
        )
        for line, (count, _) in _top_lines([side], name):
            rows.append([_INDENT + line, f"{count:,}", _share(count, sample), "", ""])
    rest = ordered[len(shown) :]
    if rest:
        count = sum(count for _, count in rest)
        others = _others(len(rest), least if most is None else 0)
        rows.append([others, f"{count:,}", _share(count, sample), "", ""])
    if sample.idle:
        rows.append(["idle time, skipped", f"{sample.idle:,}", _share(sample.idle, sample), "", ""])
    rows.append(["sum", f"{sample.ticks:,}", "", "", ""])
    yield from _lines(rows)


def _differences(base: Side, new: Side, least: int) -> Iterator[str]:
    differing = differences(base, new)
    shown = [f for f in differing if abs(f.difference) >= least]
    rest = [f for f in differing if abs(f.difference) < least]
    rows = [
        ["", "own", "", "", "calls", "", "with callees", ""],
        ["function", "BASE", "NEW", "NEW-BASE", "BASE", "NEW", "BASE", "NEW"],
    ]
    for f in shown:
        numbers = [*f.calls, *f.with_callees]
        name = f.name if all(f.exists) else f.name + _MARK
        rows.append([name, *_pair(f.own), *(f"{number:,}" for number in numbers)])
        for line, counts in _top_lines([base, new], f.name):
            cells = _pair(counts)
            if not (base.lines and new.lines):
                cells = [cells[0] if base.lines else "", cells[1] if new.lines else "", ""]
            rows.append([_INDENT + line, *cells, *[""] * 4])
    if rest:
        totals = (sum(f.own[0] for f in rest), sum(f.own[1] for f in rest))
        rows.append([_others(len(rest), least), *_pair(totals), *[""] * 4])
    idle = (base.sample.idle, new.sample.idle)
    if any(idle):
        rows.append(["idle time, skipped", *_pair(idle), *[""] * 4])
    rows.append(["sum", *_pair((base.sample.ticks, new.sample.ticks)), *[""] * 4])
    yield from _lines(rows)
    if not all(all(f.exists) for f in shown):
        yield ""
        yield from wrapped(f"* {BY_NAME}", "", "  ")


def _top_lines(sides: Sequence[Side], name: str) -> list[tuple[str, tuple[int, int]]]:
    """The source lines of a function with the most instructions. If both sides have lines, the lines with
    the largest differences."""
    counters = [Counter(side.lines.get(name, {})) for side in sides]
    base, new = counters[0], counters[1] if len(counters) > 1 else Counter()
    both = all(side.lines for side in sides) and len(sides) > 1
    counted = [(line, (base[line], new[line])) for line in {**base, **new}]
    counted.sort(
        key=lambda item: (-abs(item[1][1] - item[1][0]) if both else -max(item[1]), item[0])
    )
    return counted[:_SOURCE_LINES]


def _lines(rows: list[list[str]]) -> Iterator[str]:
    _, *numbers = column_widths(rows)
    # len(numbers): a space before each number.
    room = min(_NAME, WIDTH - sum(numbers) - len(numbers))
    rows = [[_cut(name, room), *cells] for name, *cells in rows]
    widths = column_widths(rows)
    for row in rows:
        yield aligned(row, widths, left=1)


def _others(count: int, least: int) -> str:
    return f"{count} other{'s' * (count > 1)}" + (f", each below {least:,}" if least else "")


def _share(count: int, sample: ExplainedSample) -> str:
    return f"{100 * count / sample.ticks:.1f} %"


def _cut(name: str, room: int) -> str:
    if len(name) <= room:
        return name
    if name.startswith(_INDENT):  # the end of a file's path says more than its start
        return f"{_INDENT}…{name[len(name) + len(_INDENT) + 1 - room :]}"
    mark = _MARK if name.endswith(_MARK) else ""
    return name[: room - 1 - len(mark)] + "…" + mark


def _pair(values: tuple[int, int]) -> list[str]:
    return [f"{values[0]:,}", f"{values[1]:,}", f"{values[1] - values[0]:+,}"]


def path(explanation: Explanation) -> Iterator[str]:
    """The calls in order. Two sides are shown as a diff: `-` only in BASE, `+` only in NEW."""
    for mark, depth, name in calls_in_order(explanation.sides):
        text = f"{mark} {'  ' * depth}{name}"
        yield text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


_FUNCTIONS = 3
_STRETCHES = 20
_HELD = 3
_A_TASK = "a task"


def story_lines(explanation: Explanation) -> Iterator[str]:
    for side in explanation.sides:
        yield ""
        if len(explanation.sides) > 1:
            yield f"{side.label}"
        yield from _side(side, explanation.from_deadline)


def _side(side: Side, from_deadline: bool) -> Iterator[str]:
    stretches = story.tell(side.symbols, side.sample.contents)
    room = len(f"{side.sample.ticks:,}")
    waits = story.holdups(stretches, from_deadline)
    if waits:
        yield "held up, longest first:"
        for holdup in waits[:_HELD]:
            yield from _counted(holdup.instructions, _holdup(holdup), room)
    if len(waits) > _HELD:
        count = sum(holdup.instructions for holdup in waits[_HELD:])
        yield from _counted(count, f"{len(waits) - _HELD} more", room)
    yield "what ran, in order:"
    for stretch in stretches[:_STRETCHES]:
        yield from _counted(stretch.instructions, _stretch(stretch), room)
    left = stretches[_STRETCHES:]
    if left:
        count = sum(stretch.instructions for stretch in left)
        yield from _counted(count, f"{len(left)} further stretches", room)
    if side.sample.idle:
        yield from _counted(side.sample.idle, "idle time, skipped", room)


def _counted(count: int, text: str, room: int) -> list[str]:
    return wrapped(text, "  " + f"{count:,}".rjust(room) + "  ", " " * (room + 6))


def _holdup(holdup: Holdup) -> str:
    until = f" until {holdup.until}" if holdup.until else ""
    within = f", in {holdup.within}" if holdup.within else ""
    return f"{holdup.name or _A_TASK} ran on after {holdup.since}{until}{within}"


def _stretch(stretch: Stretch) -> str:
    if stretch.interrupt:
        what = f"{stretch.interrupt} in {stretch.name or _A_TASK}"
    else:
        what = stretch.name or _A_TASK
    notes = []
    if stretch.wakes:
        notes.append(f"wakes {stretch.wakes} task{'s' * (stretch.wakes > 1)}")
    notes += [
        f"{name} {100 * count / stretch.instructions:.0f} %"
        for name, count in stretch.functions.most_common(_FUNCTIONS)
    ]
    return f"{what}: {', '.join(notes)}"
