"""The summary as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, groupby

from klat.compare.dataset import Dataset
from klat.compare.environment_conditions import scheduling
from klat.compare.limits import LabelLimits
from klat.compare.sweep_shapes import BENCHMARK, Shootdown, shootdowns
from klat.compare.settings import Measurement, Setting, Statistics, common_params
from klat.compare.sources import Run
from klat.record.evidence import other_work
from klat.record.session import NOT_MEASURABLE, STATUSES, SessionError, printable
from klat.report.text.columns import Table, aligned, column_widths, params_text, wrapped
from klat.report.limits import label_lines, limit_conclusion
from klat.report.text.numbers import MISSING, nanoseconds, plural, whole, with_time
from klat.report.text.parameters import HIDDEN, parameters
from klat.report.text.soak_text import is_soak, soak_lines, tail_lines, together_lines
from klat.report.text.sweep_table import sweep_tables
from klat.stats.descriptive import LinearFit
from klat.stats.positions import Order, Standout, standouts


_FOOTNOTE = (
    "average, stdev: of the means of the runs. median, p99, max: over all samples of the runs that"
    f" count (ok and disturbed). {HIDDEN}"
)
# Of a run with more samples, no single one matters.
_LONGEST = 1 << 21
_SEGMENTS = " A segment of a soak is a run."
_HEADER = ["", "", "average", "stdev", "median", "p99", "max"]


def summary(
    labels: Sequence[Dataset],
    failed: Callable[[str], None],
    limits: LabelLimits | None = None,
    tail: bool = False,
) -> Iterator[str]:
    """The lines of the summary. `failed` gets a sentence on each figure that cannot be computed.
    The tail of a soak is always shown."""
    for position, label in enumerate(labels):
        if position:
            yield ""
        yield from _label(label, failed)
        if tail or is_soak(label):
            yield ""
            yield from tail_lines(label, failed)
        if limits:
            yield ""
            yield from label_lines(label, limits)
    if limits:
        yield limit_conclusion(limits)


def heading(label: Dataset) -> Iterator[str]:
    info = label.info
    yield f"label {label.name}"
    preemption = info.get("preemption") or "unknown"
    if preemption == "unknown":
        preemption += " (mount debugfs and record as root)"
    kernel = f"Linux {label.kernel} {info.get('architecture') or ''}".rstrip()
    yield from _item("kernel", f"{kernel}, preemption: {preemption}")
    if text := scheduling(label.sources[0].values):
        yield from _item("scheduler", text)
    machine = " ".join(str(info.get("cpu_model") or "unknown CPU").split())
    cpus = info.get("cpus_online")
    online = f", {plural(cpus, 'CPU')} online" if isinstance(cpus, int) else ""
    yield from _item("machine", f"{machine}{online}; mode: {label.mode}")
    if label.khz:
        counter = f"{label.khz:,.0f} kHz, granularity {with_time(label, label.quantum)}"
        yield from _item("counter", counter)
    elif label.mode == "emulated":
        yield from _item(
            "counter", "ticks mean nothing in an emulator; event counts are still true"
        )
    elif label.mode == "counted":
        yield from _item(
            "counter", "counts the instructions of a guest with one CPU, and measures no time"
        )
    sessions = plural(len(label.sessions), "session")
    recorded, planned = label.planned
    unfinished = (
        "" if recorded == planned else f"; {recorded:,} of {planned:,} planned runs recorded"
    )
    yield from _item("measured", f"{sessions} in {plural(label.boots, 'boot')}{unfinished}")
    if label.under:
        yield from _item("under", ", ".join(label.under))
    if label.apart:
        yield from _item("apart", f"{label.apart_text}; the label's other sessions differ in this")
    if disturbance := other_work(label.sessions):
        yield from _item("warning", disturbance)


def _item(name: str, text: str) -> Iterator[str]:
    indent = " " * 12
    yield from wrapped(printable(text), f"  {name:<10}", indent)


def _label(label: Dataset, failed: Callable[[str], None]) -> Iterator[str]:
    yield from heading(label)
    yield ""
    figures = [_figures(label, setting, failed) for setting in label.settings]
    widths = column_widths([_HEADER, *chain.from_iterable(figures)])
    yield aligned(_HEADER, widths)
    blocks = zip(label.settings, figures)
    for benchmark, group in groupby(blocks, key=lambda block: block[0].benchmark):
        settings = list(group)
        common = common_params(setting for setting, _ in settings)
        name = printable(benchmark)
        shown = params_text(parameters(benchmark, common))
        yield from wrapped(f"{name}  {shown}".rstrip(), "", " " * (len(name) + 2))
        for setting, rows in settings:
            params = {k: v for k, v in setting.params.items() if k not in common}
            yield from _setting(label, setting, params)
            yield from (aligned(row, widths) for row in rows)
            yield from _unmeasurable(setting)
            yield from soak_lines(label, setting, failed)
            for line in standout_lines(setting, failed):
                yield from wrapped(f"warning: {line}", "    ", "      ")
        yield ""
    together = list(together_lines(label, failed))
    yield from (*together, "") if together else ()
    soaked = any(setting.is_soak for setting in label.settings)
    yield from wrapped(_FOOTNOTE + (_SEGMENTS if soaked else ""), "", "")
    for sweep in shootdowns(label.settings):
        yield ""
        yield from shootdown(label, sweep)
    yield from sweep_tables(label)


def _setting(label: Dataset, setting: Setting, params: dict[str, str]) -> Iterator[str]:
    parts = [params_text(params)] if params else []
    parts.append(printable(setting.placement) or "not placed")
    if setting.floor is not None:
        parts.append(f"floor {with_time(label, setting.floor)}")
    yield from wrapped(", ".join(parts), "  ", "    ")
    boots = max((m.boots for m in setting.measurements.values()), default=0)
    few = f", in {boots} of {label.boots} boots" if 0 < boots < label.boots else ""
    yield from wrapped(counts(setting) + few, "  ", "    ")
    for status, reason, count in setting.grouped_reasons():
        yield from wrapped(f"{count:,} {status}: {printable(reason)}", "    ", "      ")
    if len(setting.reasons) > setting.statuses.total() - setting.statuses["ok"]:
        yield "    a run can have several reasons, so their counts add up to more than the runs"
    if not setting.usable_runs:
        yield "    no run counts, so there are no figures"


def _unmeasurable(setting: Setting) -> Iterator[str]:
    """The metrics without a number, and what there is instead of one."""
    for metric in setting.unmeasurable():
        yield from wrapped(f"{printable(metric)}  {NOT_MEASURABLE}", "    ", "      ")
    parts = [
        f"{printable(name)} {low:,}" + (f" to {high:,}" if high != low else "")
        for name, low, high in setting.evidence_ranges()
    ]
    if parts:
        yield from wrapped(f"evidence  {', '.join(parts)}", "    ", "      ")


def counts(setting: Setting) -> str:
    """`500 runs of 1,000 samples: 498 ok, 2 disturbed`."""
    runs = plural(sum(setting.statuses.values()), setting.noun)
    sizes = {run.row.n or 0 for m in setting.measurements.values() for run in m.all_runs}
    if sizes:
        low, high = min(sizes), max(sizes)
        runs += (
            f" of {plural(high, 'sample')}" if low == high else f" of {low:,} to {high:,} samples"
        )
    parts = [f"{setting.statuses[s]:,} {s}" for s in STATUSES if setting.statuses[s]]
    if len(parts) > 1:
        return f"{runs}: {', '.join(parts)}"
    only = parts[0].partition(" ")[2]
    return f"{runs}, {only if setting.statuses.total() == 1 else f'all {only}'}"


def _figures(label: Dataset, setting: Setting, failed: Callable[[str], None]) -> Table:
    rows: Table = []
    for measurement in setting.measurements.values():
        if not measurement.runs:
            continue
        statistics = guarded_statistics(measurement, failed)
        name = printable(measurement.metric)
        if statistics is None:
            rows.append([f"    {name}", label.unit, *[MISSING] * 5])
            continue
        few = statistics.runs != setting.usable_runs
        rows.append([f"    {name}", label.unit, *_in_unit(statistics)])
        if label.khz:
            note = f"    ({statistics.runs:,} runs)" if few else ""
            rows.append([note, "ns", *_in_nanoseconds(label, statistics)])
    return rows


def guarded_statistics(
    measurement: Measurement, failed: Callable[[str], None]
) -> Statistics | None:
    try:
        return measurement.statistics
    except SessionError as error:
        failed(str(error))
        return None


def _in_unit(s: Statistics) -> list[str]:
    return [whole(value) for value in (s.average, s.stdev, s.median, s.p99, s.max)]


def _in_nanoseconds(label: Dataset, s: Statistics) -> list[str]:
    averages = [nanoseconds(label, value, False) for value in (s.average, s.stdev)]
    return averages + [nanoseconds(label, value, True) for value in (s.median, s.p99, s.max)]


def shootdown(label: Dataset, sweep: Shootdown) -> Iterator[str]:
    """The table T(0), T(k), T(k) - T(0), and the slope."""
    title = f"shootdown by responders: {sweep.metric}"
    yield from wrapped(
        f"{printable(title)}  {params_text(parameters(BENCHMARK, sweep.params))}".rstrip(), "", "  "
    )
    header = ["  responders", "runs", f"T(k) {label.unit}", "T(k)-T(0)"]
    table: Table = [header + (["T(k) ns", "T(k)-T(0) ns"] if label.khz else [])]
    for point in sweep.points:
        extra = None if sweep.base is None else point.value - sweep.base
        row = [f"{point.x:,.0f}", f"{len(point.runs):,}"]
        row += [whole(point.value), whole(extra)]
        if label.khz:
            row += [nanoseconds(label, value, False) for value in (point.value, extra)]
        table.append(row)
    widths = column_widths(table)
    yield from (aligned(row, widths, left=0) for row in table)
    if sweep.base is None:
        yield "  T(0) was not measured, so shootdown and teardown cannot be separated;"
        yield "  add responders=0 to the sweep"
    for line in slope(label, sweep):
        yield from wrapped(line, "  ", "    ")


def slope(label: Dataset, sweep: Shootdown) -> list[str]:
    """Sentences on the slope, one to a line."""
    fit = sweep.fit
    if fit is None:
        return ["no slope: it needs at least two counts of responders"]
    lines = [_slope(fit, whole, label.unit)]
    if label.khz:
        lines.append(_slope(fit, lambda value: nanoseconds(label, value, False), "ns"))
    if fit.interval is None:
        lines.append("no interval: it needs at least two runs of each count of responders")
    lines.append(f"T(k): mean of the medians of the runs; slope: over {plural(fit.n, 'run')}")
    return lines


def _slope(fit: LinearFit, text: Callable[[float], str], unit: str) -> str:
    said = f"slope {text(fit.slope)} {unit} per responder"
    if fit.interval is None:
        return said
    low, high = fit.interval
    return f"{said}, 95 % interval {text(low)} to {text(high)} {unit}"


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
        yield f"{', '.join(names)}: {sentence}; something besides the event happens there"


def _sentences(measurement: Measurement, iterations: str) -> Iterator[str]:
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


def _by_session(measurement: Measurement, iterations: str) -> Iterator[dict[bytes, Order]]:
    """The runs that count, in which one sample matters, by their samples. A soak has no order."""
    sessions: dict[str, list[Run]] = {}
    for run in measurement.runs:
        if run.row.n and run.row.n <= _LONGEST and not run.row.soak:
            sessions.setdefault(str(run.source.session.path), []).append(run)
    for runs in sessions.values():
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
