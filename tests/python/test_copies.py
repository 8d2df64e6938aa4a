"""A run counts once, in however many sessions it is. The system clock may be set while a session is recorded, and the counter's
frequency may be wrong."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from written_sessions import SyntheticSession, again, words

from klat.compare.dataset import read_dataset, read_datasets

COMMANDS = [
    ("summary",),
    ("compare",),
    ("history",),
    ("plan",),
    ("export", "--format", "googlebench"),
]


def copied(label: Path) -> Path:
    shutil.copytree(label / "0", label / "copy")
    return label


def edited(copy: Path, **changes: str | int) -> None:
    """Change columns of all rows, with checks that fit. A number is added to the column's number."""
    session = again(copy)
    if "boot" in changes:
        session.info["boot_id"] = changes["boot"]
        session.write_info()
    names, *lines = (line.split(",") for line in session.runs_csv.read_text().splitlines())
    text = ",".join(names) + "\n"
    for line in lines:
        row = dict(zip(names, line))
        for name, change in changes.items():
            row[name] = change if isinstance(change, str) else str(int(row[name]) + change)
        text += session.row(**row)
    session.runs_csv.write_text(text)


SAME_RUN = "left out 4 runs that {} also has: a run counts once"
SAME_SAMPLES = "4 rows have exactly the samples of another run"


@pytest.mark.parametrize("words_of", COMMANDS, ids=lambda command: command[0])
def test_a_copied_session_counts_once(words_of, side, klat):
    command, *options = words_of
    more = [side("rt", 1.2, seed=9)] if command == "compare" else []
    stock = side("stock")
    before = klat(command, *options, stock, *more)
    assert "also has" not in before[2] and "another run" not in before[2]
    status, out, err = klat(command, *options, copied(stock), *more)
    assert (status, out) == before[:2]
    assert f"{stock / 'copy'}: {SAME_RUN.format(stock / '0')}" in words(err)
    edited(stock / "copy", boot="another")
    err = klat(command, *options, stock, *more)[2]
    assert SAME_SAMPLES in words(err) and err.count("exactly the samples") == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"order": 100}, SAME_RUN),
        ({"order": 100, "run": 100}, SAME_RUN),
        ({"start_ns": 1_000_000}, SAME_SAMPLES),
        ({"start_ns": 1_000_000, "order": 100, "run": 100}, SAME_SAMPLES),
    ],
)
def test_a_copy_with_edited_rows_is_known_by_its_start_or_its_samples(
    changes, sentence, side, klat
):
    stock = side("stock")
    edited(copied(stock) / "copy", **changes)
    assert sentence.format(stock / "0") in words(klat("summary", stock)[2])


def test_one_run_again_in_its_own_session_is_said(side, klat):
    stock = side("stock")
    session = again(stock / "0")
    (metric, first, n) = (session.lines()[0].split(",")[place] for place in (5, 9, 10))
    data = session.samples_file("pipes").read_bytes()[8 * int(first) :][: 8 * int(n)]
    session.run({metric: memoryview(data).cast("Q")}, run=9, order=9)
    err = words(klat("summary", stock)[2])
    assert (
        "1 row has exactly the samples of another run, for example line 2 of"
        f" {stock / '0' / 'runs.csv'} and line 6 of {stock / '0' / 'runs.csv'}: remove the copies"
    ) in err


# Of a coarse counter: two values in turns that nobody can predict, one value, and one step.
@pytest.mark.parametrize(
    ("values", "is_copy"),
    [
        (np.random.default_rng(3).integers(70, 72, 500), True),
        (np.repeat([70, 71], 250), False),
        (np.tile([70, 71], 250), False),
    ],
)
def test_few_values_are_the_samples_of_another_run_if_chance_does_not_repeat_them(
    values, is_copy, klat, new_session
):
    for boot in ("one", "two"):
        session = new_session(f"stock/{boot}", label="stock", boot_id=boot)
        session.run({"round_trip": values.tolist()})
    err = words(klat("summary", session.path.parent)[2])
    assert ("1 row has exactly the samples of another run" in err) is is_copy


def test_a_path_given_twice_or_through_a_link_is_one(side, klat):
    stock = side("stock")
    (stock.parent / "link").symlink_to(stock)
    once = klat("summary", stock)
    assert klat("summary", stock, stock, stock.parent / "link") == once


def test_a_label_given_twice_as_new_is_refused(side, klat):
    stock, rt = side("stock"), side("rt", 1.2)
    status, _, err = klat("compare", stock, rt, rt)
    assert status == 2 and "is given twice as NEW" in err


def test_a_run_on_both_sides_is_refused(side, klat, tmp_path):
    stock, rt = side("stock"), side("rt", 1.2)
    session: SyntheticSession = again(Path(shutil.copytree(stock / "1", rt / "copy")))
    session.info["label"] = "rt"
    session.write_info()
    status, out, err = klat("compare", stock, rt)
    assert (status, out) == (2, "")
    assert f"{rt / 'copy'}: 4 of its runs are on both sides, also in {stock / '1'}" in words(err)


HOUR_NS = 3600 * 10**9
BEGUN_NS = 1_700_000_000_000_000_000


def test_runs_stay_in_the_order_taken_where_the_clock_was_set(new_session):
    session = new_session()
    jumps = (0, HOUR_NS, HOUR_NS, -2 * HOUR_NS, 0, -HOUR_NS)
    for order, jump in enumerate(jumps, start=1):
        start = BEGUN_NS + jump + order * 10**9
        session.run({"round_trip": [100 + order] * 500}, order=order, run=order, start_ns=start)
    orders = list(range(1, len(jumps) + 1))
    (cell,) = read_dataset(session.path).cells.values()
    assert [run.row.order for run in cell.runs] == orders
    (label,), _ = read_datasets([session.path])
    (setting,) = label.settings
    assert [run.row.order for run in setting.measurements["round_trip"].sampled] == orders


@pytest.mark.parametrize(("khz", "independent", "warns"), [(2_626_000, True, True), (2_626_000, False, False), (2_600_500, True, False)])  # fmt: skip
def test_a_frequency_that_an_independent_reference_refutes_is_said(
    new_session, klat, khz, independent, warns
):
    second = {"second_khz": khz, "second_method": "acpi_pm", "independent": independent}
    tsc: dict[str, object] = {"khz": 2_600_000.0, "quantum": 26, **second}
    base, new = (new_session(name, tsc=tsc, boot_id=name) for name in ("base", "new"))
    for number, session in enumerate((base, new)):
        session.run({"round_trip": range(50_000 + number, 50_600)})
    for command in (("summary", base.path), ("compare", base.path, new.path)):
        err = words(klat(*command)[2])
        assert ("may be wrong by 1.0 %" in err) == warns
