"""What holds for NAME alone; tests/cli/test_program_*.py hold it to what holds for every program."""

from __future__ import annotations

from harness import json_of, works


def test_more_calls_take_longer() -> None:
    def median(*options: str) -> float:
        (metric,) = json_of(works("NAME", *options, "--json"))["metrics"]
        return float(metric["p50"])

    assert median("--repeat", "100") > 2 * median("--repeat", "1")
