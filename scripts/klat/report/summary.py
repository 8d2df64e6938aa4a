"""The summary of labels as a Document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from operator import attrgetter

from klat.base.grouping import grouped
from klat.compare.dataset import Dataset
from klat.compare.environment_conditions import scheduling
from klat.compare.limits import LabelLimits
from klat.compare.matrices import Matrix, matrices
from klat.compare.runs import Runs
from klat.compare.settings import Setting, common_params
from klat.compare.verdicts import INCONCLUSIVE, NO_REGRESSION, REGRESSION
from klat.record.evidence import other_work
from klat.record.rows import status_counts
from klat.record.session import NOT_MEASURABLE, SessionError, printable
from klat.report import limits as limit_report
from klat.report.document import Block, Column, Document, Facts, Figures, Line, Listing, Row
from klat.report.document import Section, Table, Word
from klat.report.soak import TAIL, is_soak, soak_rows, tail_table, together_lines
from klat.report.sweeps import matrix_figure, matrix_tables, merged, sweep_tables
from klat.report.text.columns import params_text
from klat.report.text.numbers import MISSING, nanoseconds, plural, whole, with_time
from klat.report.text.parameters import HIDDEN, parameters
from klat.stats.positions import Order, Standout, standouts

_FOOTNOTE = (
    "average, stdev: of the means of the runs. median, p99, max: over all samples of the runs that"
    f" count (ok and disturbed). {HIDDEN}"
)
_FEW_PAIRS = 8
_SEGMENTS = " A segment of a soak is a run."
_COLUMNS = (Column("", left=True), *map(Column, ("average", "stdev", "median", "p99", "max")))
_TONES = {NO_REGRESSION: "faster", REGRESSION: "slower", INCONCLUSIVE: "open"}
Failed = Callable[[str], None]


def document(
    labels: Sequence[Dataset],
    failed: Failed,
    limits: LabelLimits | None = None,
    tail: bool = False,
    problems: Sequence[str] = (),
    figures: bool = False,
) -> Document:
    """`failed` gets a sentence on each figure that cannot be computed. The tail of a soak is always
    shown. `figures`: with maps of CPUs."""
    sections = []
    tails = []
    for label in labels:
        blocks = list(_label(label, failed, figures))
        if (tail or is_soak(label)) and (tail_rows := tail_table(label, failed)):
            tails.append(tail_rows)
            blocks.append(tail_rows)
        if limits:
            blocks.append(limit_report.label_table(label, limits))
        sections.append(Section(f"label {label.name}", tuple(blocks)))
    terms = [_FOOTNOTE + (_SEGMENTS if any(map(is_soak, labels)) else "")]
    terms += [TAIL] if tails else []
    outcome = Word("")
    if limits:
        unit = labels[0].figure_unit
        terms.append(limit_report.limit_terms(limits.limit, unit, limits.rules, limits.family))
        outcome = Word(limit_report.label_verdicts(limits), _TONES[limits.status])
    title = f"Summary of {', '.join(dict.fromkeys(label.name for label in labels))}"
    status = limits.status if limits else 0
    return Document(title, outcome, status, tuple(sections), tuple(terms), tuple(problems))


def _label(label: Dataset, failed: Failed, figures: bool) -> Iterator[Block]:
    yield Facts((), (), tuple(_about(label)), f"label {label.name}")
    mapped = list(matrices(label))
    yield Table("", _COLUMNS, tuple(_rows(label, failed, mapped)), "")
    yield Listing(tuple(together_lines(label, failed)))
    yield from sweep_tables(label)
    for matrix in mapped:
        yield from matrix_tables(label, matrix)
        if figures:
            yield Figures((matrix_figure(label, matrix),))


def _about(label: Dataset) -> Iterator[tuple[str, str]]:
    info = label.info
    preemption = info.get("preemption") or "unknown"
    if preemption == "unknown":
        preemption += " (mount debugfs and record as root)"
    kernel = f"Linux {label.kernel} {info.get('architecture') or ''}".rstrip()
    yield "kernel", f"{kernel}, preemption: {preemption}"
    if text := scheduling(label.sources[0].values):
        yield "scheduler", text
    machine = " ".join(str(info.get("cpu_model") or "unknown CPU").split())
    cpus = info.get("cpus_online")
    online = f", {plural(cpus, 'CPU')} online" if isinstance(cpus, int) else ""
    yield "machine", f"{machine}{online}; mode: {label.mode}"
    if label.khz:
        granularity = with_time(label, label.quantum)
        yield "counter", f"{label.khz:,.0f} kHz, granularity {granularity}"
    elif label.mode == "emulated":
        yield "counter", "ticks mean nothing in an emulator; event counts are still true"
    elif label.mode == "counted":
        yield ("counter", "counts the instructions of a guest with one CPU, and measures no time")
    sessions = plural(len(label.sessions), "session")
    recorded, planned = label.planned
    unfinished = (
        "" if recorded == planned else f"; {recorded:,} of {planned:,} planned runs recorded"
    )
    yield "measured", f"{sessions} in {plural(label.boots, 'boot')}{unfinished}"
    if label.under:
        yield "under", ", ".join(label.under)
    if label.apart:
        yield "apart", f"{label.apart_text}; other sessions of the label differ in this"
    if disturbance := other_work(label.sessions):
        yield "warning", disturbance


def _rows(label: Dataset, failed: Failed, mapped: Sequence[Matrix]) -> Iterator[Row | Line | Table]:
    """Many pairs of CPUs of a map share their lines: there can be thousands."""
    together: dict[Setting, tuple[Setting, ...]] = {}
    for matrix in mapped:
        # A pair that lacks a metric is not in that metric's matrix.
        if len(matrix.pairs) > _FEW_PAIRS:
            together |= {s: matrix.settings for s in matrix.settings if s not in together}
    for benchmark, group in groupby(label.settings, key=lambda setting: setting.benchmark):
        if benchmark != label.settings[0].benchmark:
            yield Line("")
        settings = list(group)
        common = common_params(settings)
        shown = params_text(parameters(benchmark, common))
        yield Line(f"{printable(benchmark)}  {shown}".rstrip())
        for pairs in dict.fromkeys(together[s] for s in settings if s in together):
            whole_of = merged([s for s in pairs if together[s] == pairs])
            params = {k: v for k, v in whole_of.params.items() if k not in common}
            yield from _setting(label, whole_of, params)
        for setting in settings:
            if setting in together:
                continue
            params = {k: v for k, v in setting.params.items() if k not in common}
            yield from _setting(label, setting, params)
            yield from _figures(label, setting, failed)
            yield from _unmeasurable(setting)
            yield from soak_rows(label, setting, failed)
            for line in standout_lines(setting, failed):
                yield Line(f"warning: {line}", 2)


def _setting(label: Dataset, setting: Setting, params: dict[str, str]) -> Iterator[Line]:
    parts = [params_text(params)] if params else []
    parts.append(printable(setting.placement) or "not placed")
    if setting.floor is not None:
        parts.append(f"floor {with_time(label, setting.floor)}")
    yield Line(", ".join(parts), 1)
    boots = max((m.boots for m in setting.measurements.values()), default=0)
    few = f", in {boots} of {label.boots} boots" if 0 < boots < label.boots else ""
    yield Line(counts(setting) + few, 1)
    for status, reason, count in setting.grouped_reasons():
        yield Line(f"{count:,} {status}: {reason}", 2)
    if len(setting.reasons) > setting.statuses.total() - setting.statuses["ok"]:
        yield Line(
            "a run can have several reasons, so their counts add up to more than the runs", 2
        )
    if not setting.usable_runs:
        yield Line("no run counts, so there are no figures", 2)


def _unmeasurable(setting: Setting) -> Iterator[Line]:
    """The metrics without a number, and what there is instead of one."""
    for metric in setting.unmeasurable():
        yield Line(f"{printable(metric)}  {NOT_MEASURABLE}", 2)
    parts = [
        f"{printable(name)} {low:,}" + (f" to {high:,}" if high != low else "")
        for name, low, high in setting.evidence_ranges()
    ]
    if parts:
        yield Line(f"evidence  {', '.join(parts)}", 2)


def counts(setting: Setting) -> str:
    """`500 runs of 1,000 samples: 498 ok, 2 disturbed`."""
    runs = plural(sum(setting.statuses.values()), setting.noun)
    sizes = {run.row.n or 0 for m in setting.measurements.values() for run in m.sampled}
    if sizes:
        low, high = min(sizes), max(sizes)
        runs += (
            f" of {plural(high, 'sample')}" if low == high else f" of {low:,} to {high:,} samples"
        )
    by_status = status_counts(setting.statuses)
    if "," in by_status.partition(" ")[2]:
        return f"{runs}: {by_status}"
    only = by_status.partition(" ")[2]
    return f"{runs}, {only if setting.statuses.total() == 1 else f'all {only}'}"


def _figures(label: Dataset, setting: Setting, failed: Failed) -> Iterator[Row]:
    for measurement in setting.measurements.values():
        if not measurement.runs:
            continue
        statistics = measurement.readable_statistics(failed)
        name = printable(measurement.metric)
        if statistics is None:
            yield Row(name, (label.unit, *[MISSING] * 5))
            continue
        averages = statistics.average, statistics.stdev
        samples = statistics.median, statistics.p99, statistics.max
        yield Row(name, (label.unit, *map(whole, (*averages, *samples))))
        if label.khz:
            few = statistics.runs != setting.usable_runs
            times = [nanoseconds(label, value, False) for value in averages]
            times += [nanoseconds(label, value, True) for value in samples]
            yield Row(f"({statistics.runs:,} runs)" if few else "", ("ns", *times))


# In a run with more samples, a single sample does not matter.
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
    """A sentence for each place that stands out over all runs, and for each that stands out only over the
    runs of a session."""
    sessions = list(_by_session(measurement, iterations))
    # A counted boot may repeat another one byte for byte. That is not a second observation.
    every = {data: order for orders in sessions for data, order in orders.items()}
    over_all = {_kind(standout): [standout] for standout in standouts(list(every.values()))}
    by_kind: dict[_Kind, list[Standout]] = {}
    for orders in sessions if len(sessions) > 1 else ():
        for standout in standouts(list(orders.values())):
            by_kind.setdefault(_kind(standout), []).append(standout)
    yield from (_sentence(alike) for alike in (by_kind | over_all).values())


_Kind = tuple[int, bool, bool]


def _kind(standout: Standout) -> _Kind:
    return standout.place, standout.typical is None, standout.shorter


def _by_session(measurement: Runs, iterations: str) -> Iterator[dict[bytes, Order]]:
    """For each session, the runs that count and in which one sample matters, by the digests of their
    samples. A soak has no order."""
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
    place = {0: "the first sample", -1: "the last sample"}.get(worst.place)
    if place is None:
        where = f"sample {worst.place + 1:,}"
        place = where if worst.place > 0 else f"sample {-worst.place:,} from the end"
    runs = plural(worst.of, "run")
    if worst.typical is None:
        sentence = (
            f"{place} is the longest in {worst.runs:,} of {runs} ({worst.expected:.2g} by chance)"
        )
    else:
        extreme = "shortest" if worst.shorter else "longest"
        share = f"{100 * worst.typical:.2g} %"
        sentence = f"{place} is among the {extreme} {share} of its run in half of {runs}"
    return (
        f"{sentence}, the same in {plural(len(alike), 'session')}" if len(alike) > 1 else sentence
    )
