"""A trend of kernels as a Document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from klat.compare.trend import MetricSeries, Step, Trend
from klat.compare.verdicts import Verdict
from klat.explain.explanation import KeptSample
from klat.report.comparison import TONES
from klat.report.comparison_columns import word_of
from klat.report.document import Block, Captioned, Column, Differences, Document, Figures, Folded
from klat.report.document import HeatMap, Icicles, Listing, Note, Notes
from klat.report.document import Paragraph, Row, Section, Table, Word
from klat.report.icicles import pictures
from klat.report.notes import side_notes
from klat.report.text import wording
from klat.report.text.numbers import plural, whole
from klat.report.text.parameters import parameters

# Functions in the line of a jump, and in the table below.
_BRIEF, _MOST = 3, 12
_MOST_BOXES, _PIXELS = 120, 900  # of an icicle graph; a report can have a hundred
_LAB = re.compile(r"(?:lab-(?:(arm64|riscv64)-)?)?")
_WIDEST = 34  # names in a table; CSV and JSON have every parameter


@dataclass(frozen=True)
class Change:
    """Why a metric jumped: the explained samples of both kernels."""

    metric: MetricSeries
    step: Step
    base: KeptSample = KeptSample()
    new: KeptSample = KeptSample()

    @property
    def is_explained(self) -> bool:
        return bool(self.base.ticks and self.new.ticks)

    @cached_property
    def functions(self) -> list[tuple[str, int]]:
        """The functions that differ. The differences add up to that of the samples."""
        return self.base.differences(self.new) if self.is_explained else []

    @property
    def difference(self) -> int:
        return self.new.ticks - self.base.ticks

    @property
    def why(self) -> str:
        """Why klat cannot explain the jump, or doubts the explanation."""
        return "; ".join(dict.fromkeys(filter(None, (self.base.why, self.new.why))))

    @property
    def size(self) -> float:
        return abs(math.log(self.step.ratio or 1))


def document(
    trend: Trend,
    changes: Sequence[Change],
    brief: bool = False,
    figures: Sequence[Captioned] | None = None,
) -> Document:
    """`brief`: each jump has one line, for a mail. With `figures`, the document is for a page. For two kernels
    it has no maps and no curves."""
    for_page = figures is not None
    is_long = any(len(chain) > 2 for chain in trend.chains)
    maps = _heat_maps(trend) if for_page and is_long else ()
    blocks: list[Block] = [_kernels(trend), Notes(tuple(_notes(trend))), *maps, *_medians(trend)]
    blocks += [Figures(tuple(figures))] if figures and is_long else []
    sections = [Section("Medians", tuple(blocks))]
    ordered = sorted(changes, key=lambda change: -change.size)
    if ordered:
        sections.append(Section("Jumps", tuple(_jumps(trend, ordered))))
    if not brief:
        if ordered:
            how_to_read = [Paragraph(_GRAPHS)] if for_page else []
            functions = (*how_to_read, *_explained(trend, ordered, for_page))
            sections.append(Section("Functions of each jump", functions))
        brought = tuple(_brought(trend))
        sections.append(Section("What the kernels bring", brought, detail=True))
    ends = ((trend.labels[chain[0]], trend.labels[chain[-1]]) for chain in trend.chains)
    title = "; ".join(f"{start} to {end}" for start, end in ends)
    terms = (_TERM_OF_LONG if is_long else _TERM, *wording.terms(trend.comparison))
    outcome = Word(_conclusion(trend), TONES[trend.status])
    return Document(title, outcome, trend.status, tuple(sections), terms, trend.comparison.problems)


def _conclusion(trend: Trend) -> str:
    if not trend.failures:
        return wording.conclusion(trend.comparison)
    counts = wording.counted(trend.comparison.verdicts)
    lost = f"{plural(len(trend.failures), 'kernel')} not measured"
    return f"{counts}, {lost}: {wording.MEANINGS[trend.status]}"


_TERM = "The mark of a ratio is its verdict: ▲ slower, ▼ faster, = same, ? inconclusive. A jump is a ratio beyond the margin."
_TERM_OF_LONG = (
    "Medians: below each, its ratio to the kernel before, with the verdict of this step (▲ slower, ▼ faster, = same, ?"
    " inconclusive), and its ratio to the first kernel. A jump is a step beyond the margin."
)


def _kernels(trend: Trend) -> Table:
    infos = {a.base.label: a.base for a in trend.comparison.against}
    infos |= {a.new.label: a.new for a in trend.comparison.against}
    rows = [
        Row(label, (release, info.preemption, f"{info.boots:,}", info.runs))
        if (info := infos.get(label))
        else Row(label, (release, "", "", "no kernel to compare it with"))
        for label, release in zip(trend.labels, trend.releases)
    ]
    rows += [Row(label, ("not measured", "", "", why)) for label, why in trend.failures.items()]
    titles = (("release", True), ("preemption", True), ("boots", False))
    columns = [Column(title, left=left) for title, left in titles]
    return Table("", (*columns, Column("runs", left=True, wraps=True)), tuple(rows), "kernel", 0)


def _notes(trend: Trend) -> Iterator[Note]:
    """The notes of all steps, each once."""
    said: dict[Note, list[str]] = {}
    for against in trend.comparison.against:
        for note in side_notes(against):
            said.setdefault(note, []).append(f"{against.base.label} to {against.new.label}")
    for note, steps in said.items():
        where = "" if len(steps) == len(trend.steps) else f"{', '.join(steps)}: "
        yield Note(f"{where}{note.text}", note.label, note.tone)


def _medians(trend: Trend) -> Iterator[Block]:
    unit = trend.comparison.against[0].base.unit
    for chain in trend.chains:
        rows: list[Row] = []
        is_pair = len(chain) == 2
        for metric, name in zip(trend.series, names(trend.series)):
            if not any(kernel in metric.values for kernel in chain):
                continue
            figures = [whole(metric.values.get(kernel)) for kernel in chain]
            steps = [metric.steps.get(kernel) for kernel in chain]
            if is_pair:
                rows.append(Row(name, (*figures, _ratio(steps[1]))))
                continue
            to_first = [_to_first(metric, chain[0], kernel) for kernel in chain]
            rows.append(Row(name, tuple(figures)))
            rows.append(Row("  to the previous", tuple(map(_ratio, steps))))
            rows.append(Row("  to the first", ("", *to_first[1:])))
        columns = [Column(_short(trend, kernel)) for kernel in chain]
        columns += [Column("ratio")] if is_pair else []
        yield Table(unit, tuple(columns), tuple(rows), f"median, {unit}", 0)
    missing = [
        f"{name} of {trend.labels[kernel]}: {why}"
        for metric, name in zip(trend.series, names(trend.series))
        for kernel, why in metric.reasons.items()
        if any(kernel in chain for chain in trend.chains)
    ]
    if missing:
        yield Listing(tuple(missing), "not measured")
    reasons: dict[str, list[str]] = {}
    for metric, name in zip(trend.series, names(trend.series)):
        for step in metric.steps.values():
            judgement = step.result.judgement if step.result else None
            if judgement and judgement.verdict is Verdict.INCONCLUSIVE:
                reasons.setdefault(judgement.reason, []).append(f"{name}, {_labels(trend, step)}")
    if reasons:
        yield Listing(tuple(_in_brief(s, why) for why, s in reasons.items()), "inconclusive")


_GRAPHS = (
    "A click on a jump opens its functions. In the graphs, a box is as wide as its instructions with callees. Its colour is"
    " the change of the function's own instructions: orange more, blue fewer."
)
# Ratios to the first kernel. A cell beyond each has the next shade.
_SHADES = (1.02, 1.1, 1.3)


def _heat_maps(trend: Trend) -> Iterator[HeatMap]:
    """One for each chain: each kernel by the first."""
    called = names(trend.series)
    more = _ranges([f"{100 * (start - 1):+.0f}" for start in _SHADES], "more")
    less = _ranges([f"{100 * (1 / start - 1):+.0f}" for start in _SHADES], "less")
    legend = (*reversed(less), Word("between", "equal"), *more)
    for chain in trend.chains:
        if len(chain) < 3:
            continue
        rows = [
            (name, tuple(_shaded(metric, chain[0], kernel) for kernel in chain))
            for metric, name in zip(trend.series, called)
            if metric.values.get(chain[0])
        ]
        first = _short(trend, chain[0])
        title = f"{first}: instructions; other kernels: change since {first}, in percent"
        yield HeatMap(title, "metric", tuple(_short(trend, k) for k in chain), tuple(rows), legend)


def _ranges(starts: list[str], tone: str) -> list[Word]:
    texts = [f"{a} to {b} %" for a, b in zip(starts, starts[1:])] + [f"beyond {starts[-1]} %"]
    return [Word(text, f"{tone}{number}") for number, text in enumerate(texts, 1)]


def _shaded(metric: MetricSeries, first: int, kernel: int) -> Word:
    if kernel not in metric.values:
        return Word("")
    ratio = metric.values[kernel] / metric.values[first]
    percent = round(100 * (ratio - 1))
    text = (f"{percent:+}" if percent else "0") if kernel != first else whole(metric.values[first])
    number = sum(max(ratio, 1 / ratio) > start for start in _SHADES) if ratio else len(_SHADES)
    return Word(text, f"{'more' if ratio > 1 else 'less'}{number}" if number else "equal")


def _in_brief(steps: Sequence[str], why: str) -> str:
    where = "; ".join(steps) if len(steps) <= _BRIEF else f"{len(steps)} steps"
    return f"{where}: {why}" if why else where


def _labels(trend: Trend, step: Step) -> str:
    return f"{_short(trend, step.base)} to {_short(trend, step.new)}"


def _to_first(metric: MetricSeries, first: int, kernel: int) -> str:
    if metric.values.get(first) and kernel in metric.values:
        return f"{metric.values[kernel] / metric.values[first]:.3f}"
    return ""


def _ratio(step: Step | None) -> str | Word:
    if step is None:
        return ""
    verdict = step.result.verdict if step.result else Verdict.NOT_COMPARABLE
    word = word_of(verdict or Verdict.INCONCLUSIVE)
    text = f"{step.ratio:.3f}" if step.ratio is not None else ""
    return Word(f"{word.symbol} {text}".strip(), word.tone)


def short_labels(trend: Trend) -> list[str]:
    return [_short(trend, kernel) for kernel in range(len(trend.labels))]


def _short(trend: Trend, kernel: int) -> str:
    return trend.labels[kernel].removeprefix(_prefix_of_lab(trend)[0])


def architecture(trend: Trend) -> str:
    """The one that all labels name; empty if they name none."""
    return _prefix_of_lab(trend)[1]


def _prefix_of_lab(trend: Trend) -> tuple[str, str]:
    """What the lab puts before all labels, and the architecture in it."""
    prefixes = {match.group(0, 1) for label in trend.labels if (match := _LAB.match(label))}
    prefix, architecture_name = prefixes.pop() if len(prefixes) == 1 else ("", "")
    return prefix, architecture_name or ""


def names(series: Sequence[MetricSeries]) -> list[str]:
    """Benchmark and metric, and the parameters in which series of one benchmark differ."""
    texts = []
    for metric in series:
        benchmark, params, _, name = metric.key
        others = {c.key[1] for c in series if c.key[0] == benchmark}
        shown = parameters(benchmark, params, others)
        pairs = (f"{name}={value}" for name, value in shown.items())
        differing = [p for p in pairs if any(p not in other.split(";") for other in others)]
        what = benchmark if name == benchmark else f"{benchmark} {name}"
        text = " ".join([what, *differing])
        texts.append(text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…")
    return texts


def _jumps(trend: Trend, changes: Sequence[Change]) -> Iterator[Block]:
    called = dict(zip((m.key for m in trend.series), names(trend.series)))
    rows = []
    for change in changes:
        step = change.step
        base, new = change.metric.values[step.base], change.metric.values[step.new]
        why = _in_short(change, round(new - base))
        cells = (_labels(trend, step), _ratio(step), f"{new - base:+,.0f}", why)
        rows.append(Row(called[change.metric.key], cells))
    columns = (Column("step", left=True), Column("ratio"), Column("change"))
    because = Column("functions", left=True, wraps=True)
    yield Paragraph(f"{plural(len(changes), 'jump')}, the largest first")
    yield Table("", (*columns, because), tuple(rows), "metric", 0)
    for title, has_functions in (("doubtful", True), ("not explained", False)):
        reasons: dict[str, list[str]] = {}
        for change in changes:
            if change.why and bool(change.functions) == has_functions:
                jump = f"{called[change.metric.key]}, {_labels(trend, change.step)}"
                reasons.setdefault(change.why, []).append(jump)
        if reasons:
            yield Listing(tuple(_in_brief(jumps, why) for why, jumps in reasons.items()), title)


def _in_short(change: Change, difference: int) -> str:
    if not change.functions:
        return "not explained"
    total = change.difference
    shown = ", ".join(f"{name} {count:+,}" for name, count in change.functions[:_BRIEF])
    rest = change.functions[_BRIEF:]
    others = f", {len(rest)} more {sum(count for _, count in rest):+,}" if rest else ""
    # The typical samples may differ by another number than the figures of the kernels, which are means over boots.
    of_samples = f", together {total:+,} in the typical samples" if total != difference else ""
    return shown + others + of_samples + (" (doubtful)" if change.why else "")


def _explained(trend: Trend, changes: Sequence[Change], graphs: bool) -> Iterator[Block]:
    called = dict(zip((m.key for m in trend.series), names(trend.series)))
    for change in changes:
        if not change.functions:
            continue
        step = change.step
        labels = _short(trend, step.base), _short(trend, step.new)
        doubt = f" (doubtful: {change.why})" if change.why else ""
        title = f"{called[change.metric.key]}, {' to '.join(labels)}: {_sizes(change)}{doubt}"
        shown, rest = change.functions[:_MOST], change.functions[_MOST:]
        rows = [Row(f"{count:+,}", (name,)) for name, count in shown]
        if rest:
            total = sum(count for _, count in rest)
            rows.append(Row(f"{total:+,}", (f"{len(rest)} others",)))
        rows.append(Row(f"{change.difference:+,}", ("sum",)))
        table = Table("", (Column("", left=True),), tuple(rows), "", 1, right=True)
        drawn = pictures((change.base, change.new), labels, _MOST_BOXES, _PIXELS) if graphs else ()
        yield Folded(title, (table, *([Icicles(tuple(drawn))] if drawn else [])))


def _sizes(change: Change) -> str:
    windows = change.base.windows
    both = f", both {windows} parts of the sample" if windows > 1 else ""
    return f"typical samples of {change.base.ticks:,} and {change.new.ticks:,}{both}"


def _brought(trend: Trend) -> Iterator[Block]:
    for against in trend.comparison.against:
        title = f"{against.base.label} and {against.new.label} also differ in"
        rows = tuple((d.name, d.a, d.b) for d in against.differences)
        yield Differences(title, "", rows)
