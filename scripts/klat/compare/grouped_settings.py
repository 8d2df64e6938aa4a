"""Groups the runs of pooled sessions into settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from klat.compare.conditions import OBTAINED, RunConditions
from klat.compare.settings import Measurement, Setting, by_value, program_order
from klat.compare.sources import Run, Source
from klat.record import profiles
from klat.record.session import STATUSES, USABLE, Row, parse_pairs
from klat.record.evidence import MIXED, STRAY, WAYS

# The policy is not among the options in a row's params: the policy obtained may differ from the one
# asked for.
_POLICY = "policy"


def grouped_settings(sources: Sequence[Source]) -> list[Setting]:
    """The settings of sessions that may be pooled, sorted by program and params. The runs of a
    setting have the same params, placement, policy, CPUs and build, and their event came about in
    one way. compare takes such runs together."""
    settings: dict[tuple[_What, RunConditions], Setting] = {}
    counted: dict[_What, dict[RunConditions, None]] = {}
    for source in sources:
        for rows in source.session.runs():
            if any(row.usable for row in rows):
                counted.setdefault(_what(rows[0]), {})[source.run_conditions(rows[0])] = None
    for source in sources:
        for rows in source.session.runs():
            first = rows[0]
            what, held = _what(first), source.run_conditions(first)
            if not any(row.usable for row in rows):
                held = _nearest(held, list(counted.get(what, ())))
            if (what, held) not in settings:
                policy = _policy(held.policy)
                params = parse_pairs(first.params) | ({_POLICY: policy} if policy else {})
                settings[what, held] = Setting(first.benchmark, params, first.placement)
            _count_run(settings[what, held], rows, source)
    shown_first = profiles.first_metrics(source.profile for source in sources)
    boots = {b: i for i, b in enumerate(dict.fromkeys(s.session.boot_id for s in sources))}
    for setting in settings.values():
        if (name := shown_first.get(setting.benchmark)) in setting.measurements:
            setting.measurements = {name: setting.measurements[name], **setting.measurements}
        for measurement in setting.measurements.values():
            # Clocks of different boots may have been set to one time.
            measurement.all_runs.sort(key=lambda run: (boots[run.row.boot], run.place))
    _tell_apart(settings)
    return _placed(sorted(settings.values(), key=_sort_key))


def _nearest(held: RunConditions, counted: Sequence[RunConditions]) -> RunConditions:
    """The conditions of counted runs that match a run that does not count. That run may have failed
    before it had all of its conditions."""
    near = [
        other
        for other in counted
        if all(own in ("", value) for own, value in zip(astuple(held), astuple(other)))
    ]
    if len({replace(other, **dict.fromkeys(WAYS, "")) for other in near}) == 1:
        return near[0]
    return counted[0] if len(counted) == 1 else held


_What = tuple[str, str, str]


def _what(row: Row) -> _What:
    return (row.benchmark, row.params, row.placement)


def _policy(obtained: str) -> str:
    """`fifo:50` if all roles have the same policy, else `rr:98/rr:19`, the highest first."""

    def priority(policy: str) -> int:
        number = policy.partition(":")[2]
        return int(number) if number.isascii() and number.isdigit() else 0

    found = sorted(set(parse_pairs(obtained).values()))
    return "/".join(sorted(found, key=priority, reverse=True))


def _tell_apart(settings: Mapping[tuple[_What, RunConditions], Setting]) -> None:
    """Add the conditions that differ between settings with the same params to these. A run of both
    ways is always named: its figures are those of no event."""
    groups: dict[tuple[str, ...], list[tuple[RunConditions, Setting]]] = {}
    for (what, held), setting in settings.items():
        groups.setdefault((*what, setting.params.get(_POLICY, "")), []).append((held, setting))
    for group in groups.values():
        for name in OBTAINED:
            values = {getattr(held, name) for held, _ in group}
            if len(values) > 1 or MIXED in values:
                usual = _usual_state(group, name) if name in WAYS else None
                for held, setting in group:
                    value = getattr(held, name)
                    if value in (MIXED, *(values - {usual})):
                        setting.params[name] = value.replace(";", "/") or "none"


def _usual_state(group: Sequence[tuple[RunConditions, Setting]], way: str) -> str | None:
    """The state of all runs except a few strays. It is not shown, because another label may have no
    other state."""
    runs = Counter({getattr(held, way): 0 for held, _ in group})
    for held, setting in group:
        runs[getattr(held, way)] += setting.usable_runs
    ((state, count),) = runs.most_common(1)
    return state if count >= (1 - STRAY) * runs.total() else None


def _without_obtained(setting: Setting) -> tuple[str, dict[str, str]]:
    kept = {name: value for name, value in setting.params.items() if name not in OBTAINED}
    return (setting.benchmark, kept)


def _count_run(setting: Setting, rows: Sequence[Row], source: Source) -> None:
    # The rows of a run should share a status. If not, the worst counts.
    worst = max(rows, key=lambda row: STATUSES.index(row.status))
    setting.statuses[worst.status] += 1
    if worst.status != "ok":
        # The reason of a run that measured nothing is one sentence, which may have a semicolon.
        whole = worst.status in ("error", "skipped")
        parts = [worst.reason] if whole else worst.reason.split(";")
        reasons = [part.strip() for part in parts if part.strip()]
        setting.reasons += [(worst.status, r) for r in reasons or ["no reason was recorded"]]
    if worst.floor is not None:
        setting.floors.append(worst.floor)
    for row in rows:
        if row.metric:
            found = setting.measurements.setdefault(row.metric, Measurement(row.metric))
            if row.n:
                found.all_runs.append(Run(row, source))
            elif not source.session.measurable(row):
                found.unmeasurable += 1
    if worst.status in USABLE and not all(map(source.session.measurable, rows)):
        setting.evidence.append(parse_pairs(rows[0].evidence))


def _placed(settings: Sequence[Setting]) -> list[Setting]:
    """Count the runs that failed before they were placed with the placed runs of the same params."""
    kept: list[Setting] = []
    for setting in settings:
        same = [
            other
            for other in settings
            if _without_obtained(other) == _without_obtained(setting) and other is not setting
        ]
        if setting.measurements or len(same) != 1 or not same[0].measurements:
            kept.append(setting)
            continue
        same[0].statuses += setting.statuses
        same[0].reasons += setting.reasons
    return kept


def _sort_key(setting: Setting) -> tuple[object, ...]:
    params = {name: value for name, value in setting.params.items() if name not in WAYS}
    values = [by_value(value) for value in (*params.values(), setting.placement)]
    return (program_order(setting.benchmark), values, -setting.usable_runs)
