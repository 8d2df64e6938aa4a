"""Published figures of the same events, as the programs list them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from klat.base import programs
from klat.record.session import parse_pairs

_SECONDS = 5


@dataclass(frozen=True)
class Published:
    """One row of a program's table: of another machine, so context and no target."""

    metric: str
    params: str  # the options that the run must have: name=value;…
    value: float
    unit: str
    about: str

    @property
    def nanoseconds(self) -> float | None:
        """None for cycles: the frequency of that machine is unknown."""
        return self.value if self.unit == "ns" else None

    def stands_beside(self, metric: str, params: Mapping[str, str]) -> bool:
        """Whether it is a time of this metric with these params."""
        wanted = parse_pairs(self.params)
        return (
            metric == self.metric
            and self.nanoseconds is not None
            and all(params.get(name) == value for name, value in wanted.items())
        )


@cache
def published(benchmark: str) -> tuple[Published, ...]:
    """Empty if the program is not on this machine. A session can be read without its programs."""
    path = programs.find(benchmark)
    if path is None:
        return ()
    try:
        said = subprocess.run(
            [path, "--print-benchmark"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
        rows = json.loads(said.stdout)["published"] if said.returncode == 0 else []
        return tuple(Published(**row) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return ()
