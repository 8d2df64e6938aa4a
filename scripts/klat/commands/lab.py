"""`klat lab`: boots kernels in QEMU, runs the suite in each and brings the records out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from klat.base.streams import say
from klat.commands import SUMMARIES, _lab_bisect, _lab_explain, _lab_options, _lab_trend
from klat.commands import _session_options, add_command
from klat.commands._types import add_number

_DESCRIPTION = """\
Boots kernels in QEMU, runs the suite in each guest, and records a session for
each boot, as `klat run` would on a machine with that kernel. Needs no root.
"""

_RUN_DESCRIPTION = """\
Boots each kernel --boots times, in rounds. Each round has the reverse order of
the one before. In each boot, runs every benchmark --runs times in random order.
Records a session for each boot in OUTPUT/LABEL, and prints the labels' paths.
"""

_RUN_EPILOG = """\
kernels:
  debian:stock, debian:rt, debian:7.3, debian:6.12-rt, debian:newest, ...
      from Debian's archive; klat lab kernels lists them. apt fetches them into
      a cache and installs nothing. The label is lab-stock, lab-rt, lab-7.3, ...
  NAME=path/to/bzImage[,modules=DIR]
      your own; NAME is the label. DIR is what `make modules_install
      INSTALL_MOD_PATH=DIR` made; a kernel with virtio built in needs none.
      With --arch arm64 or riscv64, the file is arch/arm64/boot/Image or
      arch/riscv/boot/Image
  NAME=debian:KERNEL,append=WORDS, NAME=path[,modules=DIR],append=WORDS
      WORDS go to the command line of this kernel alone, to compare two settings
      of one kernel. For compare, the words are under test

modes:
  counted   the emulator counts instructions, on one CPU: the path length of
            the event. The same --seed and --clock give the same bytes on every
            machine. Cache misses and waits for hardware are not counted. Boots
            run in parallel
  kvm       real time, in a virtual machine
  emulated  many CPUs on few; only counts of events have a meaning
  auto      kvm if a guest boots with it, else counted (default)

A boot with incomplete results is not a session. It is kept in
OUTPUT/LABEL/.failed, with its console. --resume with any session of the
experiment repeats failed boots and runs missing ones.

Exit status: 0 every run measured or skipped; 1 a boot or a run
failed; 2 usage, input or output; 3 some runs are invalid; 4 every run was
skipped; 130, 143, 129 stopped by SIGINT, SIGTERM, SIGHUP. A closed or full
standard stream does not affect the status.

{profiles}
examples:
  klat lab run --kernel debian:stock --kernel debian:rt
  klat compare results/lab-stock results/lab-rt
  klat lab run --arch arm64 --kernel debian:stock --kernel debian:rt
      kernels of another architecture, counted
  klat lab run --kernel debian:rt --load none --load populate --boots 5 timer
      idle and under a load (load/load --list names them)
  klat lab run --kernel debian:stock --kernel debian:rt --profile rt --boots 5
      what a real-time user needs, without a load and under four
  klat lab run --kernel mine=arch/x86/boot/bzImage --boots 1 --runs 3 pipes
  klat lab run --kernel nopti=debian:stock \\
      --kernel pti=debian:stock,append=pti=on --boots 5 --runs 1 syscall
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "lab", SUMMARIES["lab"], _DESCRIPTION)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_run(actions)
    _add_shootdown(actions)
    _lab_trend.add_parser(actions)
    _lab_explain.add_parser(actions)
    _lab_bisect.add_parser(actions)
    about = "Lists the kernels that --kernel debian:NAME can have."
    kernels = add_command(actions, "kernels", "list the kernels of Debian's archive", about)
    kernels.add_argument("--update", action="store_true", help="fetch the package lists again")
    _lab_options.add_architecture(kernels)
    kernels.set_defaults(func=_kernels)
    about = "Removes everything that the lab keeps: packages, kernels, package lists."
    cleared = add_command(actions, "clear", "remove the cache of kernels", about)
    cleared.set_defaults(func=_clear)


def _add_run(actions: Any) -> None:
    summary = "boot kernels and measure each"
    epilog = _RUN_EPILOG.format(profiles=_session_options.profiles_text())
    parser = add_command(actions, "run", summary, _RUN_DESCRIPTION, epilog)
    add = parser.add_argument
    default = "core; on one CPU also switch and syscall"
    help_text = f"any of klat's programs, or all, or core (default: {default})"
    add("benchmarks", nargs="*", metavar="benchmark", help=help_text)
    _session_options.add_measure(parser, "profile")
    _lab_options.add_guest(
        parser, "debian:NAME, or NAME=KERNEL[,modules=DIR][,append=WORDS]; repeatable", 1, 1
    )
    help_text = "boots of each kernel under each load (default: 20)"
    add_number(add, "--boots", 1, 10_000, help_text)
    _session_options.add_runs(parser, "runs of each parameter set in each boot (default: 25)")
    add("--mode", choices=("auto", "kvm", "counted", "emulated"), help="default: auto")
    _lab_options.add_conditions(parser)
    jobs = "guests at once, in counted mode (default: as many as this machine has CPUs)"
    add_number(add, "--jobs", 1, 64, jobs)
    add("--resume", type=Path, metavar="SESSION", help="complete this session's experiment")
    parser.set_defaults(func=_run)


def _run(arguments: argparse.Namespace) -> int:
    from klat.lab import experiment, suite
    from klat.lab.execution import Attempt

    if arguments.resume:
        _session_options.refuse_with_resume(arguments, "action", "jobs")
        begun = experiment.find(arguments.resume)
        architecture = begun.experiment.architecture
        suite.use_static_programs(list(begun.experiment.programs), architecture)
        return Attempt(sys.argv, architecture).resume(begun, arguments.jobs)
    request = _lab_options.request(
        arguments,
        mode=arguments.mode or "auto",
        shape=_lab_options.shape(arguments.cpus or 1, arguments.numa, arguments.memory),
        boots=arguments.boots or 20,
        runs=arguments.runs or 25,
        profile=arguments.profile,
    )
    attempt = Attempt(sys.argv, request.architecture)
    return attempt.begin(request, _session_options.output(arguments), arguments.jobs)


_SHOOTDOWN_DESCRIPTION = """\
Boots each kernel once with many emulated CPUs, and shows that a munmap of pages
that all of them have in their TLBs interrupts every one: by the TLB row of
/proc/interrupts, and by what each responder sees. It measures no time.

On arm64, and usually on riscv64, the kernel counts no interrupt of a munmap.
There each responder accesses the pages after a munmap, and must fault.
--operation membarrier works on every architecture: it shows that membarrier()
interrupts every CPU that runs a thread of the process, by the row of function
calls.
"""

_SHOOTDOWN_EPILOG = """\
Exit status: 0 every operation reached all responders; 1 a boot failed, or some
were not reached; 2 usage, input or output; 130, 143, 129 stopped by
SIGINT, SIGTERM, SIGHUP.
"""


def _add_shootdown(actions: Any) -> None:
    summary = "show that a shootdown reaches all of many CPUs"
    parser = add_command(actions, "shootdown", summary, _SHOOTDOWN_DESCRIPTION, _SHOOTDOWN_EPILOG)
    add = parser.add_argument
    kernels = "as for run (default: debian:stock and, if Debian has it, debian:rt)"
    _lab_options.add_guest(parser, kernels, 80, 2)
    help_text = "operation that must reach all CPUs (default: munmap)"
    add("--operation", choices=("munmap", "membarrier"), default="munmap", help=help_text)
    add_number(add, "--iterations", 10, 10**6, "operations (default: 50)", default=50)
    seed = {"help": "seed of the guest (default: random)"}
    _session_options.add_measure(parser, "seed", seed=seed)
    parser.set_defaults(func=_shootdown)


def _shootdown(arguments: argparse.Namespace) -> int:
    from klat.lab import experiment, kernels, shootdown, suite
    from klat.lab.execution import Attempt, Request
    from klat.running import loads

    architecture = _lab_options.architecture(arguments)
    suite.use_static_programs([shootdown.PROGRAM], architecture)
    specs = arguments.kernel or [kernels.parse(f"debian:{name}") for name in architecture.kernels]
    cpus = arguments.cpus or 80
    nodes = arguments.numa or shootdown.usual_nodes(architecture)
    request = Request(
        architecture=architecture,
        specs=shootdown.labelled(kernels.labelled(specs, architecture), cpus),
        mode="emulated",
        shape=_lab_options.shape(cpus, nodes, arguments.memory),
        sets=[shootdown.parameter_set(cpus, arguments.iterations, arguments.operation)],
        loads=[loads.IDLE],
        append=shootdown.command_line(cpus),
        boots=1,
        runs=1,
        seed=_session_options.seed(arguments),
        clock=experiment.now(),
        time_limit_s=arguments.time_limit or 3600,
    )
    attempt = Attempt(sys.argv, architecture, resumable=False)
    status = attempt.begin(request, _session_options.output(arguments), None)
    reached = [shootdown.report(session) for session in attempt.recorded]
    if status == 2 or status > 128:
        return status
    return 0 if status == 0 and all(reached) else 1


def _kernels(arguments: argparse.Namespace) -> int:
    from klat.lab import apt, kernels

    architecture = _lab_options.architecture(arguments)
    offers = kernels.offered(apt.Archive(say, architecture.name).packages(arguments.update))
    complete = [kernel for kernel in offers if not kernel.missing]
    newest = kernels.newest(complete, architecture)
    print(f"{'--kernel':<20} {'release':<28} {'package version':<24} MB to fetch")
    for name, kernel in newest.items():
        called, size = f"debian:{name}", kernel.size / 1e6
        print(f"{called:<20} {kernel.release:<28} {kernel.package.version:<24} {size:.1f}")
    older = [kernel for kernel in complete if kernel not in newest.values()]
    if older:
        print(f"and {len(older)} older builds, by release: debian:{older[0].release}")
    if incomplete := dict.fromkeys(kernel.name for kernel in offers if kernel.name not in newest):
        print(f"no complete build in the archive: {', '.join(incomplete)}")
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    from klat.lab import cache

    base = cache.root()
    print(f"{base}: {cache.clear() / 1e6:.0f} MB removed", file=sys.stderr)
    return 0
