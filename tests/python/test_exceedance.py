"""The statistics of the share above a limit."""

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from klat.compare.judged_limits import p_equal, p_equal_means
from klat.stats.distribution import Distribution
from klat.stats.exceedance import Exceedance, Grouping, Tail, design_effect, p_by_counts
from klat.stats.exceedance import units_to_show


def tails(boots: list[list[list[int]]], limit: float) -> Exceedance:
    return Exceedance.of(
        [
            [Tail.of(Distribution.of(np.array(run, dtype=np.uint64)), limit) for run in runs]
            for runs in boots
        ]
    )


@pytest.mark.parametrize(("x", "n"), [(0, 20), (1, 20), (10, 20), (20, 20), (3, 100_000)])
def test_the_bounds_of_independent_samples_agree_with_scipy(x, n):
    found = Exceedance(x, n)
    for side, bound in (("less", found.upper(0.05)), ("greater", found.lower(0.05))):
        theirs = stats.binomtest(x, n, alternative=side).proportion_ci(0.95, "exact")
        assert bound == approx(theirs.high if side == "less" else theirs.low, rel=1e-5)


@pytest.mark.parametrize(("x", "n", "share"), [(0, 3_000, 1e-3), (3, 20, 0.5), (19, 20, 0.5)])
def test_p_agrees_with_scipy(x, n, share):
    found = Exceedance(x, n)
    below = stats.binomtest(x, n, share, alternative="less").pvalue
    above = stats.binomtest(x, n, share, alternative="greater").pvalue
    assert found.p_below(share) == (approx(below, rel=1e-5) if below < 0.5 else 1.0)
    assert found.p_above(share) == (approx(above, rel=1e-5) if above < 0.5 else 1.0)


def test_the_rule_of_three():
    assert Exceedance(0, 3_000).upper(0.05) == approx(3 / 3_000, rel=0.01)
    # ln 0.05 / ln (1 - 1e-4)
    assert units_to_show(Exceedance(0, 1), 1, 1e-4, 0.05) == approx(29_956, abs=2)


def test_samples_that_come_in_fives_count_a_fifth():
    """Many clusters, each of one value, are as many independent samples."""
    assert design_effect([5] * 30 + [0] * 70, [5] * 100) == approx(5, rel=0.02)
    found = Exceedance(0, 30_000, (Grouping(10_000, 5.0, 1.0),))
    assert found.upper(0.05) == approx(5 * 3 / 30_000, rel=0.01)
    assert units_to_show(found, 10_000, 1e-4, 0.05) == approx(50_000, rel=0.01)


def test_the_bounds_are_the_most_cautious():
    loose, tight = Grouping(50, 4.0, 0.01), Grouping(4, 1.0, 0.01)
    both = Exceedance(100, 10_000, (loose, tight))
    for other in (
        Exceedance(100, 10_000),
        *(Exceedance(100, 10_000, (g,)) for g in (loose, tight)),
    ):
        assert both.upper(0.05) >= other.upper(0.05)
        assert both.lower(0.05) <= other.lower(0.05)


def test_the_number_of_independent_samples_has_a_limit_at_one_half():
    """There both of Student's quantiles are 0, or nearly: their ratio is 0 / 0."""
    few = Grouping(4, 1.0, 1.0)
    assert few.effective(2400, 0.01, 0.5) == approx(few.effective(2400, 0.01, 0.4999), rel=1e-6)


def test_clusters_that_never_vary_give_no_more_than_all_samples():
    even = Exceedance(100, 10_000, (Grouping(1_000, 0.0, 0.01),))
    assert even.upper(0.05) == Exceedance(100, 10_000).upper(0.05)


def test_few_samples_above_cluster_like_those_of_a_lower_threshold():
    """Above 1,000 there is none; the samples above 100 are all in one boot, or in all."""
    short, long = [10] * 990, [200] * 10
    spread = tails([[short + long] for _ in range(10)], 1_000)
    burst = tails([[long * 10 + [10] * 900], *([[10] * 1_000] for _ in range(9))], 1_000)
    assert spread.above == burst.above == 0 and spread.n == burst.n == 10_000
    assert burst.upper(0.05) > 20 * spread.upper(0.05)


def test_consecutive_runs_of_one_boot_are_a_cluster():
    """The same runs: the disturbed ones follow each other, or are spread."""
    quiet, disturbed = [10] * 100, [10] * 90 + [200] * 10
    together = tails([[disturbed] * 10 + [quiet] * 90], 100)
    spread = tails([([disturbed] + [quiet] * 9) * 10], 100)
    assert together.above == spread.above == 100
    assert together.upper(0.05) > 1.5 * spread.upper(0.05)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("boots", [True, False])
def test_a_short_cluster_belongs_to_a_neighbour(boots, place):
    """As in a soak of 61 s with segments of 60 s, and if a boot ends early. The others are as precise as without it."""
    full = [[10] * 5_900 + [200] * (100 + 10 * i) for i in range(4)]
    for segments in (full[:1], full):
        before = tails([[s] for s in segments] if boots else [segments], 100)
        segments = [*segments[:place], [10] * 100, *segments[place:]]
        after = tails([[s] for s in segments] if boots else [segments], 100)
        assert len(after.groupings) == len(before.groupings) and after.boots == before.boots
        assert after.upper(0.05) == approx(before.upper(0.05), rel=0.05)


@pytest.mark.parametrize("boots", [True, False])
def test_a_short_cluster_that_has_another_share_shows_how_clusters_differ(boots):
    """A soak that is stopped when it gets bad: no limit between the two shares is kept or exceeded for sure."""
    segments = [[10] * 6_000, [10] * 1_120 + [200] * 280]
    seen = tails([[s] for s in segments] if boots else [segments], 100)
    assert seen.groupings and seen.lower(0.05) < 0.01 and seen.upper(0.05) > 0.2


def test_a_sample_of_the_limit_is_not_above_it():
    ticks = Distribution.of(np.array([260_000, 260_001], dtype=np.uint64))
    assert Tail.of(ticks, 100_000.0, 1e6 / 2.6e6).above == 1


def test_more_samples_of_a_share_at_the_limit_show_nothing():
    assert units_to_show(Exceedance(10, 10_000, (Grouping(10, 1.0, 1.0),)), 10, 1e-3, 0.05) is None


def test_p_of_units_without_variance_is_that_of_their_order():
    """Four boots a side that never vary: by chance, one side has all of the larger ones."""
    assert p_equal_means([0.0] * 4, [0.5] * 4, False) == approx(2 / 4**4)
    assert p_equal_means([0.01, 0.02, 0.015, 0.018], [0.012, 0.019, 0.016, 0.017], False) > 0.5
    assert p_equal_means([1e-9] * 4, [2e-9] * 4, False) == approx(2 / 4**4)


def test_units_without_a_sample_above_the_limit_do_not_differ():
    """The samples above the limit can all be in a unit without partner, which is left out."""
    assert p_equal_means([0.0] * 6, [0.0] * 6, True) == approx(1)


@pytest.mark.parametrize("runs, burst", [(1, 1), (5, 1), (5, 5)])
@pytest.mark.parametrize("sizes", [(1_000, 10_000), (10_000, 1_000)])
def test_equal_sides_of_unequal_length_rarely_differ(runs, burst, sizes):
    """The short side often has no sample above, and then does not vary. Samples come in bursts."""
    draw, different = np.random.default_rng(5), 0
    for _ in range(300):
        sides = [
            [[(burst * int(draw.poisson(3e-4 * n)), n) for _ in range(runs)] for _ in range(4)]
            for n in sizes
        ]
        if any(above for side in sides for unit in side for above, _ in unit):
            different += p_equal(*sides, False) <= 0.05
    assert different <= 24  # of 300 at 5 %, but for a chance of 1 in 100


def test_sides_of_unequal_length_differ_if_the_counts_show_it():
    few, many = [[(1, 1_000)] * 5] * 4, [[(100, 10_000), (90, 10_000)]] * 4
    assert p_equal(few, many, False) < 0.01


def test_the_share_of_all_samples_must_not_contradict_the_units():
    """The boots of NEW have more, but for a long one; all its samples together have fewer."""
    base = [[(2, 200)]] * 3 + [[(400, 20_000)]] * 2
    new = [[(6, 200)]] * 3 + [[(7, 200)], [(600, 40_000)]]
    assert p_equal(base, new, False) == p_equal(new, base, False) == 1


def test_the_counts_of_independent_samples_are_tested_exactly():
    """5 of 5 fall on the longer side by chance once in 32, two-sided in 16; nearly, because the
    samples are few of many."""
    assert p_by_counts([[(0, 10**6)]], [[(5, 10**6)]], True) == approx(2 / 2**5, rel=1e-3)


@pytest.mark.parametrize(
    "sizes",
    [[1] * 20, [10] + [1] * 9, [100] + [1] * 9, [10, 10, 1, 1], [10] * 4 + [1], [10, 3] * 10],
)
def test_the_bounds_of_clustered_samples_are_missed_in_at_most_5_percent_each(sizes):
    """Negative binomial counts: boots differ by a factor with a coefficient of variation of 1."""
    draw = np.random.default_rng(4)
    low = high = 0
    nothing, share = Distribution.of(np.array([], dtype=np.uint64)), 2e-3
    for _ in range(400):
        boots = [5_000 * size for size in sizes]
        factors = draw.gamma(1, 1, len(sizes))
        above = [int(draw.poisson(n * share * factor)) for n, factor in zip(boots, factors)]
        found = Exceedance.of([[Tail(n, count, nothing)] for n, count in zip(boots, above)])
        high += found.p_below(share) <= 0.05
        low += found.p_above(share) <= 0.05
    assert max(low, high) <= 31  # of 400 at 5 %, but for a chance of 1 in 100
