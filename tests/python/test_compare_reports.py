"""`klat compare`: its text, JSON, CSV and Markdown, and what it says of bad input."""

import csv
import io
import json
import re
from pathlib import Path
from typing import BinaryIO

import pytest

from klat.base.bounded_read import open_below
from klat.record import samples
from klat.report import comparison_columns
from klat.report.document import Column, Document, Item, Judged, Row, Verdicts, Word
from klat.report.renderers import terminal
from klat.report.notes import shared_remarks
from written_sessions import CPU, RT, SideWriter, answer, words


def big(side: SideWriter) -> tuple[Path, Path]:
    return side("stock"), side("rt", 1.2, environment={"proc/cmdline": "log_buf_len=1 " * 20}, **RT)


def test_the_text_fits_into_100_columns_and_has_no_colour_in_a_file(side, klat):
    _, out, _ = klat("compare", *big(side))
    assert max(map(len, out.splitlines())) <= 100
    assert "\033" not in out


def test_a_terminal_gets_colour_unless_it_is_not_wanted(side, klat, monkeypatch):
    sides = big(side)
    plain = klat("compare", *sides)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = klat("compare", *sides)[1]
    assert "\033[1;31mslower\033[0m" in coloured
    assert re.sub(r"\033\[[0-9;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert klat("compare", *sides)[1] == plain


def test_json_holds_the_verdict_and_all_it_rests_on(side, klat):
    document = answer(klat, "compare", *big(side))
    assert document["status"] == 1 and document["verdicts"] == {"slower": 2}
    (against,) = document["against"]
    (cell,) = against["cells"]
    median = cell["results"][0]["judgement"]
    assert median["verdict"] == "slower"
    assert median["interval"][0] < median["ratio"] < median["interval"][1]
    assert median["base"]["run"]["own"] is not None
    assert against["base"]["label"] == "stock" and cell["base_worst"]["samples"] == 12_000


def test_csv_has_a_line_for_each_estimand(side, klat):
    _, out, _ = klat("compare", *big(side), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["estimand"] for row in rows] == ["median", "mean", "p90", "p99"]
    assert rows[0]["verdict"] == "slower"
    assert float(rows[0]["low"]) < float(rows[0]["ratio"]) < float(rows[0]["high"])
    assert rows[1]["verdict"] == ""
    refused = side("other", machine_id="x", **RT)
    _, out, _ = klat("compare", side.root / "stock", refused, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["verdict"] == "not comparable" and "machine" in row["reason"]


def test_a_column_that_is_described_once_is_in_every_report(side, klat, tmp_path, monkeypatch):
    """The relative error, as a newcomer would add it."""
    error = comparison_columns.ResultColumn(
        {"relative_error": lambda j: j.error}, Column("error"), lambda j: f"±{j.error:.6f}"
    )
    monkeypatch.setattr(comparison_columns, "COLUMNS", (*comparison_columns.COLUMNS, error))
    sides, page = big(side), tmp_path / "page.html"
    outputs = {
        form: klat("compare", *sides, "--format", form)[1]
        for form in ("text", "markdown", "csv", "json")
    }
    klat("compare", *sides, "--html", page)
    results = json.loads(outputs["json"])["against"][0]["cells"][0]["results"]
    values = [result["judgement"]["relative_error"] for result in results]
    rows = csv.DictReader(io.StringIO(outputs["csv"]))
    assert [float(row["relative_error"]) for row in rows] == values
    for report in (outputs["text"], outputs["markdown"], page.read_text()):
        assert "error" in report and all(f"±{value:.6f}" in report for value in values)


def test_a_page_gives_the_reason_if_one_metric_is_not_comparable(side, klat, tmp_path):
    other = side("other", run={"policy": "writer=rr:50;reader=rr:50"}, **RT)
    page = tmp_path / "page.html"
    status, out, _ = klat("compare", side("stock"), other, "--html", page)
    reason = "writer=fifo:50;reader=fifo:50 in BASE and writer=rr:50;reader=rr:50 in NEW"
    assert status == 4 and reason in words(out) and reason in words(page.read_text())


def test_markdown_tables_stay_tables_whatever_the_names_hold(side, klat):
    run = {"params": "text=a|b*c<script>", "placement": "&lt;"}
    stock, rt = side("stock", run=run), side("rt", 1.2, run=run, **RT)
    _, out, _ = klat("compare", stock, rt, "--format", "markdown")
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert "**slower**" in out and "<script>" not in out and "\\&lt;" in out


def test_every_verdict_keeps_a_remark_that_became_a_note():
    same, slower, faster = (Word(tone, tone) for tone in ("same", "slower", "faster"))

    def notes_and_remarks(*words: Word) -> tuple[list[str], list[tuple[str, ...]]]:
        rows = (Row("", ("1.0",), Judged(word, remarks=("a block left out",))) for word in words)
        items = tuple(Item("", "", "", "", (row,)) for row in rows)
        notes, verdicts = shared_remarks(Verdicts((), items, ""))
        remarks = [tuple(judged.shown) for item in verdicts.items for _, judged in item.judged]
        return [note.text for note in notes], remarks

    marked = ("a block left out",)
    assert notes_and_remarks(slower, slower, same, same) == (
        ["slower: a block left out"],
        [(), (), marked, marked],
    )
    assert notes_and_remarks(slower, slower, faster, faster, same) == (
        ["slower, faster: a block left out"],
        [(), (), (), (), marked],
    )
    assert notes_and_remarks(slower, slower, faster, faster) == (["a block left out"], [()] * 4)


def test_the_last_line_of_the_text_fits_80_columns():
    words = "8 slower, 8 inconclusive, 8 cannot be attributed, 4 not comparable: regression"
    lines = list(terminal.lines(Document("", Word(words), 1, (), ()), False))
    assert " ".join(map(str.strip, lines)) == f"{words} (status 1)" and max(map(len, lines)) <= 80


def test_many_files_that_one_side_lacks_are_one_row(side, klat):
    pages = "sys/kernel/mm/transparent_hugepage"
    sizes = {f"{pages}/hugepages-{2**n}kB/enabled": "[never]" for n in range(3, 11)}
    stock = side("stock", environment=sizes | {f"{CPU}/cpuidle/current_governor": "menu"})
    shown = klat("compare", stock, side("rt", **RT))[1]
    assert shown.count(pages) == 1 and f"{pages}, 8 files: present | absent" in shown
    assert "current_governor: menu | absent" in shown


def test_lists_and_paragraphs_are_apart_in_markdown(side, klat):
    stock = side("stock", environment={f"{CPU}/cpuidle/current_governor": "menu"})
    rt = side("rt", run={"params": "x=2"}, **RT)
    lines = klat("compare", stock, rt, "--format", "markdown")[1].splitlines()
    at = lines.index("BASE and NEW also differ in (BASE / NEW):")
    assert lines[at - 1] == lines[at + 1] == "" and lines[at - 2].startswith("- only in NEW")
    paragraphs = [i for i, line in enumerate(lines) if line and line[0] not in "-|#"]
    assert not any(lines[i - 1].startswith("- ") for i in paragraphs)


def test_bad_input_is_one_sentence_and_status_2(side, klat, new_session, tmp_path):
    stock = side("stock")
    side("two/a"), side("two/b")
    newer = new_session("newer/1")
    newer.info["schema"] = 2
    newer.write_info()
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, said in (
        (tmp_path / "missing", "no such directory"),
        (empty, "holds no session"),
        (new_session("bare/1").path, "nothing to show or compare"),
        (newer.path, "use a newer klat"),
        (side.root / "two", "holds 2 labels, two/a, two/b"),
        (stock / "0" / "runs.csv", "is a file"),
        (stock / "0", "is on both sides"),
    ):
        for sides in ((stock, path), (path, stock)):
            status, out, err = klat("compare", *sides)
            assert (status, out) == (2, "")
            assert re.fullmatch(r"klat compare: [^\n]+\n", err) and said in err


def test_damaged_rows_are_left_out_and_named(side, klat):
    stock, rt = side("stock"), side("rt", **RT)
    runs = rt / "0" / "runs.csv"
    lines = runs.read_text().splitlines(keepends=True)
    lines[1] = re.sub(r",ok,", ",nan,", lines[1])
    runs.write_text("".join(lines)[:-30])
    status, out, err = klat("compare", stock, rt)
    assert status == 0 and "18 ok" in out
    assert "checksum" in err and "torn last line" in err


@pytest.mark.parametrize("runs", [1, 4])
def test_reading_in_pieces_changes_no_figure(side, klat, monkeypatch, runs):
    asked = [side("stock", boots=3, runs=runs), side("rt", 1.1, boots=3, runs=runs, **RT)]
    asked += ["--quantile", "p98.5", "--within-runs"]
    whole = klat("compare", *asked)
    for module in ("record.samples", "compare.sources"):
        monkeypatch.setattr(f"klat.{module}.PART", 64)
    assert klat("compare", *asked) == whole
    assert "p98.5 of a single run" in whole[1]


def test_more_runs_of_a_boot_open_no_more_files(side, klat, monkeypatch):
    opened = []

    def counting(path: Path) -> BinaryIO:
        opened.append(path)
        return open_below(path)

    monkeypatch.setattr(samples, "open_below", counting)
    monkeypatch.setattr(samples, "_WHOLE", 0)  # as for a long file
    counts = []
    for runs in (2, 9):
        opened.clear()
        base = side(f"stock{runs}", boots=2, runs=runs)
        klat("compare", base, side(f"rt{runs}", 1.1, boots=2, runs=runs, **RT))
        counts.append(len(opened))
    assert 0 < counts[0] == counts[1]


WRONG = [
    *(("compare", option, value, "") for option, value in (
        ("--margin", "1"), ("--margin", "nan"), ("--alpha", "1"), ("--quantile", "p100"),
        ("--quantile", "max"), ("--metric", "speed"), ("--allow", "everything"), ("--correction", "none"),
    )),
    ("history", "--metric", "nothing", "there is no metric 'nothing'; there are round_trip"),
    ("history", "--quantile", "p0", "--quantile: 'p0' must be median"),
    ("plan", "--change", "0", "between 0 and 1"),
    ("plan", "--change", "2%", "within the margin of 2%"),
    ("plan", "--margin", "1", "between 0 and 1"),
    ("plan", "--power", "1", "between 0 and 1"),
    ("plan", "--boot-seconds", "-1", "must be a number of seconds"),
    ("plan", "--quantile", "max", "--quantile"),
    ("plan", "--metric", "speed", "there is no metric 'speed'"),
]  # fmt: skip


@pytest.mark.parametrize("command, option, value, said", WRONG)
def test_a_wrong_option_is_one_line(side, klat, command, option, value, said):
    labels = ("stock", "rt") if command == "compare" else ("stock",)
    status, out, err = klat(command, *(side(label, boots=2) for label in labels), option, value)
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err
