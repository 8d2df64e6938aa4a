"""The comparison of two kernels as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from klat.comparison import Comparison, Key, Pair
from klat.environment import Difference
from klat.measurements import Label, Setting
from klat.report.numbers import MISSING, nanoseconds, plural, whole
from klat.report.text import aligned, column_widths, wrapped
from klat.session import STATUSES, printable

_FIGURES = ("average", "stdev", "median", "p99", "max")


def sides(
    a: Label, b: Label, comparison: Comparison, differences: Sequence[Difference]
) -> Iterator[str]:
    """The lines of the comparison."""
    for name, label in (("A", a), ("B", b)):
        kernel = f"Linux {label.kernel}, preemption: {label.info.get('preemption') or 'unknown'}"
        sessions = f"{plural(len(label.sessions), 'session')} in {plural(label.boots, 'boot')}"
        yield from wrapped(printable(f"{label.name}: {kernel}; {sessions}"), f"{name}  ", "   ")
    yield ""
    if comparison.pairs:
        yield from _pairs(a, b, comparison.pairs)
    else:
        yield "A and B have no benchmark, params and placement in common."
        yield ""
    for name, keys in (("A", comparison.only_a), ("B", comparison.only_b)):
        for key in keys:
            yield from wrapped(_key(key), f"only in {name}: ", "  ")
    if comparison.only_a or comparison.only_b:
        yield ""
    yield from _differences(differences)
    yield from _caution(a, b)


def _key(key: Key) -> str:
    benchmark, params, placement, metric = key
    return printable(
        " ".join(f"{benchmark} {metric} {placement} {params.replace(';', ' ')}".split())
    )


def _pairs(a: Label, b: Label, pairs: Sequence[Pair]) -> Iterator[str]:
    units = [a.unit, "ns"] if a.khz else [a.unit]
    header = ["", *(f"{side} {unit}" for side in "AB" for unit in units), "B/A"]
    tables = [_table(a, b, pair) for pair in pairs]
    widths = column_widths([header, *(row for table in tables for row in table)])
    yield aligned(header, widths, left=1)
    blocks = zip(pairs, tables)
    for (benchmark, params, placement), group in groupby(blocks, key=lambda x: x[0].key[:3]):
        title = " ".join(f"{params.replace(';', ' ')}  {placement}".split(" "))
        name = printable(benchmark)
        yield from wrapped(f"{name}  {printable(title)}", "", " " * (len(name) + 2))
        for side, label in (("A", a), ("B", b)):
            yield from wrapped(_runs(label, (benchmark, params, placement)), f"  {side}: ", "     ")
        for pair, table in group:
            yield f"  {printable(pair.key[3])}"
            yield from (aligned(row, widths, left=1) for row in table)
        yield ""


def _runs(label: Label, key: tuple[str, str, str]) -> str:
    found = [setting for setting in label.settings if setting_key(setting) == key]
    statuses = sum((setting.statuses for setting in found), start=type(found[0].statuses)())
    told = [f"{statuses[status]:,} {status}" for status in STATUSES if statuses[status]]
    return f"{plural(statuses.total(), 'run')}: {', '.join(told)}"


def setting_key(setting: Setting) -> tuple[str, str, str]:
    params = ";".join(f"{name}={value}" for name, value in setting.params.items())
    return (setting.benchmark, params, setting.placement)


def _table(a: Label, b: Label, pair: Pair) -> list[list[str]]:
    ratios = {"average": pair.ratio_of_averages, "median": pair.ratio_of_medians}
    rows = []
    for name in _FIGURES:
        row = [f"    {name}"]
        for label, figures in ((a, pair.a), (b, pair.b)):
            value = getattr(figures, name)
            row.append(whole(value))
            if a.khz:
                row.append(nanoseconds(label, value, name in ("median", "p99", "max")))
        ratio = ratios.get(name)
        row.append(f"{ratio:.3f}" if ratio is not None else MISSING if name in ratios else "")
        rows.append(row)
    return rows


def _differences(differences: Sequence[Difference]) -> Iterator[str]:
    if not differences:
        return
    yield "besides the kernel's release, A and B differ in"
    for difference in differences:
        text = f"{difference.name}: {difference.a} | {difference.b}"
        yield from wrapped(text, "  ", "    ")
    yield ""


def _caution(a: Label, b: Label) -> Iterator[str]:
    yield from wrapped(
        "B/A above 1 means that B takes longer. These are ratios and no verdict: nothing here"
        " tests whether a difference is more than chance.",
        "",
        "",
    )
    single = [name for name, label in (("A", a), ("B", b)) if label.boots == 1]
    if single:
        who = "A and B have one boot each" if len(single) == 2 else f"{single[0]} has one boot"
        yield from wrapped(
            f"{who}, so the effect of the kernel cannot be told from that of the boot.", "", ""
        )
