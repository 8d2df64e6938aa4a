"""The options of the commands that boot kernels, and the experiments that follow from them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from klat.base.errors import KlatError, did_you_mean
from klat.commands import _session_options
from klat.record import plan_csv

if TYPE_CHECKING:
    from klat.lab.execution import Request
    from klat.lab.qemu import GuestSize


def _kernel(text: str) -> Any:
    from klat.lab import kernels

    return kernels.parse(text)


def _clock(text: str) -> str:
    from klat.lab import experiment

    return experiment.parse_clock(text)


def add_kernel(parser: argparse._ActionsContainer, kernels: str) -> None:
    """--kernel, with this help, and --time-limit."""
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        type=_session_options.checked(_kernel),
        metavar="SPEC",
        help=kernels,
    )
    parser.add_argument(
        "--time-limit",
        type=_session_options.number(1, 86_400, "number of seconds"),
        metavar="S",
        help="time after which a boot is ended and counted as failed (default: 3600)",
    )


def add_guest(parser: argparse.ArgumentParser, kernels: str, cpus: int, nodes: int) -> None:
    """The options of `run` and `shootdown`. `kernels` is the help of --kernel; `cpus` and `nodes` are
    the defaults."""
    add = parser.add_argument
    number = _session_options.number
    add_kernel(parser, kernels)
    add(
        "--cpus",
        type=number(2 if cpus > 1 else 1, 4096),
        metavar="N",
        help=f"CPUs of a guest (default: {cpus})",
    )
    add(
        "--numa", type=number(1, 128), metavar="N", help=f"NUMA nodes of a guest (default: {nodes})"
    )
    add(
        "--memory",
        type=number(128, 1 << 20, "number of megabytes"),
        metavar="MB",
        help="memory of a guest (default: 512, and 16 for each further CPU)",
    )
    _session_options.add_output(parser)


def add_conditions(parser: argparse._ActionsContainer) -> None:
    """What boots and runs have in common with those of the other kernels."""
    add = parser.add_argument
    add("--append", metavar="WORDS", help="words for the command line of every kernel")
    add(
        "--clock",
        type=_session_options.checked(_clock),
        metavar="TIME",
        help="UTC time that the first guest shows (default: now)",
    )
    add(
        "--load",
        action="append",
        default=[],
        metavar="NAME",
        help="one of klat's loads, or 'none'; repeatable, with a label for each (LABEL-NAME)",
    )
    _session_options.add_plan(parser)


def request(
    arguments: argparse.Namespace, *, mode: str, shape: GuestSize, boots: int, runs: int
) -> Request:
    """KlatError if the options do not make an experiment."""
    from klat.lab import experiment, suite
    from klat.lab.execution import Request

    if not arguments.kernel:
        raise KlatError("which kernel: --kernel debian:stock, or NAME=path/to/bzImage")
    loads = arguments.load or [experiment.IDLE]
    for load in loads:
        if loads.count(load) > 1:
            raise KlatError(f"the load {load} is named twice")
    named = arguments.benchmarks or suite.default_benchmarks(shape.cpus)
    wanted = [] if named == ["all"] else named
    loaded = [load for load in loads if load != experiment.IDLE]
    suite.use_static_programs(wanted + [suite.LOAD_PROGRAM] * bool(wanted and loaded))
    _check_loads(loaded)
    return Request(
        specs=arguments.kernel,
        mode=mode,
        shape=shape,
        sets=_sets(arguments, named, shape.cpus),
        loads=loads,
        append=_session_options.plain("append", arguments.append)
        if arguments.append is not None
        else "",
        boots=boots,
        runs=runs,
        seed=_session_options.seed(arguments),
        clock=arguments.clock or experiment.now(),
        time_limit_s=arguments.time_limit or 3600,
    )


def _check_loads(loads: list[str]) -> None:
    from klat.running import loads as klat_loads

    for load in loads:
        if load not in klat_loads.names():
            there = klat_loads.names()
            raise KlatError(
                f"--load {load}: a guest has only klat's own loads:"
                f" {', '.join(there) or 'none: load/load is not built'}{did_you_mean(load, there)}"
            )


def _sets(
    arguments: argparse.Namespace, named: list[str], cpus: int
) -> list[tuple[str, tuple[str, ...]]]:
    from klat.lab import suite

    chosen = _session_options.benchmarks(named)
    given = [*arguments.option, *arguments.sweep]
    own = suite.one_cpu_settings(chosen, given) if cpus == 1 else []
    common = {}
    if arguments.iterations is not None:
        common["iterations"] = str(arguments.iterations)
    if arguments.policy is not None:
        common["policy"] = _session_options.plain("policy", arguments.policy)
    return plan_csv.parameter_sets(chosen, common, [*arguments.option, *own], arguments.sweep)


def shape(cpus: int, nodes: int | None, memory: int | None) -> GuestSize:
    from klat.lab.qemu import GuestSize

    return GuestSize(cpus, nodes or 1, memory or 512 + 16 * (cpus - 1))
