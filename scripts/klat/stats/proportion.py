"""Whether a rare event is equally probable on two sides."""

from __future__ import annotations

import math


def fisher(x: int, n: int, y: int, m: int) -> float:
    """Two-sided p that x in n and y in m independent trials have the same probability. It is the
    share of all ways to deal x + y among both that are no likelier than this one (Fisher,
    Statistical Methods for Research Workers, 1934, section 21.02)."""
    every = x + y
    ways = {k: math.comb(n, k) * math.comb(m, every - k) for k in range(min(n, every) + 1)}
    return sum(way for way in ways.values() if way <= ways[x]) / math.comb(n + m, every)
