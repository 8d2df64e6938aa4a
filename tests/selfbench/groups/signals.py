"""The round trip of a signal beside signaltest (rt-tests)."""

from dataclasses import replace

from rows import CPU, Claim, Figure, number_in, in_turns, mean_ns, output_of, program, ratio

# In glibc, pthread_kill() also asks for its process and changes its signal mask: four calls for each signal.
MORE_CALLS = 8


def signal_against_signaltest() -> Figure:
    """Both between two threads of one CPU at fifo:50, by tgkill and rt_sigtimedwait. signaltest rests 10 ms after 16
    round trips, and the next one takes four times as long."""
    count = "1000"
    klat = program("signal", "--cpus", f"{CPU},{CPU}", "--iterations", count)
    signaltest = ["signaltest", "--quiet", "--mlockall", "--threads=2", f"--affinity={CPU}"]
    signaltest += ["--prio=50", f"--loops={count}", "--json=/dev/stdout"]
    # It cuts each time to whole microseconds.
    ours, theirs = in_turns(
        lambda: mean_ns("round_trip", *klat),
        lambda: 500 + 1000 * number_in(r'"avg": ([\d.]+)', output_of(*signaltest)),
    )
    batch = 1000
    call = mean_ns("calls_n", *program("syscall", "--cpus", str(CPU), "--batch", str(batch)))
    equal = ratio([ns + MORE_CALLS * call / batch for ns in ours], theirs, "ns")
    figure = ratio(ours, theirs, "ns")
    line = f"with {MORE_CALLS} calls of getppid added, for those of signaltest's pthread_kill(): {equal.text}"
    return replace(figure, beside=(line,))


CLAIMS = [
    Claim("signal on one CPU / signaltest, at most 1.00", 1.005, signal_against_signaltest),
]
