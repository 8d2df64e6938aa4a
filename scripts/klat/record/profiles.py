"""Profiles: programs, options and loads for one kind of user, under one name (--profile).

Only PROFILES says what is in a profile. Needs the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ProfileSet:
    """A program with options. `roles` is how many CPUs --cpus names. The roles run on `cpus` CPUs: 1, 2, or
    0 for the program's choice."""

    benchmark: str
    options: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    roles: int = 2

    @property
    def text(self) -> str:
        options = [f"--{name}={value}" for name, value in self.options.items()]
        return " ".join([self.benchmark, *options, *_WHERE[self.cpus]])


_WHERE: dict[int, list[str]] = {0: [], 1: ["on one CPU"], 2: ["on two CPUs"]}


@dataclass(frozen=True)
class Profile:
    """`runs` is the default number of runs of each set in a session of klat run. `first` names, by
    benchmark, the metric that reports show before the others."""

    about: str
    sets: tuple[ProfileSet, ...]
    loads: tuple[str, ...]
    runs: int
    first: Mapping[str, str]

    @property
    def benchmarks(self) -> list[str]:
        return list(dict.fromkeys(parameters.benchmark for parameters in self.sets))


_CYCLIC = {"method": "nanosleep", "mode": "periodic", "period": "1000"}
PROFILES = {
    "rt": Profile(
        about="for real-time users: wakeups, hand-offs and interruptions",
        sets=(
            ProfileSet("timer", _CYCLIC | {"policy": "fifo:98", "dma-latency": "0"}, roles=1),
            ProfileSet("cv", {"primitive": "cond"}),
            ProfileSet("cv", {"primitive": "pi-mutex"}),
            ProfileSet("pipes", cpus=2),
            ProfileSet("pipes", cpus=1),
            ProfileSet("tlbflush", cpus=2),
            ProfileSet("network"),
            ProfileSet("messages", {"wake": "futex"}),
            ProfileSet("transport", {"wait": "block"}),
        ),
        # The loads under which the worst lateness of stock was at least four times that of RT, with
        # Debian's 6.1 and 6.12: docs/results-load.md.
        loads=("none", "populate", "proc", "fork", "files"),
        runs=100,
        first={"tlbflush": "interruption"},
    )
}


def first_metrics(names: Iterable[str]) -> dict[str, str]:
    """The metric of each benchmark that reports show first, for sessions of these profiles."""
    first: dict[str, str] = {}
    for name in names:
        if name in PROFILES:
            first |= PROFILES[name].first
    return first


def variants(
    profile: Profile, benchmarks: Sequence[str], cpus: str | None, one_cpu: bool
) -> tuple[dict[str, list[dict[str, str]]], list[str]]:
    """The options of the profile's sets, by benchmark; and the texts of the sets that are left out, because
    they need two CPUs and there is one. `cpus` is the user's --cpus. `one_cpu`: the machine has one.
    """
    first = re.match("[0-9]+", cpus or "")
    one_cpu = one_cpu or bool(cpus and not re.search("[-,]", cpus))
    sets_by_benchmark: dict[str, list[dict[str, str]]] = {name: [] for name in benchmarks}
    left_out = []
    for parameters in profile.sets:
        if parameters.benchmark not in sets_by_benchmark:
            continue
        if parameters.cpus == 2 and one_cpu:
            left_out.append(parameters.text)
            continue
        options = dict(parameters.options)
        if parameters.roles == 1 and cpus:
            options["cpus"] = first[0] if first else cpus
        elif parameters.cpus == 1 or one_cpu:
            options["cpus"] = ",".join([first[0]] * parameters.roles) if first else "one"
        elif cpus:
            options["cpus"] = cpus
        sets_by_benchmark[parameters.benchmark].append(options)
    return sets_by_benchmark, left_out
