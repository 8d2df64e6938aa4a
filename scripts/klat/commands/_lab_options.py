"""The options of the commands that boot kernels. Makes an experiment from them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from klat.base.errors import KlatError, did_you_mean
from klat.commands import _session_options
from klat.commands._types import add_number, add_repeatable, checked, number
from klat.record import renamed_metrics
from klat.record.profiles import PROFILES
from klat.running import choices

if TYPE_CHECKING:
    from klat.lab.architectures import Architecture
    from klat.lab.execution import Request
    from klat.lab.qemu import GuestSize


def _kernel(text: str) -> Any:
    from klat.lab import kernels

    return kernels.parse(text)


def _clock(text: str) -> str:
    from klat.lab import experiment

    return experiment.parse_clock(text)


def _metric(text: str) -> str:
    benchmark, _, name = text.partition(".")
    if not benchmark or not name or "/" in text:
        raise ValueError(f"{text!r} is not BENCHMARK.METRIC, as in pipes.round_trip")
    if renamed := renamed_metrics.advice(name, benchmark):
        raise ValueError(f"there is no {text}{renamed}")
    return text


metric = checked(_metric)


def add_architecture(parser: argparse._ActionsContainer) -> None:
    help_text = "architecture of the guests: amd64, arm64, riscv64 (default: this machine's)"
    parser.add_argument("--arch", metavar="NAME", help=help_text)


def architecture(arguments: argparse.Namespace) -> Architecture:
    """KlatError if the lab has no guests of this architecture."""
    from klat.lab.architectures import ARCHITECTURES, HOST

    name = arguments.arch
    if name is not None and name not in ARCHITECTURES:
        others = {known.machine: known.name for known in ARCHITECTURES.values()}
        meant = f", did you mean {others[name]!r}?" if name in others else ""
        raise KlatError(f"--arch {name}: there are {', '.join(ARCHITECTURES)}{meant}")
    return ARCHITECTURES[name] if name else HOST


def add_kernel(parser: argparse._ActionsContainer, kernels: str) -> None:
    """--arch, --kernel with this help, and --time-limit."""
    add_architecture(parser)
    add_repeatable(parser.add_argument, "--kernel", "SPEC", kernels, _kernel)
    add_time_limit(parser)


def add_time_limit(parser: argparse._ActionsContainer) -> None:
    limit = {"help": "stop a boot after this time and count it as failed (default: 3600)"}
    _session_options.add_measure(parser, "time-limit", **{"time-limit": limit})


def add_guest(parser: argparse.ArgumentParser, kernels: str, cpus: int, nodes: int) -> None:
    """The options of `run` and `shootdown`. `kernels` is the help of --kernel; `cpus` and `nodes` are
    the defaults."""
    add = parser.add_argument
    add_kernel(parser, kernels)
    add_number(add, "--cpus", 2 if cpus > 1 else 1, 4096, f"CPUs of a guest (default: {cpus})")
    add_number(add, "--numa", 1, 128, f"NUMA nodes of a guest (default: {nodes})")
    help_text = "memory of a guest (default: 512 for one CPU, and 16 for each further CPU)"
    add("--memory", type=number(128, 1 << 20, "number of megabytes"), metavar="MB", help=help_text)
    _session_options.add_measure(parser, "output")


def add_conditions(
    parser: argparse._ActionsContainer, clock: str = "now", **changed: dict[str, Any]
) -> None:
    """The options that apply to all kernels of the experiment. `clock` is the default of --clock; `changed` has other
    settings of an option."""
    add = parser.add_argument
    add("--append", metavar="WORDS", help="words for the command line of every kernel")
    help_text = f"UTC time of the first guest's clock (default: {clock})"
    add("--clock", type=checked(_clock), metavar="TIME", help=help_text)
    text = "one of klat's loads, or 'none'; repeatable, with a label for each (LABEL-NAME)"
    loads = _session_options.several_loads(text) | {"metavar": "NAME"}
    _session_options.add_measure(
        parser,
        "load",
        *_session_options.PLAN,
        **{"load": loads} | {n: loads | c if n == "load" else c for n, c in changed.items()},
    )


def request(
    arguments: argparse.Namespace,
    *,
    mode: str,
    shape: GuestSize,
    boots: int,
    runs: int,
    profile: str | None = None,
) -> Request:
    """KlatError if the options do not make an experiment."""
    from klat.lab import experiment, kernels, qemu
    from klat.lab.execution import Request
    from klat.running.loads import IDLE

    if not arguments.kernel:
        raise KlatError("which kernel: --kernel debian:stock, or NAME=path/to/KERNEL")
    loads = choices.loads_of(arguments.load, profile)
    chosen = architecture(arguments)
    qemu.find(chosen)  # before the build and the downloads, which take minutes
    sets = parameter_sets(arguments, shape.cpus, loads, profile)
    _check_loads([load for load in loads if load != IDLE])
    specs = kernels.labelled(arguments.kernel, chosen)
    for words in (arguments.append or "", *(spec.append for spec in specs)):
        qemu.check_append(words)
    return Request(
        architecture=chosen,
        specs=specs,
        mode=mode,
        shape=shape,
        sets=sets,
        loads=loads,
        append=choices.plain("append", arguments.append) if arguments.append is not None else "",
        boots=boots,
        runs=runs,
        seed=_session_options.seed(arguments),
        clock=arguments.clock or experiment.now(),
        time_limit_s=arguments.time_limit or 3600,
        profile=profile or "",
    )


def _check_loads(loads: list[str]) -> None:
    from klat.running import loads as klat_loads

    for load in loads:
        if load not in klat_loads.names():
            raise KlatError(
                f"--load {load}: a guest has only klat's own loads: {klat_loads.names_text()}"
                f"{did_you_mean(load, klat_loads.names())}"
            )


def parameter_sets(
    arguments: argparse.Namespace, cpus: int, loads: Sequence[str], profile: str | None = None
) -> list[tuple[str, tuple[str, ...]]]:
    """The programs of the guests with their sets of options. Builds the programs."""
    from klat.lab import suite
    from klat.running.loads import IDLE

    default = PROFILES[profile].benchmarks if profile else suite.default_benchmarks(cpus)
    named = arguments.benchmarks or default
    more = [] if {*loads} <= {IDLE} else [suite.LOAD_PROGRAM]
    wanted = [] if named == ["all"] else [*choices.without_words(named), *more]
    suite.use_static_programs(wanted, architecture(arguments))
    chosen = choices.benchmarks(named, profile)
    given = [*arguments.option, *arguments.sweep]
    added = suite.one_cpu_settings(chosen, given) if cpus == 1 else []
    return _session_options.parameter_sets(arguments, chosen, added, profile, guest_cpus=cpus)


def shape(cpus: int, nodes: int | None, memory: int | None) -> GuestSize:
    from klat.lab.qemu import GuestSize

    return GuestSize(cpus, nodes or 1, memory or 512 + 16 * (cpus - 1))
