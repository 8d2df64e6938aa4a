"""A lock file: the exact kernels and options of a report, from which `klat lab trend --lock` makes it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.bounded_read import read_json
from klat.base.errors import KlatError
from klat.base.fields import Kind, ListOf, Number, Object, OneOf, Text, Tuple, Whole
from klat.compare.verdicts import Rules
from klat.lab import experiment, kernels
from klat.lab.architectures import ARCHITECTURES
from klat.lab.execution import Request
from klat.lab.guest_contents import Sets, modules_of
from klat.lab.kernels import Kernel, Spec
from klat.record import plan_csv
from klat.record.json_files import LARGEST_INTEGER, MOST_BOOTS

_LARGEST = 1 << 20
_MOST = 1024  # kernels
_TEXT = Text()
_HASH = Text(64, "[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")
_KERNEL: dict[str, Kind] = {
    **dict.fromkeys(("kernel", "label", "release", "package", "version"), _TEXT),
    "sha256": _HASH,
}
_MODULES = "modules_sha256"  # of the modules that its guests load; a package decides them
_FIELDS: dict[str, Kind] = {
    "schema": Whole(1, 1),
    "arch": OneOf(tuple(ARCHITECTURES)),
    "kernels": ListOf(Object(_KERNEL | {_MODULES: _HASH}, frozenset(_KERNEL)), _MOST, 2),
    "series": ListOf(ListOf(Whole(0, _MOST), _MOST, 1), _MOST, 1),
    "programs": ListOf(Tuple((_TEXT, ListOf(_TEXT, 1024))), 1024, 1),
    "boots": Whole(2, MOST_BOOTS),
    "seed": Whole(0, LARGEST_INTEGER),
    **dict.fromkeys(("clock", "append", "load"), _TEXT),
    **dict.fromkeys(("margin", "alpha"), Number(1e-9, 0.999)),
}
_LOCK = Object(_FIELDS, frozenset(_FIELDS))


@dataclass(frozen=True)
class Lock:
    """`series` has the indices of the kernels that follow each other."""

    path: Path
    specs: tuple[Spec, ...]
    series: list[list[int]]
    sets: tuple[tuple[str, tuple[str, ...]], ...]
    facts: Mapping[str, Any]

    def check(self, obtained: Mapping[int, Kernel]) -> None:
        """KlatError if a kernel is not the one of the lock file."""
        for number, kernel in obtained.items():
            locked = self.facts["kernels"][number]
            hashes = _hashes(kernel, self.sets)
            # An older file has no hash of modules.
            if any(locked.get(name, value) != value for name, value in hashes.items()):
                raise KlatError(
                    f"{kernel.image.path}: is not the kernel {kernel.label} of {self.path}, or its modules differ"
                )


def write(
    path: Path,
    request: Request,
    rules: Rules,
    obtained: Mapping[int, Kernel],
    series: list[list[int]],
) -> None:
    """KlatError if the file cannot be written, or if it would have fewer than two kernels. `obtained` has the index of
    each kernel among request.specs."""
    if len(obtained) < 2:
        raise KlatError(f"{path}: not written, because there are fewer than two kernels")
    place = {number: index for index, number in enumerate(obtained)}
    series = [[place[number] for number in chain if number in place] for chain in series]
    facts = {
        "schema": 1,
        "arch": request.architecture.name,
        "kernels": [_facts(kernel, request.sets) for kernel in obtained.values()],
        "series": [chain for chain in series if chain],
        "programs": request.sets,
        "boots": request.boots,
        "seed": request.seed,
        "clock": request.clock,
        "append": request.append,
        "load": request.loads[0],
        "margin": rules.margin,
        "alpha": rules.alpha,
    }
    files.write_whole(path, f"{json.dumps(facts, indent=1)}\n".encode())


def _hashes(kernel: Kernel, sets: Sets) -> dict[str, str]:
    hashes = {"sha256": kernel.image.sha256}
    if kernel.tree and not kernel.package:
        digest = hashlib.sha256()
        first, last = modules_of(kernel, sets)
        for module in (*first, *last):
            digest.update(hashlib.sha256(module.data).digest())
        hashes[_MODULES] = digest.hexdigest()
    return hashes


def _facts(kernel: Kernel, sets: Sets) -> dict[str, str]:
    package = kernel.package
    return {
        "kernel": absolute(kernel.spec),
        "label": kernel.label,
        "release": kernel.image.release,
        "package": package.name if package else "",
        "version": package.version if package else "",
        **_hashes(kernel, sets),
    }


def absolute(spec: Spec) -> str:
    """The kernel as typed, with the whole paths of its files."""
    if spec.debian:
        return spec.text
    modules = f",modules={spec.modules.absolute()}" if spec.modules else ""
    append = f",append={spec.append}" if spec.append else ""
    return f"{spec.label}={spec.path.absolute()}{modules}{append}"


def read(path: Path) -> Lock:
    """KlatError or SessionError if the file is no lock file."""
    facts = read_json(path, _LOCK, _LARGEST)
    try:
        specs = tuple(map(_spec, facts["kernels"]))
        experiment.parse_clock(facts["clock"])
        experiment.checked_labels([spec.label for spec in specs], [facts["load"]])
        for word in (word for _, words in facts["programs"] for word in words):
            plan_csv.check_argument(word)
    except (ValueError, KlatError) as error:
        raise KlatError(f"{path}: {error}") from None
    places = sorted(number for chain in facts["series"] for number in chain)
    if places != list(range(len(specs))):
        raise KlatError(f"{path}: series does not have each kernel once")
    sets = tuple((name, tuple(words)) for name, words in facts["programs"])
    return Lock(path, specs, facts["series"], sets, facts)


def _spec(kernel: Mapping[str, str]) -> Spec:
    spec = replace(kernels.parse(kernel["kernel"]), label=kernel["label"])
    if not spec.debian:
        return spec
    return replace(spec, debian=kernel["release"], package=(kernel["package"], kernel["version"]))
