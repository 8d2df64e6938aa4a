"""Real data for validation: one long `klat ab`, cut into many comparisons of a few blocks each."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat import programs
from klat.errors import KlatError
from klat.estimands import MEDIAN
from klat.sides import CellRuns, Key, NoLogarithm, Side, Units, observe, read_side
from klat.sources import Run
from klat.verdicts import Judgement, Observed, Rules, judge

# Statuses of klat ab with which there is a record to judge: measured, and some runs invalid.
_TAKEN = (0, 3)


@dataclass(frozen=True)
class Setting:
    label: str
    prefix: str = ""
    setup: str = ""


@dataclass(frozen=True)
class Experiment:
    """What is taken: `words` are benchmarks and options of `klat ab`."""

    a: Setting
    b: Setting
    words: tuple[str, ...]
    runs: int  # of each parameter set in a turn
    restore: str = ""

    def command(self, blocks: int, seed: int, output: Path) -> list[str]:
        given = [
            ("--a", self.a.label), ("--a-prefix", self.a.prefix), ("--a-setup", self.a.setup),
            ("--b", self.b.label), ("--b-prefix", self.b.prefix), ("--b-setup", self.b.setup),
            ("--restore", self.restore), ("--blocks", str(blocks)), ("--seed", str(seed)),
            ("--runs-per-block", str(self.runs)), ("--output", str(output)),
        ]  # fmt: skip
        return ["ab", *self.words, *(word for pair in given if pair[1] for word in pair)]

    def take(self, blocks: int, seed: int, output: Path) -> tuple[Side, Side]:
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
        return read_side(Path(paths[0])), read_side(Path(paths[1]))


def _klat() -> Path:
    root = programs.root()
    return root / "klat" if programs.in_tree() else root / "bin" / "klat"


@dataclass(frozen=True)
class Comparison:
    """The same metrics on both sides, in a few blocks that followed one another."""

    cells: tuple[tuple[Key, CellRuns, CellRuns], ...]

    def judged(self, rules: Rules) -> list[Judgement]:
        """As `klat ab` is: the blocks are pairs."""
        return _judged([(a, b) for _, a, b in self.cells], True, rules)

    def relabelled(self, draw: random.Random) -> Comparison:
        """In each block A is B or stays A, in all metrics alike."""
        pairs = dict.fromkeys(unit for _, a, b in self.cells for x in (a, b) for unit in x.units)
        swapped = {unit for unit in pairs if draw.random() < 0.5}
        cells = []
        for key, a, b in self.cells:
            one, two = (
                CellRuns(units={u: (y if u in swapped else x).units.get(u, []) for u in pairs})
                for x, y in ((a, b), (b, a))
            )
            cells.append((key, one, two))
        return Comparison(tuple(cells))

    def judged_as_boots(self, draw: random.Random, rules: Rules) -> list[Judgement]:
        """As two kernels would be: each side's runs of a block are taken for a boot, and half of
        these boots, drawn anew, for BASE."""
        places = [
            (side, unit)
            for unit in dict.fromkeys(u for _, a, b in self.cells for x in (a, b) for u in x.units)
            for side in (1, 2)
        ]
        chosen = set(draw.sample(places, len(places) // 2))
        sides: list[tuple[CellRuns, CellRuns]] = []
        for cell in self.cells:
            both = CellRuns(), CellRuns()
            for side, unit in places:
                runs: list[Run] = cell[side].units.get(unit, [])  # type: ignore[union-attr]
                if runs:
                    into = both[(side, unit) not in chosen]
                    into.units[f"{unit[0]} {side}", unit[1]] = runs
            sides.append(both)
        return _judged(sides, False, rules)


def _judged(
    sides: Sequence[tuple[CellRuns, CellRuns]], in_pairs: bool, rules: Rules
) -> list[Judgement]:
    pairs: list[tuple[Observed, Observed]] = []
    for both in sides:
        try:
            pairs.append((_observed(both[0], in_pairs), _observed(both[1], in_pairs)))
        except NoLogarithm:
            continue
    return [judgement for judgement in judge(pairs, rules) if judgement.p is not None]


def _observed(cell: CellRuns, in_pairs: bool) -> Observed:
    kept = CellRuns(units={unit: runs for unit, runs in cell.units.items() if runs})
    if not kept.units:
        return Observed(())
    pairs = {unit: unit[1] for unit in kept.units} if in_pairs else {}
    return observe(kept, MEDIAN, Units("block", True, pairs))


def _number(name: str) -> int:
    """Of a block, which ends the name of its pair."""
    return int(name.split()[-1])


def cut(sides: tuple[Side, Side], blocks: int) -> Iterator[Comparison]:
    """Comparisons of `blocks` blocks each, in the order taken; what is left over is dropped."""
    a, b = sides
    shared = [key for key in a.cells if key in b.cells]
    names = [{unit[1] for cell in side.cells.values() for unit in cell.units} for side in sides]
    ordered = sorted((name for name in names[0] & names[1] if name), key=_number)
    for start in range(0, len(ordered) - blocks + 1, blocks):
        wanted = set(ordered[start : start + blocks])
        cells = []
        for key in shared:
            one, two = (
                CellRuns(
                    units={unit: runs for unit, runs in side.cells[key].units.items()
                           if unit[1] in wanted}
                )
                for side in sides
            )  # fmt: skip
            cells.append((key, one, two))
        yield Comparison(tuple(cells))


class Taker:
    """Takes experiments, bit by bit, until enough is there or its time is over."""

    def __init__(self, output: Path, seed: int, deadline: float) -> None:
        self._output = output
        self._seed = seed
        self.deadline = deadline

    def comparisons(
        self, experiment: Experiment, blocks: int, count: int
    ) -> tuple[list[Comparison], tuple[Side, Side]]:
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
