"""Extrapolation of tails, held to scipy, to closed forms and to tails of known shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize, stats

from klat.stats import block_maxima, extremes, pareto_tail
from klat.stats.extremal_index import clusters, extremal_index
from klat.stats.extremes import (
    Extrapolation,
    RunTail,
    SoakSegment,
    block_maxima as from_segments,
    peaks_over_threshold,
)
from klat.stats.profile_interval import profile_interval
from klat.stats.stationarity import rate_p
from klat.stats.tail_fit_check import check_fit

Values = npt.NDArray[np.float64]
N = 50_000


def tails(parts: Sequence[Values], boots: Sequence[str], base: float) -> list[RunTail]:
    places = [np.flatnonzero(part > base) for part in parts]
    return [RunTail(b, len(x), p, x[p]) for b, x, p in zip(boots, parts, places)]


def extrapolate(
    samples: Values, times: float = 20, boots: str = "a" * 10, step: float = 0.0
) -> Extrapolation:
    """Of samples in ten runs, whose boots are letters."""
    base = float(np.sort(samples)[-1 - min(2000, len(samples) // 10)])
    runs = tails(np.split(samples, len(boots)), boots, base)
    return peaks_over_threshold(runs, base, times * len(samples), step)


def exponential(seed: int = 3, n: int = N) -> Values:
    return np.random.default_rng(seed).standard_exponential(n)


@pytest.mark.parametrize("shape", [-0.7, -0.3, 0.0, 0.2, 0.5, 1.2])
def test_the_pareto_fit_agrees_with_scipy(shape: float) -> None:
    draw = np.random.default_rng(2)
    excesses = stats.genpareto.rvs(shape, scale=300, size=400, random_state=draw)
    tail = pareto_tail.fitted(excesses)
    theirs, _, scale = stats.genpareto.fit(excesses, floc=0)
    assert tail.shape == pytest.approx(theirs, abs=1e-3)
    assert tail.scale == pytest.approx(scale, rel=1e-3)
    own = pareto_tail.log_likelihood(excesses, tail.shape, tail.scale)
    assert own == pytest.approx(stats.genpareto.logpdf(excesses, theirs, 0, scale).sum(), abs=1e-4)


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.5])
def test_a_censored_fit_is_the_maximum_of_its_likelihood(shape: float) -> None:
    draw = np.random.default_rng(2)
    excesses = np.sort(stats.genpareto.rvs(shape, scale=300, size=400, random_state=draw))
    known = excesses[:-20]
    shapes, scales = pareto_tail.fits(np.vstack([excesses, np.r_[known, 50 * excesses[-20:]]]), 20)
    assert shapes[0] == shapes[1] and scales[0] == scales[1]

    def likelihood(x: Values) -> float:
        law = stats.genpareto(x[0], 0, x[1])
        return float(law.logpdf(known).sum() + 20 * law.logsf(known[-1]))

    best = optimize.minimize(lambda x: -likelihood(x), [0.1, 250.0], method="Nelder-Mead")
    assert likelihood(np.array([shapes[0], scales[0]])) == pytest.approx(-best.fun, abs=1e-3)


@pytest.mark.parametrize("shape", [-0.4, -0.1, 0.1, 0.4])
def test_the_fit_of_maxima_agrees_with_scipy(shape: float) -> None:
    draw = np.random.default_rng(2)
    maxima = stats.genextreme.rvs(-shape, 5_000, 300, size=200, random_state=draw)
    fit = block_maxima.fitted_maxima(maxima)
    theirs = stats.genextreme.fit(maxima, -shape, loc=5_000, scale=300)
    assert fit.shape == pytest.approx(-theirs[0], abs=2e-3)
    assert (fit.location, fit.scale) == pytest.approx(theirs[1:], rel=2e-3)


def test_the_level_of_an_exponential_tail_is_its_closed_form() -> None:
    tail = pareto_tail.ParetoTail(0.0, 250.0)
    assert tail.excess(1_000) == pytest.approx(250 * np.log(1_000))
    heavy = pareto_tail.ParetoTail(0.5, 250.0)
    assert heavy.excess(1_000) == pytest.approx(stats.genpareto.isf(1e-3, 0.5, 0, 250))


def test_the_profile_interval_of_a_normal_mean_is_its_closed_form() -> None:
    values = np.random.default_rng(1).normal(7, 2, 50)

    def likelihood(mean: float, others: Values) -> float:
        return float(stats.norm.logpdf(values, mean, np.exp(others[0])).sum())

    best, n = float(values.mean()), len(values)
    found = profile_interval(likelihood, best, np.log([values.std()]), 0.3, 1.92)
    half = float(values.std() * np.sqrt(np.expm1(2 * 1.92 / n)))
    assert found == pytest.approx((best - half, best + half), rel=1e-3)


def test_the_intervals_estimator_finds_pairs_and_single_samples() -> None:
    draw = np.random.default_rng(1)
    single = np.sort(draw.choice(10**6, 2_000, replace=False))
    assert extremal_index(np.diff(single)) > 0.93
    pairs = np.sort(np.r_[single, single + 1])
    assert extremal_index(np.diff(np.unique(pairs))) == pytest.approx(0.5, abs=0.04)
    assert extremal_index(np.diff([5])) == 1


def test_clusters_end_at_the_longest_gaps_and_at_runs() -> None:
    places = np.array([0, 1, 2, 1_000, 1_001, 5_000, 9_000, 9_001])
    found = clusters(places, np.array([1]))
    assert {0, 1, 3, 5, 6} >= set(found.starts.tolist()) >= {0, 1, 5, 6}


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("exponential", stats.expon()),
        ("Pareto", stats.genpareto(0.3)),
        ("bounded", stats.genextreme(0.3)),
        ("uniform", stats.uniform()),
    ],
)
def test_the_interval_holds_the_level_of_a_known_tail(name: str, law: stats.rv_frozen) -> None:
    found = extrapolate(law.ppf(np.random.default_rng(8).random(N)))
    assert not found.refusal and found.interval
    low, high = found.interval
    assert low <= law.isf(1 / (20 * N)) <= high, name
    assert found.level is not None and low < found.level < high


def test_the_level_scales_with_the_unit() -> None:
    one, thousand = extrapolate(exponential()), extrapolate(1_000 * exponential())
    assert one.level and thousand.level and one.interval and thousand.interval
    assert thousand.level == pytest.approx(1_000 * one.level, rel=1e-6)
    assert thousand.interval == pytest.approx([1_000 * end for end in one.interval], rel=2e-3)
    assert thousand.shape == pytest.approx(one.shape, abs=1e-6)


def test_samples_in_steps_are_extrapolated_like_the_exact_ones() -> None:
    exact = extrapolate(exponential())
    stepped = extrapolate(np.round(exponential() * 10) / 10, step=0.1)
    assert exact.level and stepped.level
    assert stepped.level == pytest.approx(exact.level, rel=0.1)


def test_clusters_lower_the_level_and_are_reported() -> None:
    root = np.random.default_rng(4).random(N + 1) ** 2
    pairs = -np.log1p(-np.maximum(root[1:], root[:-1]))
    found = extrapolate(pairs)
    assert found.index == pytest.approx(0.5, abs=0.08)
    assert found.above and found.peaks and found.peaks < 0.65 * found.above
    assert found.interval and found.interval[0] <= np.log(10 * N) <= found.interval[1]


def test_rare_bursts_of_another_cause_are_two_causes() -> None:
    samples = exponential()
    places = np.random.default_rng(6).choice(N, 12, replace=False)
    samples[places] = 300 + 10 * np.random.default_rng(7).random(12)
    found = extrapolate(samples)
    assert found.level is None
    assert "two causes: the longest of the" in found.refusal


def with_another_cause(count: int, scale: float) -> Values:
    """Samples of a second cause that overlap those of the first."""
    samples = exponential()
    places = np.random.default_rng(6).choice(N, count, replace=False)
    samples[places] = scale * np.random.default_rng(7).standard_exponential(count)
    return samples


@pytest.mark.parametrize("count", [10, 30, 100])
def test_another_cause_without_a_gap_is_refused(count: int) -> None:
    found = extrapolate(with_another_cause(count, 20))
    assert found.level is None and "two causes" in found.refusal


def test_the_interval_holds_the_levels_of_higher_thresholds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = with_another_cause(15, 5)
    true = 5 * np.log(20 * 15)
    found = extrapolate(samples)
    assert found.interval and found.interval[0] < true < found.interval[1]
    monkeypatch.setattr(extremes, "_FEWEST_ABOVE", found.above)
    lowest = extrapolate(samples)
    assert lowest.level == found.level
    assert lowest.interval and lowest.interval[1] < true


def test_a_change_over_time_runs_or_boots_is_refused() -> None:
    samples = exponential()
    grown = samples * np.linspace(1, 1.5, N)
    assert "over the measurement" in extrapolate(grown).refusal or (
        "at some times" in extrapolate(grown).refusal
    )
    boots = samples * np.repeat([1, 1.3, 1, 1.3, 1, 1.3, 1, 1.3, 1, 1.3], N // 10)
    refused = extrapolate(boots, boots="ababababab").refusal
    assert "in some boots than in others" in refused or "in some runs than in others" in refused


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (np.full(N, 340.0), "too few different values"),
        (
            np.where(np.arange(N) % 100 == 0, 900.0 + np.arange(N) // 100 % 9, 340.0),
            "only 9 values",
        ),
        (np.where(np.arange(N) % 100 == 0, 900.0 + exponential(), 340.0), ""),
        (exponential(n=900), "fewer than 1,000 samples"),
    ],
    ids=["one value", "nine values", "many values", "short"],
)
def test_values_that_follow_no_smooth_tail_are_refused(samples: Values, reason: str) -> None:
    found = extrapolate(samples)
    if reason:
        assert reason in found.refusal and found.level is None
    else:
        assert "values" not in found.refusal


def test_a_tail_without_a_mean_is_refused() -> None:
    heavy = stats.genpareto(1.6).ppf(np.random.default_rng(3).random(N))
    assert "too heavy" in extrapolate(heavy).refusal


def test_a_check_of_its_own_fit_seldom_rejects_and_finds_far_values() -> None:
    draw = np.random.default_rng(5)
    p = []
    for seed in range(60):
        excesses = draw.standard_exponential(100)
        tail = pareto_tail.fitted(excesses)
        rows = pareto_tail.with_draws(excesses, tail, 99, seed)
        p.append(check_fit(pareto_tail.standardized(rows), rows).p)
    assert 0 <= np.mean(np.array(p) < 0.1) <= 0.25 and 0.35 < np.mean(p) < 0.65
    excesses[:5] += 40
    rows = pareto_tail.with_draws(excesses, pareto_tail.fitted(excesses), 399, 1)
    gapped = check_fit(pareto_tail.standardized(rows), rows)
    assert gapped.p < 0.03 and gapped.far


def test_uneven_rates_are_seen_and_even_ones_are_not() -> None:
    draw = np.random.default_rng(1)
    shares = np.full(10, 0.1)
    assert rate_p(np.full(10, 20), shares, draw) > 0.9
    assert rate_p(np.r_[90, np.full(9, 12)], shares, draw) == pytest.approx(0.001)


def segments(maxima: Values, n: int = 60_000) -> list[SoakSegment]:
    return [SoakSegment("a", n, float(x)) for x in maxima]


def test_maxima_of_segments_are_extrapolated() -> None:
    law = stats.genextreme(-0.1, 5_000, 300)
    maxima = law.ppf(np.random.default_rng(2).random(200))
    found = from_segments(segments(maxima), 10 * 200 * 60_000)
    assert found.blocks == 200 and found.index is None and found.interval
    low, high = found.interval
    assert low <= law.isf(-np.expm1(-1 / 2_000)) <= high


def test_few_or_changing_segments_are_refused() -> None:
    maxima = stats.genextreme(-0.1, 5_000, 300).ppf(np.random.default_rng(2).random(200))
    assert "60 segments" in from_segments(segments(maxima[:59]), 1e9).refusal
    grown = from_segments(segments(maxima + 5 * np.arange(200)), 1e9)
    assert "maxima" in grown.refusal and grown.level is None
    maxima[:20] += 50_000
    mixed = from_segments(segments(np.random.default_rng(1).permutation(maxima)), 1e9)
    assert "two causes" in mixed.refusal


def test_a_short_segment_is_joined_with_its_neighbour() -> None:
    maxima = stats.genextreme(-0.1, 5_000, 300).ppf(np.random.default_rng(2).random(100))
    whole = segments(maxima)
    cut = [*whole, replace(whole[0], n=100, maximum=float(maxima.max()) + 1)]
    found = from_segments(cut, 1e9)
    assert found.blocks == 100 and found.samples == 100 * 60_000 + 100
