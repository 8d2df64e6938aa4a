"""Levels of interim looks: against published boundaries, and against simulation."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from klat.stats.multiplicity import Look, look_levels, spent


def bounds(levels: Sequence[float]) -> list[float]:
    return [float(stats.norm.isf(level / 2)) for level in levels]


def test_the_published_boundaries():
    # Five equal looks at 5 %, spending of the O'Brien-Fleming type: DeMets and Lan, Statist. Med. 13 (1994).
    found = bounds(look_levels(0.05, (0.2, 0.4, 0.6, 0.8, 1.0)))
    assert found == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=2e-3)
    assert bounds(look_levels(0.05, (0.5, 1.0))) == pytest.approx([2.963, 1.969], abs=2e-3)


def test_one_look_has_the_whole_level():
    assert look_levels(0.05, (1.0,)) == pytest.approx([0.05], rel=1e-9)
    assert spent(0.05, 1.0) == pytest.approx(0.05)


def test_all_looks_together_keep_the_level():
    shares = (0.3, 0.5, 0.9, 1.0)
    limits = np.array(bounds(look_levels(0.1, shares)))
    draw = np.random.default_rng(5)
    steps = np.sqrt(np.diff([0.0, *shares]))
    walks = np.cumsum(draw.standard_normal((200_000, len(shares))) * steps, axis=1)
    rejected = (np.abs(walks) / np.sqrt(shares) > limits).any(axis=1)
    assert rejected.mean() == pytest.approx(0.1, abs=0.003)


@pytest.mark.parametrize("shares", [(), (0.5, 0.4, 1.0), (0.0, 1.0), (0.5, 1.2)])
def test_wrong_shares(shares):
    with pytest.raises(ValueError, match="increase"):
        look_levels(0.05, shares)


def test_students_t_of_few_pairs_keeps_the_level():
    """Without its own information, t would err in 5.4 % by a two-sided test at these looks."""
    planned = (10, 12, 14, 16, 18, 20)
    values = np.random.default_rng(7).standard_normal((200_000, planned[-1]))
    one, two = np.zeros((2, len(values)), dtype=bool)
    for units in planned:
        part = values[:, :units]
        t = part.mean(axis=1) / part.std(axis=1, ddof=1) * np.sqrt(units)
        level = Look(units, planned, 0.05).level()
        one |= stats.t.sf(t, units - 1) <= level
        two |= 2 * stats.t.sf(np.abs(t), units - 1) <= level
    assert one.mean() < 0.051
    assert two.mean() < 0.0535
    assert max(one.mean(), two.mean()) > 0.045


def test_a_look_that_was_not_planned_and_one_of_many_tests_have_levels():
    planned = (10, 20)
    levels = [Look(units, planned, 0.05).level() for units in (1, 4, 10, 14, 20)]
    assert levels == sorted(levels) and levels[0] > 0
    for units in planned:
        by_tests = [Look(units, planned, 0.05).level(tests) for tests in (1, 2, 10, 1000)]
        assert by_tests == sorted(by_tests, reverse=True)
    assert [Look(units, planned, 0.05).number for units in (10, 14, 20)] == [1, 0, 2]
    assert Look(20, (20,), 0.05).level(10) == pytest.approx(0.005)
