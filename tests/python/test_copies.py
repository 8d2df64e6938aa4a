"""A run counts once, in however many sessions it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from written_sessions import Klat, SideWriter, SyntheticSession, again, words

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


def under_another_boot(label: Path) -> Path:
    """The copy of a boot, with checks that fit."""
    session = again(copied(label) / "copy")
    session.info["boot_id"] = "another"
    session.write_info()
    lines = [line.split(",") for line in session.lines()]
    names = session.runs_csv.read_text().split("\n")[0].split(",")
    rows = [session.row(**dict(zip(names, ["another", *line[1:]]))) for line in lines]
    session.runs_csv.write_text("".join([",".join(names) + "\n", *rows]))
    return label


@pytest.mark.parametrize("words_of", COMMANDS, ids=lambda command: command[0])
def test_a_copied_session_counts_once_and_an_edited_one_is_said(
    words_of: tuple[str, ...], side: SideWriter, klat: Klat
) -> None:
    command, *options = words_of
    more = [side("rt", 1.2, seed=9)] if command == "compare" else []
    stock = side("stock")
    before = klat(command, *options, stock, *more)
    assert "also has" not in before[2] and "another boot" not in before[2]
    status, out, err = klat(command, *options, copied(stock), *more)
    assert (status, out) == before[:2]
    said = f"{stock / 'copy'}: left out 4 runs that {stock / '0'} also has: a run counts once"
    assert said in words(err)
    shutil.rmtree(stock / "copy")
    err = klat(command, *options, under_another_boot(stock), *more)[2]
    assert "4 rows have exactly the samples of another boot" in words(err)
    assert err.count("exactly the samples") == 1


def test_a_path_given_twice_or_through_a_link_is_one(side: SideWriter, klat: Klat) -> None:
    stock = side("stock")
    (stock.parent / "link").symlink_to(stock)
    once = klat("summary", stock)
    assert klat("summary", stock, stock, stock.parent / "link") == once


def test_a_label_given_twice_as_new_is_refused(side: SideWriter, klat: Klat) -> None:
    stock, rt = side("stock"), side("rt", 1.2)
    status, _, err = klat("compare", stock, rt, rt)
    assert status == 2 and "is given twice as NEW" in err


def test_a_run_on_both_sides_is_refused(side: SideWriter, klat: Klat, tmp_path: Path) -> None:
    stock, rt = side("stock"), side("rt", 1.2)
    session: SyntheticSession = again(Path(shutil.copytree(stock / "1", rt / "copy")))
    session.info["label"] = "rt"
    session.write_info()
    status, out, err = klat("compare", stock, rt)
    assert (status, out) == (2, "")
    assert f"{rt / 'copy'}: 4 of its runs are on both sides, also in {stock / '1'}" in words(err)
