"""An explanation as a Document, and the words that its page shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from klat.explain import story
from klat.explain.explanation import ExplainedSample, Explanation, Side, calls_in_order, differences
from klat.explain.explanation import usual_least
from klat.explain.story import Holdup, Stretch
from klat.report.document import Block, Column, Document, Line, Paragraph, Row, Section, Table, Word
from klat.report.text.columns import WIDTH, params_text


_NAME = 30
_MARK = " *"
_KINDS = 3
_SOURCE_LINES = 3  # a function has at most this many source lines
_INDENT = "  "  # before a source line
BY_NAME = (
    "The other kernel has no function of this name. Its compiler may have inlined the function into"
    " the caller. To check this, compare the callers in the columns 'with callees'."
)


def document(
    explanation: Explanation,
    least: int | None = None,
    most: int | None = None,
    story: Iterable[Block] = (),
) -> Document:
    """The functions. Those below `least` instructions (default: usual_least()) share a line. With `most`, only so
    many of one side, whatever their instructions. `story` is what ran during the sample."""
    base, *new = explanation.sides
    if least is None and most is None:
        least = usual_least(explanation.sides)
    tables = _differences(base, new[0], least or 0) if new else [_one_side(base, least or 0, most)]
    blocks = (*_heading(explanation), *tables, *story)
    section = Section("Functions", blocks)
    return Document(explanation.metric, Word(""), 0, (section,), ())


def _heading(explanation: Explanation) -> Iterator[Block]:
    params = params_text(dict(explanation.params))
    metric = " ".join([explanation.metric, params]).strip()
    yield Paragraph(f"{metric}, {explanation.which}, in instructions")
    for side, name in zip(explanation.sides, ("BASE", "NEW")):
        start = f"{name:4}  " if len(explanation.sides) > 1 else ""
        yield Line(f"{start}{side.label}, {side.release}: {size(side.sample)}")
        if side.kinds:
            yield Line(kinds(side), 3)
        if side.sample.residual:
            residual = f"{side.sample.residual:+,} instructions belong to no function"
            yield Line(f"NOT EXPLAINED: {residual}", 3)
        if side.sample.doubt:
            yield Line(f"NOT EXPLAINED: {side.sample.doubt}", 3)
    yield Line("")


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
        f"{ticks // side.sample.windows:,} in {_share(count / total)}{_paths(paths[ticks])}"
        for ticks, count in counts.most_common(_KINDS)
    ]
    left = counts.most_common()[_KINDS:]
    if left:
        share = sum(count for _, count in left) / total
        lines.append(f"{len(left)} other length{'s' * (len(left) > 1)} in {_share(share)}")
    return f"{total:,} samples: {', '.join(lines)}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "<0.1 %"


def _paths(count: int) -> str:
    return f" ({count} paths)" if count > 1 else ""


def _one_side(side: Side, least: int, most: int | None = None) -> Table:
    sample, functions = side.sample, side.sample.functions
    ordered = [(name, count) for name, count in functions.own.most_common() if count]
    shown = [(name, count) for name, count in ordered if count >= least][:most]
    rows: list[Row] = []

    def add(name: str, count: int, *more: int) -> None:
        share = f"{100 * count / sample.ticks:.1f} %"
        rows.append(Row(name, (f"{count:,}", share, *(f"{number:,}" for number in more))))

    for name, count in shown:
        add(name, count, functions.calls[name], functions.with_callees[name])
        for line, (of_line, _) in _top_lines([side], name):
            add(_INDENT + line, of_line)
    if rest := ordered[len(shown) :]:
        add(_others(len(rest), least), sum(count for _, count in rest))
    if sample.idle:
        add("idle time, skipped", sample.idle)
    rows.append(Row("sum", (f"{sample.ticks:,}",)))
    return _table(("own", "share", "calls", "with callees"), rows)


def _differences(base: Side, new: Side, least: int) -> Iterator[Block]:
    differing = differences(base, new)
    shown = [f for f in differing if abs(f.difference) >= least]
    rest = [f for f in differing if abs(f.difference) < least]
    rows = [Row("function", ("BASE", "NEW", "NEW-BASE", "BASE", "NEW", "BASE", "NEW"))]
    for f in shown:
        numbers = [*f.calls, *f.with_callees]
        name = f.name if all(f.exists) else f.name + _MARK
        rows.append(Row(name, (*_pair(f.own), *(f"{number:,}" for number in numbers))))
        for line, counts in _top_lines([base, new], f.name):
            cells = _pair(counts)
            if not (base.lines and new.lines):
                cells = [cells[0] if base.lines else "", cells[1] if new.lines else "", ""]
            rows.append(Row(_INDENT + line, tuple(cells)))
    if rest:
        totals = (sum(f.own[0] for f in rest), sum(f.own[1] for f in rest))
        rows.append(Row(_others(len(rest), least), tuple(_pair(totals))))
    idle = (base.sample.idle, new.sample.idle)
    if any(idle):
        rows.append(Row("idle time, skipped", tuple(_pair(idle))))
    rows.append(Row("sum", tuple(_pair((base.sample.ticks, new.sample.ticks)))))
    yield _table(("own", "", "", "calls", "", "with callees", ""), rows, "")
    if not all(all(f.exists) for f in shown):
        yield Line(f"* {BY_NAME}")


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


def _table(titles: Sequence[str], rows: Sequence[Row], names: str = "function") -> Table:
    """Long names are cut, to leave room for the numbers in a terminal."""
    numbers = [
        max([len(title), *(len(str(cell)) for row in rows for cell in row.cells[i : i + 1])])
        for i, title in enumerate(titles)
    ]
    # len(numbers): a space before each number.
    room = min(_NAME, WIDTH - sum(numbers) - len(numbers))
    gap = [""] * len(titles)
    cut = (Row(_cut(row.name, room), (*row.cells, *gap[len(row.cells) :])) for row in rows)
    return Table("", tuple(map(Column, titles)), tuple(cut), names, 0)


def _others(count: int, least: int) -> str:
    return f"{count} other{'s' * (count > 1)}" + (f", each below {least:,}" if least else "")


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


def story_blocks(explanation: Explanation) -> Iterator[Block]:
    for side in explanation.sides:
        if len(explanation.sides) > 1:
            yield Line(side.label)
        yield from _story(side, explanation.from_deadline)


def _story(side: Side, from_deadline: bool) -> Iterator[Block]:
    stretches = story.tell(side.symbols, side.sample.contents)
    waits = story.holdups(stretches, from_deadline)
    counted = [(holdup.instructions, _holdup(holdup)) for holdup in waits[:_HELD]]
    if rest := waits[_HELD:]:
        counted.append((sum(holdup.instructions for holdup in rest), f"{len(rest)} more"))
    rows: list[Line | Row] = []
    if counted:
        rows += [Line("held up, longest first:"), *map(_counted, counted)]
    counted = [(stretch.instructions, _stretch(stretch)) for stretch in stretches[:_STRETCHES]]
    if left := stretches[_STRETCHES:]:
        count = sum(stretch.instructions for stretch in left)
        counted.append((count, f"{len(left)} further stretches"))
    if side.sample.idle:
        counted.append((side.sample.idle, "idle time, skipped"))
    rows += [Line("what ran, in order:"), *map(_counted, counted)]
    yield Table("", (Column("", left=True, wraps=True),), tuple(rows), "", 1, right=True)


def _counted(counted: tuple[int, str]) -> Row:
    return Row(f"{counted[0]:,}", (counted[1],))


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
