"""Metrics that klat renamed, and options that it added to a program. Readers give old rows the present name of
their event, and the value of an added option at which they ran, so that they are compared with later rows of the
same event.

Needs the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klat.base.errors import KlatError, printable

if TYPE_CHECKING:
    from klat.record.rows import Row


@dataclass(frozen=True)
class RenamedMetric:
    """An old name of one benchmark's metric. `applies` says whether a row has the event of `new`. `where` describes such rows in a message."""

    benchmark: str
    old: str
    new: str
    where: str
    applies: Callable[[Row], bool]


def _sends_on_one_cpu(row: Row) -> bool:
    # With --remote, network has one CPU and no client on it.
    return row.placement == "one-cpu" and "remote=yes" not in row.params.split(";")


# Of the lines for one old name, the first that applies to a row names its metric.
RENAMED = (
    RenamedMetric("network", "wakeup", "timer_to_read", " on one CPU", _sends_on_one_cpu),
    RenamedMetric("network", "wakeup", "interrupt_to_read", "", lambda row: True),
)
_OLD = {(renamed.benchmark, renamed.old) for renamed in RENAMED}
# By benchmark: the option before the added one, and the added one with the value that earlier versions had.
ADDED = {
    "syscall": ("bytes", "descriptors=10"),
    "pipes": ("gap", "pairs=1"),
    "cv": ("low-priority", "pairs=1"),
    "switch": ("by", "pairs=1"),
    "signal": ("peer", "pairs=1"),
    "messages": ("alloc", "pairs=1"),
}


def _lacks_option(row: Row) -> bool:
    before, added = ADDED.get(row.benchmark, ("", ""))
    params = f";{row.params}"
    return f";{before}=" in params and f";{added.partition('=')[0]}=" not in params


def is_old(row: Row) -> bool:
    return (row.benchmark, row.metric) in _OLD or _lacks_option(row)


def renamed(row: Row) -> Row:
    """The row with the present name of its metric, and with the options that its program lacked."""
    if _lacks_option(row):
        before, added = ADDED[row.benchmark]
        pairs = row.params.split(";")
        at = [pair.partition("=")[0] for pair in pairs].index(before) + 1
        row = row._replace(params=";".join([*pairs[:at], added, *pairs[at:]]))
    for rename in RENAMED:
        if (rename.benchmark, rename.old) == (row.benchmark, row.metric) and rename.applies(row):
            return row._replace(metric=rename.new)
    return row


def present_names(benchmark: str, metric: str) -> list[str]:
    """The names that rows of this recorded metric may have today."""
    names = [r.new for r in RENAMED if (r.benchmark, r.old) == (benchmark, metric)]
    return names or [metric]


def advice(metric: str, benchmark: str | None = None) -> str:
    """For a message about an unknown metric: its present names. Empty if it is not an old name."""
    names = [
        f"{renamed.new!r}{renamed.where}"
        for renamed in reversed(RENAMED)
        if renamed.old == metric and benchmark in (None, renamed.benchmark)
    ]
    return f", which is now named {', or '.join(names)}" if names else ""


def is_asked(asked: Sequence[str], benchmark: str, metric: str) -> bool:
    """`asked` has metrics of every benchmark, or of one: round_trip, pipes.round_trip. Empty means all."""
    return not asked or metric in asked or f"{benchmark}.{metric}" in asked


def require(asked: Iterable[str], recorded: Iterable[tuple[str, str]]) -> None:
    """KlatError if an asked metric is not among the recorded pairs of a benchmark and a metric."""
    pairs = dict.fromkeys(recorded)
    for name in asked:
        if not any(is_asked([name], *pair) for pair in pairs):
            metrics = dict.fromkeys(metric for _, metric in pairs)
            there = ", ".join(map(printable, metrics)) or "none"
            raise KlatError(f"there is no metric {name!r}{advice(name)}; there are {there}")
