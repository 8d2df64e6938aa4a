from fractions import Fraction

import numpy as np
import pytest

from klat.stats.descriptive import rank, row_figures, supports
from klat.stats.distribution import Distribution

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
