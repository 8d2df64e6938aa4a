"""klat's own use of epoll beside three event libraries, on the published workload."""

import json
import statistics
from collections.abc import Sequence
from functools import cache, partial

from rows import CPU, ROUNDS, Figure, Unavailable, no_slower, output_of, program

LIBRARIES = ("libev", "libevent", "libuv")
WORKLOAD = ("--pairs", "1000", "--active", "200", "--writes", "10000")
EVENTS = 10000


def medians(backend: str, *options: str) -> dict[str, float]:
    """Of each metric over the rounds of one run, in nanoseconds."""
    words = program("eventloop", "--cpus", str(CPU), "--backend", backend, *WORKLOAD, *options)
    result = json.loads(output_of(*words, "--json"))
    return {metric["name"]: float(metric["p50_ns"]) for metric in result["metrics"]}


@cache
def in_turns(*options: str) -> dict[str, list[dict[str, float]]]:
    """Every backend once in each round, forwards and backwards in turns. One that is missing is left out."""
    runs: dict[str, list[dict[str, float]]] = {}
    missing: set[str] = set()
    order = ["none", "epoll", *LIBRARIES]
    for number in range(ROUNDS):
        for backend in order if number % 2 == 0 else reversed(order):
            try:
                if backend not in missing:
                    runs.setdefault(backend, []).append(medians(backend, *options))
            except Unavailable:
                missing.add(backend)
    return runs


def of(runs: Sequence[dict[str, float]], metric: str) -> float:
    return statistics.median(run[metric] for run in runs)


def against(library: str, *options: str) -> Figure:
    """Ratio of the loops, and ratio of the times that each takes beyond the bare reads and writes."""
    runs = in_turns(*options)
    if library not in runs:
        raise Unavailable(f"eventloop was built without {library}")
    bare, ours, theirs = (of(runs[name], "loop") for name in ("none", "epoll", library))
    turns = sorted(a["loop"] / b["loop"] for a, b in zip(runs["epoll"], runs[library]))
    over, beyond = (ours - bare) / EVENTS, (theirs - bare) / EVENTS
    total = of(runs["epoll"], "total") / of(runs[library], "total")
    return Figure(
        ours / theirs,
        f"{ours / theirs:.3f} ({ours / 1e6:.2f} against {theirs / 1e6:.2f} ms;"
        f" turns {turns[0]:.2f} to {turns[-1]:.2f})",
        (
            f"beyond the bare reads and writes ({bare / 1e6:.2f} ms): {over:.0f} against"
            f" {beyond:.0f} ns an event, ratio {over / beyond:.2f}",
            f"with registration: {total:.3f}",
        ),
    )


def fastest(*options: str) -> Figure:
    """Of all, by the loop."""
    runs = in_turns(*options)
    order = sorted((of(each, "loop"), name) for name, each in runs.items() if name != "none")
    first = order[0][0]
    text = ", ".join(f"{name} {loop / 1e6:.2f} ms ({loop / first:.3f})" for loop, name in order)
    return Figure(of(runs["epoll"], "loop") / first, text)


CLAIMS = [
    claim
    for name, options in (("", ()), (" with timers", ("--timers",)))
    for claim in (
        no_slower(f"eventloop{name}: epoll's loop / the fastest", partial(fastest, *options)),
        *(
            no_slower(
                f"eventloop{name}: epoll's loop / {library}'s", partial(against, library, *options)
            )
            for library in LIBRARIES
        ),
    )
]
