from __future__ import annotations

import numpy as np
import pytest

from klat.stats.positions import coincidence

SPAN = 3_600_000_000_000
WINDOW = 1_000_000


def times(draw: np.random.Generator, count: int) -> list[int]:
    return [int(t) for t in draw.integers(0, SPAN, count)]


def test_independent_series_are_called_dependent_in_at_most_the_level():
    draw = np.random.default_rng(1)
    found = [coincidence(times(draw, 2000), times(draw, 3000), WINDOW, SPAN) for _ in range(400)]
    assert np.mean([c is not None and c.p < 0.05 for c in found]) <= 0.06
    mean = np.mean([c.together for c in found if c])
    assert mean == pytest.approx(np.mean([c.expected for c in found if c]), rel=0.1)


def test_a_common_cause_is_seen():
    draw = np.random.default_rng(2)
    common = times(draw, 20)
    first = [*times(draw, 50), *(t + 100_000 for t in common)]
    second = [*times(draw, 50), *(t - 200_000 for t in common)]
    found = coincidence(first, second, WINDOW, SPAN)
    assert found and found.together >= 20 and found.p < 1e-9
    assert found.expected < 0.1


def test_one_delay_of_several_samples_is_one_event():
    delay = [10_000_000 + n * WINDOW for n in range(50)]
    found = coincidence([*delay, SPAN // 2], delay, WINDOW, SPAN)
    assert found and (found.events, found.together) == (2, 1)


@pytest.mark.parametrize("first, second", [([], [1]), ([1], [])])
def test_an_empty_series_has_no_coincidence(first, second):
    assert coincidence(first, second, WINDOW, SPAN) is None
