"""Every command that writes where -o or --html says, as root in a directory of another user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from test_export import RT, label
from written_sessions import SessionWriter

from klat.cli import main

NOBODY, GROUP, STRANGER = 65534, 65533, 4242
BEFORE = "only root reads this"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as under sudo")

FILES = {
    "export": ["export", "--format", "gobench", "BASE", "-o"],
    "verdicts": ["export", "--format", "junit", "BASE", "NEW", "-o"],
    "compare": ["compare", "BASE", "NEW", "--html"],
    "history": ["history", "BASE", "--html"],
}
DIRECTORIES = {
    "plot": ["plot", "BASE", "-o"],
    "history -o": ["history", "BASE", "-o"],
    "hgrm": ["export", "--format", "hgrm", "BASE", "-o"],
}


@pytest.fixture(autouse=True)
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(GROUP))


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, NOBODY, GROUP)
    return path


@pytest.fixture
def sides(session_writer: SessionWriter) -> dict[str, str]:
    new = label(session_writer, "rt", 1.1, **RT)
    return {"BASE": str(label(session_writer)), "NEW": str(new)}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "file"
    path.parent.mkdir(0o700)
    path.write_text(BEFORE)
    path.chmod(0o600)
    return path


def call(words: list[str], sides: dict[str, str], output: str) -> int:
    return main([sides.get(word, word) for word in words] + [output])


def about(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def assert_refused(capsys: pytest.CaptureFixture[str], status: int, secret: Path) -> None:
    said = capsys.readouterr().err.splitlines()[-1]
    assert status == 2 and "is a symbolic link to" in said and "remove the link" in said
    assert (secret.read_text(), about(secret)) == (BEFORE, (0, 0, 0o600))
    assert list(secret.parent.iterdir()) == [secret]


@pytest.mark.parametrize("words", FILES.values(), ids=FILES)
def test_a_link_in_place_of_a_file_is_refused(
    words: list[str],
    sides: dict[str, str],
    theirs: Path,
    secret: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (theirs / "out").symlink_to(secret)
    assert_refused(capsys, call(words, sides, str(theirs / "out")), secret)
    assert list(theirs.iterdir()) == [theirs / "out"]


@pytest.mark.parametrize("words", FILES.values(), ids=FILES)
def test_a_new_file_is_the_callers_and_another_keeps_owner_and_mode(
    words: list[str], sides: dict[str, str], theirs: Path
) -> None:
    new, old = theirs / "new", theirs / "old"
    old.write_text("before")
    os.chown(old, STRANGER, STRANGER)
    old.chmod(0o640)
    before = old.stat().st_ino
    for path in (new, old):
        assert call(words, sides, str(path)) in (
            0,
            1,
            3,
        )  # 1: slower; 3: too few boots for a history
    assert about(new) == (NOBODY, GROUP, 0o644)
    assert about(old) == (STRANGER, STRANGER, 0o640)
    assert new.read_text() == old.read_text() and old.stat().st_ino != before
    assert sorted(theirs.iterdir()) == [new, old]


@pytest.mark.parametrize("words", DIRECTORIES.values(), ids=DIRECTORIES)
def test_links_in_place_of_a_directory_or_its_files_are_refused(
    words: list[str],
    sides: dict[str, str],
    theirs: Path,
    secret: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (theirs / "way").symlink_to(secret.parent)
    assert_refused(capsys, call(words, sides, f"{theirs}/way/"), secret)
    assert_refused(capsys, call(words, sides, f"{theirs}/way/below/"), secret)
    assert call(words, sides, f"{theirs}/made/") in (0, 3)  # 3: too few boots for a history
    made = sorted((theirs / "made").iterdir())
    assert made and all(path.stat().st_size for path in made)
    assert {about(path) for path in made} == {(NOBODY, GROUP, 0o644)}
    assert about(theirs / "made")[:2] == (NOBODY, GROUP)
    for path in made:
        path.unlink()
        path.symlink_to(secret)
    capsys.readouterr()
    assert_refused(capsys, call(words, sides, f"{theirs}/made/"), secret)
