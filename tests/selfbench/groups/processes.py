"""Page faults and threads beside bare loops of the same work: no packaged program times these."""

from rows import BUILD, CPU, Claim, Figure, in_turns, mean_ns, output_of, program, ratio


def against_loop(metric: str, benchmark: str, work: str, count: int, *words: str) -> Figure:
    klat = program(benchmark, "--cpus", str(CPU), "--iterations", str(count), *words)
    pinned = ["chrt", "--fifo", "50", "taskset", "--cpu-list", str(CPU)]
    ours, theirs = in_turns(
        lambda: mean_ns(metric, *klat),
        # A round of faults is 124 of them.
        lambda: float(
            output_of(*pinned, BUILD / "bare", work, str(count // (124 if work == "fault" else 1)))
        ),
    )
    return ratio(ours, theirs, "ns")


CLAIMS = [
    Claim(
        "fault with its stamps / a bare loop of touches, at most 1.05",
        1.05,
        lambda: against_loop("fault", "fault", "fault", 20000),
    ),
    Claim(
        "spawn --what thread / a bare loop of pthread_create() and join, at most 1.05",
        1.05,
        lambda: against_loop("reaped", "spawn", "thread", 2000, "--what", "thread"),
    ),
]
