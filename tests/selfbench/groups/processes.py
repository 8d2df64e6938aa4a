"""Page faults, processes and threads beside bare loops, will-it-scale, lmbench and perf bench."""

import os
import re
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from rows import BUILD, CPU, ROOT, Claim, Figure, Unavailable, in_turns, mean_ns, number_in
from rows import no_slower, output_of, peer, program, ratio

PINNED = ["taskset", "--cpu-list", str(CPU)]
FIFO = ["chrt", "--fifo", "50", *PINNED]


def against_loop(metric: str, benchmark: str, work: str, count: int, *words: str) -> Figure:
    klat = program(benchmark, "--cpus", str(CPU), "--iterations", str(count), *words)
    ours, theirs = in_turns(
        lambda: mean_ns(metric, *klat),
        # A round of faults is 124 of them.
        lambda: float(
            output_of(*FIFO, BUILD / "bare", work, str(count // (124 if work == "fault" else 1)))
        ),
    )
    return ratio(ours, theirs, "ns")


def fault_against_will_it_scale(kind: str, test: str) -> Figure:
    """Both in order, as ordinary threads: will-it-scale spins on the CPU where its main thread must wake. It counts
    touches. In a file of ext4 a fault maps several pages, so its time is divided by the faults that the kernel counted.
    Its time contains mmap() and munmap() of 128 MiB."""
    there = peer("WILL_IT_SCALE", "the folder of will-it-scale's programs")
    words = ("--kind", kind, "--page-order", "sequential", "--policy", "other")
    klat = program("fault", *words, "--cpus", str(CPU), "--iterations", "50000")

    def theirs() -> float:
        before = getrusage(RUSAGE_CHILDREN).ru_minflt
        text = output_of(*PINNED, there / f"{test}_processes", "-n", "-t", "1", "-s", "2")
        faults = getrusage(RUSAGE_CHILDREN).ru_minflt - before
        seconds = [int(touches) for touches in re.findall(r"total:(\d+)", text)]
        return 1e9 / number_in(r"average:(\d+)", text) * sum(seconds) / faults

    return ratio(*in_turns(lambda: mean_ns("fault", *klat), theirs), "ns")


def static_spawn() -> Path:
    """A fork copies the mappings of each shared library, so neither side has one."""
    target = "build/static/bench/spawn/spawn"
    output_of("make", "-s", "-C", ROOT, "OUT=build/static", "STATIC=1", target)
    return ROOT / target


def spawn_against_lmbench(what: str) -> Figure:
    """Both linked statically, with as little memory as they have."""
    lat_proc = peer("LAT_PROC", "lmbench's lat_proc, linked statically")
    if what == "exec" and not Path("/tmp/hello-s").exists():
        raise Unavailable("lat_proc executes /tmp/hello-s, and there is none")
    klat = [static_spawn(), "--what", what, "--resident", "0", "--cpus", str(CPU)]

    def theirs() -> float:
        shell = ('ENOUGH=100000 "$@" 2>&1', "sh", *FIFO, lat_proc, "-N", "3", what)
        return 1000 * number_in(r"Static Process \S+: ([\d.]+)", output_of("sh", "-c", *shell))

    return ratio(*in_turns(lambda: mean_ns("reaped", *klat), theirs), "ns")


def spawn_against_perf(what: str, benchmark: str) -> Figure:
    """perf is a large program, and a fork copies its page tables. klat's has --resident 0."""
    perf = os.environ.get("PERF") or "perf"
    if benchmark not in output_of("sh", "-c", '"$0" bench syscall 2>&1', perf):
        raise Unavailable(f"{perf} has no bench syscall {benchmark}; perf 6.4 has it (PERF=PATH)")
    klat = program("spawn", "--what", what, "--resident", "0", "--cpus", str(CPU))
    theirs = [*FIFO, perf, "bench", "syscall", benchmark, "-l", "500"]
    return ratio(
        *in_turns(
            lambda: mean_ns("reaped", *klat),
            lambda: 1000 * number_in(r"([\d.]+) usecs/op", output_of(*theirs)),
        ),
        "ns",
    )


CLAIMS = [
    Claim(
        "fault with its stamps / a bare loop of touches, at most 1.05",
        1.05,
        lambda: against_loop("fault", "fault", "fault", 20000),
    ),
    no_slower(
        "fault --kind anonymous / will-it-scale page_fault1",
        lambda: fault_against_will_it_scale("anonymous", "page_fault1"),
    ),
    no_slower(
        "fault --kind copy-on-write / will-it-scale page_fault2",
        lambda: fault_against_will_it_scale("copy-on-write", "page_fault2"),
    ),
    no_slower(
        "fault --kind shared / will-it-scale page_fault3",
        lambda: fault_against_will_it_scale("shared", "page_fault3"),
    ),
    Claim(
        "spawn --what thread / a bare loop of pthread_create() and join, at most 1.05",
        1.05,
        lambda: against_loop("reaped", "spawn", "thread", 2000, "--what", "thread"),
    ),
    Claim(
        "spawn, a static program / lmbench lat_proc fork, at most 1.05",
        1.05,
        lambda: spawn_against_lmbench("fork"),
    ),
    Claim(
        "spawn --what exec, a static program / lmbench lat_proc exec, at most 1.05",
        1.05,
        lambda: spawn_against_lmbench("exec"),
    ),
    no_slower("spawn / perf bench syscall fork", lambda: spawn_against_perf("fork", "fork")),
    no_slower(
        "spawn --what exec / perf bench syscall execve",
        lambda: spawn_against_perf("exec", "execve"),
    ),
]
