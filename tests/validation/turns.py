"""Real data for validation: one long `klat ab`, cut into many comparisons of a few blocks each."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klat.base import programs
from klat.compare.matching import matched, side_units
from klat.base.errors import KlatError
from klat.compare.estimands import MEDIAN
from klat.compare.dataset import Dataset, Key, read_dataset
from klat.compare.runs import Runs
from klat.compare.observations import NoLogarithm, Units, observe
from klat.compare.way_split import split
from klat.compare.verdicts import Judgement, Observed, Rules, judge

# Statuses of klat ab with which there is a record to judge: measured, and some runs invalid.
_TAKEN = (0, 3)


@dataclass(frozen=True)
class Setting:
    label: str
    prefix: str = ""
    option: str = ""  # BENCHMARK.OPTION=VALUE


@dataclass(frozen=True)
class Experiment:
    """What is taken: `words` are benchmarks and options of `klat ab`."""

    a: Setting
    b: Setting
    words: tuple[str, ...]
    runs: int  # of each parameter set in a turn

    def command(self, blocks: int, seed: int, output: Path) -> list[str]:
        given = [
            ("--a", self.a.label), ("--a-prefix", self.a.prefix), ("--a-option", self.a.option),
            ("--b", self.b.label), ("--b-prefix", self.b.prefix), ("--b-option", self.b.option),
            ("--blocks", str(blocks)), ("--seed", str(seed)),
            ("--runs-per-block", str(self.runs)), ("--output", str(output)),
        ]  # fmt: skip
        return ["ab", *self.words, *(word for pair in given if pair[1] for word in pair)]

    def take(self, blocks: int, seed: int, output: Path) -> tuple[Dataset, Dataset]:
        """Both sides of `blocks` blocks. KlatError where klat ab fails."""
        process = subprocess.Popen(
            [sys.executable, str(_klat()), *self.command(blocks, seed, output)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate()
        except KeyboardInterrupt:
            process.wait()  # Ctrl-C has reached it too, and it puts the machine as it was
            raise
        paths = out.splitlines()
        if process.returncode not in _TAKEN or len(paths) != 2:
            why = next((x for x in err.splitlines() if x.startswith(("stopped:", "klat"))), err)
            raise KlatError(f"klat ab ended with status {process.returncode}: {why.strip()}")
        return read_dataset(Path(paths[0])), read_dataset(Path(paths[1]))


def _klat() -> Path:
    root = programs.root()
    return root / "klat" if programs.in_tree() else root / "bin" / "klat"


@dataclass(frozen=True)
class Comparison:
    """The same metrics on both sides, in a few blocks that followed one another."""

    cells: tuple[tuple[Key, Runs, Runs], ...]

    def named(self, rules: Rules) -> list[tuple[Key, Judgement]]:
        """The verdicts by metric, with blocks as pairs as for `klat ab`; without untested metrics."""
        keys: list[Key] = []
        sides: list[tuple[Observed, Observed]] = []
        for key, a, b in self.cells:
            parts, _ = split(a, b)
            try:
                sides.append((_observed(parts[0].base), _observed(parts[0].new)))
            except NoLogarithm:
                continue
            keys.append(key)
        found = zip(keys, judge(sides, rules))
        return [(key, judgement) for key, judgement in found if judgement.p is not None]

    def judged(self, rules: Rules) -> list[Judgement]:
        return [judgement for _, judgement in self.named(rules)]


def _observed(cell: Runs) -> Observed:
    if not cell.runs:
        return Observed(())
    return observe(cell, MEDIAN, Units("block", True, {unit: unit[1] for unit in cell.units}))


def _number(name: str) -> int:
    """Of a block, which ends the name of its pair."""
    return int(name.split()[-1])


def cut(sides: tuple[Dataset, Dataset], blocks: int) -> Iterator[Comparison]:
    """Comparisons of `blocks` blocks each, in the order taken. Drops the remaining blocks."""
    a, b = sides
    shared = matched(list(a.cells), list(b.cells), side_units(a, b).declared)
    names = [{unit[1] for cell in side.cells.values() for unit in cell.units} for side in sides]
    ordered = sorted((name for name in names[0] & names[1] if name), key=_number)
    for start in range(0, len(ordered) - blocks + 1, blocks):
        wanted = set(ordered[start : start + blocks])
        cells = []
        for keys in shared:
            one, two = (
                Runs([run for unit, runs in side.cells[key].units.items() if unit[1] in wanted
                      for run in runs])
                for side, key in zip(sides, keys)
            )  # fmt: skip
            cells.append((keys[0], one, two))
        yield Comparison(tuple(cells))


class Taker:
    """Takes experiments, bit by bit, until enough is there or its time is over."""

    def __init__(self, output: Path, seed: int, deadline: float) -> None:
        self._output = output
        self._seed = seed
        self.deadline = deadline

    def comparisons(
        self, experiment: Experiment, blocks: int, count: int
    ) -> tuple[list[Comparison], tuple[Dataset, Dataset]]:
        """`count` comparisons of one experiment. Their samples are read while they are there, and
        `done` deletes them."""
        self._seed += 1
        sides = experiment.take(blocks * count, self._seed, self._output)
        return list(cut(sides, blocks)), sides

    def done(self) -> None:
        shutil.rmtree(self._output, ignore_errors=True)

    def time_for(self, seconds: float) -> bool:
        """Whether what takes that long would still end in time."""
        return time.monotonic() + seconds <= self.deadline
