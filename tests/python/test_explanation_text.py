"""An explanation as text: its numbers add up, and its lines fit a terminal of 80 columns."""

from dataclasses import replace

import pytest
from explained import BASE, NEW, explanation, side

from klat.explain.explanation import Side
from klat.report import explanation as report
from klat.report.renderers import terminal
from klat.report.text.columns import WIDTH

LONG = side(
    "a-label-of-a-kernel-under-a-load", {f"{'a_long_name_' * 6}{n}": 500_000 + n for n in range(4)}
)


def lines(least: int | None, *sides: Side) -> list[str]:
    return list(terminal.lines(report.document(explanation(*sides), least), colour=False))


def table(least: int | None, *sides: Side) -> list[list[str]]:
    """The words of each line of the table, which follows the second empty line."""
    text = lines(least, *sides)
    start = text.index("", text.index("") + 1)
    return [line.split() for line in text[start:] if line]


@pytest.mark.parametrize("sides", [(LONG,), (LONG, NEW), (BASE, LONG), (BASE, NEW)])
def test_lines_fit_80_columns(sides):
    text = [*lines(20, *sides), *report.path(explanation(*sides))]
    assert max(map(len, text)) <= WIDTH == 80


def test_one_side_has_its_functions_by_size_and_the_sum():
    lines = table(20, BASE)
    assert [words[:4] for words in lines[1:4]] == [
        ["exit", "300", "60.4", "%"], ["read", "100", "20.1", "%"], ["lock", "40", "8.0", "%"],
    ]  # fmt: skip
    assert " ".join(lines[4]) == "1 other, each below 20 7 1.4 %"
    assert " ".join(lines[5]) == "idle time, skipped 50 10.1 %"
    assert lines[6] == ["sum", "497"]


@pytest.mark.parametrize("small, shown", [(499, False), (500, True)])
def test_functions_below_a_thousandth_of_a_large_sample_share_one_line(small, shown):
    lines = table(None, side("label", {"large": 500_000 - small, "small": small}))
    assert any(words[0] == "small" for words in lines) is shown


def test_functions_below_20_instructions_share_one_line():
    assert table(None, BASE) == table(20, BASE)


def test_two_sides_have_the_largest_difference_first():
    lines = table(50, BASE, NEW)
    assert [words[0] for words in lines[2:4]] == ["migrate", "rt_lock"]
    assert lines[2][1:5] == ["*", "0", "600", "+600"]
    assert ["sum", "497", "1,110", "+613"] in lines


@pytest.mark.parametrize("least", [0, 20, 50, 10**9])
def test_the_lines_of_a_difference_add_up_to_the_sum(least):
    differences = [
        next(int(w.replace(",", "")) for w in words if w[0] in "+-")
        for words in table(least, BASE, NEW)
        if any(w[0] in "+-" and w[1:2].isdigit() for w in words)
    ]
    assert sum(differences[:-1]) == differences[-1] == 613


@pytest.mark.parametrize("missing", [-3, 1])
def test_a_residual_is_shown_and_makes_it_invalid(missing):
    wrong = side("rt", {"read": 100}, missing=missing)
    assert f"      NOT EXPLAINED: {missing:+,} instructions belong to no function" in lines(
        20, wrong
    )
    assert not explanation(BASE, wrong).valid
    assert explanation(BASE, NEW).valid and not any("NOT" in line for line in lines(20, BASE, NEW))


def test_a_doubt_is_shown_and_makes_it_invalid():
    doubtful = replace(NEW, sample=replace(NEW.sample, doubt="it may be another sample"))
    assert "      NOT EXPLAINED: it may be another sample" in lines(20, BASE, doubtful)
    assert not explanation(BASE, doubtful).valid


def test_a_share_that_rounds_to_nothing_is_not_zero():
    assert [report._share(share) for share in (0.733, 0.0005, 0.0001)] == [
        "73.3 %",
        "0.1 %",
        "<0.1 %",
    ]
