"""Sentences on the places of a run whose samples stand out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from operator import attrgetter

from klat.base.grouping import grouped
from klat.compare.runs import Runs
from klat.compare.settings import Setting
from klat.record.session import SessionError, printable
from klat.report.text.numbers import plural
from klat.stats.positions import Order, Standout, standouts

# Of a run with more samples, no single one matters.
_LONGEST = 1 << 21


def standout_lines(setting: Setting, failed: Callable[[str], None]) -> Iterator[str]:
    """A sentence for each place that stands out over the runs of the setting, or of one of its
    sessions. Runs with --inject are left out, because it makes samples longer in an order of its
    own. `failed` gets the reason if samples cannot be read."""
    if "inject" in setting.params:
        return
    iterations = setting.params.get("iterations", "")
    metrics: dict[str, list[str]] = {}
    for measurement in setting.measurements.values():
        try:
            for sentence in _sentences(measurement, iterations):
                metrics.setdefault(sentence, []).append(printable(measurement.metric))
        except SessionError as error:
            failed(str(error))
    for sentence, names in metrics.items():
        yield f"{', '.join(names)}: {sentence}; something other than the measured event happens there"


def _sentences(measurement: Runs, iterations: str) -> Iterator[str]:
    """The places of all runs together, and of single sessions if all runs together do not show the
    place."""
    sessions = list(_by_session(measurement, iterations))
    # A counted boot may repeat another one byte for byte. That is not a second observation.
    every = {data: order for orders in sessions for data, order in orders.items()}
    together = {_kind(standout): [standout] for standout in standouts(list(every.values()))}
    by_kind: dict[_Kind, list[Standout]] = {}
    for orders in sessions if len(sessions) > 1 else ():
        for standout in standouts(list(orders.values())):
            by_kind.setdefault(_kind(standout), []).append(standout)
    yield from (_sentence(alike) for alike in (by_kind | together).values())


_Kind = tuple[int, bool, bool]


def _kind(standout: Standout) -> _Kind:
    return standout.place, standout.typical is None, standout.shorter


def _by_session(measurement: Runs, iterations: str) -> Iterator[dict[bytes, Order]]:
    """The runs that count, in which one sample matters, by their samples. A soak has no order."""
    ordered = (r for r in measurement.runs if r.row.n and r.row.n <= _LONGEST and not r.row.soak)
    for runs in grouped(ordered, attrgetter("source.session.path")).values():
        orders: dict[bytes, Order] = {}
        for _, samples in runs[0].source.files.blocks(run.row for run in runs):
            if isinstance(samples, SessionError):
                raise samples
            digests = (sha256(line.tobytes()).digest() for line in samples)
            orders |= zip(digests, Order.of_each(samples, _series(samples.shape[1], iterations)))
        yield orders


def _series(n: int, iterations: str) -> int:
    length = int(iterations) if iterations.isdecimal() else 0
    return n // length if length and n % length == 0 else 1


def _sentence(alike: list[Standout]) -> str:
    """A sentence on one place, in one session or several."""
    worst = max(alike, key=lambda standout: standout.of)
    which = {0: "the first sample", -1: "the last sample"}.get(worst.place)
    if which is None:
        where = f"sample {worst.place + 1:,}"
        which = where if worst.place > 0 else f"sample {-worst.place:,} from the end"
    runs = plural(worst.of, "run")
    if worst.typical is None:
        said = (
            f"{which} is the longest in {worst.runs:,} of {runs} ({worst.expected:.2g} by chance)"
        )
    else:
        extreme = "shortest" if worst.shorter else "longest"
        share = f"{100 * worst.typical:.2g} %"
        said = f"{which} is among the {extreme} {share} of its run in half of {runs}"
    return f"{said}, the same in {plural(len(alike), 'session')}" if len(alike) > 1 else said
