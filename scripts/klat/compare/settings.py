"""The settings of pooled sessions: the runs of each by metric, with their statistics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from klat.base.grouping import grouped
from klat.base.programs import CORE
from klat.compare.conditions import OBTAINED, RunConditions
from klat.compare.runs import Runs
from klat.compare.sources import Run, Source
from klat.record import profiles
from klat.record.evidence import MIXED, STRAY, WAYS
from klat.record.rows import run_noun
from klat.record.session import Row, STATUSES, USABLE, parse_pairs

# The policy is not among the options in a row's params: the policy obtained may differ from the one
# asked for.
_POLICY = "policy"


@dataclass(eq=False)
class Setting:
    """One benchmark with one set of params, including the policy obtained, at one placement."""

    benchmark: str
    params: dict[str, str]
    placement: str
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: list[tuple[str, str]] = field(default_factory=list)  # status, one reason of a run
    floors: list[int] = field(default_factory=list)
    measurements: dict[str, Runs] = field(default_factory=dict)
    # The evidence of runs that count although the mode gives no number: their only result.
    evidence: list[dict[str, str]] = field(default_factory=list)

    @property
    def is_soak(self) -> bool:
        return "soak" in self.params

    @property
    def noun(self) -> str:
        """The word for a run."""
        return run_noun(self.is_soak)

    @property
    def usable_runs(self) -> int:
        return sum(self.statuses[status] for status in USABLE)

    @property
    def floor(self) -> int | None:
        """The floor that half of the runs do not exceed."""
        floors = sorted(self.floors)
        return floors[(len(floors) - 1) // 2] if floors else None

    def unmeasurable(self) -> list[str]:
        """Metrics that have no number in this mode."""
        return [name for name, m in self.measurements.items() if m.is_unmeasurable]

    def evidence_ranges(self) -> list[tuple[str, int, int]]:
        """Least and largest value of each count."""
        ranges: dict[str, list[int]] = {}
        for counts in self.evidence:
            for name, value in counts.items():
                if _INTEGER.fullmatch(value):
                    ranges.setdefault(name, []).append(int(value))
        return [(name, min(values), max(values)) for name, values in ranges.items()]

    def grouped_reasons(self) -> list[tuple[str, str, int]]:
        """(status, reason, count), the most frequent of each status first. Reasons that differ only
        in numbers are one reason, with the range of each number."""
        groups: dict[tuple[str, tuple[str, ...]], list[list[str]]] = {}
        for status, reason in self.reasons:
            pieces = NUMBER.split(reason)
            groups.setdefault((status, tuple(pieces)), []).append(NUMBER.findall(reason))
        counted = [
            (status, _merged(pieces, numbers), len(numbers))
            for (status, pieces), numbers in groups.items()
        ]
        return sorted(counted, key=lambda g: (STATUSES.index(g[0]), -g[2], g[1]))


def counted(settings: Iterable[Setting]) -> Iterator[tuple[Setting, Runs]]:
    """The measurements with a run that counts."""
    for setting in settings:
        for measurement in setting.measurements.values():
            if measurement.runs:
                yield setting, measurement


# A minus is not part of the number: it would read as a range in "CPU 0-3".
NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


def _merged(pieces: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    text = [pieces[0]]
    for position, piece in enumerate(pieces[1:]):
        values = sorted({row[position] for row in numbers}, key=float)
        text.append(values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}")
        text.append(piece)
    return "".join(text)


def program_order(benchmark: str) -> tuple[int, str]:
    """Sorts the five programs first, in their order, and others by name."""
    return (CORE.index(benchmark) if benchmark in CORE else len(CORE), benchmark)


def by_value(text: str) -> tuple[int, float, str]:
    """Sorts numbers by value, so that responders=10 follows responders=9, and words after them."""
    return (0, float(text), "") if NUMBER.fullmatch(text) else (1, 0.0, text)


def order_of_metric(first: Mapping[str, str], key: tuple[str, str, str, str]) -> tuple[object, ...]:
    """Sorts benchmark, params, placement and metric. `first` has the metric before all others, by benchmark."""
    benchmark, params, placement, metric = key
    values = [by_value(item.partition("=")[2]) for item in params.split(";")]
    return (program_order(benchmark), values, placement, metric != first.get(benchmark), metric)


def common_params(settings: Iterable[Setting]) -> dict[str, str]:
    """What all the settings have in common."""
    first, *others = [setting.params for setting in settings] or [{}]
    return {k: v for k, v in first.items() if all(params.get(k) == v for params in others)}


def grouped_settings(sources: Iterable[Source], runs: Iterable[list[Run]]) -> list[Setting]:
    """The settings of runs that may be pooled, sorted by program and params. The runs of a
    setting have the same params, placement, policy, CPUs and build, and their event came about in
    one way. compare takes such runs together."""
    counted: dict[_What, dict[RunConditions, None]] = {}
    groups: dict[tuple[_What, RunConditions], list[list[Run]]] = {}
    for run in runs:
        if any(metric.row.usable for metric in run):
            counted.setdefault(_what(run[0].row), {})[run[0].conditions] = None
    for run in runs:
        what, conditions = _what(run[0].row), run[0].conditions
        if not any(metric.row.usable for metric in run):
            conditions = _nearest(conditions, list(counted.get(what, ())))
        groups.setdefault((what, conditions), []).append(run)
    first = profiles.first_metrics(source.profile for source in sources)
    settings = {key: _setting(group, key[1], first) for key, group in groups.items()}
    _tell_apart(settings)
    return _placed(sorted(settings.values(), key=_sort_key))


def _nearest(conditions: RunConditions, counted: Sequence[RunConditions]) -> RunConditions:
    """The conditions of counted runs that match a run that does not count. That run may have failed
    before it had all of its conditions."""
    near = [other for other in counted if all(a in ("", b) for a, b in zip(conditions, other))]
    if len({other._replace(**dict.fromkeys(WAYS, "")) for other in near}) == 1:
        return near[0]
    return counted[0] if len(counted) == 1 else conditions


_What = tuple[str, str, str]


def _what(row: Row) -> _What:
    return (row.benchmark, row.params, row.placement)


def _policy(obtained: str) -> str:
    """`fifo:50` if all roles have the same policy, else `rr:98/rr:19`, the highest first."""

    def priority(policy: str) -> int:
        number = policy.partition(":")[2]
        return int(number) if number.isascii() and number.isdigit() else 0

    policies = sorted(set(parse_pairs(obtained).values()))
    return "/".join(sorted(policies, key=priority, reverse=True))


def _tell_apart(settings: Mapping[tuple[_What, RunConditions], Setting]) -> None:
    """Add the conditions that differ between settings with the same params to these. A run of both
    ways is always named: its figures are those of no event."""
    groups = grouped(settings, lambda key: (*key[0], settings[key].params.get(_POLICY, "")))
    for keys in groups.values():
        group = [(key[1], settings[key]) for key in keys]
        for name in OBTAINED:
            values = {getattr(conditions, name) for conditions, _ in group}
            if len(values) > 1 or MIXED in values:
                usual = _usual_state(group, name) if name in WAYS else None
                for conditions, setting in group:
                    value = getattr(conditions, name)
                    if value in (MIXED, *(values - {usual})):
                        setting.params[name] = value.replace(";", "/") or "none"


def _usual_state(group: Sequence[tuple[RunConditions, Setting]], way: str) -> str | None:
    """The state of all runs except a few strays. It is not shown, because another label may have no
    other state."""
    runs = Counter({getattr(conditions, way): 0 for conditions, _ in group})
    for conditions, setting in group:
        runs[getattr(conditions, way)] += setting.usable_runs
    ((state, count),) = runs.most_common(1)
    return state if count >= (1 - STRAY) * runs.total() else None


def have_same_params(a: Setting, b: Setting) -> bool:
    """Whether both have the same benchmark and requested params. Placement and what was obtained may differ."""
    kept = [
        {name: value for name, value in setting.params.items() if name not in OBTAINED}
        for setting in (a, b)
    ]
    return a.benchmark == b.benchmark and kept[0] == kept[1]


def _setting(
    runs: Sequence[list[Run]], conditions: RunConditions, shown_first: Mapping[str, str]
) -> Setting:
    first = runs[0][0].row
    policy = _policy(conditions.policy)
    params = parse_pairs(first.params) | ({_POLICY: policy} if policy else {})
    setting = Setting(first.benchmark, params, first.placement)
    for run in runs:
        # The rows of a run should share a status. If not, the worst counts.
        worst = max((metric.row for metric in run), key=lambda row: STATUSES.index(row.status))
        setting.statuses[worst.status] += 1
        if worst.status != "ok":
            # The reason of a run that measured nothing is one sentence, which may have a semicolon.
            whole = worst.status in ("error", "skipped")
            parts = [worst.reason] if whole else worst.reason.split(";")
            reasons = [part.strip() for part in parts if part.strip()]
            setting.reasons += [(worst.status, r) for r in reasons or ["no reason was recorded"]]
        if worst.floor is not None:
            setting.floors.append(worst.floor)
        if worst.status in USABLE and not all(metric.is_measurable for metric in run):
            setting.evidence.append(parse_pairs(run[0].row.evidence))
    metrics = grouped((m for run in runs for m in run if m.row.metric), attrgetter("row.metric"))
    first_name = shown_first.get(setting.benchmark)
    names = sorted(metrics, key=lambda name: str(name) != first_name)
    setting.measurements = {name: Runs(metrics[name]) for name in names}
    return setting


def _placed(settings: Sequence[Setting]) -> list[Setting]:
    """Count the runs that failed before they were placed with the placed runs of the same params."""
    kept: list[Setting] = []
    for setting in settings:
        same = [o for o in settings if have_same_params(o, setting) and o is not setting]
        is_placed = setting.placement or setting.measurements
        if is_placed or len(same) != 1 or not same[0].measurements:
            kept.append(setting)
            continue
        same[0].statuses += setting.statuses
        same[0].reasons += setting.reasons
    return kept


def _sort_key(setting: Setting) -> tuple[object, ...]:
    params = {name: value for name, value in setting.params.items() if name not in WAYS}
    values = [by_value(value) for value in (*params.values(), setting.placement)]
    return (program_order(setting.benchmark), values, -setting.usable_runs)
