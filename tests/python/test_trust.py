"""Resuming a session that another user may have written: klat would run that user's commands."""

import fcntl
import os
from pathlib import Path

import pytest
from fakes import Klat, klat

NOBODY, STRANGER = 65534, 4242
MARK = "ran"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as under sudo")


@pytest.fixture
def session(klat: Klat) -> Path:
    """One that lacks its last run and has a load."""
    load = f"echo > {MARK}; exec sleep 60"
    klat("run", "pipes", "--runs", "2", "--load", load, status=0)
    (klat.directory / MARK).unlink()
    path = klat.session()
    lines = (path / "runs.csv").read_text().splitlines(keepends=True)
    (path / "runs.csv").write_text("".join(lines[:-2]))
    return path


def resume(klat: Klat, session: Path, *words: str, caller: int | None = None) -> str:
    """What it said; empty where it completed the session, by running the load."""
    more = {"SUDO_UID": str(caller), "SUDO_GID": str(caller)} if caller is not None else {}
    before = len(klat.starts())
    done = klat("run", "--resume", str(session), *words, more=more)
    ran = (klat.directory / MARK).exists()
    assert ran == (done.returncode == 0) == (len(klat.starts()) > before), done.stderr
    if ran:
        return ""
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "--trust" in done.stderr
    return done.stderr


@pytest.mark.parametrize(("name", "bits"), [("", 0o777), ("run.json", 0o775), ("run.json", None)])
def test_a_session_that_another_user_can_write_is_refused(klat, session, name, bits):
    if bits is None:
        os.chown(session / name, STRANGER, STRANGER)
    else:
        os.chown(session / name, 0, STRANGER)
        (session / name).chmod(bits)
    said = resume(klat, session)
    assert str(session / name) in said
    assert ("every user" if bits == 0o777 else str(STRANGER)) in said
    assert resume(klat, session, "--trust") == ""


def test_the_caller_of_sudo_is_trusted_only_while_he_calls(klat, session):
    for path in (session, session / "run.json"):
        os.chown(path, NOBODY, NOBODY)
    assert "belongs to user" in resume(klat, session)
    assert "belongs to user" in resume(klat, session, caller=STRANGER)
    assert resume(klat, session, caller=NOBODY) == ""


def test_a_run_json_that_is_a_link_is_not_read(klat, session):
    (session / "run.json").rename(session / "other")
    (session / "run.json").symlink_to("other")
    done = klat("run", "--resume", str(session), "--trust")
    assert done.returncode == 2 and "symbolic link" in done.stderr
    assert not (klat.directory / MARK).exists()


def test_both_sessions_of_two_settings_must_be_trusted(klat):
    words = ["--a", "a", "--b", "b", "--blocks", "1", "--runs-per-block", "1", "pipes"]
    done = klat("ab", *words, "--a-setup", "true", "--b-setup", f"echo > {MARK}", status=0)
    a, b = (klat.directory / line for line in done.stdout.split())
    (klat.directory / MARK).unlink()
    for path in (a, b):
        lines = (path / "runs.csv").read_text().splitlines(keepends=True)
        (path / "runs.csv").write_text("".join(lines[:-2]))
    os.chown(b / "run.json", STRANGER, STRANGER)
    for given in (a, b):
        done = klat("ab", "--resume", str(given))
        assert done.returncode == 2 and "--trust" in done.stderr and "b/" in done.stderr
    assert not (klat.directory / MARK).exists()
    done = klat("ab", "--trust", "--resume", str(a))
    assert done.returncode == 0 and (klat.directory / MARK).exists(), done.stderr


@pytest.mark.parametrize("command", (["run"], ["ab", "--a", "a", "--b", "b"]), ids=lambda c: c[0])
def test_a_new_session_takes_no_trust(klat, command):
    assert "--trust needs --resume" in klat.refused(*command, "--trust", "pipes")


def test_the_advice_to_resume_repeats_the_trust(klat, session):
    os.chown(session, STRANGER, STRANGER)
    done = klat("run", "--trust", "--resume", str(session), more={"PATH": "/nowhere"})
    assert "--trust" in done.stderr.partition("to complete it: ")[2], done.stderr


def test_a_session_made_by_klat_itself_is_trusted_whatever_the_mask(klat):
    mask = os.umask(0)
    try:
        done = klat("run", "pipes", "--runs", "1")
    finally:
        os.umask(mask)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["plan.csv", "run.json", "load.log"])
def test_a_link_in_a_session_is_not_written_through(klat, session, name):
    secret = klat.directory / "secret"
    secret.write_text("before")
    secret.chmod(0o600)
    (session / name).unlink()
    (session / name).symlink_to(secret)
    caller = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    done = klat("run", "--resume", str(session), more=caller)
    assert done.returncode == 2 and "symbolic link" in done.stderr, done.stderr
    assert secret.read_text() == "before"
    assert (secret.stat().st_uid, secret.stat().st_mode & 0o777) == (0, 0o600)


def test_a_label_that_is_another_users_link_is_refused(klat):
    target = klat.directory / "target"
    target.mkdir(0o700)
    results = klat.directory / "results"
    results.mkdir()
    os.chown(results, NOBODY, NOBODY)
    (results / "stock").symlink_to(target)
    caller = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY)}
    done = klat("run", "pipes", "--runs", "1", "--label", "stock", more=caller)
    assert done.returncode == 2 and "symbolic link" in done.stderr
    assert list(target.iterdir()) == [] and target.stat().st_uid == 0


def test_a_stranger_who_holds_the_lock_is_named(klat, session):
    holding = os.open(session / "plan.csv", os.O_RDONLY)
    try:
        fcntl.flock(holding, fcntl.LOCK_EX)
        done = klat("run", "--resume", str(session))
    finally:
        os.close(holding)
    assert done.returncode == 2 and f"(pid {os.getpid()})" in done.stderr, done.stderr
