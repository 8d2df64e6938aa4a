"""CSV that a spreadsheet opens holds no formula."""

import csv
import io
from pathlib import Path

import pytest
from written_sessions import RT, write_label

from klat.report.text.columns import cell_text, cells


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=1+2", "'=1+2"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-v", "'-v"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("=", "'="),
        ("\t=1", "\\t=1"),
        ("\r=1", "\\r=1"),
        ("stock", "stock"),
        ("a=1;b=-2", "a=1;b=-2"),
        ("", ""),
        ("-1.5", "-1.5"),
        ("+.5e-3", "+.5e-3"),
        ("-1.5\u0663", "'-1.5\u0663"),
    ],
)
def test_a_formula_gets_an_apostrophe_and_nothing_else_does(cell, shown):
    assert cell_text(cell) == shown


def test_numbers_stay_numbers():
    row = {"a": -1.5, "b": None, "c": -3, "d": "=x"}
    assert cells(row) == {"a": -1.5, "b": None, "c": -3, "d": "'=x"}


@pytest.mark.parametrize("command", ["summary", "compare"])
def test_a_label_that_is_a_formula_is_text_in_csv(new_session, klat, command):
    stock: Path = write_label(new_session, "=1+2")
    paths = [stock, write_label(new_session, "rt", **RT)] if command == "compare" else [stock]
    rows = list(csv.DictReader(io.StringIO(klat(command, *paths, "--format", "csv")[1])))
    assert {row["base" if command == "compare" else "label"] for row in rows} == {"'=1+2"}
