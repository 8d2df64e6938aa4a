"""How long a verdict takes, and how much memory, beside benchstat, pandas and scipy on the same data."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rows import BUILD, ROOT, ROUNDS, Claim, Figure, Unavailable

HERE = Path(__file__).resolve().parents[1]
KLAT = ROOT / "klat"
Words = Sequence[str | Path]
# Of NEW over BASE, in all that is made up here.
SLOWER = 1.05


@dataclass(frozen=True)
class Spent:
    seconds: float
    megabytes: float  # at the peak


def spent(*words: str | Path, statuses: Sequence[int] = (0,)) -> Spent:
    """From start to exit. Unavailable where it ends otherwise than it should."""
    with tempfile.TemporaryFile() as said:
        begun = time.monotonic()
        child = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        _, status, usage = os.wait4(child.pid, 0)
        taken = time.monotonic() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in statuses:
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Unavailable(f"{words[0]} ended with {child.returncode}: {' '.join(last)}")
    return Spent(taken, usage.ru_maxrss * 1024 / 1e6)


@contextmanager
def labels(**shape: int) -> Iterator[tuple[Path, Path]]:
    """Two labels, BASE and NEW, of made-up sessions."""
    made = HERE / "made_sessions.py"
    asked = [f"--{name}={value}" for name, value in shape.items()]
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        base, new = Path(scratch, "base"), Path(scratch, "new")
        spent(sys.executable, "-B", made, base, *asked, "--seed=1")
        spent(sys.executable, "-B", made, new, *asked, "--seed=2", f"--factor={SLOWER}")
        yield base, new


@dataclass(frozen=True)
class Contest:
    """klat's rounds, and for each of the others its rounds or why there are none."""

    klat: list[Spent]
    others: Mapping[str, list[Spent] | str]

    def _beside(self) -> Iterator[str]:
        ours = statistics.median(each.seconds for each in self.klat)
        for name, rounds in self.others.items():
            if isinstance(rounds, str):
                yield f"{name}: not available: {rounds}"
                continue
            theirs = statistics.median(each.seconds for each in rounds)
            yield f"{name}: {told(rounds)}; klat / {name.partition(',')[0]} {ours / theirs:.2f}"

    def seconds(self) -> Figure:
        value = statistics.median(each.seconds for each in self.klat)
        return Figure(value, told(self.klat), tuple(self._beside()))

    def over(self, name: str) -> Figure:
        """The ratio of the time to that of another."""
        rounds = self.others[name]
        if isinstance(rounds, str):
            raise Unavailable(rounds)
        ours, theirs = (statistics.median(s.seconds for s in r) for r in (self.klat, rounds))
        return Figure(ours / theirs, f"{ours / theirs:.2f} ({told(self.klat)}; {told(rounds)})")

    def megabytes(self) -> Figure:
        return Figure(max(each.megabytes for each in self.klat), told(self.klat))


def told(rounds: Sequence[Spent]) -> str:
    times = sorted(each.seconds for each in rounds)
    return (
        f"{statistics.median(times):.2f} s ({times[0]:.2f} to {times[-1]:.2f} of {len(times)}),"
        f" at most {max(each.megabytes for each in rounds):.0f} MB"
    )


def contest(klat: Words, others: Mapping[str, Words | str], rounds: int) -> Contest:
    """All of them in each round, in turns that change direction. What takes ten times as long does so
    once."""
    ours: list[Spent] = []
    theirs: dict[str, list[Spent] | str] = {
        name: words if isinstance(words, str) else [] for name, words in others.items()
    }
    for number in range(rounds):
        names = ["", *others]
        for name in names if number % 2 == 0 else reversed(names):
            if not name:
                # 1 is the planted slowdown: found, or the time was spent on something else.
                ours.append(spent(*klat, statuses=(1,)))
                continue
            held, words = theirs[name], others[name]
            if isinstance(held, list) and not isinstance(words, str):
                if held and ours and held[-1].seconds > 10 * ours[-1].seconds:
                    continue
                try:
                    held.append(spent(*words))
                except Unavailable as error:
                    theirs[name] = str(error)
    return Contest(ours, theirs)


def peer(name: str, what: str, base: Path, new: Path) -> Words:
    return [sys.executable, "-B", HERE / "peers.py", name, what, base, new]


@cache
def benchstat() -> Path:
    """From the Go module proxy, into build/."""
    there = shutil.which("benchstat")
    if there:
        return Path(there)
    own = BUILD / "go" / "benchstat"
    if own.exists():
        return own
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if not go:
        raise Unavailable("there is no go to build it with")
    places = {"GOBIN": str(own.parent), "GOPATH": str(own.parent / "path")}
    places |= {"GOCACHE": str(own.parent / "cache"), "GOFLAGS": "-modcacherw"}
    done = subprocess.run(
        [go, "install", "golang.org/x/perf/cmd/benchstat@latest"],
        env=os.environ | places,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise Unavailable((done.stderr.strip() or "go ended without a word").splitlines()[-1])
    return own


def with_benchstat(*files: Path) -> Words | str:
    try:
        return [benchstat(), "-col", "label", *files]
    except (Unavailable, subprocess.TimeoutExpired) as error:
        return str(error)


def every_hundredth(label: Path, file: Path) -> Path:
    """As text for benchstat, a sample in a line: all of them would be 4 GB."""
    with file.open("w") as out:
        out.write(f"label: {label.name}\n")
        for samples in sorted(label.glob("*/samples/*.u64")):
            with samples.open("rb") as source:
                for place in range(0, samples.stat().st_size, 800):
                    source.seek(place)
                    out.write(
                        f"BenchmarkIt 1 {int.from_bytes(source.read(8), 'little')} ticks/op\n"
                    )
    return file


@cache
def of_samples() -> Contest:
    """p99.9 is in no row, so each sample is read. 5 boots a side, 10 runs of a million samples."""
    with labels(boots=5, runs=10, samples=1_000_000) as (base, new):
        texts = [every_hundredth(label, label.with_suffix(".txt")) for label in (base, new)]
        others = {
            "benchstat, every 100th sample": with_benchstat(*texts),
            "pandas": peer("pandas", "samples", base, new),
            "scipy": peer("scipy", "samples", base, new),
        }
        return contest([KLAT, "compare", base, new, "--quantile", "p99.9"], others, min(3, ROUNDS))


def one_run_each() -> Figure:
    """The same number in two runs, which is the most that memory could have to hold."""
    with labels(boots=1, runs=1, samples=50_000_000) as (base, new):
        words: Words = [KLAT, "compare", base, new, "--quantile", "p99.9"]
        # One boot a side settles nothing.
        found = spent(*words, statuses=(3,))
    return Figure(found.megabytes, told([found]))


@cache
def of_rows() -> Contest:
    """Half of the 500 on each side, in 10 boots: 5 are too few for 50 tests."""
    with labels(benchmarks=50, boots=10, runs=25, samples=200) as (base, new):
        texts = [label.with_suffix(".txt") for label in (base, new)]
        for label, text in zip((base, new), texts):
            spent(KLAT, "export", "--format", "gobench", label, "-o", text)
        others = {
            "benchstat": with_benchstat(*texts),
            "pandas": peer("pandas", "rows", base, new),
            "scipy": peer("scipy", "rows", base, new),
        }
        return contest([KLAT, "compare", base, new], others, ROUNDS)


def seconds_of(*words: str | Path) -> Figure:
    rounds = [spent(KLAT, *words) for _ in range(ROUNDS)]
    return Figure(statistics.median(each.seconds for each in rounds), told(rounds))


def summary() -> Figure:
    """As many runs, metrics and samples as a session of make bench has."""
    with labels(benchmarks=10, runs=500, samples=500) as (base, _):
        return seconds_of("summary", base)


CLAIMS = [
    Claim("10^8 raw samples to a verdict, at most 1.2 s", 1.2, lambda: of_samples().seconds()),
    Claim(
        "10^8 raw samples to a verdict, at most 0.5 of scipy",
        0.5,
        lambda: of_samples().over("scipy"),
    ),
    Claim("10^8 raw samples to a verdict, at most 100 MB", 100, lambda: of_samples().megabytes()),
    Claim("10^8 raw samples in one run a side, at most 500 MB", 500, one_run_each),
    Claim(
        "500 runs of 50 benchmarks from runs.csv to verdicts, at most 0.8 s",
        0.8,
        lambda: of_rows().seconds(),
    ),
    Claim(
        "500 runs of 50 benchmarks from runs.csv to verdicts, at most 120 MB",
        120,
        lambda: of_rows().megabytes(),
    ),
    Claim("summary of a session of make bench, at most 0.6 s", 0.6, summary),
    Claim("klat --help, at most 0.15 s", 0.15, lambda: seconds_of("--help")),
]
