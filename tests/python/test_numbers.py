"""How many digits a figure is written with."""

import pytest

from klat.report.text.numbers import ratio_digits, whole


@pytest.mark.parametrize(
    ("low", "high", "digits"),
    [
        (0.9, 1.1, 3),
        (1.0415, 1.0535, 3),
        (0.97421, 0.97511, 4),
        (1.018995, 1.018996, 4),
        (1.018995, 1.018995, 3),
        (90.0, 110.0, 1),
    ],
)
def test_a_ratio_has_the_digits_that_its_interval_supports(low, high, digits):
    assert ratio_digits(low, high) == digits


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n/a"), (2.0**49, "562,949,953,421,312"), (2.0**60, "1.15292150461e+18")]
    + [(2**60 + 1, "1,152,921,504,606,846,977")],
)
def test_a_number_has_no_digit_that_is_not_known(value, text):
    assert whole(value) == text
