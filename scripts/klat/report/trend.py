"""A trend of kernels as a Document."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from klat.compare.dataset import Key
from klat.compare.trend import MetricSeries, Step, Trend
from klat.compare.verdicts import Verdict
from klat.explain.explanation import KeptSample
from klat.report.comparison import TONES
from klat.report.comparison_columns import word_of
from klat.report.document import Block, Captioned, Column, Differences, Document, Figures, Folded
from klat.report.document import Icicles, Listing, Note, Notes
from klat.report.document import Paragraph, Row, Section, Table, Word
from klat.report.icicles import pictures
from klat.report.notes import side_notes
from klat.report.text import wording
from klat.report.text.numbers import plural, whole
from klat.report.text.parameters import parameters
from klat.report.trend_map import Links, Marks, heat_maps

# Functions in the line of a jump, and in the table below.
_BRIEF, _MOST = 3, 12
_MOST_BOXES, _PIXELS = 120, 900  # of an icicle graph; a report can have a hundred
_FAR = 0.05  # of the change: a larger difference from the samples needs a reason
_OPEN = (Verdict.INCONCLUSIVE, Verdict.NOT_DELIVERED)
# The verdicts of a step.
_VERDICTS = (Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, *_OPEN, Verdict.NOT_COMPARABLE)
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
    def functions(self) -> list[tuple[str, float]]:
        """The functions that differ. They add up to the difference of the samples."""
        if not self.is_explained:
            return []
        return [(name, self._share(n)) for name, n in self.base.differences(self.new)]

    @property
    def samples(self) -> tuple[float, float]:
        """The instructions of the typical samples. A sample with several windows counts as the mean of its windows."""
        return self._share(self.base.ticks), self._share(self.new.ticks)

    @property
    def difference(self) -> float:
        return self._share(self.new.ticks - self.base.ticks)

    def _share(self, ticks: int) -> float:
        """The mean over the windows of a sample."""
        windows = self.base.windows
        return ticks / windows if ticks % windows else ticks // windows

    @property
    def of_figures(self) -> int:
        """The change of the kernels' figures, which are means over boots."""
        values = self.metric.values
        return round(values[self.step.new] - values[self.step.base])

    @property
    def place(self) -> tuple[Key, int]:
        return self.metric.key, self.step.new

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
    ordered = sorted(changes, key=lambda change: -change.size)
    numbered = enumerate(ordered, 1) if for_page else ()
    links = {change.place: f"jump{n}" for n, change in numbered if change.functions}
    called, short, marks = names(trend.series), short_labels(trend), _marks(trend)
    maps = heat_maps(trend, called, short, marks, links) if for_page and is_long else ()
    blocks: list[Block] = [_kernels(trend), Notes(tuple(_notes(trend))), *maps]
    blocks += [*_medians(trend, marks, links), *_reasons(trend, marks)]
    blocks += [Figures(tuple(figures))] if figures and is_long else []
    sections = [Section("Medians", tuple(blocks))]
    if ordered:
        sections.append(Section("Jumps", tuple(_jumps(trend, ordered, links))))
    if not brief:
        if ordered:
            how_to_read = [Paragraph(_GRAPHS)] if for_page else []
            functions = (*how_to_read, *_explained(trend, ordered, links, for_page))
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


_SYMBOLS = ", ".join(f"{word.symbol} {word}" for word in map(word_of, _VERDICTS))
_TERM = f"The mark of a ratio is its verdict: {_SYMBOLS}. A jump is a ratio beyond the margin."
_TERM_OF_LONG = (
    f"Below each median are two ratios: to the previous kernel, with the verdict of this step ({_SYMBOLS}), and to the"
    " first kernel that has the metric. A jump is a step beyond the margin."
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
        for note in side_notes(against, can_allow=False):
            said.setdefault(note, []).append(f"{against.base.label} to {against.new.label}")
    for note, steps in said.items():
        where = "" if len(steps) == len(trend.steps) else f"{', '.join(steps)}: "
        yield Note(f"{where}{note.text}", note.label, note.tone)


def _marks(trend: Trend) -> dict[str, str]:
    """The mark of each reason why a kernel has no value."""
    reasons = dict.fromkeys(why for metric in trend.series for why in metric.reasons.values())
    return {why: f"[{number}]" for number, why in enumerate(reasons, 1)}


def _medians(trend: Trend, marks: Marks, links: Links) -> Iterator[Block]:
    unit = trend.comparison.against[0].base.unit
    for chain in trend.chains:
        rows: list[Row] = []
        is_pair = len(chain) == 2
        for metric, name in zip(trend.series, names(trend.series)):
            figures = [
                whole(metric.values[kernel])
                if kernel in metric.values
                else marks[metric.reasons[kernel]]
                for kernel in chain
            ]
            ratios = [_ratio(metric, kernel, links) for kernel in chain]
            if is_pair:
                rows.append(Row(name, (*figures, ratios[1])))
                continue
            rows.append(Row(name, tuple(figures)))
            if any(kernel in metric.values for kernel in chain):
                to_first = tuple(_to_first(trend, metric, kernel) for kernel in chain)
                rows.append(Row("  to the previous", tuple(ratios)))
                rows.append(Row("  to the first", to_first))
        columns = [Column(_short(trend, kernel)) for kernel in chain]
        columns += [Column("ratio")] if is_pair else []
        yield Table(unit, tuple(columns), tuple(rows), f"median, {unit}", 0)


def _reasons(trend: Trend, marks: Marks) -> Iterator[Listing]:
    """Why kernels have no value, and steps no verdict. The notes have the reasons that refuse a whole step."""
    if marks:
        yield Listing(tuple(f"{mark} {why}" for why, mark in marks.items()), "without a value")
    of_step = dict(zip(trend.steps, trend.comparison.against))
    by_verdict: dict[Verdict, dict[str, list[str]]] = {}
    for metric, name in zip(trend.series, names(trend.series)):
        for step in metric.steps.values():
            noted = of_step[step.base, step.new].refused
            refused = [c.refusal(can_allow=False) for c in step.cell.refused if c not in noted]
            judged = [step.result.judgement.reason] if step.result else []
            for why in judged if step.verdict in _OPEN else refused:
                by_reason = by_verdict.setdefault(step.verdict, {})
                by_reason.setdefault(why, []).append(f"{name}, {_labels(trend, step)}")
    for verdict, by_reason in by_verdict.items():
        lines = (_in_brief(steps, why) for why, steps in by_reason.items())
        yield Listing(tuple(lines), verdict.value)


_CLICK = "A click on a jump opens its functions."
_GRAPHS = (
    "In the graphs, a box is as wide as its instructions with callees. Its colour is the change of the function's own"
    " instructions: orange more, blue fewer."
)


def _in_brief(steps: Sequence[str], why: str) -> str:
    where = "; ".join(steps) if len(steps) <= _BRIEF else f"{len(steps)} steps"
    return f"{where}: {why}" if why else where


def _labels(trend: Trend, step: Step) -> str:
    return f"{_short(trend, step.base)} to {_short(trend, step.new)}"


def _to_first(trend: Trend, metric: MetricSeries, kernel: int) -> str:
    first = trend.first_of(metric, kernel)
    if first == kernel or kernel not in metric.values:
        return ""
    return f"{metric.values[kernel] / metric.values[first]:.3f}"


def _ratio(metric: MetricSeries, kernel: int, links: Links) -> str | Word:
    """The ratio to the previous kernel, with the mark of its verdict."""
    if not (step := metric.steps.get(kernel)):
        return ""
    word = word_of(step.verdict)
    text = f"{step.ratio:.3f}" if step.ratio is not None else ""
    link = links.get((metric.key, kernel), "")
    return Word(f"{word.symbol} {text}".strip(), word.tone, link=link)


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


def _jumps(trend: Trend, changes: Sequence[Change], links: Links) -> Iterator[Block]:
    names_by_key = dict(zip((m.key for m in trend.series), names(trend.series)))
    rows = []
    for change in changes:
        step, metric = change.step, change.metric
        ratio, functions = _ratio(metric, step.new, links), _in_short(trend, change)
        cells = (_labels(trend, step), ratio, f"{change.of_figures:+,}", functions)
        rows.append(Row(names_by_key[metric.key], cells, link=links.get(change.place, "")))
    columns = (Column("step", left=True), Column("ratio"), Column("change"))
    because = Column("functions", left=True, wraps=True)
    click = f". {_CLICK}" if links else ""
    yield Paragraph(f"{plural(len(changes), 'jump')}, the largest first{click}")
    yield Table("", (*columns, because), tuple(rows), "metric", 0)
    for title, has_functions in (("doubtful", True), ("not explained", False)):
        reasons: dict[str, list[str]] = {}
        for change in changes:
            if change.why and bool(change.functions) == has_functions:
                jump = f"{names_by_key[change.metric.key]}, {_labels(trend, change.step)}"
                reasons.setdefault(change.why, []).append(jump)
        if reasons:
            yield Listing(
                tuple(_in_brief(jumps, reason) for reason, jumps in reasons.items()), title
            )


def _in_short(trend: Trend, change: Change) -> str:
    if not change.functions:
        return "not explained"
    shown = ", ".join(f"{name} {count:+,}" for name, count in change.functions[:_BRIEF])
    rest = change.functions[_BRIEF:]
    others = f", {len(rest)} more {sum(count for _, count in rest):+,}" if rest else ""
    doubt = " (doubtful)" if change.why else ""
    return shown + others + _in_samples(trend, change) + doubt


def _in_samples(trend: Trend, change: Change) -> str:
    """The change of the typical samples, if it differs from the change of the kernels' figures, which are means over
    boots."""
    distance = abs(change.difference - change.of_figures)
    if distance < 1:
        return ""
    sum_text = f", together {change.difference:+,} in the typical samples"
    if distance <= _FAR * abs(change.of_figures):
        return sum_text
    metric, kernels = change.metric, (change.step.base, change.step.new)
    boots = [
        f"; boots of {_short(trend, kernel)} have {' to '.join(map(whole, metric.ranges[kernel]))}, the typical sample {sample:,}"
        for kernel, sample in zip(kernels, change.samples)
        if abs(sample - metric.values[kernel]) > distance / 3
    ]
    return sum_text + "".join(boots)


def _explained(
    trend: Trend, changes: Sequence[Change], links: Links, graphs: bool
) -> Iterator[Block]:
    names_by_key = dict(zip((m.key for m in trend.series), names(trend.series)))
    for change in changes:
        if not change.functions:
            continue
        step = change.step
        labels = [_short(trend, step.base), _short(trend, step.new)]
        doubt = f" (doubtful: {change.why})" if change.why else ""
        base, new = change.samples
        windows = change.base.windows
        parts = f", means of {windows} parts" if windows > 1 else ""
        sizes = f"typical samples of {base:,} and {new:,}{parts}"
        title = f"{names_by_key[change.metric.key]}, {' to '.join(labels)}: {sizes}{doubt}"
        shown, rest = change.functions[:_MOST], change.functions[_MOST:]
        rows = [Row(f"{count:+,}", (name,)) for name, count in shown]
        if rest:
            total = sum(count for _, count in rest)
            rows.append(Row(f"{total:+,}", (f"{len(rest)} others",)))
        rows.append(Row(f"{change.difference:+,}", ("sum",)))
        table = Table("", (Column("", left=True),), tuple(rows), "", 1, right=True)
        drawn = _graphs(change, labels) if graphs else ()
        yield Folded(title, (table, *drawn), links.get(change.place, ""))


def _graphs(change: Change, labels: Sequence[str]) -> Iterator[Icicles]:
    windows = change.base.windows
    parts = f", the {windows} parts of the sample" if windows > 1 else ""
    titles = [f"{label}{parts}" for label in labels]
    if drawn := pictures((change.base, change.new), titles, _MOST_BOXES, _PIXELS):
        yield Icicles(tuple(drawn))


def _brought(trend: Trend) -> Iterator[Block]:
    for against in trend.comparison.against:
        title = f"{against.base.label} and {against.new.label} also differ in"
        rows = tuple((d.name, d.a, d.b) for d in against.differences)
        yield Differences(title, "", rows)
