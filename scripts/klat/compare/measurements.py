"""What sessions measured: rows by label, setting and metric.

Sessions of one label are pooled where compare would take them for one side; the others of that
label stand by themselves. Each session is a boot, or a part of one, and their number is kept in
sight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from klat.compare.conditions import NONE, OBTAINED, RUN, Distinctions, RunConditions
from klat.record.session_directory import PLAN
from klat.base.errors import KlatError
from klat.record.plan_csv import from_csv
from klat.base.programs import CORE
from klat.base.bounded_read import read_regular
from klat.record.json_files import LARGEST_PLAN
from klat.record.session import (
    NOT_MEASURABLE,
    STATUSES,
    USABLE,
    Row,
    Session,
    SessionError,
    parse_pairs,
    printable,
)
from klat.compare.settings import NUMBER, Measurement, Setting
from klat.compare.sources import Run, Source, pools, read_sources
from klat.record.wakeups import STRAY

# Not among the options that a row records as params, for what was asked for may not be obtained.
_POLICY = "policy"


@dataclass
class Label:
    """One kernel under test: sessions of one label that may be pooled, in the order taken. `apart`
    says what keeps them apart from other sessions of that label."""

    sources: list[Source]
    settings: list[Setting]
    apart: Distinctions = ()

    @property
    def sessions(self) -> list[Session]:
        return [source.session for source in self.sources]

    @property
    def info(self) -> dict[str, Any]:
        """session.json of the first session; what is pooled agrees in what is shown of it."""
        return self.sessions[0].info

    @property
    def name(self) -> str:
        return printable(self.sessions[0].label)

    @property
    def under(self) -> list[str]:
        """The load, the prefix and the like that ran beside all its sessions."""
        values = self.sources[0].values
        apart = dict(self.apart)
        found = [(key, values.get((key, name), NONE)) for key, name in RUN.items()]
        return [f"{key}: {value}" for key, value in found if value != NONE and key not in apart]

    @property
    def apart_text(self) -> str:
        """`load: populate, governor: performance`."""
        return ", ".join(f"{key}: {value}" for key, value in self.apart)

    @property
    def full_name(self) -> str:
        """The name, with what tells other sessions of that label apart."""
        return f"{self.name} ({self.apart_text})" if self.apart else self.name

    @property
    def kernel(self) -> str:
        return printable(str(self.info.get("kernel_release") or "unknown kernel"))

    @property
    def unit(self) -> str:
        return self.sessions[0].unit

    @property
    def mode(self) -> str:
        return self.sessions[0].mode

    @property
    def boots(self) -> int:
        return len({session.boot_id for session in self.sessions})

    @property
    def planned(self) -> tuple[int, int]:
        """Of the sessions with a plan, how many of the planned runs are recorded, and how many there
        are."""
        recorded = planned = 0
        for session in self.sessions:
            try:
                data = read_regular(session.path / PLAN, LARGEST_PLAN)
                runs = from_csv(data.decode("utf-8"))
            except (FileNotFoundError, UnicodeError, KlatError, SessionError):
                continue  # no figure rests on the plan
            planned += len(runs)
            recorded += len(session.completed_orders() & {run.order for run in runs})
        return recorded, planned

    @property
    def boots_of_metrics(self) -> list[int]:
        """In how many boots each metric was measured, for every number that occurs."""
        found = {m.boots for setting in self.settings for m in setting.measurements.values()}
        return sorted(found - {0})

    @property
    def khz(self) -> float | None:
        """Ticks per millisecond, the mean of the sessions' calibrations; None where time means
        nothing."""
        found = [session.khz for session in self.sessions if session.khz is not None]
        return sum(found) / len(found) if found else None

    @property
    def quantum(self) -> int:
        return max(session.quantum for session in self.sessions)

    @property
    def step(self) -> int:
        """The least that two samples can differ by."""
        return max(session.step for session in self.sessions)

    def nanoseconds(self, value: float) -> float | None:
        return value * 1e6 / self.khz if self.khz else None


def read_labels(paths: Iterable[Path | str]) -> tuple[list[Label], list[str]]:
    """Every session below the paths, in pools of one label, and what there is to say about them.

    Raises SessionError when a path leads to no session or no session holds a completed run.
    """
    by_label, problems = read_sources(paths)
    labels = [
        Label(pool.sources, gather(pool.sources), pool.apart)
        for sources in by_label.values()
        for pool in pools(sources)
    ]
    for label in labels:
        problems += _disagreements(label)
    return labels, problems


def unmeasurable_lines(
    settings: Iterable[tuple[Label, Setting]], metrics: Sequence[str] = ()
) -> Iterator[str]:
    """A sentence for each label and program with metrics, of these where any is named, to which the
    mode gives no number."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for label, setting in settings:
        for metric in setting.unmeasurable():
            if not metrics or metric in metrics:
                key = (label.full_name, label.mode, printable(setting.benchmark))
                found.setdefault(key, {})[printable(metric)] = None
    for (name, mode, benchmark), held in found.items():
        yield f"label {name}, mode {mode}: {NOT_MEASURABLE}: {benchmark} {', '.join(held)}"


def by_session(labels: Iterable[Label]) -> list[Label]:
    """The same without pooling: each session on its own."""
    return [
        Label([source], gather([source]), label.apart)
        for label in labels
        for source in label.sources
    ]


def _disagreements(label: Label) -> list[str]:
    khz = [session.khz for session in label.sessions if session.khz is not None]
    if khz and max(khz) > 1.001 * min(khz):
        return [
            f"label {label.full_name}: the sessions' counters differ in frequency, {min(khz):,.0f} to"
            f" {max(khz):,.0f} kHz, so pooled ticks are not the same time; look at them one by one"
        ]
    return []


def gather(sources: Sequence[Source]) -> list[Setting]:
    """The settings of sessions that may be pooled: the five programs in their order, others by name,
    then by params. A setting holds runs that compare would take together: of one set of params, one
    placement, one policy, one choice of CPUs, one build, woken in one way."""
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
    boots = {b: i for i, b in enumerate(dict.fromkeys(s.session.boot_id for s in sources))}
    for setting in settings.values():
        for measurement in setting.measurements.values():
            # Clocks of different boots may have been set to one time.
            measurement.all_runs.sort(key=lambda run: (boots[run.row.boot], run.place))
    _tell_apart(settings)
    return _placed(sorted(settings.values(), key=_sort_key))


def _nearest(held: RunConditions, counted: Sequence[RunConditions]) -> RunConditions:
    """Those of runs that count to which one belongs that does not: it may be that because it lost
    its policy on the way, or failed before it was placed."""
    near = [
        other
        for other in counted
        if all(own in ("", value) for own, value in zip(astuple(held), astuple(other)))
    ]
    if len({replace(other, woken="") for other in near}) == 1:
        return near[0]
    return counted[0] if len(counted) == 1 else held


_What = tuple[str, str, str]


def _what(row: Row) -> _What:
    return (row.benchmark, row.params, row.placement)


def _policy(obtained: str) -> str:
    """`fifo:50` where all roles have the same, else `rr:98/rr:19`, the higher first. Which role has
    which, the program and its low-priority tell."""

    def priority(policy: str) -> int:
        number = policy.partition(":")[2]
        return int(number) if number.isascii() and number.isdigit() else 0

    found = sorted(set(parse_pairs(obtained).values()))
    return "/".join(sorted(found, key=priority, reverse=True))


def _tell_apart(settings: Mapping[tuple[_What, RunConditions], Setting]) -> None:
    """Adds to the params what else differs between settings that have the same."""
    groups: dict[tuple[str, ...], list[tuple[RunConditions, Setting]]] = {}
    for (what, held), setting in settings.items():
        groups.setdefault((*what, setting.params.get(_POLICY, "")), []).append((held, setting))
    for group in groups.values():
        for name in OBTAINED:
            if len({getattr(held, name) for held, _ in group}) > 1:
                usual = _usual_state(group) if name == "woken" else None
                for held, setting in group:
                    if getattr(held, name) != usual:
                        setting.params[name] = getattr(held, name).replace(";", "/") or "none"


def _usual_state(group: Sequence[tuple[RunConditions, Setting]]) -> str | None:
    """The state of all runs but strays. It has no name of its own: in another label it may be the
    only one."""
    runs = Counter({held.woken: 0 for held, _ in group})
    for held, setting in group:
        runs[held.woken] += setting.usable_runs
    ((state, count),) = runs.most_common(1)
    return state if count >= (1 - STRAY) * runs.total() else None


def _without_obtained(setting: Setting) -> tuple[str, dict[str, str]]:
    kept = {name: value for name, value in setting.params.items() if name not in OBTAINED}
    return (setting.benchmark, kept)


def _count_run(setting: Setting, rows: Sequence[Row], source: Source) -> None:
    # The rows of a run share a status; should they not, the run is as bad as its worst.
    worst = max(rows, key=lambda row: STATUSES.index(row.status))
    setting.statuses[worst.status] += 1
    if worst.status != "ok":
        # A run that measured nothing has one reason, which may say after a semicolon what to do.
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
    """Runs that failed before they were placed, counted with those of the same params that were."""
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


def _sort_key(setting: Setting) -> tuple[int, str, list[tuple[int, float, str]], int]:
    name = setting.benchmark
    place = CORE.index(name) if name in CORE else len(CORE)
    params = {name: value for name, value in setting.params.items() if name != "woken"}
    # Numbers by value, so that responders=10 follows responders=9.
    values = [
        (0, float(value), "") if NUMBER.fullmatch(value) else (1, 0.0, value)
        for value in chain(params.values(), [setting.placement])
    ]
    return (place, name, values, -setting.usable_runs)
