"""The schedule of a session: which program runs when, with which options.

A plan depends only on its parameter sets, the number of runs and the seed: the same seed gives the same
bytes on every machine and with every version of Python. All runs of all parameter sets are shuffled
together, so that a drift during a session affects each set equally. The runs of a parameter set are then
numbered in that order.

In plan.csv the last column is always quoted and never holds a quotation mark, so that a guest
with nothing but a shell can follow the plan:

    tail -n +2 plan.csv | while IFS=, read -r order benchmark run arguments; do
        arguments=${arguments#\\"}; arguments=${arguments%\\"}
        eval "./$benchmark $arguments --record=DIR --order=$order --run=$run --quiet" </dev/null
    done
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import math
import random
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from klat.base.errors import KlatError

COLUMNS = ("order", "benchmark", "run", "arguments")
HEADER = ",".join(COLUMNS)
# More than a day of the shortest runs. A mistyped sweep is refused before it fills the memory.
MAX_RUNS = 1_000_000

# Options that the runner sets itself, and options that would keep a program from measuring or recording.
RESERVED = frozenset(
    "record label seed run order quiet csv json help version check-for print-benchmark".split()
    + "soak segment limit stop-above together".split()
    + "trace-above trace-metric trace-instance trace-output trace-bytes".split()
)

_SETTING = re.compile(r"([a-z][a-z0-9_-]*)\.([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)
_ARGUMENT = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
# The fields of a line of plan.csv.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)
_LONGEST = 1 << 16


@dataclass(frozen=True)
class PlannedRun:
    """One process: a row of plan.csv."""

    order: int  # from 1
    benchmark: str
    run: int  # within benchmark and arguments, from 1
    arguments: tuple[str, ...]  # options of the program, without those of the record


@dataclass(frozen=True)
class ProgramOption:
    """`benchmark.option=value` as typed. A flag has the value None. A sweep has several values."""

    benchmark: str  # or "all"
    option: str
    values: tuple[str | None, ...]

    def text(self) -> str:
        """As typed. The option has one value."""
        (value,) = self.values
        return f"{self.benchmark}.{self.option}" + ("" if value is None else f"={value}")


def _split(text: str) -> tuple[str, str, str | None]:
    match = _SETTING.fullmatch(text)
    if not match:
        raise ValueError(f"'{text}' is not benchmark.option=value")
    benchmark, option, value = match.groups()
    _check_not_reserved(text, option)
    return benchmark, option, value


def _check_not_reserved(text: str, option: str) -> None:
    if option in RESERVED:
        raise ValueError(f"'{text}': klat run itself sets or forbids --{option}")


def _check_value(text: str, value: str) -> str:
    if not value:
        raise ValueError(f"'{text}' holds an empty value")
    if '"' in value or not value.isprintable():
        raise ValueError(f"'{text}': a value cannot hold quotation marks or control characters")
    return value


def parse_option(text: str) -> ProgramOption:
    """`benchmark.option=value`, or `benchmark.flag`. ValueError says what is wrong."""
    benchmark, option, value = _split(text)
    return ProgramOption(benchmark, option, (None if value is None else _check_value(text, value),))


def check_argument(word: str) -> None:
    """ValueError if the word is no option that a plan may give to a program."""
    match = _ARGUMENT.fullmatch(word)
    if not match:
        raise ValueError(f"'{word}' is not --option=value")
    option, value = match.groups()
    _check_not_reserved(word, option)
    if value is not None:
        _check_value(word, value)


def parse_sweep(text: str) -> ProgramOption:
    """`benchmark.option=values`: `0,1,2,4`, `0..79` or both. Values with commas are separated by `;`."""
    benchmark, option, values = _split(text)
    if values is None:
        raise ValueError(f"'{text}' gives no values: benchmark.option=values")
    separator = ";" if ";" in values else ","
    swept: list[str] = []
    for item in values.split(separator):
        bounds = _RANGE.fullmatch(item)
        if not bounds:
            swept.append(_check_value(text, item))
            continue
        first, last = int(bounds[1]), int(bounds[2])
        if first > last:
            raise ValueError(f"'{text}': the range {item} runs backwards")
        if last - first >= MAX_RUNS:
            raise ValueError(f"'{text}': the range {item} is longer than any session")
        swept.extend(str(number) for number in range(first, last + 1))
    if len(set(swept)) != len(swept):
        raise ValueError(f"'{text}' has a value twice")
    return ProgramOption(benchmark, option, tuple(swept))


def parameter_sets(
    benchmarks: Sequence[str],
    common: Mapping[str, str],
    options: Iterable[ProgramOption] = (),
    sweeps: Iterable[ProgramOption] = (),
    variants: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
) -> list[tuple[str, tuple[str, ...]]]:
    """Every benchmark with every combination of its swept values, as (benchmark, arguments).

    An option for one benchmark overrides one for "all", and that overrides `common`. KlatError if an
    option is set twice or names a benchmark that is not among `benchmarks`. `variants`: the options of
    several sets of a benchmark, which all others override.
    """
    fixed = list(options)
    swept = list(sweeps)
    for setting in fixed + swept:
        if setting.benchmark != "all" and setting.benchmark not in benchmarks:
            raise KlatError(
                f"{setting.benchmark}.{setting.option} is set, but {setting.benchmark} is not"
                f" among the benchmarks of this session ({', '.join(benchmarks)})"
            )
    sets: list[tuple[str, tuple[str, ...]]] = []
    for benchmark in benchmarks:
        for variant in (variants or {}).get(benchmark, [{}]):
            chosen: dict[str, tuple[str | None, ...]] = {
                k: (v,) for k, v in {**variant, **common}.items()
            }
            chosen |= _set_for(benchmark, fixed + swept)
            if math.prod(len(values) for values in chosen.values()) > MAX_RUNS:
                raise KlatError(f"the sweeps of {benchmark} make more runs than a session can hold")
            for values in itertools.product(*chosen.values()):
                words = (f"--{o}" if v is None else f"--{o}={v}" for o, v in zip(chosen, values))
                sets.append((benchmark, tuple(words)))
    return list(dict.fromkeys(sets))


def _set_for(
    benchmark: str, settings: Iterable[ProgramOption]
) -> dict[str, tuple[str | None, ...]]:
    """The values of each option that is set for the benchmark or for "all"."""
    chosen: dict[str, tuple[str | None, ...]] = {}
    for scope in ("all", benchmark):
        named: set[str] = set()
        for setting in settings:
            if setting.benchmark != scope:
                continue
            if setting.option in named:
                raise KlatError(f"{scope}.{setting.option} is set twice")
            named.add(setting.option)
            chosen[setting.option] = setting.values
    return chosen


def make(sets: Sequence[tuple[str, tuple[str, ...]]], runs: int, seed: int) -> list[PlannedRun]:
    """Each parameter set `runs` times, in an order drawn from `seed`.

    The shuffle is Fisher and Yates's (Knuth, TAOCP 2, 3.4.2 P) over random.Random(seed).random(). Python
    guarantees the sequence of random() in every version, but not that of shuffle().
    """
    _check_length(len(sets) * runs)
    return _numbered(sets, _shuffled(len(sets), runs, random.Random(seed)))


def _check_length(runs: int) -> None:
    if runs > MAX_RUNS:
        raise KlatError(f"{runs} runs are more than one session can hold ({MAX_RUNS})")


def _shuffled(sets: int, runs: int, draw: random.Random) -> list[int]:
    """Each index of a parameter set `runs` times."""
    order = [index for index in range(sets) for _ in range(runs)]
    shuffle(order, draw)
    return order


def shuffle(order: list[int], draw: random.Random) -> None:
    """As make() says."""
    for last in range(len(order) - 1, 0, -1):
        other = int(draw.random() * (last + 1))
        order[last], order[other] = order[other], order[last]


def _numbered(
    sets: Sequence[tuple[str, tuple[str, ...]]], order: Iterable[int]
) -> list[PlannedRun]:
    count = [0] * len(sets)
    plan = []
    for place, index in enumerate(order, start=1):
        count[index] += 1
        benchmark, arguments = sets[index]
        plan.append(PlannedRun(place, benchmark, count[index], arguments))
    return plan


@dataclass(frozen=True)
class Turn:
    """Adjacent runs of one setting: the first and the last, by their places in its plan. `place` is the place
    of the turn among the turns of both settings, from 1."""

    first: int
    last: int
    place: int

    @property
    def block(self) -> int:
        """The block that the turn belongs to, from 1."""
        return (self.place + 3) // 4


def alternating_rounds(
    conditions: int, rounds: int, draw: random.Random | None = None, carries: bool = False
) -> Iterator[list[int]]:
    """The conditions of each round, by number. Two rounds are a block: an order, then its reverse. For two
    conditions this is ABBA or BAAB. A steady drift therefore affects all conditions of a block equally. If the
    number of rounds is odd, the last round is not reversed.

    The order of a block is drawn; without `draw` it is ascending. With `carries`, the draw starts from the order of
    the round before. A campaign of an earlier version then continues in its order."""
    order = list(range(conditions))
    for number in range(rounds):
        if number % 2:
            order.reverse()
        else:
            if not carries:
                order.sort()
            if draw:
                shuffle(order, draw)
        yield order.copy()


def seed_of_boot(schedule: str, seed: int, number: int) -> int:
    """The seed for the runs of a boot. `schedule` is a lab or a campaign."""
    digest = hashlib.sha256(f"klat {schedule} {seed} {number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def take_turns(
    settings_sets: Sequence[Sequence[tuple[str, tuple[str, ...]]]],
    blocks: int,
    runs: int,
    seed: int,
) -> list[tuple[list[PlannedRun], list[Turn]]]:
    """The plans of two settings, A and B, that take turns in `blocks` blocks of four turns. Both have
    the same number of parameter sets. A block is ABBA or BAAB, drawn from the seed. A turn holds every
    parameter set `runs` times, in an order drawn for each turn. All draws come from one stream.

    If all turns take the same time, A's turns and B's turns of a block have the same middle, so a
    linear drift cancels. A curved drift does not, nor does an effect on the outer turns of a block.
    Because the order is drawn, these do not affect the same setting in every block.
    """
    count = len(settings_sets[0])
    length = count * runs
    _check_length(4 * blocks * length)
    draw = random.Random(seed)
    orders: tuple[list[int], list[int]] = ([], [])
    turns: tuple[list[Turn], list[Turn]] = ([], [])
    settings = itertools.chain.from_iterable(alternating_rounds(2, 2 * blocks, draw))
    for place, setting in enumerate(settings, start=1):
        begun = len(orders[setting])
        orders[setting].extend(_shuffled(count, runs, draw))
        turns[setting].append(Turn(begun + 1, begun + length, place))
    return [
        (_numbered(sets, order), taken) for sets, order, taken in zip(settings_sets, orders, turns)
    ]


def _quote(word: str) -> str:
    """For a shell, without the double quotation marks that shlex puts around a single one."""
    return shlex.quote(word).replace("'\"'\"'", "'\\''")


def to_csv(plan: Iterable[PlannedRun]) -> str:
    quoted: dict[tuple[str, ...], str] = {}
    lines = [HEADER]
    for run in plan:
        if run.arguments not in quoted:
            quoted[run.arguments] = " ".join(map(_quote, run.arguments))
        lines.append(f'{run.order},{run.benchmark},{run.run},"{quoted[run.arguments]}"')
    return "\n".join(lines) + "\n"


def from_csv(text: str) -> list[PlannedRun]:
    """The plan that to_csv() wrote. KlatError names the first line that to_csv() cannot write."""
    rows = csv.reader(text.splitlines(), strict=True)
    words: dict[str, tuple[str, ...]] = {}
    plan: list[PlannedRun] = []
    line = 1
    try:
        if tuple(next(rows, [])) != COLUMNS:
            raise ValueError
        for line, (order, benchmark, run, arguments) in enumerate(rows, start=2):
            if arguments not in words:
                words[arguments] = _words(arguments)
            if not (_NAME.fullmatch(benchmark) and _NUMBER.fullmatch(run)):
                raise ValueError
            if order != str(len(plan) + 1) or len(plan) == MAX_RUNS:
                raise ValueError
            plan.append(PlannedRun(len(plan) + 1, benchmark, int(run), words[arguments]))
    except (ValueError, csv.Error):
        raise KlatError(f"plan.csv is damaged or was edited (line {line})") from None
    return plan


def _words(arguments: str) -> tuple[str, ...]:
    """The words of a line. ValueError if to_csv() cannot write such a line."""
    if len(arguments) > _LONGEST or not arguments.isprintable():
        raise ValueError
    return tuple(shlex.split(arguments))
