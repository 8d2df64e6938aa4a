"""A metric's windows in a trace that has stamps of other metrics, too."""

from __future__ import annotations

import numpy as np

from klat.explain import windows
from klat.explain.trace import Block, Trace
from klat.explain.windows import RecordedRun, Stamps

OPEN, CLOSE, OTHER_OPEN, OTHER_CLOSE = range(4)


def trace(*stamps: tuple[int, int]) -> Trace:
    """Of stamps and the instructions before each."""
    path = np.array([2], dtype=np.uint32)
    rows = [(site, 1, instructions, 1) for site, instructions in stamps]
    return Trace([Block(0x1000, 1, 1)], [path], np.array(rows, dtype=np.int64))


def test_a_window_goes_on_over_the_stamps_of_other_metrics() -> None:
    held = trace(
        (OPEN, 0), (OTHER_CLOSE, 3), (OTHER_OPEN, 4), (CLOSE, 5),
        (OPEN, 100), (OTHER_CLOSE, 3), (CLOSE, 6), (OTHER_CLOSE, 50),
    )  # fmt: skip
    run = RecordedRun(np.array([12, 9], dtype=np.uint64), 0)
    ((first, second),) = windows.find(Stamps(held, [OPEN], [CLOSE]), [run], 1) or [()]
    assert (first.windows[0].begin, first.windows[0].end) == (0, 3)
    assert (second.windows[0].begin, second.windows[0].end) == (4, 6)
    assert windows.find(Stamps(held, [OTHER_OPEN], [OTHER_CLOSE]), [run], 1) is None
