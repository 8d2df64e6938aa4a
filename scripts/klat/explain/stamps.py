"""The stamps of a program: their addresses, and the functions of the source that contain them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError
from klat.explain import isa, symbols
from klat.record.renamed_metrics import present_names

_BEGIN, _END = "klat_stamp_begin", "klat_stamp_end"
_SECONDS = 10


@dataclass(frozen=True)
class Stamp:
    address: int
    functions: tuple[str, ...]  # the functions that contain its source line, innermost first
    begins: bool


def of_program(path: Path) -> list[Stamp]:
    """All stamps in the program's own code, by address."""
    stamps = []
    for address, names in symbols.inlined(path, _counter_reads(path)).items():
        # An end stamp can call klat_stamp_begin().
        for kind in (_END, _BEGIN):
            if kind in names:
                stamps.append(Stamp(address, names, kind == _BEGIN))
                break
    return sorted(stamps, key=lambda stamp: stamp.address)


def _counter_reads(path: Path) -> list[int]:
    data = path.read_bytes()
    arch = isa.of_file(path)
    return [
        section.address + match.start()
        for section in symbols.code_of(path)
        for match in arch.counter_read.finditer(
            data[section.offset : section.offset + section.size]
        )
        if not match.start() % arch.alignment
    ]


@dataclass(frozen=True)
class Bounds:
    """Where a metric's windows begin and end.

    `begins_in` and `ends_in` are the functions with the stamps. A sample is the mean of `mean_of` windows.
    With `from_deadline`, a sample begins at a deadline within its window."""

    begins_in: tuple[str, ...]
    ends_in: tuple[str, ...]
    mean_of: int
    from_deadline: bool


def bounds_of_all(path: Path) -> dict[str, Bounds]:
    """The bounds of each metric, by its present name, from the program's table. The program may be of an
    earlier version. Leaves out metrics that klat cannot explain."""
    try:
        done = subprocess.run(
            [str(path), "--print-benchmark"], capture_output=True, timeout=_SECONDS, check=True
        )
        metrics: list[dict[str, Any]] = json.loads(done.stdout)["metrics"]
        return {
            name: Bounds(
                tuple(metric["begins_in"].split()),
                tuple(metric["ends_in"].split()),
                int(metric["mean_of"]),
                bool(metric["from_deadline"]),
            )
            for metric in metrics
            if metric.get("ends_in")
            for name in present_names(path.name, metric["name"])
        }
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise KlatError(f"{path}: cannot read its metrics: {error}") from None


def of_metric(program: str, by_metric: Mapping[str, Bounds], metric: str) -> Bounds:
    """The bounds of one metric. KlatError if klat cannot explain it."""
    if metric not in by_metric:
        raise KlatError(
            f"{program}.{metric} cannot be explained: {program} names no stamps that begin and end"
            f" its samples; {program} has {', '.join(by_metric) or 'no metric that can'}"
        )
    return by_metric[metric]
