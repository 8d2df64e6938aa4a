"""Signals beside signaltest and sigwaittest, inherited priorities beside pi_stress (rt-tests)."""

import time
from dataclasses import replace

from rows import CPU, Figure, no_slower, number_in, in_turns, mean_ns, output_of, program, ratio

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


def signal_against_sigwaittest() -> Figure:
    """Half of a round trip beside one direction. sigwaittest rests 1 ms before each signal, takes its time by
    clock_gettime(), and prints the mean in whole microseconds, cut."""
    klat = program("signal", "--cpus", f"{CPU},{CPU}", "--iterations", "1000")
    words = ["sigwaittest", "-q", "-a", str(CPU), "-t", "1", "-p", "50", "-l", "1000"]
    ours, theirs = in_turns(
        lambda: mean_ns("round_trip", *klat) / 2,
        lambda: 500 + 1000 * number_in(r"Avg +(\d+)", output_of(*words)),
    )
    return ratio(ours, theirs, "ns")


def inherit_against_pi_stress() -> Figure:
    """pi_stress passes or fails, and counts inversions: its figure is the time of a whole one, with three barriers."""
    klat = program("inherit", "--cpus", str(CPU))
    words = ["pi_stress", "-q", "-m", "-u", "-g", "1", "-i", "100000", "--json=/dev/stdout"]

    def theirs() -> float:
        begun = time.monotonic()
        count = number_in(r'"inversion": (\d+)', output_of("timeout", "60", *words))
        return 1e9 * (time.monotonic() - begun) / count

    return ratio(*in_turns(lambda: mean_ns("acquire", *klat), theirs), "ns")


CLAIMS = [
    no_slower("signal on one CPU / signaltest", signal_against_signaltest),
    no_slower("half a round trip of signal / sigwaittest", signal_against_sigwaittest),
    no_slower("inherit / a whole inversion of pi_stress, which passes", inherit_against_pi_stress),
]
