"""The stamps of a program: at which addresses they are, and in which functions of its source."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError
from klat.explain import isa, symbols

_BEGIN, _END = "klat_stamp_begin", "klat_stamp_end"
_SECONDS = 10


@dataclass(frozen=True)
class Stamp:
    address: int
    functions: tuple[str, ...]  # that its line is in, innermost first
    begins: bool


def of_program(path: Path) -> list[Stamp]:
    """Every stamp that the program's own code takes, by address."""
    found = []
    for address, names in symbols.inlined(path, _counter_reads(path)).items():
        for kind in (_BEGIN, _END):
            if kind in names:
                found.append(Stamp(address, names, kind == _BEGIN))
                break
    return sorted(found, key=lambda stamp: stamp.address)


def _counter_reads(path: Path) -> list[int]:
    data = path.read_bytes()
    counter_read = isa.of_file(path).counter_read
    return [
        section.address + match.start()
        for section in symbols.code_of(path)
        for match in counter_read.finditer(data[section.offset : section.offset + section.size])
    ]


@dataclass(frozen=True)
class Bounds:
    """The functions whose stamps begin and end a window of a metric, and the number of windows that a
    sample is the mean of. A sample can begin at a deadline within its window."""

    begins_in: tuple[str, ...]
    ends_in: tuple[str, ...]
    mean_of: int
    from_deadline: bool


def bounds_of_all(path: Path) -> dict[str, Bounds]:
    """By metric, from the program's table. A metric that cannot be explained is not in it."""
    try:
        done = subprocess.run(
            [str(path), "--print-benchmark"], capture_output=True, timeout=_SECONDS, check=True
        )
        metrics: list[dict[str, Any]] = json.loads(done.stdout)["metrics"]
        return {
            each["name"]: Bounds(
                tuple(each["begins_in"].split()),
                tuple(each["ends_in"].split()),
                int(each["mean_of"]),
                bool(each["from_deadline"]),
            )
            for each in metrics
            if each.get("ends_in")
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise KlatError(f"{path}: cannot ask it for its metrics: {error}") from None


def bounds(path: Path, metric: str) -> Bounds:
    """KlatError if the program has none for this metric."""
    held = bounds_of_all(path)
    if metric not in held:
        raise KlatError(
            f"{path.name}.{metric} cannot be explained; {path.name} has"
            f" {', '.join(held) or 'no metric that can'}"
        )
    return held[metric]
