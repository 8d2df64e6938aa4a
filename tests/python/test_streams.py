"""Standard streams that are closed, full or broken never decide over a record."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fakes
import pytest
from fakes import Klat, klat
from written_sessions import NewSession

from klat.record import session_directory
from klat.record.session import read_session

# In a shell's words. A broken pipe is descriptor 9.
INPUTS = {"open": "", "closed": "0<&-"}
OUTPUTS = {"open": "", "closed": "1>&-", "full": "1>/dev/full", "broken": "1>&9"}
ERRORS = {"open": "", "closed": "2>&-", "full": "2>/dev/full", "broken": "2>&9"}
REASONS = {"full": "No space left on device", "broken": "Broken pipe"}
# Each state of each stream, alone and with a second one. A file that is opened takes the lowest number that is closed.
COMBINATIONS = (
    ("closed", "open", "open"),
    ("open", "closed", "open"),
    ("open", "full", "open"),
    ("open", "broken", "open"),
    ("open", "open", "closed"),
    ("open", "open", "full"),
    ("open", "open", "broken"),
    ("closed", "closed", "closed"),
    ("closed", "closed", "open"),
    ("closed", "open", "closed"),
    ("open", "closed", "closed"),
    ("open", "closed", "full"),
    ("open", "full", "closed"),
    ("open", "full", "full"),
    ("open", "broken", "broken"),
)


@dataclass(frozen=True)
class Streams:
    input: str
    output: str
    error: str

    @property
    def words(self) -> str:
        return " ".join((INPUTS[self.input], OUTPUTS[self.output], ERRORS[self.error]))


@contextmanager
def broken_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def start(klat: Klat, streams: Streams, *words: str) -> subprocess.CompletedProcess[str]:
    with broken_pipe() as writer:
        script = f'"$@" 9>&{writer} {streams.words}'
        command = ("bash", "-c", script, "bash", sys.executable, "-B", fakes.KLAT, *words)
        return klat.run(*command, pass_fds=(writer,))


def of(streams: tuple[str, str, str]) -> Streams:
    return Streams(*streams)


def assert_whole(session: Path, runs: int) -> None:
    """A line that went into one of its files would damage it."""
    record = read_session(session)
    assert not record.problems
    assert record.completed_orders() == set(range(1, runs + 1))
    session_directory.read_plan(session, session_directory.read_facts(session))


@pytest.mark.parametrize("streams", map(of, COMBINATIONS), ids=str)
def test_a_session_is_recorded_whatever_its_streams_are(klat, streams):
    done = start(klat, streams, "run", "pipes", "--runs", "3", "--label", "x")
    assert done.returncode == 0, done.stderr
    session = klat.session()
    orders = [order for _, order, *_ in klat.starts()]
    assert orders == ["1", "2", "3"]
    assert_whole(session, 3)
    path = session.relative_to(klat.directory)
    assert done.stdout == (f"{path}\n" if streams.output == "open" else "")
    assert "Traceback" not in done.stderr
    told = f"recorded in {path}; standard output: {REASONS.get(streams.output)}\n"
    assert (told in done.stderr) == (streams.output in REASONS and streams.error == "open")


@pytest.mark.parametrize("streams", [Streams("closed", "full", "open")], ids=str)
def test_both_paths_of_ab_go_to_stderr_if_stdout_is_full(klat, streams):
    words = ("ab", "--a", "x", "--b", "y", "--blocks", "1", "--runs-per-block", "1", "pipes")
    done = start(klat, streams, *words)
    assert done.returncode == 0, done.stderr
    paths = [str(p.relative_to(klat.directory)) for p in (klat.directory / "results").glob("*/*")]
    assert len(paths) == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("recorded in "))
    assert all(path in line for path in paths) and line.endswith(REASONS["full"])
    for path in paths:
        assert_whole(klat.directory / path, 2)


@pytest.mark.parametrize(("status", "behaviour"), [(1, "error"), (3, "invalid"), (4, "skipped")])
def test_the_status_is_that_of_the_measurement(klat, status, behaviour):
    option = f"pipes.behave={behaviour}"
    for streams in (Streams("open", "full", "open"), Streams("open", "open", "full")):
        done = start(klat, streams, "run", "pipes", "--runs", "2", "--option", option)
        assert done.returncode == status


@pytest.fixture
def printing(new_session: NewSession, tmp_path: Path) -> dict[str, tuple[str, ...]]:
    runs = [[101] * 500, [102] * 500]
    both = tuple(str(new_session.label(label, [runs] * 3)) for label in ("stock", "rt"))
    results = tmp_path / "results"
    return {
        "summary": ("summary", str(results)),
        "compare": ("compare", *both),
        "plot": ("plot", str(results), "-o", str(tmp_path / "plots")),
        "export": ("export", "--format", "gobench", str(results)),
    }


def check_printing(klat: Klat, words: tuple[str, ...], streams: Streams, usual: int) -> None:
    done = start(klat, streams, *words)
    assert "Traceback" not in done.stderr
    failed = {"full": 2, "broken": 141}.get(streams.output)
    assert done.returncode == (usual if failed is None else failed), done.stderr
    line = f"klat {words[0]}: standard output: {REASONS['full']}\n"
    assert done.stderr.endswith(line) == (streams.output == "full" and streams.error == "open")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "usual"),
    [
        ("summary", 0),
        ("export", 0),
        pytest.param("compare", 3, marks=SLOW),
        pytest.param("plot", 0, marks=SLOW),
    ],
)
def test_output_that_cannot_be_written_is_named_and_fails(klat, printing, command, usual):
    for streams in map(of, COMBINATIONS):
        check_printing(klat, printing[command], streams, usual)


def test_a_program_that_is_started_by_name_gets_no_file_as_a_standard_stream(klat):
    seen = klat.directory / "seen"
    streams = " ".join(f"/proc/$$/fd/{number}" for number in range(3))
    script = f'#!/bin/sh\nfound=$(readlink {streams})\necho "$found" >{seen}\n'
    (klat.programs / "pipes/pipes").write_text(script)
    start(klat, Streams("closed", "closed", "closed"), "pipes")
    assert seen.read_text().split() == ["/dev/null"] * 3
