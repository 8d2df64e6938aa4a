"""An explanation as text: its numbers add up, and its lines fit a terminal of 80 columns. What other programs read of it."""

import csv
import io
import json
from dataclasses import replace

import pytest
from explained import BASE, NEW, explanation, side
from written_sessions import Klat

from klat import export
from klat.explain.explanation import Explanation, Side
from klat.export import explained
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
    shown = [report._share(share) for share in (0.733, 0.0005, 0.0001)]
    assert shown == ["73.3 %", "0.1 %", "<0.1 %"]


def written(result: Explanation, name: str) -> str:
    out = io.BytesIO()
    explained.WRITERS[name](result, out)
    return out.getvalue().decode()


def test_folded_stacks_of_two_sides_add_up_to_their_samples():
    lines = written(explanation(BASE, NEW), "folded").splitlines()
    rows = [line.rsplit(" ", 2) for line in lines]
    assert "read;lock;irq 7 0" in lines and "read;rt_lock;migrate 0 600" in lines
    assert "[idle] 50 0" in lines
    assert sum(int(base) for _, base, _ in rows) == BASE.sample.ticks
    assert sum(int(new) for _, _, new in rows) == NEW.sample.ticks


def test_folded_stacks_of_one_side_have_one_count():
    assert written(explanation(NEW), "folded").splitlines() == [
        "read 120", "read;rt_lock 90", "read;rt_lock;migrate 600", "exit 300",
    ]  # fmt: skip


def test_a_folded_name_has_no_separator_of_the_format():
    result = explanation(side("odd", {"operator new\n": 5}))
    assert written(result, "folded") == "operator_new\\n 5\n"


@pytest.mark.parametrize("sides", [(BASE, NEW), (BASE,)])
def test_the_own_instructions_of_a_csv_add_up_to_the_samples(sides):
    rows = list(csv.DictReader(io.StringIO(written(explanation(*sides), "csv"))))
    columns = ["base_own", "new_own"] if len(sides) > 1 else ["own"]
    for column, explained_side in zip(columns, sides):
        assert sum(int(row[column]) for row in rows) == explained_side.sample.ticks


def test_a_csv_of_two_sides_has_differences_and_who_has_the_function():
    rows = csv.DictReader(io.StringIO(written(explanation(BASE, NEW), "csv")))
    by_name = {row.pop("function"): row for row in rows}
    assert by_name["migrate"]["difference"] == "600"
    assert (by_name["lock"]["base_exists"], by_name["lock"]["new_exists"]) == ("1", "0")
    assert (by_name["lock"]["base_with_callees"], by_name["lock"]["base_calls"]) == ("47", "1")


def test_json_has_every_call_chain_and_adds_up():
    document = json.loads(written(explanation(BASE, NEW), "json"))

    def own(node: dict) -> int:
        return node["own"] + sum(own(callee) for callee in node["callees"])

    for written_side, explained_side in zip(document["sides"], (BASE, NEW)):
        assert (
            written_side["sample"]
            == explained_side.sample.ticks
            == written_side["idle"] + sum(map(own, written_side["tree"]))
        )
        assert (
            sum(f["own"] for f in written_side["functions"]) + written_side["idle"]
            == written_side["sample"]
        )
        assert written_side["calls_in_order"] == [list(call) for call in explained_side.sample.path]
    assert {f["function"]: f["difference"] for f in document["differences"]}["migrate"] == 600
    assert document["valid"] is True


@pytest.fixture
def explain(klat: Klat, monkeypatch: pytest.MonkeyPatch):
    """`explain(result, *words)` runs the command as if `result` were the explanation of the lab."""

    def run(result: Explanation, *words: object) -> tuple[int, str, str]:
        from klat.lab import explaining

        monkeypatch.setattr(explaining, "explain", lambda *_: result)
        return klat("lab", "explain", "a", "b", "--metric", result.metric, *words)

    return run


@pytest.mark.parametrize("name", export.EXPLANATIONS)
def test_the_command_prints_nothing_but_the_format(explain, name):
    result = explanation(BASE, NEW)
    assert explain(result, "--format", name) == (0, written(result, name), "")


def test_a_residual_is_status_3_in_every_format_and_said_on_stderr(explain):
    result = explanation(BASE, side("rt", {"read": 100}, missing=-4))
    status, out, err = explain(result, "--format", "csv")
    assert (status, out) == (3, written(result, "csv"))
    assert "rt: -4 instructions belong to no function" in err


def test_a_page_can_be_written_beside_any_format(explain, tmp_path):
    pytest.importorskip("jinja2")
    result = explanation(BASE, NEW)
    status, out, _ = explain(result, "--format", "folded", "--html", tmp_path / "page.html")
    assert (status, out) == (0, written(result, "folded"))
    assert "migrate" in (tmp_path / "page.html").read_text()
