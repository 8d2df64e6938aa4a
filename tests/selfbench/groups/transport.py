"""Messages through memory against a bound, and over sockets beside sockperf and qperf."""

import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rows import CPU, ROUNDS, Claim, Figure, Unavailable, number_in, in_turns, mean_ns, output_of
from rows import no_slower, program, ratio

DECADES = [10**n for n in range(2, 8)]
SIZES = [100, 1000, 10000]
FIFO = ["chrt", "--fifo", "50"]
OTHER = ["chrt", "--other", "0"]


def zero_copy() -> Figure:
    """One way is half of the round trip; --touch none, so that nobody reads the message."""
    means = {}
    for size in DECADES:
        words = program("transport", "--transport", "shm-zero-copy", "--iterations", "2000")
        words += ["--bytes", str(size)]
        means[size] = statistics.median(mean_ns("half", *words) for _ in range(ROUNDS))
    parts = ", ".join(f"{size} B {mean:.0f}" for size, mean in means.items())
    return Figure(max(means.values()), f"{max(means.values()):.0f} ns ({parts})")


def need(*names: str) -> None:
    for name in names:
        if not shutil.which(name):
            raise Unavailable(f"there is no {name}")


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


@contextmanager
def server(*words: str) -> Iterator[None]:
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(0.5)
        try:
            yield
        finally:
            process.kill()


def p50_of_sockperf(text: str) -> float:
    return 1000 * number_in(r"percentile 50\.000 = +([\d.]+)", text)


def round_trip_of_qperf(text: str) -> float:
    """It prints half of the mean round trip."""
    number, unit = re.findall(r"latency += +([\d.]+) (ns|us|ms)", text)[0]
    return 2 * float(number) * {"ns": 1, "us": 1e3, "ms": 1e6}[unit]


def p50_ns(*words: str | os.PathLike[str]) -> float:
    metrics = json.loads(output_of(*map(str, words), "--json"))["metrics"]
    return float(next(m["p50_ns"] for m in metrics if m["name"] == "round_trip"))


def net_mean_ns(*words: str | os.PathLike[str]) -> float:
    """Of a round trip, without the stamps, for what takes none for each message."""
    told = json.loads(output_of(*map(str, words), "--json"))
    mean = next(m["mean_ns"] for m in told["metrics"] if m["name"] == "round_trip")
    return float(mean) - 1e6 * told["floor"] / told["tsc_khz"]


def held(policy: list[str], cpu: int) -> list[str]:
    return [*policy, "taskset", "--cpu-list", str(cpu)]


def blocking(transport: str) -> Callable[[], Figure]:
    """
    Both ends on one CPU, under one policy, asleep while they wait. Medians to sockperf's; qperf tells
    the mean alone, in which the throttling of a second of real-time work would be, so as ordinary
    tasks to it, and net of the stamps. More rounds, for processes of one program differ by some
    percent here: of fewer, a ratio came out at 1.11 and then at 0.93.
    """

    def measure() -> Figure:
        need("sockperf", "qperf")
        port, listen = free_port(), free_port()
        tcp = ["--tcp"] if transport == "tcp" else []
        hold = held(FIFO, CPU)
        lines, worst = [], 0.0
        with server(*hold, "sockperf", "server", *tcp, "-i", "127.0.0.1", "-p", port), server(
            *held(OTHER, CPU), "qperf", "--listen_port", listen
        ):
            for size in SIZES:
                klat = program("transport", "--transport", transport, "--wait", "block")
                klat += ["--bytes", str(size), "--cpus", f"{CPU},{CPU}", "--iterations", "30000"]
                ping = [*hold, "sockperf", "ping-pong", *tcp, "-i", "127.0.0.1", "-p", port]
                ping += ["-m", str(size), "-t", "1", "--full-rtt"]
                lat = [
                    *held(OTHER, CPU),
                    "qperf",
                    "127.0.0.1",
                    "--listen_port",
                    listen,
                    "--time",
                    "1",
                ]
                lat += ["--msg_size", str(size), "--precision", "6", f"{transport}_lat"]
                for name, ours, theirs in (
                    ("sockperf", lambda: p50_ns(*klat), lambda: p50_of_sockperf(output_of(*ping))),
                    (
                        "qperf",
                        lambda: net_mean_ns(*klat, "--policy", "other"),
                        lambda: round_trip_of_qperf(output_of(*lat)),
                    ),
                ):
                    figure = ratio(*in_turns(ours, theirs, 4 * ROUNDS), "ns")
                    worst = max(worst, figure.value)
                    lines.append(f"{size} B / {name}: {figure.text}")
        return Figure(worst, f"{worst:.3f} at worst", tuple(lines))

    return measure


def spinning(transport: str) -> Callable[[], Figure]:
    """
    On two CPUs, polling; as ordinary tasks, for sockperf would be throttled as real-time ones. Each
    CPU may have a speed of its own by turns: more rounds.
    """

    def measure() -> Figure:
        others = sorted(os.sched_getaffinity(0) - {CPU})
        if not others:
            raise Unavailable("two CPUs are needed")
        need("sockperf")
        port = free_port()
        tcp = ["--tcp"] if transport == "tcp" else []
        address = ["--nonblocked", *tcp, "-i", "127.0.0.1", "-p", port]
        lines, worst = [], 0.0
        with server(*held(OTHER, others[-1]), "sockperf", "server", *address):
            for size in SIZES:
                klat = program("transport", "--transport", transport, "--policy", "other")
                klat += ["--cpus", f"{CPU},{others[-1]}", "--bytes", str(size)]
                klat += ["--iterations", "5000"]
                ping = [*held(OTHER, CPU), "sockperf", "ping-pong", *address]
                ping += ["-m", str(size), "-t", "1", "--full-rtt"]
                figure = ratio(
                    *in_turns(
                        lambda: p50_ns(*klat), lambda: p50_of_sockperf(output_of(*ping)), 4 * ROUNDS
                    ),
                    "ns",
                )
                worst = max(worst, figure.value)
                lines.append(f"{size} B / sockperf --nonblocked: {figure.text}")
        return Figure(worst, f"{worst:.3f} at worst", tuple(lines))

    return measure


CLAIMS = [
    Claim(
        "transport shm-zero-copy, one way, spinning, 100 B to 10 MB, below 1000 ns", 1000, zero_copy
    ),
    no_slower("transport tcp asleep on one CPU / sockperf, qperf", blocking("tcp")),
    no_slower("transport udp asleep on one CPU / sockperf, qperf", blocking("udp")),
    no_slower("transport tcp spinning / sockperf", spinning("tcp")),
    no_slower("transport udp spinning / sockperf", spinning("udp")),
]
