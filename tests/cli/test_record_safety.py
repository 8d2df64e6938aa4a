"""A program that records as root, under sudo of `nobody`, into a directory in which `nobody` prepared something."""

import fcntl
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import FAILED, MEASURED, NOBODY, UNTRUSTED, Done, Session, assert_one_line, combined
from harness import command, run, works

PROGRAM = "switch"
SAMPLES = f"samples/{PROGRAM}.u64"
COPY = "environment/proc/cmdline"
WRITTEN = ("session.json", "runs.csv", SAMPLES, COPY)
SUDO = os.environ | {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
SHORT = ("--quiet", "--iterations", "20", "--policy", "other", "--record")
STRANGER = 1234


def record(session: str | Path) -> Done:
    return run(PROGRAM, *SHORT, session, env=SUDO)


def recorded(session: Path, program: str = PROGRAM) -> None:
    works(program, *SHORT, session, env=SUDO)


@pytest.fixture
def session(open_directory: Path, root: None) -> Path:
    """The record directory, made by `nobody`."""
    path = open_directory / "session"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


State = dict[Path, tuple[int, int, int, bytes]]


@pytest.fixture
def secret(open_directory: Path, root: None) -> Iterator[Path]:
    """A directory of root with a file in it; both must be the same after the test."""
    path = open_directory / "secret"
    path.mkdir(mode=0o700)
    (path / "file").write_text("root's own\n")
    (path / "file").chmod(0o600)
    before = state(path)
    yield path
    assert state(path) == before


def state(top: Path) -> State:
    found: State = {}
    for path in (top, *top.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[path] = status.st_mode, status.st_uid, status.st_gid, content
    return found


def place(session: Path, name: str) -> Path:
    """Where `nobody` puts it, with the directories above."""
    path = session / name
    for above in reversed(path.relative_to(session).parents[:-1]):
        (session / above).mkdir()
        os.chown(session / above, NOBODY, NOBODY)
    return path


def assert_refused(session: Path, named: str, why: str) -> None:
    """One line, and no run in the record."""
    rows = (session / "runs.csv").read_text() if (session / "runs.csv").is_file() else ""
    done = record(session)
    assert_one_line(done, PROGRAM, FAILED)
    assert named in done.err and why in done.err, str(done)
    now = session / "runs.csv"
    assert (now.read_text() if now.is_file() else "") == rows


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


# tests/unit/test_files.c has the other kinds of files.
@pytest.mark.parametrize("name, target", combined(WRITTEN, ["file", "new"]))
def test_a_link_in_place_of_a_file_is_refused(name, target, session, secret):
    link(place(session, name), secret / target)
    assert_refused(session, name, "symbolic link")


@pytest.mark.parametrize("name", ["samples", "environment/proc"])
def test_a_link_in_place_of_a_directory_is_refused(name, session, secret):
    link(place(session, name), secret)
    assert_refused(session, name, "symbolic link")


@pytest.mark.parametrize("below", ["", "/session"])
def test_a_link_in_place_of_the_record_directory_or_one_above_is_refused(below, session, secret):
    link(session / "link", secret)
    done = record(f"{session}/link{below}")
    assert_one_line(done, PROGRAM, FAILED)
    assert f"{session}/link is a symbolic link to {secret}" in done.err, str(done)


def test_an_ordinary_user_records_through_a_link(published, session, as_nobody):
    link(published / "link", session)
    for path in (published / "link", published / "link" / "below"):
        done = command([*as_nobody, published / PROGRAM, *SHORT, path], cwd="/")
        assert done.status in (MEASURED, UNTRUSTED), str(done)
    assert len(list(session.rglob("runs.csv"))) == 2


def test_what_was_there_keeps_owner_and_mode(session):
    recorded(session)
    for name in WRITTEN:
        os.chown(session / name, STRANGER, STRANGER)
        (session / name).chmod(0o640)
    os.chown(session / "samples", STRANGER, STRANGER)
    recorded(session, "syscall")
    assert set(Session(session).info["programs"]) == {PROGRAM, "syscall"}
    for name in (*WRITTEN, "samples"):
        status = (session / name).lstat()
        assert (status.st_uid, status.st_gid) == (STRANGER, STRANGER), name
        assert name == "samples" or stat.S_IMODE(status.st_mode) == 0o640, name
    assert (session / "samples/syscall.u64").lstat().st_uid == NOBODY


@pytest.mark.slow
def test_a_lock_that_is_held_for_long_is_one_line_that_names_the_holder(session, as_nobody):
    recorded(session)
    words = [*map(str, as_nobody), "flock", "--no-fork", str(session), "sleep", "60"]
    with subprocess.Popen(words) as holder:
        try:
            wait_locked(session)
            assert_refused(session, f"process {holder.pid} (sleep)", "end that process")
        finally:
            holder.send_signal(signal.SIGKILL)
    recorded(session)
    assert len({row["start_ns"] for row in Session(session).rows}) == 2


def wait_locked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    deadline = time.monotonic() + 10
    try:
        while time.monotonic() < deadline:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            time.sleep(0.01)
        pytest.fail("nobody has not locked it")
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)
