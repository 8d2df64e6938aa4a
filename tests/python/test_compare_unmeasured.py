"""`klat compare` where a side failed to measure something, did not deliver it or did not try it."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from written_sessions import Klat, RT, SideWriter, again, answer, samples, words

from klat.compare.runs import Runs

CV = {"benchmark": "cv", "params": ""}
NOT_RUN = {"placement": "", "cpus": "", "policy": ""}
NEEDS_2 = "needs 2 CPUs and may use 1"
STARVED = "no signal in 5 s"


@pytest.fixture
def both(side: SideWriter) -> SideWriter:
    """Sides `stock` and `rt`, which are alike in pipes."""
    side("stock"), side("rt", **RT)
    return side


def with_cv(side: SideWriter, label: str, figures: bool = True, **run: Any) -> Path:
    """Adds a run of cv to each boot of `label`, with or without figures."""
    for boot in range(5):
        metrics = {"handoff": samples(9_000 + boot)} if figures else None
        again(side.root / label / str(boot)).run(metrics, **(CV | run))
    return side.root / label


def without_cv(side: SideWriter, label: str, status: str, reason: str) -> Path:
    return with_cv(side, label, figures=False, status=status, reason=reason, **NOT_RUN)


def undelivered(side: SideWriter, label: str, **run: Any) -> Path:
    failed = {"status": "skipped", "reason": f"not delivered: {STARVED}"} | run
    return without_cv(side, label, **failed)


def report(klat: Klat, form: str, sides: list[Path], file: Path) -> tuple[int, str]:
    """The status and the report in that form."""
    if form == "junit":
        assert klat("export", "--format", form, "-o", file, *sides)[0] == 0
        return klat("compare", *sides)[0], file.read_text()
    if form == "html":
        pytest.importorskip("jinja2")
        if not shutil.which("gnuplot"):
            pytest.skip("gnuplot is not installed")
        return klat("compare", *sides, "--html", file)[0], file.read_text()
    return klat("compare", *sides, "--format", form)[:2]


Make = Callable[[SideWriter, str], Path]
FORMS = ["text", "json", "csv", "markdown", "html", "junit"]


# What stock and rt do about cv, the status, and what every report says.
ONE_SIDE = {
    "NEW failed": (with_cv, lambda both, label: without_cv(both, label, "error", "no such device"), 3,
                   "no run of NEW counts: 5 error (no such device)"),
    "only NEW measured": (lambda both, label: without_cv(both, label, "skipped", NEEDS_2), with_cv, 0,
                          f"5 skipped ({NEEDS_2})"),
    "NEW did not deliver": (with_cv, undelivered, 5, f"not delivered by NEW: {STARVED}"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ONE_SIDE)
def test_every_report_names_a_metric_of_one_side_and_why(both, klat, tmp_path, form, case):
    base, new, expected, said = ONE_SIDE[case]
    sides = [base(both, "stock"), new(both, "rt")]
    status, text = report(klat, form, sides, tmp_path / "file")
    assert status == expected and "handoff" in text or expected == 5
    assert said in words(text).replace("\\", "")


def untouched(both: SideWriter, label: str) -> Path:
    return both.root / label


def failing(status: str) -> Make:
    return lambda both, label: without_cv(both, label, status, NEEDS_2)


def partly_delivered(both: SideWriter, label: str, **other: str) -> Path:
    undelivered(both, label)
    return undelivered(both, label, **other)


# BASE, NEW, the exit status and a part of the text.
CASES: list[tuple[Make, Make, int, str]] = [
    (with_cv, untouched, 3, "not measured in NEW"),
    (with_cv, failing("skipped"), 3, f"no run of NEW counts: 5 skipped ({NEEDS_2})"),
    (untouched, with_cv, 0, "BASE: not measured"),
    (failing("skipped"), with_cv, 0, f"BASE: 5 skipped ({NEEDS_2})"),
    (failing("error"), with_cv, 3, f"no run of BASE counts: 5 error ({NEEDS_2})"),
    *(
        (failing(status), failing(status), expected,
         f"BASE: 5 {status} ({NEEDS_2}); NEW: 5 {status} ({NEEDS_2})")
        for status, expected in (("skipped", 0), ("error", 3))
    ),
    (undelivered, with_cv, 0, f"not delivered by BASE: {STARVED}"),
    (undelivered, undelivered, 0, f"BASE: 5 skipped (not delivered: {STARVED}); NEW: 5 skipped (not delivered: "),
    # Not delivered in some runs, and failed in others.
    (with_cv, partial(partly_delivered, reason="a thread moved"), 3, ""),
    (with_cv, partial(partly_delivered, status="invalid"), 3, ""),
]  # fmt: skip


@pytest.mark.parametrize(("base", "new", "expected", "said"), CASES)
def test_a_metric_that_a_side_lacks_is_inconclusive_only_where_that_can_hide_a_change(
    both, klat, base, new, expected, said
):
    status, out, _ = klat("compare", base(both, "stock"), new(both, "rt"))
    assert status == expected and said in words(out), out
    assert "handoff" in out or new is not with_cv


def test_json_lists_what_only_new_measured(both, klat):
    sides = without_cv(both, "stock", "skipped", NEEDS_2), with_cv(both, "rt")
    document = answer(klat, "compare", *sides)
    (left,) = document["against"][0]["uncompared"]
    assert (left["key"][3], left["reason"]) == ("handoff", f"5 skipped ({NEEDS_2})")


def test_new_without_any_figure_is_inconclusive(side, klat):
    stock, rt = side("stock"), side("rt", runs=0, **RT)
    for boot in range(5):
        again(rt / str(boot)).run(status="error", reason="no such device", **NOT_RUN)
    status, out, _ = klat("compare", stock, rt)
    assert status == 3 and "no run of NEW counts: 5 error (no such device)" in words(out)


def test_a_metric_that_was_not_asked_for_does_not_count(both, klat):
    sides = with_cv(both, "stock"), without_cv(both, "rt", "error", "no such device")
    status, out, _ = klat("compare", *sides, "--metric", "round_trip", "--quantile", "median")
    assert status == 0 and "cv" not in out and "over 1 test;" in words(out)
    assert klat("compare", *sides, "--metric", "handoff")[0] == 3


def test_a_regression_outweighs_what_was_not_measured(side, klat):
    side("stock"), side("rt", 1.2, **RT)
    sides = with_cv(side, "stock"), side.root / "rt"
    status, out, _ = klat("compare", *sides, "--quantile", "median")
    assert status == 1 and "1 slower, 1 inconclusive" in out


@pytest.mark.parametrize(
    ("change", "expected"), [({"ratio": 1.2}, 1), ({"boots": 1}, 3), ({"machine_id": "x"}, 4)]
)
def test_every_other_status_outweighs_not_delivered(side, klat, change, expected):
    side("stock"), side("rt", **RT, **change)
    sides = with_cv(side, "stock"), side.root / "rt"
    for path in sides[1].iterdir():
        again(path).run(status="skipped", reason="not delivered: x", **(CV | NOT_RUN))
    assert klat("compare", *sides)[0] == expected


def test_a_failure_of_both_in_another_placement_is_inconclusive(both, klat):
    sides = both.root / "stock", both.root / "rt"
    for path in sides:
        for boot in range(5):
            again(path / str(boot)).run(status="error", reason="crashed", placement="cross-llc")
    status, out, _ = klat("compare", *sides)
    assert status == 3 and "crashed" in out and "cross-llc" in out


def test_a_placement_that_new_did_not_measure_is_inconclusive(both, klat):
    sides = both.root / "stock", both.root / "rt"
    both.add("stock", "round_trip", 20_000, placement="one-cpu")
    again(sides[1] / "0").run(status="error", reason="in the other", placement="same-llc")
    status, out, _ = klat("compare", *sides, "--quantile", "median")
    assert status == 3 and "1 same, 1 inconclusive" in out
    assert "not measured in NEW" in out and "in the other" not in out
    again(sides[1] / "0").run(status="error", reason="in this", placement="one-cpu", start_ns=1)
    assert "no run of NEW counts: 1 error (in this)" in klat("compare", *sides)[1]


def test_sides_with_nothing_in_common_are_not_comparable_and_both_are_listed(side, klat, tmp_path):
    stock, rt = side("stock", run={"params": "x=1"}), side("rt", run={"params": "x=2"}, **RT)
    page = tmp_path / "page.html"
    status, out, _ = klat("compare", stock, rt, "--html", page)
    assert status == 4 and "have no benchmark, params, placement and metric in common" in out
    said = "pipes has x=1 in BASE alone, and x=2 in NEW alone: measure both with the same options."
    assert said in words(out) and said in page.read_text()
    assert "not measured in NEW" in out
    assert "only in NEW: pipes same-llc x=2: round_trip (BASE: not measured)" in out


def test_a_side_without_a_run_has_no_value_of_a_condition():
    assert Runs().values == {} and Runs().parts(lambda run: run) == {}
