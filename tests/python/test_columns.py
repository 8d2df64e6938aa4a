"""Text for a terminal of 80 columns."""

import pytest

from klat.report.document import Column, Line, Row, Table
from klat.report.renderers.terminal import table_lines
from klat.report.text.columns import WIDTH, wrapped


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
    shown = " ".join(" ".join(text).split())
    for line, count in {
        "a sentence": 1,
        "inner 1": 1,
        "the end": 1,
        "same-llc": 2,
        " ns ": 2,
    }.items():
        assert shown.count(line) == count, line
    assert shown.count("round_trip ticks") == 4 and shown.endswith("the end")


def test_a_cause_that_is_wrapped_leaves_the_other_columns_apart():
    columns = (Column("share"), Column("count"), Column("cause", left=True, wraps=True))
    rows = (Row("0.0", ("12.5", "1", "word " * 40)), Row("1.0", ("0.5", "22", "word")))
    text = list(table_lines(Table("", columns, rows, "all", 0)))
    assert "0.0   12.5" in text[1] and max(map(len, text)) <= WIDTH
