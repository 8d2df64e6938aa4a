"""The spread of groups, held to published figures and to what it promises."""

import math

import numpy as np
import pytest

from klat.stats.means import paired
from klat.stats.means import between_variance, next_effect

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
