"""A limit on the share of samples, as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from klat.compare.comparison import CellLimit
from klat.compare.dataset import Dataset
from klat.compare.label_limits import LabelLimits
from klat.compare.limits import Limit, Needed, SideLimit
from klat.compare.verdicts import Rules, Verdict
from klat.report.text import wording
from klat.report.text.columns import aligned, column_widths, wrapped
from klat.report.text.numbers import MISSING, confidence, duration, percent, plural
from klat.report.text.parameters import title
from klat.record.session import printable

# The maxima of more boots are summed up.
_MOST_MAXIMA = 6
# A smaller design effect is not worth a sentence.
_CLUSTERED = 1.5


def limit_text(limit: Limit, unit: str) -> str:
    """`100us`, or `20,000 instructions`."""
    return limit.text if limit.is_time else f"{limit.value:,.12g} {unit}"


def share_text(share: float) -> str:
    return f"{share:.3g}"


def bounds_text(found: SideLimit) -> str:
    return f"{share_text(found.low)} to {share_text(found.high)}"


def above_text(found: SideLimit | None) -> str:
    return f"{found.above:,} of {found.samples:,}" if found else MISSING


def limit_terms(limit: Limit, unit: str, rules: Rules, family: int) -> str:
    """What the figures mean."""
    asked = f"at most {share_text(limit.share)} of them" if limit.share else "none of them"
    correction = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[rules.correction]
    tests = f", by {correction} over {plural(family, 'test')}" if family else ""
    return (
        f"above: samples above {limit_text(limit, unit)}; within: {asked}. Each bound of the share is"
        f" one-sided at {confidence(rules.alpha)}, and counts clustered samples as fewer."
        f" Verdicts: alpha {percent(rules.alpha)}{tests}."
    )


def limit_table(sides: Sequence[tuple[str, SideLimit]], indent: str) -> Iterator[str]:
    """The figures of each side, with its name in front."""
    table = [["", "samples", "above", "share", "bounds", "verdict"]]
    for name, found in sides:
        figures = [f"{found.samples:,}", f"{found.above:,}", share_text(found.share)]
        table.append([name, *figures, bounds_text(found), found.verdict.value])
    widths = column_widths(table)
    yield from ((indent + aligned(row, widths, left=1)).rstrip() for row in table)


def side_sentences(found: SideLimit, unit: str) -> Iterator[str]:
    """Sentences below the figures of one side."""
    yield _maxima(found, unit)
    if found.reason:
        yield f"{found.verdict.value}: {found.reason}"
    if found.needed and not found.above:
        shown = (
            f"{_amount(one, found)} would show a share below {share_text(one.share)}"
            for one in found.needed
        )
        yield f"with none above, {'; '.join(shown)}"
    elif found.needed:
        yield _would_show(found.needed[0], found)
    if found.effect is None:
        yield (
            "one segment does not show how samples cluster; the bounds take them as independent;"
            " to see it, soak longer, or choose a shorter --segment"
        )
    elif found.effect >= _CLUSTERED:
        fewer = round(found.samples / found.effect)
        yield f"samples cluster: they count as at most {fewer:,} independent ones"
    if found.near:
        were = "sample is" if found.near == 1 else "samples are"
        yield (
            f"{found.near:,} {were} within one step of the counter of the limit: the bounds take them as"
            " within it, and as above it"
        )
    if found.missed:
        yield (
            f"{plural(found.missed, 'period')} without a sample: the thread was late and missed them,"
            " so the share of late periods can be larger; klat soak has a sample of each"
        )
    if found.unusable:
        runs = plural(found.unusable, "run")
        yield f"left out: {runs} with samples above the limit, because the evidence refutes them"
    if found.copies:
        yield f"left out: {plural(found.copies, 'boot')} with the same samples as another boot"


def one_boot(sides: Sequence[SideLimit]) -> str:
    """A sentence on verdicts that hold for one boot only; empty if all are of several boots."""
    if all(found.boots > 1 for found in sides):
        return ""
    which = "one boot" if all(found.boots == 1 for found in sides) else "some metrics have one boot"
    return f"{which}: the verdict is about this boot, and another boot of the kernel may differ"


def difference_sentence(found: CellLimit) -> str:
    """NEW against BASE."""
    if found.difference is Verdict.CANNOT_TELL:
        return f"NEW against BASE: {found.difference.value}: {found.reason}"
    p = wording.p_value(found.p_adjusted)
    shown = f"p {p}" if p.startswith("<") else f"p = {p}"
    return f"NEW has {found.difference.value} samples above the limit than BASE ({shown})"


def _maxima(found: SideLimit, unit: str) -> str:
    values = sorted(found.maxima, reverse=True)
    if len(values) == 1:
        return f"max {wording.figure(values[0])} {unit}"
    if len(values) <= _MOST_MAXIMA:
        return f"max of each boot: {' '.join(map(wording.figure, found.maxima))} {unit}"
    texts = [wording.figure(value) for value in (values[-1], values[0], median(values))]
    return f"max of each boot: {texts[0]} to {texts[1]}, median {texts[2]} {unit}, in {len(values)} boots"


def _would_show(needed: Needed, found: SideLimit) -> str:
    below = found.share < needed.share
    what = f"a share {'below' if below else 'above'} {share_text(needed.share)}"
    condition = "" if needed.samples is None else ", if the estimates are correct"
    return f"{_amount(needed, found)} would show {what}{condition}"


def _amount(needed: Needed, found: SideLimit) -> str:
    if needed.samples is None or needed.units is None:
        return "no number of samples like these"
    amount = f"{plural(needed.samples, 'sample')}"
    inside = [plural(needed.units, found.noun)]
    if needed.seconds is not None:
        inside.append(duration(needed.seconds))
    return f"{amount} ({', '.join(inside)})"


def label_lines(label: Dataset, limits: LabelLimits) -> Iterator[str]:
    """The figures of every metric of a label."""
    limit, unit = limits.limit, label.figure_unit
    yield f"limit {limit_text(limit, unit)}"
    for setting in label.settings:
        rows = [(printable(m.metric), found) for m, found in limits.of_setting(setting)]
        if not rows:
            continue
        yield from wrapped(title(setting), "  ", "    ")
        yield from limit_table(rows, "    ")
        for metric, found in rows:
            for sentence in side_sentences(found, printable(unit)):
                yield from wrapped(f"{metric}: {sentence}", "    ", "      ")
    judged = [found for s in label.settings for _, found in limits.of_setting(s)]
    if sentence := one_boot(judged):
        yield from wrapped(sentence, "  ", "    ")
    yield ""
    yield from wrapped(limit_terms(limit, unit, limits.rules, limits.family))


def limit_conclusion(limits: LabelLimits) -> str:
    """`2 within, 1 exceeded (status 1)`."""
    found = limits.verdicts
    counts = ", ".join(f"{found[v]:,} {v.value}" for v in Verdict if found[v])
    return f"{counts} (status {limits.status})"


def cell_lines(found: CellLimit, unit: str) -> Iterator[str]:
    """The figures of both sides of a metric."""
    sides = [(name, one) for name, one in (("BASE", found.base), ("NEW", found.new)) if one]
    if sides:
        yield from limit_table(sides, "    ")
    yield from wrapped(difference_sentence(found), "    ", "      ")
    for name, one in sides:
        for sentence in side_sentences(one, unit):
            yield from wrapped(f"{name}: {sentence}", "    ", "      ")
