"""The pipe round trip beside perf bench and a bare loop."""

from rows import BUILD, CPU, Figure, no_slower, number_in, in_turns, mean_ns, output_of, program
from rows import ratio

COUNT = 20000
PINNED = ["chrt", "--fifo", "50", "taskset", "--cpu-list", str(CPU)]


def pipe() -> float:
    cpus = f"{CPU},{CPU}"
    words = ("--cpus", cpus, "--iterations", str(COUNT), "--warmup", "500")
    return mean_ns("round_trip", *program("pipes", *words))


def perf() -> float:
    words = ("perf", "bench", "sched", "pipe", "-T", "-l", str(COUNT))
    return 1000 * number_in(r"([\d.]+) usecs/op", output_of(*PINNED, *words))


def bare() -> float:
    return float(output_of(*PINNED, BUILD / "bare", "pipes", str(COUNT)))


def pipe_against_perf() -> Figure:
    return ratio(*in_turns(pipe, perf), "ns")


# klat's samples contain fences. The bare loop has them, perf's loop does not.
CLAIMS = [
    no_slower(
        "pipes on one CPU / a bare loop with the same fences",
        lambda: ratio(*in_turns(pipe, bare), "ns"),
    ),
    no_slower("pipes on one CPU / perf bench sched pipe -T", pipe_against_perf),
]
