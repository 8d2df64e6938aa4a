"""The pipe round trip beside perf bench."""

from rows import CPU, Figure, no_slower, number_in, in_turns, mean_ns, output_of, program, ratio


def pipe_against_perf() -> Figure:
    count, warmup = 20000, 500
    cpus = f"{CPU},{CPU}"
    klat = program("pipes", "--cpus", cpus, "--iterations", str(count), "--warmup", str(warmup))
    pinned = ["chrt", "--fifo", "50", "taskset", "--cpu-list", str(CPU)]
    perf = [*pinned, "perf", "bench", "sched", "pipe", "-T", "-l", str(count)]
    ours, theirs = in_turns(
        lambda: mean_ns("round_trip", *klat),
        lambda: 1000 * number_in(r"([\d.]+) usecs/op", output_of(*perf)),
    )
    return ratio(ours, theirs, "ns")


CLAIMS = [no_slower("pipes on one CPU / perf bench sched pipe -T", pipe_against_perf)]
