"""The digits of figures, lines and tables for a terminal of 80 columns, cells of CSV, and parameters in headings."""

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest
from written_sessions import RT, write_label

from klat.base import programs
from klat.report.document import Column, Line, Row, Table
from klat.report.renderers.terminal import table_lines
from klat.report.text.columns import WIDTH, cell_text, cells, wrapped
from klat.report.text.numbers import ratio_digits, whole
from klat.report.text.parameters import DEFAULTS, parameters


@pytest.mark.parametrize("figure", ["12.2 s", "5 min", "3.5 %"])
def test_a_line_does_not_end_between_a_number_and_its_unit(figure):
    for before in range(WIDTH - 10, WIDTH):
        lines = wrapped(f"{'x' * before} {figure} more", "", "  ")
        assert any(figure in line for line in lines)
        assert all(len(line) <= WIDTH for line in lines)


def test_a_split_table_repeats_only_headings_and_units():
    figures = [f"{10**12 + i:,}" for i in range(5)]
    columns = (Column("", left=True), *(Column(f"figure {i}") for i in range(5)))
    inner = Table("", (Column("delay"),), (Row("inner", ("1",)),), "", 2)
    rows = (
        Line("pipes"),
        Line("same-llc", 1),
        Row("round_trip", ("ticks", *figures)),
        Row("", ("ns", *figures)),
        Line("a sentence on round_trip", 2),
        inner,
        Line("same-core", 1),
        Row("round_trip", ("ticks", *figures)),
        Line("the end", 2),
    )
    text = list(table_lines(Table("", columns, rows, "", 2)))
    assert max(map(len, text)) <= WIDTH
    joined = " ".join(" ".join(text).split())
    for line, count in (
        ("a sentence", 1),
        ("inner 1", 1),
        ("the end", 1),
        ("same-llc", 2),
        (" ns ", 2),
    ):
        assert joined.count(line) == count, line
    assert joined.count("round_trip ticks") == 4 and joined.endswith("the end")


def test_a_cause_that_is_wrapped_leaves_the_other_columns_apart():
    columns = (Column("share"), Column("count"), Column("cause", left=True, wraps=True))
    rows = (Row("0.0", ("12.5", "1", "word " * 40)), Row("1.0", ("0.5", "22", "word")))
    text = list(table_lines(Table("", columns, rows, "all", 0)))
    assert "0.0   12.5" in text[1] and max(map(len, text)) <= WIDTH


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


# What is recorded for an option without a fixed default, and its default by --print-benchmark. 0 cannot be given; a coarse
# counter has another batch; a soak and an emulator have another period; a policy has another method.
RECORDED = {
    "tlbflush": {"initiators": ("0", "")},
    "syscall": {"batch": ("1", "")},
    "timer": {"period": ("200", ""), "method": ("signal", "auto")},
}


@pytest.mark.parametrize("program", DEFAULTS)
def test_the_defaults_are_those_of_the_program(program):
    path = programs.locate(program)
    if not path:
        pytest.skip(f"{program} is not built")
    described = json.loads(
        subprocess.run([path, "--print-benchmark"], stdout=subprocess.PIPE, check=True).stdout
    )
    rows = described["options"] + described["common_options"]
    defaults = {row["name"]: row["default"] for row in rows}
    known = dict(DEFAULTS[program])
    for name, values in RECORDED.get(program, {}).items():
        assert (known.pop(name), defaults.pop(name)) == values
    assert known == {name: defaults.get(name) for name in known}


def test_a_swept_parameter_is_shown_even_at_its_default():
    params = "bytes=1;wait=epoll;iterations=500"
    assert parameters("pipes", params) == {"wait": "epoll"}
    others = ["bytes=100;wait=epoll;iterations=500"]
    assert parameters("pipes", params, others) == {"bytes": "1", "wait": "epoll"}
    assert parameters("my-own", "a=1") == {"a": "1"}
