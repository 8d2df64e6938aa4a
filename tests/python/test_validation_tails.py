"""How often extrapolations are right and refused, with fewer repetitions than docs/tail.md has."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest
from validation.tails import (
    Case,
    Found,
    changing_cases,
    judge,
    known_cases,
    markdown,
    perfect_refusal,
    segment_cases,
    two_cause_cases,
)

from klat.stats import extremes
from klat.stats.tail_fit_check import FitCheck

REPETITIONS = 30
# The tail of a normal distribution has no end, but looks as if it had one.
KNOWN = [case for case in known_cases(100_000, 50) if case.name != "normal"]
SEGMENTS = [case for case in segment_cases(120, 10) if not case.name.startswith("normal")]
CHANGING = {case.name: case for case in changing_cases(100_000, 50)}
TWO_CAUSES = {case.name: case for case in two_cause_cases(100_000, 120)}
REFUSED = TWO_CAUSES | CHANGING
CLEAR = [
    "10 of another cause, from 300 scales on",
    "100 of another cause, from 300 scales on",
    "10 of another cause, from 30 scales on",
    "100 of another cause, from 30 scales on",
    "100 of another cause, 20 times the scale",
    "the scale grows by half",
    "one of five boots has 1.2 times the scale",
    "twelve values only",
    "12 of another cause, 300 to 330 scales; segments",
]
OVERLAPPING = [
    "10 of another cause, 20 times the scale",
    "30 of another cause, 20 times the scale",
    "30 of another cause, 5 times the scale",
    "100 of another cause, 3 times the scale",
]


def judged(cases: list[Case]) -> list[Found]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(partial(judge, repetitions=REPETITIONS, seed=7), cases))


@pytest.mark.slow
def test_intervals_of_known_tails_cover_and_are_seldom_refused() -> None:
    for found in judged([*KNOWN, *SEGMENTS]):
        assert found.refused <= 0.3 * REPETITIONS, found
        assert found.covers >= 0.8 * found.answered, found


@pytest.mark.slow
def test_tails_of_two_causes_and_changing_ones_are_refused() -> None:
    for found in judged([REFUSED[name] for name in CLEAR]):
        assert found.refused >= 0.9 * REPETITIONS, found


@pytest.mark.slow
def test_a_second_cause_without_a_gap_is_refused_or_covered() -> None:
    for found in judged([REFUSED[name] for name in OVERLAPPING]):
        assert found.refused + found.covers >= 0.8 * REPETITIONS, found


def test_a_perfect_test_refuses_a_cause_with_ten_samples() -> None:
    refused = perfect_refusal(REFUSED["10 of another cause, 20 times the scale"], draws=10)
    assert refused is not None and refused >= 0.8


def test_two_causes_are_extrapolated_without_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    case = REFUSED["10 of another cause, from 30 scales on"]
    assert judge(case, 3).refused == 3
    monkeypatch.setattr(extremes, "check_fit", lambda *_: FitCheck(1.0, far=False))
    assert judge(case, 3).refused < 3


def test_the_tables_have_a_row_for_each_case() -> None:
    found = [Found(case, 10, 1, 8, 1, 0, 1.0, 2.0) for case in KNOWN]
    found += [Found(case, 10, 9, 0, 0, 0, 1.0, 2.0) for case in REFUSED.values()]
    lines = list(markdown(found))
    assert len(lines) == len(KNOWN) + len(REFUSED) + 8
    assert "88.9 % (51.8 to 99.7)" in lines[2]
