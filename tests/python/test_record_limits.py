"""Every field of a session has a type, a range, a length and characters. What exceeds them is one sentence
or a problem, never a traceback, and no file of a record can block a reader."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from made_tools import write
from written_sessions import SyntheticSession, run_facts

from klat.base import bounded_read
from klat.record import environment, json_files, plan_csv, session_directory
from klat.base.errors import KlatError
from klat.compare.dataset import read_datasets
from klat.record.environment import captured
from klat.record.json_files import read_machine_json, read_run_json
from klat.record.session import SessionError, find_sessions, read_session

SAMPLES = [1300 + 26 * (i % 40) for i in range(600)]


def filled(writer: SyntheticSession) -> SyntheticSession:
    for run in (1, 2):
        writer.run({"round_trip": SAMPLES[run:] + SAMPLES[:run]}, order=run, run=run)
    return writer


FIELDS: dict[str, list[object]] = {
    "label": ["a\0b", "x" * 5000],
    "boot_id": ["a,b"],
    "tsc.khz": [True, float("inf")],
    "tsc.quantum": [2**60, 0, None],
    "tsc.second_khz": [[1]],
    "tsc.uncertainty_ppm": [1e300],
    "cpus_online": ["two", 2**40],
    "seed": [2**63],
    "created": [7],
    "machine_id": [{}],
    "cpu_model": ["\0"],
    "programs": [["pipes"]],
    "programs.pipes": ["0" * 200],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, all in FIELDS.items() for v in all])
def test_a_field_of_session_json_beyond_its_limits_is_named_in_one_sentence(writer, field, value):
    inner = writer.info
    *above, last = field.split(".")
    for name in above:
        inner = inner[name]
    inner[last] = value
    writer.write_info()
    with pytest.raises(SessionError) as raised:
        read_session(writer.path)
    said = str(raised.value)
    assert f"session.json is damaged or was edited: {field} is " in said
    assert len(said.removeprefix(str(writer.path))) < 250 and said.isprintable()


def test_missing_and_unknown_fields_of_other_versions_are_accepted(new_session):
    writer = new_session(future={"a": [1, {"b": None}]}, another=10**30)
    needed = ("schema", "label", "boot_id", "mode", "unit", "future", "another")
    writer.info = {key: writer.info[key] for key in needed} | {
        "tsc": {"khz": 1e6, "quantum": 1, "new": "x"}
    }
    writer.write_info()
    session = read_session(filled(writer).path)
    assert (len(session.rows), session.khz, session.quantum) == (2, 1e6, 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": 1, "a": ' + "[" * 100 + "]" * 100 + "}",
        '{"schema": ' + "9" * 5000 + "}",
        '{"schema": 1, "a": "' + "x" * (1 << 20) + '"}',
        "",
        "[]",
        "[" * 100_000,
        "\udcff",
    ],
    ids=["deep", "long number", "large", "empty", "list", "open", "no text"],
)
def test_a_session_json_beyond_the_limits_of_a_file_is_refused(writer, text):
    (writer.path / "session.json").write_bytes(os.fsencode(text))
    with pytest.raises(SessionError, match="session.json"):
        read_session(writer.path)


def test_invalid_utf8_is_read_with_escapes(new_session):
    writer = new_session(label="ø\udcff")
    assert read_session(writer.path).label == "ø\\udcff"


RUN_FIELDS: list[tuple[str, object]] = [
    ("label", "a\0b"),
    ("seed", 2**64),
    ("plan_sha256", 5),
    ("load", ["stress"]),
    ("prefix", "nice\0"),
    ("pause_ms", 10**400),
    ("time_limit_s", 0),
    ("runner", -1),
    ("resumed", "x"),
    ("turns", [{"a": 1}]),
    ("pairing.pairs", [[1, 10**30, "1"]]),
    ("pairing.experiment", 5),
    ("under_test", 1),
    ("options", [1]),
    ("lab.boot", "1"),
    ("unrecorded", [{"benchmark": "pipes"}]),
    ("unrecorded.0.orders", [2**64]),
]


@pytest.mark.parametrize(("field", "value"), RUN_FIELDS)
def test_a_field_of_run_json_beyond_its_limits_is_named_in_one_sentence(writer, field, value):
    facts = run_facts()
    assert (written(writer, facts), json_files.unrecorded(writer.path)[0].orders) == (facts, (3,))
    inner: Any = facts
    *above, last = field.split(".")
    for name in above:
        inner = inner[int(name) if name.isdecimal() else name]
    inner[last] = value
    with pytest.raises(SessionError, match="run.json is damaged or was edited: ") as raised:
        written(writer, facts)
    assert (above or [last])[0] in str(raised.value)
    with pytest.raises(KlatError, match="run.json is damaged or was edited: "):
        session_directory.read_facts(writer.path)


def written(writer: SyntheticSession, facts: dict[str, Any]) -> dict[str, Any]:
    (writer.path / "run.json").write_text(json.dumps(facts))
    return read_run_json(writer.path)


@pytest.mark.parametrize("command", ["compare", "summary", "plan", "run", "ab"])
def test_brackets_without_end_in_run_json_are_one_line_and_status_2(writer, klat, command):
    filled(writer)
    (writer.path / "run.json").write_text("[" * 100_000)
    path = str(writer.path)
    words = {"compare": [path, path], "run": ["--resume", path], "ab": ["--resume", path]}
    status, _, err = klat(command, *words.get(command, [path]))
    assert status == 2
    assert err.count("\n") == 1 and "run.json is damaged or was edited: not valid JSON" in err


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("first_sample", 2**64 - 1, "first_sample is 18446744073709551615, which is more than"),
        ("n", 2**32, "n is 4294967296"),
        ("n", "", "without a metric or samples"),
        ("mean", "nan", "mean is 'nan'"),
        ("order", "-1", "order is"),
        ("order", "1e3", "order is"),
        ("order", "\u0661", "order is"),
        ("order", "", "order is"),
        ("order", 2**63, "order is"),
        ("start_ns", 2**63, "start_ns is"),
        ("rows", 5000, "rows is 5000"),
        ("p50", 2**64, "p50 is"),
        ("mean", f"{2**64}.000", "mean is"),
        ("steal_ms", "9" * 20, "steal_ms is"),
        ("min", "", "has samples, but no figures"),
        ("benchmark", "a\0b", "benchmark contains a NUL byte"),
        ("benchmark", "../other", "not a valid name"),
        ("benchmark", "", "not a valid name"),
        ("benchmark", "x" * 65, "not a valid name"),
        ("metric", "a\x1b[2J", "not a valid name"),
        ("placement", "x" * 300, "not a valid name"),
        ("params", "bytes=" + "9" * 21, "params contains a number of more than 20 digits"),
        ("evidence", "expected=" + "9" * 400, "evidence contains a number of more than 20 digits"),
        ("params", "a" * 10_000, "params has 10,000 characters"),
        ("irq_res", "0=1;" * 100_000, "irq_res has 400,000 characters"),
    ],
)
def test_a_column_beyond_its_limits_loses_its_run_and_no_other_whatever_its_checksum(
    writer, column, value, said
):
    filled(writer)
    values: dict[str, Any] = {"order": 3, "run": 3, **{column: value}}
    benchmark = values.pop("benchmark", None)
    writer.run({"round_trip": SAMPLES}, **values)
    if benchmark is not None:
        renamed(writer, benchmark)
    session = read_session(writer.path)
    assert session.completed_orders() == {1, 2}
    (problem,) = session.problems
    assert said in problem and problem.isprintable()


def renamed(writer: SyntheticSession, benchmark: str) -> None:
    """The benchmark of the last row is another, which may name no file."""
    lines = writer.runs_csv.read_text().splitlines(keepends=True)
    values = dict(zip(lines[0].rstrip("\n").split(","), lines[-1].rstrip("\n").split(",")))
    writer.runs_csv.write_text(
        "".join([*lines[:-1], writer.row(**values | {"benchmark": benchmark})])
    )


def test_the_largest_values_of_all_columns_are_read(writer):
    most = {
        "order": 2**63 - 1,
        "run": 2**63 - 1,
        "start_ns": 2**63 - 1,
        "elapsed_ns": 2**63 - 1,
    }
    writer.run({"m": [2**64 - 1] * 10}, **most, floor=2**64 - 1, reason="r" * 8192)
    session = read_session(writer.path)
    assert session.problems == [] and session.rows[0].max == 2**64 - 1
    assert {name: getattr(session.rows[0], name) for name in most} == most


def test_many_kinds_of_damage_are_reported_in_few_lines(writer):
    filled(writer)
    for number in range(3, 60):
        writer.run({"round_trip": SAMPLES}, order=f"x{number}")
    session = read_session(writer.path)
    assert session.completed_orders() == {1, 2} and session.damaged == 57
    assert len(session.problems) == 9 and "49 more rows" in session.problems[-1]


@pytest.mark.parametrize(
    "line",
    [
        '3,pipes,1,"--a\0b"',
        "3,../pipes,1,",
        "3,pi\0pes,1,",
        "3,pipes,٣,",
        "3,pipes, 1,",
        f"3,pipes,{'9' * 5000},",
        "3_0,pipes,1,",
        f'3,pipes,1,"{"x" * 70_000}"',
    ],
)
def test_a_line_of_the_plan_beyond_its_limits_is_named(line):
    text = plan_csv.to_csv(plan_csv.make([("pipes", ())], 2, 0))
    assert len(plan_csv.from_csv(text + '3,pipes,3,""\n')) == 3
    with pytest.raises(KlatError, match=r"plan.csv is damaged or was edited \(line 4\)"):
        plan_csv.from_csv(f"{text}{line}\n")


def test_a_plan_that_is_not_text_is_refused(writer):
    import hashlib

    (writer.path / "plan.csv").write_bytes(b"\xff")
    with pytest.raises(KlatError, match="plan.csv is damaged or was edited"):
        session_directory.read_plan(
            writer.path, {"plan_sha256": hashlib.sha256(b"\xff").hexdigest()}
        )


@contextmanager
def limited() -> Iterator[None]:
    """What blocks is interrupted."""

    def end(*_: object) -> None:
        raise AssertionError("blocked")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


FILES = "session.json run.json runs.csv plan.csv samples/pipes.u64 lab/machine.json".split()


@pytest.mark.parametrize("file", [*FILES, "environment/proc/cmdline"])
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_file_of_a_record_that_is_none_blocks_no_reader(writer, new_session, klat, file, kind):
    filled(writer)
    path = writer.path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    session = str(writer.path)
    other = filled(new_session("rt/1", label="rt", boot_id="rt"))
    with limited():
        summary, _, err = klat("summary", session)
        compared, _, more = klat("compare", session, other.path)
        resumed, _, most = klat("run", "--resume", session)
    err += more + most
    said = "is not a regular file" if kind == "fifo" or os.geteuid() else "is a symbolic link"
    if file not in ("plan.csv", "environment/proc/cmdline"):  # on these no figure rests
        assert f"{path}: {said}" in err
    assert resumed == 2
    if file in ("session.json", "run.json", "runs.csv"):
        assert (summary, compared) == (2, 2)
    elif file.startswith("samples"):
        assert summary == 2


@pytest.mark.parametrize("name", ["samples/pipes.u64", "samples"])
def test_a_user_may_keep_samples_behind_a_link_and_root_does_not_follow_it(
    writer, monkeypatch, tmp_path, name
):
    path = filled(writer).path / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    for user, said in ((1000, ""), (0, "not verified: the samples of 2 rows")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        _, problems = read_datasets([writer.path])
        assert [said in problem for problem in problems] == ([True] if said else [])


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("environment/proc/cmdline", lambda session: captured(session / "environment")),
        ("lab/machine.json", read_machine_json),
        ("traces/1", lambda session: bounded_read.open_below(session / "traces/1").close()),
    ],
)
def test_root_follows_no_link_in_place_of_a_directory_of_a_session(
    tmp_path, monkeypatch, file, read
):
    write(tmp_path / "elsewhere" / file, "{}")
    top = file.partition("/")[0]
    (tmp_path / top).symlink_to(tmp_path / "elsewhere" / top)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    read(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SessionError, match="is a symbolic link"):
        read(tmp_path)


@pytest.mark.parametrize("linked", ["stock/link", "link"])
def test_root_takes_no_session_of_a_label_by_a_link_of_another_user(
    writer, tmp_path, monkeypatch, linked
):
    top = tmp_path / "top"
    link = top / linked
    link.parent.mkdir(parents=True)
    link.parent.chmod(0o777)
    link.symlink_to(filled(writer).path if "/" in linked else writer.path.parent)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_sessions(top)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_sessions(link), "the user names it"
    with pytest.raises(KlatError, match="is a symbolic link"):
        find_sessions(top)


@pytest.mark.parametrize(
    ("limit", "value"), [("_MOST_FILES", 2), ("_MOST_BYTES", 5), ("_DEEPEST", 1)]
)
def test_of_an_environment_no_more_is_read_than_klat_writes(tmp_path, monkeypatch, limit, value):
    for name in ("a", "b", "c"):
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "value").write_text("1\n")
    assert len(captured(tmp_path)) == 3
    monkeypatch.setattr(environment, limit, value)
    with pytest.raises(SessionError, match="exceeds the limits of an environment"):
        captured(tmp_path)


def test_a_file_that_would_block_is_one_sentence():
    reader, writing = os.pipe2(os.O_NONBLOCK)
    with FileIO(writing), FileIO(reader) as file, pytest.raises(SessionError, match="would block"):
        bounded_read.read_open(file, Path("a"), 1000)
