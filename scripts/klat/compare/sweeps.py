"""Figures along an option, as lines.

A sweep is found in the settings, so it may come from `klat run --sweep`, from several sessions, or
from runs by hand. The option with the most values is the axis. Each combination of the others is a
line. With a single combination, each metric is a line.

An option whose values are words (`backend=epoll`) is an axis where no number was swept. Its values
are placed at 0, 1, 2 and so on, the one with the lowest figure first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from klat.base.grouping import grouped
from klat.compare.conditions import OBTAINED
from klat.stats.granularity import rounding
from klat.stats.means import branch_means
from klat.compare.dataset import Dataset
from klat.compare.published import Published, published
from klat.record.evidence import WAYS
from klat.record.session import parse_pairs
from klat.compare.settings import Setting, common_params
from klat.compare.sources import Run
from klat.stats.descriptive import Values, mean_interval

# The program and the option that sweep_shapes.py reports in a table of its own.
RESPONDERS = ("tlbflush", "responders")
# These may follow from the swept option: more responders take more CPUs.
_FOLLOWING = ("cpus", "iterations", "warmup")
# These may follow, too: a deeper chain of locks has more priorities, and a CPU with hogs is not idle.
_OBTAINED = ("policy", *WAYS)
# Conditions that were obtained, and planted faults, are not an axis.
_NO_CHOICE = (*OBTAINED, "plant")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
# A count of this name is a figure: a time in the session's unit, or a rate. See docs/runs.md.
_TIME, _RATE = "_ticks", "_per_"


@dataclass(frozen=True)
class Quantity:
    """A metric, or a count that is a figure."""

    recorded: str
    is_count: bool = False

    @property
    def name(self) -> str:
        """Without the unit in the recorded name: reports show another unit."""
        return shown(self.recorded) if self.is_count else self.recorded

    @property
    def is_time(self) -> bool:
        return not self.is_count or self.recorded.endswith(_TIME)


def shown(count: str) -> str:
    """The name of a count beside a unit: `net` for `net_ticks`, which are shown in ns."""
    return count.removesuffix(_TIME)


@dataclass(frozen=True)
class SweepPoint:
    """The runs with one value of the option. A run gives the median of its samples, or its count.
    `boots` has the boot of each run. `resolution` bounds what the counter's granularity can hide of
    the value."""

    x: float
    runs: Values
    boots: tuple[str, ...]
    resolution: float = 0.0

    @staticmethod
    def of(x: float, settings: Iterable[Setting], quantity: Quantity) -> SweepPoint | None:
        """None if no run has the quantity."""
        values = [value for setting in settings for value in _values_of(setting, quantity)]
        if not values:
            return None
        figures, boots, steps = zip(*values)
        return SweepPoint(x, np.array(figures), boots, rounding(figures, max(steps)))

    @property
    def value(self) -> float:
        return float(self.runs.mean())

    @property
    def units(self) -> list[float]:
        """Independent figures: the means of the boots, or the runs of a single boot."""
        by_boot: dict[str, list[float]] = {}
        for value, boot in zip(self.runs.tolist(), self.boots):
            by_boot.setdefault(boot, []).append(value)
        (first, *others) = by_boot.values()
        return branch_means([first, *others]) if others else first


@dataclass(frozen=True)
class SweepLine:
    """One quantity of one label along the option, by increasing value."""

    name: str  # unique in the sweep
    label: Dataset
    points: list[SweepPoint]
    published: list[tuple[float, Published]]
    is_count: bool = False

    def at(self, x: float) -> SweepPoint | None:
        return next((point for point in self.points if point.x == x), None)

    def interval(self, point: SweepPoint) -> tuple[float, float] | None:
        """95 %, only within one boot: runs of several boots are not independent."""
        interval = mean_interval(point.runs) if self.label.boots == 1 else None
        return interval and (interval[0] - point.resolution, interval[1] + point.resolution)


@dataclass(frozen=True)
class Sweep:
    """Lines over one option. `by` names the options in which they differ. It is empty if the lines
    are the quantities of one setting."""

    benchmark: str
    option: str
    quantity: Quantity | None  # None where each line is a time of its own
    by: tuple[str, ...]
    params: dict[str, str]  # that the lines share
    distinctive: dict[str, str]  # shared by the lines, but not by all settings of the benchmark
    lines: list[SweepLine]
    choices: tuple[str, ...] = ()  # the words, if values are words: x is the index
    beside: tuple[Published, ...] = ()  # figures published for the params that all choices share

    def text(self, x: float) -> str:
        """A value of the option."""
        if self.choices:
            return self.choices[round(x)]
        return f"{x:,.0f}" if x.is_integer() else f"{x:,g}"

    @property
    def name(self) -> str:
        return self.quantity.name if self.quantity else ""

    @property
    def is_time(self) -> bool:
        return self.quantity is None or self.quantity.is_time

    @property
    def without_median(self) -> str:
        """For a note on medians: the counts among the times."""
        counts = [line.name for line in self.lines if line.is_count and self.is_time]
        return f"; {', '.join(counts)}: one figure a run" if counts else ""

    @property
    def values(self) -> list[float]:
        """Of the option."""
        return sorted({point.x for line in self.lines for point in line.points})


@dataclass(frozen=True)
class _Chain:
    """Settings that differ in the option and in the params that follow from it."""

    option: str
    params: dict[str, str]
    at: dict[float, list[Setting]]
    choices: tuple[str, ...] = ()

    @property
    def settings(self) -> set[Setting]:
        return {setting for settings in self.at.values() for setting in settings}


def sweeps(labels: Sequence[Dataset], names: Sequence[str]) -> list[Sweep]:
    """Every sweep of the labels. `names` are the names of the labels in lines."""
    collected: list[Sweep] = []
    for benchmark in dict.fromkeys(s.benchmark for label in labels for s in label.settings):
        swept = [
            s for x in labels for s in x.settings if s.benchmark == benchmark and s.usable_runs
        ]
        choices = _choices(swept)
        groups: dict[str, list[tuple[Dataset, str, _Chain]]] = {}
        for label, name in zip(labels, names):
            of_label = [s for s in label.settings if s.benchmark == benchmark and s.usable_runs]
            for chain in _chains(of_label, choices):
                groups.setdefault(chain.option, []).append((label, name, chain))
        common = common_params(s for x in labels for s in x.settings if s.benchmark == benchmark)
        for option, chains in groups.items():
            collected += _of_option(benchmark, option, chains, common, len(labels) > 1)
    return collected


def _choices(settings: Sequence[Setting]) -> dict[str, tuple[str, ...]]:
    """The words that are values, by option, from the lowest figure to the highest."""
    choices: dict[str, dict[str, list[float]]] = {}
    for setting in settings:
        quantity = next(iter(_of_setting(setting)), None)
        figures = [value for value, *_ in _values_of(setting, quantity)] if quantity else []
        for option, value in setting.params.items():
            if option not in _NO_CHOICE and value and not _NUMBER.fullmatch(value):
                choices.setdefault(option, {}).setdefault(value, []).extend(figures)
    return {
        option: tuple(sorted(words, key=lambda word: (float(np.mean(words[word] or [0])), word)))
        for option, words in choices.items()
        if len(words) > 1
    }


def _chains(usable: Sequence[Setting], choices: dict[str, tuple[str, ...]]) -> list[_Chain]:
    """Chains along the option with the most values, then along others for settings that are in no
    chain yet. Options with numbers come before options with words."""
    options = dict.fromkeys(name for setting in usable for name in setting.params)
    candidates = [chains for option in options if (chains := _along(option, usable))]
    of_words = [chains for option in choices if (chains := _along(option, usable, choices[option]))]
    for group in (candidates, of_words):
        group.sort(key=lambda chains: -max(len(chain.at) for chain in chains))
    covered: set[Setting] = set()
    chains_ = []
    for chains in candidates + of_words:
        for chain in chains:
            if not chain.settings <= covered:
                chains_.append(chain)
        covered = covered.union(*(chain.settings for chain in chains))
    return chains_


def _along(option: str, settings: Sequence[Setting], choices: tuple[str, ...] = ()) -> list[_Chain]:
    """The chains along an option with numbers, or with the words in `choices`."""
    if option in _FOLLOWING:
        return []
    swept = []
    for setting in settings:
        special = (setting.benchmark, option) == RESPONDERS
        value = setting.params.get(option, "")
        if (value in choices if choices else _NUMBER.fullmatch(value)) and not special:
            swept.append(setting)
    chains = []
    for alike in _alike(option, swept, (*_FOLLOWING, *_OBTAINED)):
        texts = (setting.params[option] for setting in alike)
        x = {text: float(choices.index(text) if choices else text) for text in texts}
        at = grouped(alike, lambda setting: x[setting.params[option]])
        if len(at) > 1:
            rest = {k: v for k, v in common_params(alike).items() if k not in (option, *_FOLLOWING)}
            chains.append(_Chain(option, rest, dict(sorted(at.items())), choices))
    return chains


def _alike(
    option: str, settings: Sequence[Setting], following: tuple[str, ...]
) -> Iterator[list[Setting]]:
    """Groups that differ only in the option and in params that may follow from it. If a value of the option occurs
    twice in a group, fewer params follow."""
    groups: dict[tuple[str, ...], list[Setting]] = {}
    for setting in settings:
        rest = [f"{k}={v}" for k, v in setting.params.items() if k not in (option, *following)]
        groups.setdefault((setting.placement if not following else "", *rest), []).append(setting)
    for group in groups.values():
        if not following or len({setting.params[option] for setting in group}) == len(group):
            yield group
        else:
            yield from _alike(option, group, _FOLLOWING if following != _FOLLOWING else ())


def _of_option(
    benchmark: str,
    option: str,
    chains: Sequence[tuple[Dataset, str, _Chain]],
    common: dict[str, str],
    several_labels: bool,
) -> list[Sweep]:
    quantities = list(dict.fromkeys(q for _, _, chain in chains for q in _quantities(chain)))
    known = published(benchmark)
    params = [chain.params for _, _, chain in chains]
    shared = {k: v for k, v in params[0].items() if all(p.get(k) == v for p in params)}
    shown = {k: v for k, v in shared.items() if k not in common}
    by = tuple(dict.fromkeys(k for p in params for k in p if k not in shared))
    choices = chains[0][2].choices
    beside = _beside(known, option, shared, quantities) if choices else ()

    def sweep(quantity: Quantity | None, by: tuple[str, ...], lines: list[SweepLine]) -> Sweep:
        aside = tuple(p for p in beside if quantity is None or quantity.recorded == p.metric)
        return Sweep(benchmark, option, quantity, by, shared, shown, lines, choices, aside)

    if len(chains) == 1:
        ((label, _, chain),) = chains
        times = [q for q in quantities if q.is_time]
        lines = [_line(q.name, q, label, chain, known) for q in times]
        lines = [line for line in lines if line.points]
        collected = [sweep(None, (), lines)]
        quantities = [q for q in quantities if not q.is_time]
    else:
        collected = []
    for quantity in quantities:
        lines = []
        for label, name, chain in chains:
            values = [_named(k, chain.params[k]) for k in by if k in chain.params]
            values += _placement(chain, chains)
            apart = " ".join([name, *values] if several_labels else values) or quantity.name
            lines.append(_line(apart, quantity, label, chain, known))
        lines = [line for line in lines if line.points]
        collected.append(sweep(quantity, by, lines))
    return [one_sweep for one_sweep in collected if one_sweep.lines]


def _named(option: str, value: str) -> str:
    """A value in the name of a line. A number, and a state of the run, is named by its option."""
    if option not in OBTAINED and not _NUMBER.fullmatch(value):
        return value
    return (
        f"{option}={int(value):,}" if value.isascii() and value.isdigit() else f"{option}={value}"
    )


def _beside(
    known: Sequence[Published], option: str, shared: dict[str, str], quantities: Iterable[Quantity]
) -> tuple[Published, ...]:
    """Figures published for the params that all choices share, without one of the choices."""
    times = [quantity.recorded for quantity in quantities if quantity.is_time]
    return tuple(
        p
        for p in known
        if option not in parse_pairs(p.params) and p.params
        if any(p.stands_beside(name, shared) for name in times)
    )


def _placement(chain: _Chain, chains: Sequence[tuple[Dataset, str, _Chain]]) -> list[str]:
    """The chain's placement, where chains differ in it."""

    def places(chain: _Chain) -> list[str]:
        return sorted({s.placement for settings in chain.at.values() for s in settings})

    return places(chain) if any(places(other) != places(chain) for _, _, other in chains) else []


def _quantities(chain: _Chain) -> Iterable[Quantity]:
    """Metrics first."""
    settings = [setting for settings in chain.at.values() for setting in settings]
    quantities = [quantity for setting in settings for quantity in _of_setting(setting)]
    return sorted(quantities, key=lambda quantity: quantity.is_count)


def _of_setting(setting: Setting) -> Iterable[Quantity]:
    yield from (Quantity(metric) for metric in setting.measurements)
    for run in _runs(setting)[:1]:
        for name in parse_pairs(run.row.evidence):
            if name.endswith(_TIME) or _RATE in name:
                yield Quantity(name, True)


def _runs(setting: Setting) -> list[Run]:
    """One row of each run that counts."""
    return next((m.runs for m in setting.measurements.values() if m.runs), [])


def _values_of(setting: Setting, quantity: Quantity) -> list[tuple[float, str, float]]:
    """A figure of each run that counts, with its boot and the counter's step. A rate has no step."""
    values: list[tuple[str | int | None, Run]]
    if quantity.is_count:
        runs = _runs(setting)
        values = [(parse_pairs(run.row.evidence).get(quantity.recorded), run) for run in runs]
    else:
        measurement = setting.measurements.get(quantity.name)
        values = [(run.row.p50, run) for run in (measurement.runs if measurement else [])]
    return [
        (float(value), run.row.boot, run.source.step / run.source.scale * quantity.is_time)
        for value, run in values
        if value is not None
    ]


def _line(
    name: str, quantity: Quantity, label: Dataset, chain: _Chain, known: Sequence[Published]
) -> SweepLine:
    points = []
    beside: list[tuple[float, Published]] = []
    for x, settings in chain.at.items():
        if point := SweepPoint.of(x, settings, quantity):
            points.append(point)
            # A figure that does not name the option has no place on the axis.
            placed = [p for p in known if chain.option in parse_pairs(p.params)]
            beside += [
                (x, p) for p in placed if p.stands_beside(quantity.recorded, settings[0].params)
            ]
    shown_beside = beside if label.khz and quantity.is_time else []
    return SweepLine(name, label, points, shown_beside, quantity.is_count)
