"""What a row of selfbench is made of: a claim, how it is measured, and what it is measured beside."""

import json
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
FOLDERS = {
    path.stem: path.parent
    for path in (*ROOT.glob("*/*.c"), *ROOT.glob("bench/*/*.c"))
    if path.stem == path.parent.name != "load"
}
ROUNDS = int(os.environ.get("ROUNDS") or 7)
CPU = max(os.sched_getaffinity(0))
# Real-time tasks that never sleep for longer than a second altogether are throttled; so is what comes after them.
REST_SECONDS = 0.2


class Unavailable(Exception):
    """A figure that this machine cannot give, and why."""


class Failed(Exception):
    """Something of this tree did not work, so a row has no figure."""


@dataclass(frozen=True)
class Figure:
    """`value` is held to the claim's limit; `beside` are further lines, of other programs."""

    value: float
    text: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A row: holds where the figure is at most `limit`."""

    text: str
    limit: float
    measure: Callable[[], Figure]


def no_slower(text: str, measure: Callable[[], Figure]) -> Claim:
    """Claims that a ratio is at most 1.00, rounded to the two decimals of the row."""
    return Claim(f"{text}, at most 1.00", 1.005, measure)


def output_of(*words: str | Path) -> str:
    """Standard output; status 3 is a figure too, if a doubtful one."""
    time.sleep(REST_SECONDS)
    name = str(words[0])
    if not shutil.which(name) and not Path(name).exists():
        raise Unavailable(f"there is no {name}")
    ours = name == "make" or ("/" in name and Path(name).resolve().is_relative_to(ROOT))
    failure = Failed if ours else Unavailable
    try:
        done = subprocess.run(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=600,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise failure(str(error)) from None
    if done.returncode not in (0, 3):
        why = (done.stderr.strip() or f"{name} ended with {done.returncode}").splitlines()[-1]
        raise failure(why)
    return done.stdout


def peer(variable: str, what: str) -> Path:
    """A program, or a folder of them, that no distribution has: the environment variable names it."""
    path = Path(os.environ.get(variable) or "")
    if not path.name or not path.exists():
        raise Unavailable(f"{variable} does not name {what}")
    return path.resolve()


def program(name: str, *words: str | Path) -> list[str | Path]:
    return [FOLDERS[name] / name, *words]


def programs() -> list[str]:
    return sorted(FOLDERS)


def mean_ns(metric: str, *words: str | Path) -> float:
    for each in json.loads(output_of(*words, "--json"))["metrics"]:
        if each["name"] == metric:
            return float(each["mean_ns"])
    raise Failed(f"no metric {metric}")


def number_in(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    if not match:
        raise Unavailable(f"no {pattern!r} in {text[:80]!r}")
    return float(match[1])


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int = ROUNDS
) -> tuple[list[float], list[float]]:
    """ABBA, so that a drift of the machine falls on both."""
    a: list[float] = []
    b: list[float] = []
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            if which == 0:
                a.append(ours())
            else:
                b.append(theirs())
    return a, b


def ratio(ours: Sequence[float], theirs: Sequence[float], unit: str) -> Figure:
    """
    Of one turn, the median; then the medians of both sides. A virtual CPU may run at two speeds by
    turns, some seconds each, and the medians of the sides then be of different ones.
    """
    single = sorted(a / b for a, b in zip(ours, theirs))
    value = statistics.median(single)
    return Figure(
        value,
        f"{value:.3f} ({statistics.median(ours):.4g} against {statistics.median(theirs):.4g} {unit}; "
        f"turns {single[0]:.2f} to {single[-1]:.2f})",
    )


def seconds(*words: str | Path) -> float:
    """Start to exit, whatever the status."""
    begun = time.monotonic()
    subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.monotonic() - begun
