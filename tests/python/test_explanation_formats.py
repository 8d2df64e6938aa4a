"""`klat lab explain --format`: what other programs read."""

import csv
import io
import json

import pytest
from explained import BASE, NEW, explanation, side
from written_sessions import Klat

from klat import export
from klat.export import explained
from klat.explain.explanation import Explanation


def written(found: Explanation, name: str) -> str:
    out = io.BytesIO()
    explained.WRITERS[name](found, out)
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
    found = explanation(side("odd", {"operator new\n": 5}))
    assert written(found, "folded") == "operator_new\\n 5\n"


@pytest.mark.parametrize("sides", [(BASE, NEW), (BASE,)])
def test_the_own_instructions_of_a_csv_add_up_to_the_samples(sides):
    rows = list(csv.DictReader(io.StringIO(written(explanation(*sides), "csv"))))
    columns = ["base_own", "new_own"] if len(sides) > 1 else ["own"]
    for column, one in zip(columns, sides):
        assert sum(int(row[column]) for row in rows) == one.sample.ticks


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

    for found, one in zip(document["sides"], (BASE, NEW)):
        assert found["sample"] == one.sample.ticks == found["idle"] + sum(map(own, found["tree"]))
        assert sum(f["own"] for f in found["functions"]) + found["idle"] == found["sample"]
        assert found["calls_in_order"] == [list(call) for call in one.sample.path]
    assert {f["function"]: f["difference"] for f in document["differences"]}["migrate"] == 600
    assert document["valid"] is True


@pytest.fixture
def explain(klat: Klat, monkeypatch: pytest.MonkeyPatch):
    """`explain(found, *words)` runs the command as if the lab had found that."""

    def run(found: Explanation, *words: object) -> tuple[int, str, str]:
        from klat.lab import explaining

        monkeypatch.setattr(explaining, "explain", lambda *_: found)
        return klat("lab", "explain", "a", "b", "--metric", found.metric, *words)

    return run


@pytest.mark.parametrize("name", export.EXPLANATIONS)
def test_the_command_prints_nothing_but_the_format(explain, name):
    found = explanation(BASE, NEW)
    assert explain(found, "--format", name) == (0, written(found, name), "")


def test_a_residual_is_status_3_in_every_format_and_said_on_stderr(explain):
    found = explanation(BASE, side("rt", {"read": 100}, missing=-4))
    status, out, err = explain(found, "--format", "csv")
    assert (status, out) == (3, written(found, "csv"))
    assert "rt: -4 instructions belong to no function" in err


def test_a_page_can_be_written_beside_any_format(explain, tmp_path):
    pytest.importorskip("jinja2")
    found = explanation(BASE, NEW)
    status, out, _ = explain(found, "--format", "folded", "--html", tmp_path / "page.html")
    assert (status, out) == (0, written(found, "folded"))
    assert "migrate" in (tmp_path / "page.html").read_text()
