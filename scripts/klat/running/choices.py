"""What a session measures: its benchmarks, their sets of options, and its loads, from what the user chose."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from klat.base import programs
from klat.base.errors import KlatError, SKIPPED, USAGE
from klat.machine import kernel_files
from klat.record import plan_csv, profiles
from klat.record.plan_csv import ProgramOption
from klat.record.profiles import PROFILES
from klat.report.text.columns import wrapped
from klat.running import loads


def benchmarks(named: list[str], profile: str | None = None) -> list[str]:
    """The session's benchmarks in klat's order, whatever the order typed: the plan is then the
    same."""
    if profile:
        _check_profile(named, profile)
        names = named or PROFILES[profile].benchmarks
    elif not named:
        names = list(programs.CORE)
    else:
        names = without_words(named)
    for name in names:
        if names.count(name) > 1:
            raise KlatError(f"{name} is named twice")
        programs.require(name)
    core = [name for name in programs.CORE if name in names]
    return core + sorted(set(names).difference(core))


def without_words(named: list[str]) -> list[str]:
    """Replaces the words `all` (only alone) and `core` by names of programs."""
    if named == ["all"]:
        return programs.available() or list(programs.CORE)
    return [name for word in named for name in (programs.CORE if word == "core" else [word])]


def _check_profile(named: list[str], profile: str) -> None:
    """KlatError if a named benchmark is not in the profile."""
    there = PROFILES[profile].benchmarks
    for name in named:
        if name not in there:
            raise KlatError(f"--profile {profile} has no {name}; it has {', '.join(there)}")


def parameter_sets(
    benchmarks: Sequence[str],
    given: Mapping[str, object],
    options: Sequence[ProgramOption],
    sweeps: Sequence[ProgramOption],
    profile: str | None,
    guest_cpus: int | None,
) -> list[tuple[str, tuple[str, ...]]]:
    """Every benchmark with each set of options. `given` has the options of every program. The profile's sets
    of two CPUs are left out if the machine, the guest or --cpus has one."""
    common = {name: plain(name, str(value)) for name, value in given.items()}
    # The sets of a profile differ in the number of CPUs.
    cpus = common.pop("cpus", None) if profile else None
    one_cpu = (guest_cpus or len(os.sched_getaffinity(0))) == 1
    variants = _variants(profile, benchmarks, cpus, cpus is None and one_cpu)
    return plan_csv.parameter_sets(benchmarks, common, options, sweeps, variants)


# A map of more CPUs is measured at so many of them, spread evenly.
_MOST_MAPPED = 64


def by_cpu_pairs(sets: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...]]]:
    """Each set with every ordered pair of CPUs, and with each CPU twice if its program can share one. KlatError if a
    program does not run on two CPUs."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise KlatError("--matrix needs two CPUs, and klat may use one", SKIPPED)
    step = max(1.0, len(allowed) / _MOST_MAPPED)
    cpus = [allowed[int(step * i)] for i in range(min(len(allowed), _MOST_MAPPED))]
    if len(cpus) < len(allowed):
        print(f"--matrix: {len(cpus)} of {len(allowed)} CPUs, spread evenly", file=sys.stderr)
    mapped = []
    for name, words in sets:
        if any(word.startswith("--cpus") for word in words):
            raise KlatError(f"--matrix chooses the CPUs of {name}: leave out cpus")
        path, (first, second) = programs.require(name), cpus[:2]
        pair = f"--cpus={first},{second}"
        status, message = programs.check_options(path, (*words, pair), "virtual")
        if status == USAGE:
            one_pair = (word for word in words if not word.startswith("--pairs="))
            if programs.check_options(path, (*one_pair, pair), "virtual")[0] != USAGE:
                raise KlatError(f"--matrix measures one pair at a time: leave out {name}.pairs")
            raise KlatError(f"--matrix needs programs of two CPUs: {message}")
        shares, _ = programs.check_options(path, (*words, f"--cpus={first},{first}"), "virtual")
        pairs = ((a, b) for a in cpus for b in cpus if a != b or shares != USAGE)
        mapped += [(name, (*words, f"--cpus={a},{b}")) for a, b in pairs]
    return mapped


def check_options(sets: Sequence[tuple[str, tuple[str, ...]]], later: bool = False) -> None:
    """KlatError if a program refuses its options. Its first run, which would say so, can come after many others.
    `later`: a set-up or a boot comes before the first run, and can bring CPUs that are missing now.
    """
    cpus = kernel_files.MOST_CPUS if later else None
    for name, words in sets:
        status, message = programs.check_options(programs.require(name), words, "virtual", cpus)
        if status == USAGE:
            raise KlatError(message)


def _variants(
    profile: str | None, benchmarks: Sequence[str], cpus: str | None, one_cpu: bool
) -> dict[str, list[dict[str, str]]] | None:
    """The profile's sets of options, by benchmark; None without a profile. Says what is left out
    because there is only one CPU."""
    if profile is None:
        return None
    variants, left_out = profiles.variants(PROFILES[profile], benchmarks, cpus, one_cpu)
    if left_out:
        line = f"profile {profile}: left out, because there is one CPU: {', '.join(left_out)}"
        print("\n".join(wrapped(line, "", "  ")), file=sys.stderr)
    if not any(variants.values()):
        raise KlatError(f"--profile {profile}: nothing is left to measure on one CPU", SKIPPED)
    return variants


def checked_load(load: str | None) -> str | None:
    """The --load as typed, after its check."""
    if load is not None and not load.strip():
        raise KlatError("--load is empty")
    if load is not None:
        loads.check(load)
    return load


def different_loads(typed: Sequence[str]) -> list[str]:
    """The loads as typed. KlatError if one is empty, or named twice."""
    for load in typed:
        if not load.strip():
            raise KlatError("--load is empty")
        if typed.count(load) > 1:
            raise KlatError(f"the load {load} is named twice")
    return list(typed)


def loads_of(typed: Sequence[str], profile: str | None) -> list[str]:
    """The loads as typed, or else those of the profile, or else none."""
    usual = PROFILES[profile].loads if profile else [loads.IDLE]
    return different_loads(typed) or list(usual)


def plain(name: str, value: str) -> str:
    """The value of an option, as a plan can hold it."""
    if not value or '"' in value or not value.isprintable():
        raise KlatError(f"--{name} cannot be {value!r}")
    return value
