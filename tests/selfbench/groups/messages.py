"""What made the published ratio of a message with an eventfd's write to one without."""

import statistics

from rows import CPU, ROUNDS, Claim, Figure, mean_ns, program

# Of 33,439,156 and 29,234,753 messages in 60 s.
PUBLISHED = "published: 1794 and 2052 ns, 1.14, with both"
SETTINGS = (
    ("neither timer nor malloc", ()),
    ("a timer armed in each pass", ("--timer", "per-loop")),
    ("malloc and free", ("--alloc", "malloc")),
    ("both", ("--timer", "per-loop", "--alloc", "malloc")),
)
MODES = ("call", "pass-write")


def hop(mode: str, costs: tuple[str, ...]) -> float:
    common = ("--cpus", str(CPU), "--iterations", "20000", "--warmup", "1000")
    return mean_ns("hop", *program("messages", "--mode", mode, *costs, *common))


def hidden_costs() -> Figure:
    """The write is the same whatever is hidden beside it; only the ratio is not."""
    measured: dict[tuple[str, str], list[float]] = {}
    for number in range(ROUNDS):
        turns = [(name, costs, mode) for name, costs in SETTINGS for mode in MODES]
        for name, costs, mode in turns if number % 2 == 0 else reversed(turns):
            measured.setdefault((name, mode), []).append(hop(mode, costs))
    medians = {key: statistics.median(values) for key, values in measured.items()}
    rows = [(name, *(medians[name, mode] for mode in MODES)) for name, _ in SETTINGS]
    differences = [written - called for _, called, written in rows]
    value = max(differences) / min(differences)
    lines = [
        f"{name}: {called:.0f} and {written:.0f} ns, {written / called:.2f}"
        for name, called, written in rows
    ]
    text = f"{value:.2f} (an eventfd's write alone is {min(differences):.0f} to {max(differences):.0f} ns)"
    return Figure(value, text, (*lines, PUBLISHED))


CLAIMS = [
    Claim(
        "messages pass-write less call, hidden costs on and off: largest / smallest, at most 1.20",
        1.2,
        hidden_costs,
    )
]
