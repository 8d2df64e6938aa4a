from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from written_sessions import statistics_of

from klat.record.rows import FIGURES
from klat.record.samples import SampleFiles
from klat.record.session import SessionError, read_session
from klat.stats.descriptive import P50, P99, effective_size, lag1_autocorrelation, linear_fit
from klat.stats.descriptive import median_interval, rank, row_figures, supports, thousandths
from klat.stats.distribution import Distribution
from klat.stats.granularity import rounded_alike, rounding_of_slope, short_runs_rounded_alike
from klat.stats.means import between_variance, next_effect, paired


def as_text(samples: list[int]) -> dict[str, str]:
    ((mean, deviation, *others),) = row_figures(np.array([samples], dtype=np.uint64))
    texts = ["" if figure is None else str(figure) for figure in others]
    figures = dict(zip(FIGURES, (thousandths(mean), thousandths(deviation), *texts)))
    return {"n": str(len(samples)), **figures}


TOP = 2**64 - 1


@pytest.mark.parametrize(
    "samples",
    [
        [0],
        [7],
        [TOP],
        [TOP, TOP],
        [0, TOP],
        [TOP - 1, TOP] * 600,
        [0] * 10,
        [2**32 - 1, 2**32, 2**32 + 1] * 7,
        [1, 2] * 5,
        [1] * 9 + [10**12],
        [2**53 + 1, 2**53 + 2, 2**53 + 4],
    ],
)
def test_a_row_equals_the_formulas_digit_for_digit_at_the_edges(samples):
    assert as_text(samples) == statistics_of(samples)


@pytest.mark.parametrize("bits", [3, 14, 31, 33, 50, 64])
def test_a_row_equals_the_formulas_digit_for_digit_on_random_samples(bits):
    draw = random.Random(bits)
    for n in (1, 2, 9, 10, 49, 50, 499, 500, 1000):
        samples = [draw.getrandbits(bits) for _ in range(n)]
        assert as_text(samples) == statistics_of(samples), n


def test_thousandths_keep_their_zeros_and_every_digit():
    texts = [thousandths(value) for value in (0, 5, 1200, 2**64 * 1000 + 1)]
    assert texts == ["0.000", "0.005", "1.200", "18446744073709551616.001"]


@pytest.mark.parametrize(
    ("n", "q", "answer"), [(9, P50, False), (10, P50, True), (499, P99, False), (500, P99, True)]
)
def test_a_quantile_needs_five_samples_beyond_it(n, q, answer):
    assert supports(n, q) is answer
    samples = np.arange(n, dtype=np.uint64)
    assert (Distribution.of(samples).quantile(q) is not None) is answer


def test_a_quantile_is_a_sample_at_the_inverse_of_the_distribution():
    samples = np.arange(1000, 0, -1, dtype=np.uint64)
    (figures,) = row_figures(samples[np.newaxis])
    assert figures[FIGURES.index("p50")] == 500 and figures[FIGURES.index("p99")] == 990
    assert samples[0] == 1000, "the caller's samples keep their order"


def test_autocorrelation_is_found_and_shrinks_the_effective_size():
    draw = np.random.default_rng(2)
    noise = draw.normal(size=20_000)
    series = np.empty_like(noise)
    series[0] = noise[0]
    for i in range(1, len(noise)):
        series[i] = 0.9 * series[i - 1] + noise[i]
    assert lag1_autocorrelation(noise) == pytest.approx(0, abs=0.03)
    assert lag1_autocorrelation(series) == pytest.approx(0.9, abs=0.02)
    assert effective_size(series) == pytest.approx(20_000 / 19, rel=0.3)
    assert effective_size(noise) <= 20_000


@pytest.mark.parametrize("value", [0.0, 1e9 + 0.1, 55_000.123])
def test_constants_have_no_autocorrelation(value):
    assert lag1_autocorrelation(np.full(100, value)) == 0.0
    assert effective_size(np.full(100, value)) == 100


def test_alternation_does_not_raise_the_effective_size_above_n():
    assert effective_size(np.array([1.0, 2.0] * 50)) == 100


def test_the_interval_of_a_median_has_the_tabulated_ranks():
    # Ranks from 1, two-sided 95 %: Conover, Practical Nonparametric Statistics, table A3.
    draw = np.random.default_rng(3)
    for n, low in ((6, 1), (10, 2), (20, 6), (50, 18)):
        values = draw.permutation(np.arange(1.0, n + 1))
        while effective_size(values) < n:
            values = draw.permutation(values)
        assert median_interval(values) == (low, n + 1 - low), n


@pytest.mark.parametrize("n", range(6))
def test_too_few_runs_give_no_interval(n):
    assert median_interval(np.arange(float(n))) is None


def test_the_interval_of_a_median_covers_it_also_under_drift():
    draw = np.random.default_rng(4)
    for r in (0.0, 0.6):
        hits = 0
        for _ in range(400):
            noise = draw.exponential(size=150) - np.log(2) if r == 0 else draw.normal(size=150)
            values = noise.copy()
            for i in range(1, len(values)):
                values[i] = r * values[i - 1] + noise[i]
            interval = median_interval(values)
            assert interval is not None
            hits += interval[0] <= 0 <= interval[1]
        # Nominal 380 of 400; 360 is over four standard errors below.
        assert hits >= 360, (r, hits)


def test_a_line_is_recovered_with_its_slope():
    x = np.repeat(np.arange(8.0), 30)
    y = 15_000 + 2_300 * x + np.random.default_rng(5).normal(scale=400, size=len(x))
    fit = linear_fit(x, y)
    reference = stats.linregress(x, y)
    assert fit is not None and fit.interval is not None
    assert fit.slope == pytest.approx(reference.slope)
    assert fit.intercept == pytest.approx(reference.intercept)
    reach = stats.t.ppf(0.975, len(x) - 2) * reference.stderr
    assert fit.interval[1] - fit.slope == pytest.approx(reach, rel=0.15)


def test_the_standard_error_is_hc3():
    draw = np.random.default_rng(7)
    x = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 4.0, 4.0, 9.0, 9.0])
    y = 3 + 2 * x + draw.normal(size=9) * (1 + x)
    design = np.column_stack([np.ones(9), x])
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ y
    leverage = np.diag(design @ inverse @ design.T)
    scaled = (y - design @ beta) / (1 - leverage)
    covariance = inverse @ design.T @ np.diag(scaled**2) @ design @ inverse
    reach = stats.t.ppf(0.975, 7) * covariance[1, 1] ** 0.5
    fit = linear_fit(x, y)
    assert fit is not None
    assert fit.interval == pytest.approx((beta[1] - reach, beta[1] + reach))


def test_a_line_needs_two_counts_and_an_interval_more():
    assert linear_fit(np.array([1.0, 1.0]), np.array([1.0, 2.0])) is None
    two = linear_fit(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    assert two is not None and two.slope == 2 and two.interval is None
    single = linear_fit(np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0, 9.0]))
    assert single is not None and single.slope == 7 and single.interval is None


def test_samples_are_found_by_index_not_by_byte(writer):
    writer.run({"handoff": [1, 2, 3], "round_trip": [4, 5]}, benchmark="cv")
    writer.run({"handoff": [6], "round_trip": [7, 8]}, benchmark="cv")
    session = read_session(writer.path)
    files = SampleFiles(session)
    assert [files.read(row).tolist() for row in session.rows] == [[1, 2, 3], [4, 5], [6], [7, 8]]


@pytest.mark.parametrize("keep", [None, 0, 8, 23])
def test_a_short_samples_file_is_named_with_its_row(writer, keep):
    writer.run({"round_trip": [1, 2, 3]})
    file = writer.samples_file("pipes")
    if keep is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:keep])
    session = read_session(writer.path)
    with pytest.raises(SessionError, match="pipes.u64"):
        SampleFiles(session).read(session.rows[0])


def test_no_rounding_of_the_points_moves_a_slope_further_than_said():
    x, y = np.array([0.0, 1.0, 1.0, 4.0]), np.array([3.0, 5.0, 6.0, 9.0])
    rounded = [0.5, 0.0, 2.0, 0.5]
    fit = linear_fit(x, y)
    assert fit
    slopes = []
    for signs in itertools.product((-1, 1), repeat=4):
        moved = linear_fit(x, y + np.array(signs) * rounded)
        assert moved
        slopes.append(moved.slope)
    reach = rounding_of_slope(x.tolist(), rounded)
    assert max(slopes) == pytest.approx(fit.slope + reach)
    assert min(slopes) == pytest.approx(fit.slope - reach)


@pytest.mark.parametrize(
    ("samples", "share"),
    [
        ([26] * 85 + [104] * 8 + [130] * 7, 0.85),
        ([26] * 100, 1.0),
        ([26] * 85 + [52] * 15, 0.0),
        (range(0, 2600 * 26, 5 * 26), 0.0),  # few samples at many lengths
    ],
)
def test_samples_of_one_length_are_rounded_alike_if_they_are_in_one_step(samples, share):
    assert rounded_alike(Distribution.of(np.array(samples, dtype=np.uint64)), 26.0) == share


@pytest.mark.parametrize("n", [1, 7, 20, 21, 200])
def test_shares_of_short_runs_do_not_depend_on_the_batch(n):
    random = np.random.default_rng(n)
    runs = [
        np.rint(random.normal(5_000, deviation, n) / 26 + 0.3 * place).astype(np.uint64) * 26
        for place, deviation in enumerate((0, 10, 26, 60, 200, 400, 3_000))
    ]
    alone = [rounded_alike(Distribution.of(run), 26.0) for run in runs]
    assert short_runs_rounded_alike(np.stack(runs), 26.0) == alone
    assert n < 200 or 0.0 in alone and 1.0 in alone


# Thirteen trials of the BCG vaccine (Colditz et al., J. American Medical Association 271, 1994): cases and
# others among the vaccinated, then among the rest.
BCG = [
    (4, 119, 11, 128),
    (6, 300, 29, 274),
    (3, 228, 11, 209),
    (62, 13536, 248, 12619),
    (33, 5036, 47, 5761),
    (180, 1361, 372, 1079),
    (8, 2537, 10, 619),
    (505, 87886, 499, 87892),
    (29, 7470, 45, 7232),
    (17, 1699, 65, 1600),
    (186, 50448, 141, 27197),
    (5, 2493, 3, 2338),
    (27, 16886, 29, 17825),
]


def log_risk_ratios() -> tuple[list[float], list[float]]:
    effects = [math.log((a / (a + b)) / (c / (c + d))) for a, b, c, d in BCG]
    errors = [math.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)) for a, b, c, d in BCG]
    return effects, errors


def test_the_variance_between_trials_is_that_of_metafor():
    effects, errors = log_risk_ratios()
    assert [round(effects[0], 4), round(errors[0] ** 2, 4)] == [
        -0.8893,
        0.3256,
    ]  # escalc(measure="RR")
    assert round(between_variance(effects, errors), 4) == 0.3286  # rma(method="HE")


def test_errors_that_explain_the_whole_spread_leave_a_negative_estimate():
    assert between_variance([0.0, 0.1], [1.0, 1.0]) == pytest.approx(0.005 - 1.0)


def test_one_more_group_is_expected_around_the_mean():
    # Of 1, 2 and 3: 2 -+ t(2; 0.975) * sqrt(1 + 1/3).
    low, high = next_effect([1.0, 2.0, 3.0], 0.95)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - 2.0 == pytest.approx(4.302653 * math.sqrt(4 / 3), rel=1e-6)


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_interval_over_groups_of_unequal_errors_covers_the_mean(spread):
    draw = np.random.default_rng(7)
    errors = np.exp(draw.normal(0, 1, (2_000, 6)))
    effects = draw.normal(0, 1, errors.shape) * np.sqrt(errors**2 + spread**2)
    intervals = [found.interval(0.95) for row in effects.tolist() if (found := paired(row))]
    missed = sum(not low <= 0 <= high for low, high in intervals)
    assert missed <= 0.065 * len(intervals)


RNG = np.random.default_rng(5)
# Within the table, far above it, below the first part's smallest, at both ends of what 64 bits hold.
PARTS = {
    "near": [RNG.integers(1_000, 9_000, 20_000)],
    "heavy tail": [(20_000 * RNG.random(20_000) ** -3).astype(np.uint64) for _ in range(5)],
    "falling": [np.arange(start, start + 500) for start in (10**9, 10**6, 10**3, 0)],
    "extremes": [
        np.array([2**64 - 1, 0, 2**63, 1], dtype=np.uint64),
        np.array([2**64 - 1, 7], dtype=np.uint64),
    ],
    "pieces of nothing": [np.zeros(0), np.full(9, 77), np.zeros(0)],
}


@pytest.mark.parametrize("together", [1, 1 << 18])  # counted in a table, or sorted
@pytest.mark.parametrize("name", PARTS)
def test_it_answers_as_the_sorted_samples_do(name, together, monkeypatch):
    monkeypatch.setattr("klat.stats.distribution._TOGETHER", together)
    parts = [np.asarray(part).astype(np.uint64) for part in PARTS[name]]
    ordered = np.sort(np.concatenate(parts))
    counted = Distribution.of_parts(parts)
    assert counted.n == len(ordered)
    assert counted.take(np.arange(len(ordered))).tolist() == ordered.tolist()
    assert (np.diff(counted.values.astype(object)) > 0).all() and counted.counts.min() >= 1
    for value in {int(ordered[0]), int(ordered[-1]), int(ordered[len(ordered) // 3])}:
        assert counted.below(np.uint64(value)) == np.searchsorted(ordered, np.uint64(value))
        assert counted.up_to(np.uint64(value)) == np.searchsorted(
            ordered, np.uint64(value), "right"
        )
    qs = (Fraction(1, 2), Fraction(9, 10), Fraction(999, 1000))
    if ordered[-1] < 2**53:
        for q in qs:
            n = counted.n
            assert counted.quantile(q) == (ordered[rank(n, q) - 1] if supports(n, q) else None)
    assert counted.mean() == pytest.approx(ordered.astype(float).mean(), rel=1e-12)
    assert counted.deviation() == pytest.approx(ordered.astype(float).std(), rel=1e-9)


def test_parts_counted_at_different_times_are_one(monkeypatch):
    parts = [np.array(part, dtype=np.uint64) for part in ([2**64 - 1], [0, 5], [2**64 - 1, 5])]
    monkeypatch.setattr("klat.stats.distribution._TOGETHER", 1)
    counted = Distribution.of_parts(parts)
    assert counted.values.tolist() == [0, 5, 2**64 - 1] and counted.counts.tolist() == [1, 2, 2]
    assert counted.quantile(Fraction(1, 2)) is None


def test_nothing_is_nothing():
    counted = Distribution.of_parts([])
    assert counted.n == 0 and counted.quantile(Fraction(1, 2)) is None


def test_distributions_of_two_lengths_of_a_tick_join_by_value():
    one, two = Distribution.of_parts([np.array([2, 4, 4], dtype=np.uint64)]).times(
        0.5
    ), Distribution.of_parts([np.array([1, 8], dtype=np.uint64)]).times(0.25)
    merged = Distribution.merged([one, two])
    assert merged.values.tolist() == [0.25, 1.0, 2.0]
    assert merged.counts.tolist() == [1, 1, 3]


def test_its_size_is_the_number_of_distinct_values():
    parts = (np.full(100_000, 26 * (i % 50), dtype=np.uint64) for i in range(100))
    counted = Distribution.of_parts(parts)
    assert counted.n == 10**7 and len(counted.values) == 50


@pytest.mark.parametrize("name", PARTS)
def test_its_statistics_are_those_of_the_samples(name):
    samples = np.concatenate([np.asarray(part).astype(np.uint64) for part in PARTS[name]])
    assert [Distribution.of(samples).row_figures()] == list(row_figures(samples[np.newaxis]))


def test_a_sample_is_above_a_limit_only_if_it_is_larger():
    found = Distribution.of(np.array([2**64 - 1, 2**64 - 2, 7, 7, 0], dtype=np.uint64))
    limits = (-1, 0, 6.9, 7, 2**64 - 3, 2**64 - 2, 2**64 - 1, 2.0**70)
    assert [found.above(limit) for limit in limits] == [5, 4, 4, 2, 2, 1, 0, 0]


def test_many_distributions_merge_as_their_samples_do(monkeypatch):
    monkeypatch.setattr("klat.stats.distribution._HELD", 100)
    parts = [RNG.integers(0, 99, 50).astype(np.uint64) for _ in range(20)]
    merged = Distribution.merged(map(Distribution.of, parts))
    assert np.repeat(merged.values, merged.counts).tolist() == sorted(np.concatenate(parts))
