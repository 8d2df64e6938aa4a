"""Held to scipy, and to worked examples of the papers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from klat.inference import bootstrap, multiplicity, permutation, power, proportion, within
from klat.inference.means import Difference, from_intervals, paired, welch
from klat.inference.nested import branch_means, mean, variance, variance_components
from klat.verdicts import Observed, Rules, Unit, Verdict, judge

EXACT = pytest.approx
A = [1.31, 0.92, 1.77, 1.04, 1.58, 0.87, 1.12]
B = [2.05, 0.41, 3.30, 1.66]


def approx(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def test_welch_agrees_with_scipy() -> None:
    found = welch(A, B)
    assert found is not None
    theirs = stats.ttest_ind(B, A, equal_var=False)
    assert found.p_different() == approx(theirs.pvalue)
    assert found.value == approx(np.mean(B) - np.mean(A))
    reach = float(stats.t.ppf(0.975, found.freedom)) * found.error
    assert found.interval(0.95) == (approx(found.value - reach), approx(found.value + reach))
    # scipy 1.10 tells no degrees of freedom; its p and t give them away.
    assert 2 * stats.t.sf(abs(theirs.statistic), found.freedom) == approx(theirs.pvalue)


def test_equivalence_is_the_larger_of_two_one_sided_tests_of_scipy() -> None:
    found = welch(A, B)
    assert found is not None
    for margin in (0.1, 1.0, 2.5):
        lower = stats.ttest_ind(np.add(B, margin), A, equal_var=False, alternative="greater")
        upper = stats.ttest_ind(np.subtract(B, margin), A, equal_var=False, alternative="less")
        assert found.p_within(margin) == approx(max(lower.pvalue, upper.pvalue))
        beyond = stats.ttest_ind(np.subtract(B, margin), A, equal_var=False, alternative="greater")
        assert found.p_beyond(margin) == approx(beyond.pvalue)


def test_pairs_agree_with_scipy() -> None:
    found = paired([b - a for a, b in zip(A, B)])
    assert found is not None
    assert found.p_different() == approx(stats.ttest_rel(B, A[:4]).pvalue)


def test_one_value_is_no_sample() -> None:
    assert welch([1.0], B) is None and welch(A, [1.0]) is None and paired([0.5]) is None


def test_constants_are_exact() -> None:
    third = [math.log(3)] * 7
    same = welch(third, third)
    other = welch(third, [math.log(3.3)] * 3)
    assert same is not None and other is not None
    assert (same.error, same.p_different(), same.p_within(0.01)) == (0.0, 1.0, 0.0)
    assert (other.p_different(), other.p_within(0.01)) == (0.0, 1.0)
    assert other.interval(0.95) == (other.value, other.value)
    assert variance([0.1] * 10) == 0.0 and mean([0.1] * 10) == 0.1


def test_tiny_variances_do_not_lose_their_degrees_of_freedom() -> None:
    found = welch([1e-150, 3e-150], [2e-150, 5e-150, 9e-150])
    assert found is not None and math.isfinite(found.freedom)


def test_resolution_widens_the_interval_and_is_held_against_every_claim() -> None:
    plain, coarse = Difference(0.03, 0.01, 8), Difference(0.03, 0.01, 8, resolution=0.02)
    assert coarse.interval(0.95)[0] == approx(plain.interval(0.95)[0] - 0.02)
    assert coarse.p_different() > plain.p_different()
    assert coarse.p_within(0.1) > plain.p_within(0.1)
    assert coarse.p_beyond(0.01) > plain.p_beyond(0.01)
    assert Difference(0.01, 0.0, 8, resolution=0.02).p_different() == 1.0


# Box, Hunter and Hunter, Statistics for Experimenters (1978), table 17.3: moisture of pigment paste,
# 15 batches of 2 samples of 2 tests. They give 7.1, 28.5 and 0.92 for batches, samples and tests.
PIGMENT = """40 39 30 30  26 28 25 26  29 28 14 15  30 31 24 24  19 20 17 17  33 32 26 24  23 24 32 33
34 34 29 29  27 27 31 31  13 16 27 24  25 23 25 27  29 29 31 32  19 20 29 30  23 24 25 25  39 37 26 28"""


def test_variance_components_agree_with_a_published_example() -> None:
    values = [float(x) for x in PIGMENT.split()]
    tree = [[values[i : i + 2], values[i + 2 : i + 4]] for i in range(0, 60, 4)]
    tests, samples, batches = variance_components(tree, 3)
    assert tests.own == EXACT(0.92, abs=0.005)
    assert samples.own == EXACT(28.5, abs=0.05)
    assert batches.own == EXACT(7.1, abs=0.05)
    assert [level.freedom for level in (tests, samples, batches)] == [30, 15, 14]
    # Kalibera and Jones: T_i^2 = S_i^2 - S_{i-1}^2 / r_{i-1}
    assert tests.observed and samples.observed and batches.observed
    assert samples.own == approx(samples.observed - tests.observed / 2)
    assert batches.own == approx(batches.observed - samples.observed / 2)


def test_variance_components_are_unbiased_with_unequal_boots() -> None:
    draw = np.random.default_rng(5)
    sizes = [2, 3, 9, 30]
    own = []
    for _ in range(4_000):
        tree = [list(draw.normal(draw.normal(0, 2), 3, size)) for size in sizes]
        run, boot = variance_components(tree, 2)
        own.append((run.own, boot.own))
    assert np.mean(own, axis=0) == EXACT(np.array([9, 4]), rel=0.06)


def test_boots_count_alike_however_many_runs_they_have() -> None:
    assert branch_means([[1.0], [3.0, 3.0, 3.0]]) == [1.0, 3.0]


def test_holm_agrees_with_a_worked_example() -> None:
    # Wright, Biometrics 48 (1992), and Holm's own procedure by hand.
    assert multiplicity.holm([0.01, 0.04, 0.03, 0.005]) == EXACT([0.03, 0.06, 0.06, 0.02])
    assert multiplicity.holm([]) == []


def test_corrections_agree_with_the_example_of_benjamini_and_hochberg() -> None:
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262]
    p += [0.5719, 0.6528, 0.7590, 1.0]
    rejected = {name: sum(x <= 0.05 for x in f(p)) for name, f in multiplicity.CORRECTIONS.items()}
    assert rejected == {"holm": 3, "bh": 4}
    backwards = multiplicity.benjamini_hochberg(p[::-1])
    assert backwards[::-1] == EXACT(multiplicity.benjamini_hochberg(p))


def _t(x: list[float], y: list[float], axis: int = -1) -> object:
    return np.abs(stats.ttest_ind(x, y, equal_var=False, axis=axis).statistic)


def test_the_exact_permutation_test_agrees_with_scipy() -> None:
    found = permutation.two_sides(A, B, seed=1)
    theirs = stats.permutation_test(
        (A, B), _t, vectorized=True, n_resamples=np.inf, alternative="greater"
    )
    assert found and found.exact and found.arrangements == math.comb(11, 4)
    assert found.p == approx(theirs.pvalue)


def test_the_exact_sign_test_of_pairs_counts_every_sign() -> None:
    differences = [0.3, -0.1, 0.4, 0.25, 0.05]
    found = permutation.signs(differences, seed=1)
    sums = [abs(sum(s * d for s, d in zip(x, differences))) for x in product((1, -1), repeat=5)]
    assert found and found.exact
    assert found.p == approx(sum(s >= sum(differences) - 1e-9 for s in sums) / 32)


def test_a_drawn_sign_test_counts_the_data_among_what_is_drawn() -> None:
    found = permutation.signs([1.0 + i / 10 for i in range(30)], seed=3)
    assert found and not found.exact and found.p == 1 / (permutation.DRAWN + 1)


def test_a_drawn_permutation_test_is_seeded_and_never_zero() -> None:
    a, b = list(range(12)), [x + 100.5 for x in range(12)]
    found, again = (permutation.two_sides(a, b, seed=7) for _ in range(2))
    assert found == again and found and not found.exact
    assert found.p == 1 / (permutation.DRAWN + 1)
    draw = np.random.default_rng(6)
    c, d = list(draw.normal(0, 1, 15)), list(draw.normal(0.4, 1, 15))
    close = permutation.two_sides(c, d, seed=7)
    assert close and close.p == EXACT(stats.ttest_ind(c, d).pvalue, abs=0.02)


def test_the_smallest_p_is_what_the_most_extreme_data_get() -> None:
    for a, b in (([1.0, 2.0, 3.0], [11.0, 12.5, 13.0]), ([1.0, 2.0], [11.0, 12.0, 14.0, 15.0])):
        found = permutation.two_sides(a, b, seed=1)
        assert found and found.p == approx(found.smallest)


def test_equal_constants_are_no_evidence_and_unequal_ones_all_there_can_be() -> None:
    same, other = (permutation.two_sides([1.0] * 4, [x] * 4, seed=1) for x in (1.0, 2.0))
    assert same and same.p == 1.0
    assert other and other.p == approx(2 / math.comb(8, 4))


def test_the_bootstrap_waits_for_twenty_units() -> None:
    draw = np.random.default_rng(2)
    a, b = list(draw.normal(0, 1, 20)), list(draw.normal(0, 1, 24))
    assert bootstrap.difference_of_means(a[:19], b, 0.95, 1) is None
    found = bootstrap.difference_of_means(a, b, 0.95, 1)
    student = welch(a, b)
    assert found and student and found == bootstrap.difference_of_means(a, b, 0.95, 1)
    assert found == EXACT(student.interval(0.95), abs=0.12)
    assert bootstrap.mean_of_pairs(a[:19], 0.95, 1) is None
    assert bootstrap.mean_of_pairs(a, 0.95, 1) is not None


@pytest.mark.parametrize(("x", "n"), [(0, 20), (1, 20), (10, 20), (20, 20), (3, 1000)])
def test_intervals_of_proportions_agree_with_scipy(x: int, n: int) -> None:
    for ours, method in ((proportion.clopper_pearson, "exact"), (proportion.wilson, "wilson")):
        theirs = stats.binomtest(x, n).proportion_ci(0.95, method)
        assert ours(x, n, 0.95) == (approx(theirs.low), approx(theirs.high))


def test_boots_that_are_alike_inside_count_for_less() -> None:
    even = proportion.clustered([5] * 10, [25] * 10, 0.95)
    uneven = proportion.clustered([25, 25, *[0] * 8], [25] * 10, 0.95)
    assert even == proportion.clopper_pearson(50, 250, 0.95)
    assert uneven[1] - uneven[0] > 3 * (even[1] - even[0])
    assert proportion.clustered([0, 0], [25, 25], 0.95)[0] == 0.0


def test_power_agrees_with_r() -> None:
    # power.t.test(n = 20, delta = 1, sd = 1) of R's manual: 0.8689528
    design = power.Design(20, 1.0, 1.0)
    assert power.power_of_difference(design, 1.0, 0.05) == EXACT(0.8689528, abs=1e-7)


@pytest.mark.parametrize(
    ("units", "pairs", "alpha"),
    [(6, True, 0.05), (8, True, 0.0125), (9, True, 0.005), (4, False, 0.05), (5, False, 0.0125)],
)
def test_the_power_of_few_units_is_that_of_the_verdicts(
    units: int, pairs: bool, alpha: float
) -> None:
    draw = np.random.default_rng(6)
    design = power.Design(units, 1.0, 0.0 if pairs else 1.0, pairs)
    effect = 0.5
    while power.power_of_difference(design, effect, alpha) < 0.9:
        effect *= 1.01
    hits = 0
    for _ in range(600):
        a, b = draw.normal(0, 0 if pairs else 1, units), draw.normal(effect, 1, units)
        sides = [
            Observed(tuple(Unit(str(i), (x,), str(i) * pairs) for i, x in enumerate(side)))
            for side in (a, b)
        ]
        (found,) = judge([(sides[0], sides[1])], Rules(alpha=alpha, cross_checks=False))
        hits += found.verdict is Verdict.SLOWER
    assert power.power_of_verdict(design, effect, alpha) == EXACT(hits / 600, abs=0.06)
    assert power.power_of_verdict(design, effect, alpha) < 0.8


def test_the_power_of_verdicts_grows_with_the_effect_and_is_no_more_than_students() -> None:
    design = power.Design(5, 1.0, 2.0)
    found = [power.power_of_verdict(design, x / 2, 0.05) for x in range(12)]
    assert found == sorted(found) and found[0] == 0 and found[-1] > 0.99
    assert all(f <= power.power_of_difference(design, x / 2, 0.05) for x, f in enumerate(found))
    exact = power.Design(5, 0.0, 0.0, resolution=0.01)
    assert [power.power_of_verdict(exact, x, 0.05) for x in (0.009, 0.011)] == [0.0, 1.0]
    many = power.Design(30, 1.0, 1.0)
    assert power.power_of_verdict(many, 1.0, 0.05) == power.power_of_difference(many, 1.0, 0.05)


def test_the_fewest_units_have_the_power_though_more_can_have_less() -> None:
    design = power.Design(4, 1.0, pairs=True)
    for effect in (1.3, 1.5, 1.7, 2.0):
        units = power.fewest_units(design, effect, 0.05, 0.9, 4, 1_000)
        assert units
        chosen = power.Design(units, 1.0, pairs=True)
        assert power.power_of_verdict(chosen, effect, 0.05) >= 0.9
        fewer = power.Design(units - 1, 1.0, pairs=True)
        assert power.power_of_verdict(fewer, effect, 0.05) < 0.9
    assert power.fewest_units(design, 0.001, 0.05, 0.9, 4, 1_000) is None


def test_power_of_equivalence_is_what_a_simulation_finds() -> None:
    draw = np.random.default_rng(4)
    design = power.Design(8, 1.0, 1.0)
    hits = 0
    for _ in range(2_000):
        found = welch(list(draw.normal(0, 1, 8)), list(draw.normal(0.3, 1, 8)))
        hits += found is not None and found.p_within(1.8) <= 0.05
    assert power.power_of_equivalence(design, 0.3, 1.8, 0.05) == EXACT(hits / 2_000, abs=0.04)


def test_the_smallest_count_is_found() -> None:
    assert power.smallest(lambda n: n >= 137, 3, 1_000) == 137
    assert power.smallest(lambda n: n >= 3, 3, 1_000) == 3
    assert power.smallest(lambda n: n > 1_000, 3, 1_000) is None


def test_an_interval_of_a_difference_from_those_of_its_parts() -> None:
    assert from_intervals(1.0, (0.6, 1.3), 2.0, (1.6, 2.4)) == (
        EXACT(0.5),
        EXACT(1 + math.sqrt(0.32)),
    )


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_the_interval_of_a_run_covers_also_where_samples_remember(
    q: Fraction, memory: float
) -> None:
    draw = np.random.default_rng(3)
    truth = 100_000 + 1000 * float(stats.norm.ppf(float(q)))
    covered = 0
    for _ in range(300):
        noise = draw.standard_normal(3_000)
        series = lfilter([math.sqrt(1 - memory**2)], [1, -memory], noise)[1_000:]
        found = within.run_quantile((100_000 + 1000 * series).astype(np.uint64), q)
        assert found is not None and found.interval is not None
        covered += found.interval[0] <= truth <= found.interval[1] + 1
    assert covered / 300 >= 0.91


def test_the_ranks_of_an_interval_are_those_of_the_binomial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = np.random.default_rng(1).permutation(np.arange(1, 101, dtype=np.uint64))
    monkeypatch.setattr(within, "correlation_time", lambda _: 1.0)
    found = within.run_quantile(samples, Fraction(1, 2))
    # For n = 100 the 95 % interval of the median is from the 40th to the 61st.
    assert found == within.RunQuantile(50, (40, 61), 100, 100.0)
    monkeypatch.setattr(within, "correlation_time", lambda _: 4.0)
    found = within.run_quantile(samples, Fraction(1, 2))
    # For 25, from the 8th to the 18th, which are these of 100.
    assert found == within.RunQuantile(50, (29, 72), 100, 25.0)
    assert within.run_quantile(samples[:9], Fraction(1, 2)) is None


def test_a_constant_run_has_no_memory() -> None:
    found = within.run_quantile(np.full(1_000, 7, dtype=np.uint64), Fraction(1, 2))
    assert found is not None and found.effective == 1_000 and found.interval == (7, 7)


def test_no_number_of_units_sees_what_the_granularity_hides() -> None:
    fine, coarse = (power.Design(1_000, 1e-6, 1e-6, resolution=r) for r in (0.0, 0.02))
    assert power.power_of_difference(fine, 0.01, 0.05) > 0.99
    assert power.power_of_difference(coarse, 0.01, 0.05) == 0
    assert power.power_of_equivalence(fine, 0.0, 0.01, 0.05) > 0.99
    assert power.power_of_equivalence(coarse, 0.0, 0.01, 0.05) == 0
