"""A limit on the share of samples: its columns, tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from klat.compare.comparison import Against, Cell, CellLimit
from klat.compare.dataset import Dataset
from klat.compare.limits import LabelLimits, Limit, Needed, SideLimit
from klat.compare.verdicts import Rules, Verdict
from klat.report.comparison_columns import word_of
from klat.report.document import Column, Judged, Line, Row, Table
from klat.report.text import wording
from klat.report.text.numbers import MISSING, confidence, duration, plural
from klat.report.text.parameters import title
from klat.record.session import printable

# The maxima of more boots are summed up.
_MOST_MAXIMA = 6
# The columns of NEW's verdict on a limit.
COLUMNS = (
    Column("BASE", left=True, brief=True, overview=True),
    Column("BASE above", overview=True),
    Column("NEW above", overview=True),
    Column("NEW to BASE", left=True, brief=True, overview=True),
    Column("share of NEW", overview=True, below=True),
)
# A smaller design effect is not worth a sentence.
_CLUSTERED = 1.5


def limit_text(limit: Limit, unit: str) -> str:
    """`100us`, or `20,000 instructions`."""
    return limit.text if limit.is_time else f"{limit.value:,.12g} {unit}"


def share_text(share: float) -> str:
    return f"{share:.3g}"


def bounds_text(side: SideLimit) -> str:
    return f"{share_text(side.low)} to {share_text(side.high)}"


def above_text(side: SideLimit | None) -> str:
    return f"{side.above:,} of {side.samples:,}" if side else MISSING


def limit_terms(limit: Limit, unit: str, rules: Rules, family: int) -> str:
    """What the figures mean."""
    asked = f"at most {share_text(limit.share)} of them" if limit.share else "none of them"
    return (
        f"above: samples above {limit_text(limit, unit)}; within: {asked}. Each bound of the share is"
        f" one-sided at {confidence(rules.alpha)}, and counts clustered samples as fewer."
        f" Verdicts: {wording.level(rules, family)}."
    )


def row(judged: CellLimit) -> Row:
    """NEW's verdict, with BASE's and the difference."""
    base = judged.base.verdict.value if judged.base else MISSING
    bounds = bounds_text(judged.new) if judged.new else ""
    above = [above_text(side) for side in (judged.base, judged.new)]
    cells = (base, *above, judged.difference.value, bounds)
    return Row("share above the limit", cells, Judged(word_of(judged.verdict)))


def limit_table(sides: Sequence[tuple[str, SideLimit]], names: str = "side") -> Table:
    """The figures of each side, or of each metric of one side, with its name in front."""
    titles = ("samples", "above", "share", "bounds", "verdict")
    rows = []
    for name, side in sides:
        figures = (f"{side.samples:,}", f"{side.above:,}", share_text(side.share))
        rows.append(Row(name, (*figures, bounds_text(side), word_of(side.verdict))))
    return Table("", tuple(map(Column, titles)), tuple(rows), names)


def sides_table(judged: CellLimit) -> Table | None:
    sides = _sides(judged)
    return limit_table(sides) if sides else None


def _sides(judged: CellLimit) -> list[tuple[str, SideLimit]]:
    return [(name, side) for name, side in (("BASE", judged.base), ("NEW", judged.new)) if side]


def side_sentences(side: SideLimit, unit: str) -> Iterator[str]:
    """Sentences below the figures of one side."""
    yield _maxima(side, unit)
    if side.reason:
        yield f"{side.verdict.value}: {side.reason}"
    if side.needed and not side.above:
        shown = (
            f"{_amount(needed, side)} would show a share below {share_text(needed.share)}"
            for needed in side.needed
        )
        yield f"with none above, {'; '.join(shown)}"
    elif side.needed:
        yield _would_show(side.needed[0], side)
    if side.effect is None:
        yield (
            "one full segment does not show how samples cluster; the bounds take them as independent;"
            " to see it, soak longer, or choose a shorter --segment"
        )
    elif side.effect >= _CLUSTERED:
        fewer = round(side.samples / side.effect)
        yield f"samples cluster: they count as at most {fewer:,} independent ones"
    if side.near:
        were = "sample is" if side.near == 1 else "samples are"
        yield (
            f"{side.near:,} {were} within one step of the counter of the limit: the bounds take them as"
            " within it, and as above it"
        )
    if side.missed:
        yield (
            f"{plural(side.missed, 'period')} without a sample: the thread was late and missed them,"
            " so the share of late periods can be larger; klat soak has a sample of each"
        )
    if side.unusable:
        runs = plural(side.unusable, "run")
        yield f"left out: {runs} with samples above the limit, because the evidence refutes them"
    if side.copies:
        yield f"left out: {plural(side.copies, 'boot')} with the same samples as another boot"


def one_boot(sides: Sequence[SideLimit]) -> str:
    """A sentence on verdicts that hold for one boot only; empty if all are of several boots that are not short."""
    alone = [side for side in sides if side.boot_clusters == 1]
    if not alone:
        return ""
    which = "one boot"
    if any(side.boots > 1 for side in alone):
        which = "one boot with most of the samples"
    if len(alone) < len(sides):
        which = f"some metrics have {which}"
    return f"{which}: the verdict is about this boot, and another boot of the kernel may differ"


def of_one_boot(against: Against) -> Iterator[str]:
    """The sentences of one_boot() on both sides."""
    judged = [cell.limit for cell in against.cells if cell.limit]
    for name, sides in (("BASE", [j.base for j in judged]), ("NEW", [j.new for j in judged])):
        if sentence := one_boot([side for side in sides if side]):
            yield f"{name}: {sentence}"


def difference_sentence(judged: CellLimit) -> str:
    """NEW against BASE."""
    if judged.difference is Verdict.CANNOT_TELL:
        return f"NEW against BASE: {judged.difference.value}: {judged.reason}"
    p = wording.p_value(judged.p_adjusted)
    shown = f"p {p}" if p.startswith("<") else f"p = {p}"
    return f"NEW has {judged.difference.value} samples above the limit than BASE ({shown})"


def _maxima(side: SideLimit, unit: str) -> str:
    values = sorted(side.maxima, reverse=True)
    if len(values) == 1:
        return f"max {wording.figure(values[0])} {unit}"
    if len(values) <= _MOST_MAXIMA:
        return f"max of each boot: {' '.join(map(wording.figure, side.maxima))} {unit}"
    texts = [wording.figure(value) for value in (values[-1], values[0], median(values))]
    return f"max of each boot: {texts[0]} to {texts[1]}, median {texts[2]} {unit}, in {len(values)} boots"


def _would_show(needed: Needed, side: SideLimit) -> str:
    below = side.share < needed.share
    what = f"a share {'below' if below else 'above'} {share_text(needed.share)}"
    condition = "" if needed.samples is None else ", if the estimates are correct"
    return f"{_amount(needed, side)} would show {what}{condition}"


def _amount(needed: Needed, side: SideLimit) -> str:
    if needed.samples is None or needed.units is None:
        return "no number of samples like these"
    amount = f"{plural(needed.samples, 'sample')}"
    inside = [plural(needed.units, side.noun)]
    if needed.seconds is not None:
        inside.append(duration(needed.seconds))
    return f"{amount} ({', '.join(inside)})"


def label_table(label: Dataset, limits: LabelLimits) -> Table:
    """The figures of every metric of a label."""
    limit, unit = limits.limit, label.figure_unit
    rows: list[Line | Table] = [Line(f"limit {limit_text(limit, unit)}")]
    judged: list[SideLimit] = []
    for setting in label.settings:
        metrics = [(printable(m.metric), side) for m, side in limits.of_setting(setting)]
        if not metrics:
            continue
        judged += [side for _, side in metrics]
        rows += [Line(title(setting), 1), limit_table(metrics, "metric")]
        for metric, side in metrics:
            rows += [Line(f"{metric}: {text}", 2) for text in side_sentences(side, printable(unit))]
    if sentence := one_boot(judged):
        rows.append(Line(sentence, 1))
    return Table("", (), tuple(rows), "", 0)


def label_verdicts(limits: LabelLimits) -> str:
    """`2 within, 1 exceeded, 1 without a run that counts (timer.lateness)`."""
    words = [wording.counted(limits.verdicts)]
    if names := limits.without_figure:
        shown = dict.fromkeys(names)
        words.append(f"{len(names):,} without a run that counts ({', '.join(shown)})")
    return ", ".join(filter(None, words))


def cell_sentences(cell: Cell) -> Iterator[str]:
    """Sentences below the figures of both sides of a metric."""
    if cell.limit:
        yield difference_sentence(cell.limit)
        for name, side in _sides(cell.limit):
            yield from (f"{name}: {sentence}" for sentence in side_sentences(side, cell.unit))
