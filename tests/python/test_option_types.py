"""What the text of an option may be."""

import argparse
from functools import partial

import pytest

from klat.commands import _types

SHORT = _types.checked(partial(_types.short_time, most_ns=10**10))
LONG = _types.checked(partial(_types.long_time, most_s=86_400))


@pytest.mark.parametrize(
    ("convert", "text", "value"),
    [
        (SHORT, "4.35us", 4350),
        (SHORT, "10s", 10**10),
        (SHORT, "100\N{MICRO SIGN}s", 100_000),
        (_types.limit, "50\N{MICRO SIGN}s", ("50us", 50_000.0, True)),
        (_types.limit, "50\N{GREEK SMALL LETTER MU}s", ("50us", 50_000.0, True)),
        (LONG, "1.5h", 5400),
        (_types.share, "5%", 0.05),
        (_types.margin, "0", 0.0),
        (_types.rare_share, "1e-4", 1e-4),
        (_types.limit, "50us", ("50us", 50_000.0, True)),
        (_types.limit, "26", ("26", 26.0, False)),
        (_types.number(1, 10), "007", 7),
    ],
)
def test_a_value_is_read(convert, text, value):
    assert convert(text) == value


@pytest.mark.parametrize(
    ("convert", "texts"),
    [
        (SHORT, ("0.4ns", "1.5ns", "11s", "100", "5min", "us")),
        (LONG, ("0.5s", "2d", "90", "1us")),
        (_types.share, ("0", "1", "100%", "%", "nan", "-1%", "1_0%", "٣%")),
        (_types.rare_share, ("1", "1e-13", "e")),
        (_types.limit, ("0us", "0", "fast", "1h")),
        (_types.number(1, 10), ("0", "11", "1.0", "٣", "0" * 20 + "5")),
    ],
)
def test_anything_else_is_refused(convert, texts):
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError):
            convert(text)
