from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from klat.stats.descriptive import quantiles
from klat.stats.histogram import CountedValues

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


@pytest.mark.parametrize("name", PARTS)
def test_counted_values_answer_as_the_sorted_samples_do(name: str) -> None:
    parts = [np.asarray(part).astype(np.uint64) for part in PARTS[name]]
    ordered = np.sort(np.concatenate(parts))
    counted = CountedValues.of(parts)
    assert len(counted) == len(ordered)
    assert counted.take(np.arange(len(ordered))).tolist() == ordered.tolist()
    assert (np.diff(counted.values.astype(object)) > 0).all() and counted.counts.min() >= 1
    for value in {int(ordered[0]), int(ordered[-1]), int(ordered[len(ordered) // 3])}:
        assert counted.below(np.uint64(value)) == np.searchsorted(ordered, np.uint64(value))
        assert counted.up_to(np.uint64(value)) == np.searchsorted(
            ordered, np.uint64(value), "right"
        )
    qs = (Fraction(1, 2), Fraction(9, 10), Fraction(999, 1000))
    if ordered[-1] < 2**53:
        assert [counted.quantile(q) for q in qs] == quantiles(ordered, qs)
    assert counted.mean() == pytest.approx(ordered.astype(float).mean(), rel=1e-12)
    assert counted.deviation() == pytest.approx(ordered.astype(float).std(), rel=1e-9)


def test_parts_counted_at_different_times_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [np.array(part, dtype=np.uint64) for part in ([2**64 - 1], [0, 5], [2**64 - 1, 5])]
    monkeypatch.setattr("klat.stats.histogram._TOGETHER", 1)
    counted = CountedValues.of(parts)
    assert counted.values.tolist() == [0, 5, 2**64 - 1] and counted.counts.tolist() == [1, 2, 2]
    assert counted.sample(Fraction(1, 2)) is None


def test_nothing_is_nothing() -> None:
    counted = CountedValues.of([])
    assert len(counted) == 0 and counted.quantile(Fraction(1, 2)) is None


def test_tallies_of_two_lengths_of_a_tick_join_by_value() -> None:
    one, two = CountedValues.of([np.array([2, 4, 4], dtype=np.uint64)]).times(
        0.5
    ), CountedValues.of([np.array([1, 8], dtype=np.uint64)]).times(0.25)
    joined = CountedValues.joined([one, two])
    assert joined.values.tolist() == [0.25, 1.0, 2.0]
    assert joined.counts.tolist() == [1, 1, 3]


def test_its_size_is_the_number_of_distinct_values() -> None:
    parts = (np.full(100_000, 26 * (i % 50), dtype=np.uint64) for i in range(100))
    counted = CountedValues.of(parts)
    assert len(counted) == 10**7 and len(counted.values) == 50
