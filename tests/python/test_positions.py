"""A place in the run that stands out is found, and chance finds none more often than it says. The same holds for events of two
series that come together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from written_sessions import Klat, NewSession, SyntheticSession, words

from klat.stats.positions import Order, coincidence, standouts

Samples = npt.NDArray[np.uint64]


def leave(samples: Samples) -> None:
    """As it is."""


def drawn(
    seed: int,
    runs: int,
    lengths: list[int],
    spoil: Callable[[Samples], None] = leave,
    granularity: int = 1,
) -> list[Order]:
    """Runs of heavy-tailed samples, in steps of the granularity."""
    rng = np.random.default_rng(seed)
    orders = []
    for _ in range(runs):
        values = 1000 * np.exp(rng.normal(0, 1, rng.choice(lengths)))
        samples = (values // granularity * granularity).astype(np.uint64)
        spoil(samples)
        orders.append(Order.of(samples))
    return orders


def lengthen(place: int, quantile: float = 1) -> Callable[[Samples], None]:
    def spoil(samples: Samples) -> None:
        samples[place] = np.quantile(samples, quantile) + (quantile == 1)

    return spoil


@pytest.mark.parametrize(
    "runs, lengths, granularity",
    [(20, [500], 1), (3, [50], 1), (20, [200], 500), (10, [20, 37, 500], 1), (2, [1], 1)],
    ids=str,
)
def test_chance_stands_out_no_more_often_than_the_level(runs, lengths, granularity):
    level, sessions = 0.05, 300
    alarms = sum(
        bool(standouts(drawn(seed, runs, lengths, leave, granularity), level))
        for seed in range(sessions)
    )
    # Three standard deviations of a binomial count above what the level allows.
    assert alarms <= sessions * level + 3 * (sessions * level * (1 - level)) ** 0.5


@pytest.mark.parametrize("place", [0, 1, 123, -1])
def test_a_place_that_always_holds_the_longest_is_found_from_four_runs_on(place):
    (found,) = standouts(drawn(1, 4, [500], lengthen(place)))
    assert (found.place, found.runs, found.of) == (place, 4, 4)
    assert found.expected == pytest.approx(4 / 500)


def test_the_end_is_found_where_runs_differ_in_length():
    (found,) = standouts(drawn(1, 9, [100, 500, 700], lengthen(-1)))
    assert (found.place, found.runs, found.of) == (-1, 9, 9)


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("quantile, shorter", [(0.95, False), (0.05, True)])
def test_an_edge_that_is_only_somewhat_long_or_short_is_found(place, quantile, shorter):
    (found,) = standouts(drawn(1, 20, [500], lengthen(place, quantile)))
    assert (found.place, found.shorter, found.runs) == (place, shorter, 0)
    share = quantile if shorter else 1 - quantile
    assert found.typical == pytest.approx(share, abs=0.01)


def test_equal_samples_have_no_standout():
    same = Order.of(np.full(500, 340, dtype=np.uint64))
    assert standouts([same] * 100) == []


@pytest.mark.parametrize("place", [0, 123, -1])
@pytest.mark.parametrize("added, found", [(10, 0), (30, 1)])
def test_a_place_that_hardly_changes_its_sample_is_left_out(place, added, found):
    samples = np.full(500, 1_000, dtype=np.uint64)
    samples[place] += added
    assert len(standouts([Order.of(samples)] * 20)) == found


def test_too_few_runs_have_no_standout():
    assert standouts([]) == []
    assert standouts(drawn(1, 1, [500], lengthen(-1))) == []
    assert standouts(drawn(1, 2, [500], lengthen(7))) == []
    assert standouts(drawn(1, 100, [1])) == []


def test_of_several_series_the_longest_of_an_iteration_counts():
    series = np.array([[1, 9, 3, 4], [5, 6, 7, 8]], dtype=np.uint64)
    order = Order.of(series.reshape(-1), series=2)
    assert (order.n, order.longest) == (4, (1,))
    assert (order.first, order.last) == ((4, 1), (2, 3))


def written(
    new_session: NewSession,
    name: str,
    place: int | None,
    runs: int = 10,
    seed: int = 3,
    **options: str,
) -> SyntheticSession:
    rng = np.random.default_rng(seed)
    writer = new_session(name)
    for run in range(1, runs + 1):
        samples = [int(sample) for sample in 50_000 * np.exp(rng.normal(0, 0.1, 200))]
        if place is not None:
            samples[place] = 900_000
        words = {"bytes": "1", "iterations": "200", **options}
        params = ";".join(f"{name}={value}" for name, value in words.items())
        writer.run({"round_trip": samples}, run=run, params=params)
    return writer


def warnings(klat: Klat, session: SyntheticSession) -> str:
    out = words(klat("summary", session.path)[1])
    assert "round_trip" in out
    return out.partition("warning: ")[2]


def test_the_summary_warns_of_a_place_that_stands_out(new_session, klat):
    said = warnings(klat, written(new_session, "a/1", -1))
    assert said.startswith(
        "round_trip: the last sample is the longest in 10 of 10 runs (0.05 by chance);"
        " something other than the measured event happens there"
    )
    said = warnings(klat, written(new_session, "b/1", 42))
    assert said.startswith("round_trip: sample 43 is the longest")


def test_the_summary_does_not_warn_of_chance_or_of_an_injection(new_session, klat):
    assert warnings(klat, written(new_session, "a/1", None)) == ""
    assert warnings(klat, written(new_session, "b/1", -1, inject="50")) == ""


def test_the_summary_warns_over_boots_with_too_few_runs_each(new_session, klat):
    for boot in range(1, 6):
        session = written(new_session, f"a/{boot}", -1, runs=2, seed=boot)
    session.path = session.path.parent
    assert "the last sample is the longest in 10 of 10 runs" in warnings(klat, session)


def test_boots_that_repeat_each_other_to_the_byte_are_one(new_session, klat):
    for boot in range(1, 6):
        session = written(new_session, f"a/{boot}", -1, runs=2)
    session.path = session.path.parent
    assert warnings(klat, session) == ""


SPAN = 3_600_000_000_000
WINDOW = 1_000_000


def times(draw: np.random.Generator, count: int) -> list[int]:
    return [int(t) for t in draw.integers(0, SPAN, count)]


def test_independent_series_are_called_dependent_in_at_most_the_level():
    draw = np.random.default_rng(1)
    coincidences = [
        coincidence(times(draw, 2000), times(draw, 3000), WINDOW, SPAN) for _ in range(400)
    ]
    assert np.mean([c is not None and c.p < 0.05 for c in coincidences]) <= 0.06
    mean = np.mean([c.together for c in coincidences if c])
    assert mean == pytest.approx(np.mean([c.expected for c in coincidences if c]), rel=0.1)


def test_a_common_cause_is_seen():
    draw = np.random.default_rng(2)
    common = times(draw, 20)
    first = [*times(draw, 50), *(t + 100_000 for t in common)]
    second = [*times(draw, 50), *(t - 200_000 for t in common)]
    result = coincidence(first, second, WINDOW, SPAN)
    assert result and result.together >= 20 and result.p < 1e-9
    assert result.expected < 0.1


def test_one_delay_of_several_samples_is_one_event():
    delay = [10_000_000 + n * WINDOW for n in range(50)]
    result = coincidence([*delay, SPAN // 2], delay, WINDOW, SPAN)
    assert result and (result.events, result.together) == (2, 1)


@pytest.mark.parametrize("first, second", [([], [1]), ([1], [])])
def test_an_empty_series_has_no_coincidence(first, second):
    assert coincidence(first, second, WINDOW, SPAN) is None
