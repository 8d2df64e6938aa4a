"""Held to scipy, and to worked examples of the papers."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from klat.report.text.numbers import too_few_units
from klat.stats import descriptive, power, multiplicity, exceedance
from klat.stats.means import MeanDifference, from_intervals, paired, welch
from klat.stats.means import branch_means, mean, variance, variance_components
from validation.interval import clopper_pearson

EXACT = pytest.approx
A = [1.31, 0.92, 1.77, 1.04, 1.58, 0.87, 1.12]
B = [2.05, 0.41, 3.30, 1.66]


def approx(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def test_welch_agrees_with_scipy():
    found = welch(A, B)
    assert found is not None
    theirs = stats.ttest_ind(B, A, equal_var=False)
    assert found.p_changed(0) == approx(theirs.pvalue)
    assert found.value == approx(np.mean(B) - np.mean(A))
    reach = float(stats.t.ppf(0.975, found.freedom)) * found.error
    assert found.interval(0.95) == (approx(found.value - reach), approx(found.value + reach))
    # scipy 1.10 tells no degrees of freedom; its p and t give them away.
    assert 2 * stats.t.sf(abs(theirs.statistic), found.freedom) == approx(theirs.pvalue)


def test_equivalence_is_the_larger_of_two_one_sided_tests_of_scipy():
    found = welch(A, B)
    assert found is not None
    for margin in (0.1, 1.0, 2.5):
        lower = stats.ttest_ind(np.add(B, margin), A, equal_var=False, alternative="greater")
        upper = stats.ttest_ind(np.subtract(B, margin), A, equal_var=False, alternative="less")
        assert found.p_within(margin) == approx(max(lower.pvalue, upper.pvalue))
        beyond = stats.ttest_ind(np.subtract(B, margin), A, equal_var=False, alternative="greater")
        assert found.p_changed(margin) == approx(min(1, beyond.pvalue + lower.pvalue))


def test_pairs_agree_with_scipy():
    found = paired([b - a for a, b in zip(A, B)])
    assert found is not None
    assert found.p_changed(0) == approx(stats.ttest_rel(B, A[:4]).pvalue)


def test_one_value_is_not_a_sample():
    assert welch([1.0], B) is None and welch(A, [1.0]) is None and paired([0.5]) is None


def test_constants_are_exact():
    third = [math.log(3)] * 7
    same = welch(third, third)
    other = welch(third, [math.log(3.3)] * 3)
    assert same is not None and other is not None
    assert (same.error, same.p_changed(0), same.p_within(0.01)) == (0.0, 1.0, 0.0)
    assert (other.p_changed(0), other.p_within(0.01)) == (0.0, 1.0)
    assert other.interval(0.95) == (other.value, other.value)
    assert variance([0.1] * 10) == 0.0 and mean([0.1] * 10) == 0.1


def test_tiny_variances_do_not_lose_their_degrees_of_freedom():
    found = welch([1e-150, 3e-150], [2e-150, 5e-150, 9e-150])
    assert found is not None and math.isfinite(found.freedom)


def test_resolution_widens_the_interval_and_is_held_against_every_claim():
    plain, coarse = MeanDifference(0.03, 0.01, 8), MeanDifference(0.03, 0.01, 8, resolution=0.02)
    assert coarse.interval(0.95)[0] == approx(plain.interval(0.95)[0] - 0.02)
    assert coarse.p_changed(0) > plain.p_changed(0)
    assert coarse.p_within(0.1) > plain.p_within(0.1)
    assert coarse.p_changed(0.01) > plain.p_changed(0.01)
    assert MeanDifference(0.01, 0.0, 8, resolution=0.02).p_changed(0) == 1.0


# Box, Hunter and Hunter, Statistics for Experimenters (1978), table 17.3: moisture of pigment paste,
# 15 batches of 2 samples of 2 tests. They give 7.1, 28.5 and 0.92 for batches, samples and tests.
PIGMENT = """40 39 30 30  26 28 25 26  29 28 14 15  30 31 24 24  19 20 17 17  33 32 26 24  23 24 32 33
34 34 29 29  27 27 31 31  13 16 27 24  25 23 25 27  29 29 31 32  19 20 29 30  23 24 25 25  39 37 26 28"""


def test_variance_components_agree_with_a_published_example():
    values = [float(x) for x in PIGMENT.split()]
    tests, _ = variance_components([values[i : i + 2] for i in range(0, 60, 2)])
    means = branch_means([values[i : i + 2] for i in range(0, 60, 2)])
    samples, batches = variance_components([means[i : i + 2] for i in range(0, 30, 2)])
    assert tests.own == EXACT(0.92, abs=0.005)
    assert tests.own and samples.own and samples.own - tests.own / 2 == EXACT(28.5, abs=0.05)
    assert batches.own == EXACT(7.1, abs=0.05)
    assert [level.freedom for level in (tests, samples, batches)] == [30, 15, 14]
    # Kalibera and Jones: T_i^2 = S_i^2 - S_{i-1}^2 / r_{i-1}
    assert samples.observed and batches.observed
    assert batches.own == approx(batches.observed - samples.observed / 2)


def test_variance_components_are_unbiased_with_unequal_boots():
    draw = np.random.default_rng(5)
    sizes = [2, 3, 9, 30]
    own = []
    for _ in range(4_000):
        tree = [list(draw.normal(draw.normal(0, 2), 3, size)) for size in sizes]
        run, boot = variance_components(tree)
        own.append((run.own, boot.own))
    assert np.mean(own, axis=0) == EXACT(np.array([9, 4]), rel=0.06)


def test_boots_have_equal_weight():
    assert branch_means([[1.0], [3.0, 3.0, 3.0]]) == [1.0, 3.0]


def test_holm_agrees_with_a_worked_example():
    # Wright, Biometrics 48 (1992), and Holm's own procedure by hand.
    p, adjusted = [0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]
    assert multiplicity.holm(p).tolist() == EXACT(adjusted)
    assert multiplicity.holm([p[::-1], p]).tolist() == [EXACT(adjusted[::-1]), EXACT(adjusted)]
    assert multiplicity.holm([]).tolist() == []


def test_corrections_agree_with_the_example_of_benjamini_and_hochberg():
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262]
    p += [0.5719, 0.6528, 0.7590, 1.0]
    rejected = {name: sum(x <= 0.05 for x in f(p)) for name, f in multiplicity.CORRECTIONS.items()}
    assert rejected == {"holm": 3, "bh": 4}
    backwards = multiplicity.benjamini_hochberg(p[::-1])
    assert backwards[::-1] == approx(multiplicity.benjamini_hochberg(p))


@pytest.mark.parametrize(("x", "n"), [(0, 20), (1, 20), (10, 20), (20, 20), (3, 1000)])
def test_the_interval_of_a_proportion_agrees_with_scipy(x, n):
    theirs = stats.binomtest(x, n).proportion_ci(0.95, "exact")
    assert clopper_pearson(x, n, 0.95) == (approx(theirs.low), approx(theirs.high))


def test_fishers_exact_test_agrees_with_scipy():
    for x, n, y, m in ((0, 20, 12, 32), (3, 5, 1, 9), (0, 4, 0, 7), (5, 5, 0, 3)):
        theirs = stats.fisher_exact([[x, n - x], [y, m - y]]).pvalue
        assert exceedance.fisher(x, n, y, m) == approx(theirs)


def test_power_agrees_with_r():
    # power.t.test(n = 20, delta = 1, sd = 1) of R's manual: 0.8689528
    design = power.Design(20, 1.0, 1.0)
    assert power.power_of_change(design, 1.0, 0.0, 0.05) == EXACT(0.8689528, abs=0.001)


@pytest.mark.parametrize(
    ("units", "pairs", "margin", "alpha"),
    [
        (6, True, 0.0, 0.05),
        (8, True, 0.3, 0.0125),
        (4, False, 0.5, 0.05),
        (5, False, 0.1, 0.0125),
        (12, False, 3.0, 0.005),
    ],
)
def test_the_power_of_a_change_agrees_with_a_simulation(units, pairs, margin, alpha):
    draw = np.random.default_rng(6)
    design = power.Design(units, 1.0, 0.0 if pairs else 1.0, pairs)
    effect = margin + 0.3
    while power.power_of_change(design, effect, margin, alpha) < 0.8:
        effect *= 1.05
    hits = 0
    for _ in range(1_500):
        new = list(draw.normal(effect, 1, units))
        found = paired(new) if pairs else welch(list(draw.normal(0, 1, units)), new)
        assert found
        hits += found.value > 0 and found.p_changed(margin) <= alpha
    expected = power.power_of_change(design, effect, margin, alpha)
    assert expected == EXACT(hits / 1_500, abs=0.04)


def test_a_change_within_the_margin_or_of_too_few_units_has_no_power():
    exact = power.Design(5, 0.0, 0.0, resolution=0.01)
    powers = [power.power_of_change(exact, x, 0.02, 0.05) for x in (0.02, 0.029, 0.031)]
    assert powers == [0.0, 0.0, 1.0]
    # Of ten tests 4 boots a side in two states line up in more than 5 %.
    few, enough = power.Design(4, 0.0), power.Design(5, 0.0)
    assert [power.power_of_change(d, 1.0, 0.02, 0.005) for d in (few, enough)] == [0.0, 1.0]


@pytest.mark.parametrize("freedom", [3, 6, 18])
@pytest.mark.parametrize("margin", [0.0, 0.3, 0.6, 1.0, 3.0])
def test_the_three_sided_test_keeps_its_level_at_the_margin(freedom, margin):
    draw = np.random.default_rng(2)
    count = 40_000
    values = margin + draw.standard_normal(count)
    errors = np.sqrt(draw.chisquare(freedom, count) / freedom)
    near = stats.t.sf((np.abs(values) - margin) / errors, freedom)
    far = stats.t.sf((np.abs(values) + margin) / errors, freedom)
    assert MeanDifference(values[0], errors[0], freedom).p_changed(margin) == approx(
        near[0] + far[0]
    )
    for alpha in (0.05, 0.005):
        said = np.mean(near + far <= alpha)
        assert said <= alpha + 3.5 * math.sqrt(alpha / count)
        assert said >= 0.8 * alpha  # and gives little of it away


def test_the_fewest_units_that_chance_does_not_line_up():
    assert (power.fewest(0.05), power.fewest(0.05, pairs=True)) == (4, 6)
    assert power.by_arrangement(4, 4) == 2 / 70 and power.by_arrangement(2, 9) == 2 / 55
    assert power.by_arrangement(6, 6, pairs=True) == 2 / 64


def test_units_in_two_states_are_tested_exactly():
    assert power.by_states(4, 4, 0, 4) == approx(2 / 4**4)
    assert power.by_paired_states(6, 6, 0) == approx(2 / 4**6)
    # For the worst share of states, whatever it is.
    for a, b in ((4, 4), (2, 9), (5, 6)):
        worst = max(q**a * (1 - q) ** b + q**b * (1 - q) ** a for q in np.linspace(0, 1, 101))
        assert power.by_states(a, b, 0, b) == approx(worst)
    for share in (0.05, 0.2, 0.37, 0.5):
        p, q = (stats.binom.pmf(range(n + 1), n, share) for n in (7, 9))
        pairs = itertools.product(range(8), range(10))
        rejected = sum(p[i] * q[j] for i, j in pairs if power.by_states(7, 9, i, j) <= 0.05)
        assert rejected <= 0.0501
    assert power.by_states(7, 9, 3, 4) > 0.5 and power.by_paired_states(9, 3, 3) == approx(1)


def test_the_power_of_equivalence_agrees_with_a_simulation():
    draw = np.random.default_rng(4)
    design = power.Design(8, 1.0, 1.0)
    hits = 0
    for _ in range(2_000):
        found = welch(list(draw.normal(0, 1, 8)), list(draw.normal(0.3, 1, 8)))
        hits += found is not None and found.p_within(1.8) <= 0.05
    assert power.power_of_equivalence(design, 0.3, 1.8, 0.05) == EXACT(hits / 2_000, abs=0.04)


def test_without_noise_equivalence_is_certain_or_impossible():
    exact = power.Design(8, 0.0, resolution=0.01)
    assert power.power_of_equivalence(exact, -0.019, 0.03, 0.05) == 1
    assert power.power_of_equivalence(exact, 0.02, 0.03, 0.05) == 0


@pytest.mark.parametrize(
    "values",
    [range(4), range(9), [3, 3, -2, 2, -1, 1, 0, -3], [-3, -1, -2, 2, -1, -1, -1, 0, 2, 1, 3]],
)
def test_the_correlation_time_is_that_of_geyer_term_by_term(values):
    series, n = np.array(values, dtype=float), len(values)
    centred = series - series.mean()
    r = [float(centred[: n - lag] @ centred[lag:] / (centred @ centred)) for lag in range(n)]
    pairs = [r[lag] + r[lag + 1] for lag in range(0, n - 1, 2)]
    positive = list(itertools.takewhile(lambda pair: pair > 0, pairs))
    falling = itertools.accumulate(positive, min)
    assert descriptive.correlation_time(series) == approx(max(1, 2 * sum(falling) - 1))


def test_the_smallest_count_is_found():
    assert power.smallest(lambda n: n >= 137, 3, 1_000) == 137
    assert power.smallest(lambda n: n >= 3, 3, 1_000) == 3
    assert power.smallest(lambda n: n > 1_000, 3, 1_000) is None


def test_an_interval_of_a_difference_from_those_of_its_parts():
    covered = from_intervals(1.0, (0.6, 1.3), 2.0, (1.6, 2.4))
    assert covered == (EXACT(0.5), EXACT(1 + math.sqrt(0.32)))


def run_quantile(samples, q):
    def ranked(places):
        return np.sort(samples)[places].tolist()

    return descriptive.quantile_of(samples, len(samples), ranked, q)


@pytest.mark.parametrize("q", [Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_the_interval_of_a_run_covers_also_where_samples_remember(q, memory):
    draw = np.random.default_rng(3)
    truth = 100_000 + 1000 * float(stats.norm.ppf(float(q)))
    covered = 0
    for _ in range(300):
        noise = draw.standard_normal(3_000)
        series = lfilter([math.sqrt(1 - memory**2)], [1, -memory], noise)[1_000:]
        quantile = run_quantile((100_000 + 1000 * series).astype(np.uint64), q)
        assert quantile is not None and quantile.interval is not None
        covered += quantile.interval[0] <= truth <= quantile.interval[1] + 1
    assert covered / 300 >= 0.91


def test_the_ranks_of_an_interval_are_those_of_the_binomial(monkeypatch):
    samples = np.random.default_rng(1).permutation(np.arange(1, 101, dtype=np.uint64))
    monkeypatch.setattr(descriptive, "correlation_time", lambda _: 1.0)
    quantile = run_quantile(samples, Fraction(1, 2))
    # For n = 100 the 95 % interval of the median is from the 40th to the 61st.
    assert quantile == descriptive.RunQuantile(50, (40, 61), 100, 100.0)
    monkeypatch.setattr(descriptive, "correlation_time", lambda _: 4.0)
    quantile = run_quantile(samples, Fraction(1, 2))
    # For 25, from the 8th to the 18th, which are these of 100.
    assert quantile == descriptive.RunQuantile(50, (29, 72), 100, 25.0)
    assert run_quantile(samples[:9], Fraction(1, 2)) is None


def test_a_constant_run_has_no_memory():
    quantile = run_quantile(np.full(1_000, 7, dtype=np.uint64), Fraction(1, 2))
    assert quantile is not None and quantile.effective == 1_000 and quantile.interval == (7, 7)


def test_granularity_limits_the_power_of_any_number_of_units():
    fine, coarse = (power.Design(1_000, 1e-6, 1e-6, resolution=r) for r in (0.0, 0.02))
    assert power.power_of_change(fine, 0.01, 0.0, 0.05) > 0.99
    assert power.power_of_change(coarse, 0.01, 0.0, 0.05) == 0
    assert power.power_of_equivalence(fine, 0.0, 0.01, 0.05) > 0.99
    assert power.power_of_equivalence(coarse, 0.0, 0.01, 0.05) == 0


FEW: Sequence[tuple[int, int, list[str], bool, int | None]] = [
    (1, 2, [""], False, 4),
    (3, 2, [""], False, 4),
    (4, 2, [""], False, None),
    (4, 2, [""] * 7, False, 5),
    (4, 2, ["--iterations=100"] * 6, False, None),
    (5, 4, [""] * 7, False, 6),
    (5, 2, [""], True, 6),
    (1, 1, [""], False, None),
]


@pytest.mark.parametrize(("units", "sides", "words", "pairs", "needed"), FEW)
def test_too_few_boots_for_a_verdict_are_said(units, sides, words, pairs, needed):
    sets = [("pipes", (word,)) for word in words]
    lines = list(too_few_units("--boots", units, sides, sets, pairs))
    assert [line.rpartition("need ")[2] for line in lines] == [f"--boots {needed}"] * bool(needed)


def test_fewer_units_than_said_cannot_give_a_verdict():
    for tests in (1, 14, 36, 126):
        units = power.fewest_of_tests(tests, 0.05)
        chances = [tests * power.by_states(n, n, 0, n) for n in (units, units - 1)]
        assert chances[0] <= 0.05 < chances[1] or units == power.fewest(0.05)
