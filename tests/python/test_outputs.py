"""Every command that writes where -o or --html says, as root in a directory of another user."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from written_sessions import RT, Klat, NewSession, write_label


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
def sides(new_session: NewSession) -> dict[str, str]:
    new = write_label(new_session, "rt", 1.1, **RT)
    return {"BASE": str(write_label(new_session)), "NEW": str(new)}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret" / "file"
    path.parent.mkdir(0o700)
    path.write_text(BEFORE)
    path.chmod(0o600)
    return path


Call = Callable[[list[str], object], tuple[int, str]]


@pytest.fixture
def call(klat: Klat, sides: dict[str, str]) -> Call:
    """The status of a command of FILES or DIRECTORIES and its last message."""

    def run(words: list[str], output: object) -> tuple[int, str]:
        status, _, err = klat(*(sides.get(word, word) for word in words), output)
        return status, err.splitlines()[-1] if err else ""

    return run


def about(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def assert_refused(found: tuple[int, str], secret: Path) -> None:
    status, said = found
    assert status == 2 and "is a symbolic link to" in said and "remove the link" in said
    assert (secret.read_text(), about(secret)) == (BEFORE, (0, 0, 0o600))
    assert list(secret.parent.iterdir()) == [secret]


@pytest.mark.parametrize("words", FILES.values(), ids=FILES)
def test_a_link_in_place_of_a_file_is_refused(words, call, theirs, secret):
    (theirs / "out").symlink_to(secret)
    assert_refused(call(words, theirs / "out"), secret)
    assert list(theirs.iterdir()) == [theirs / "out"]


@pytest.mark.parametrize("words", FILES.values(), ids=FILES)
def test_a_new_file_is_the_callers_and_another_keeps_owner_and_mode(words, call, theirs):
    new, old = theirs / "new", theirs / "old"
    old.write_text("before")
    os.chown(old, STRANGER, STRANGER)
    old.chmod(0o640)
    before = old.stat().st_ino
    for path in (new, old):
        assert call(words, path)[0] in (0, 1, 3)  # 1: slower; 3: too few boots for a history
    assert about(new) == (NOBODY, GROUP, 0o644)
    assert about(old) == (STRANGER, STRANGER, 0o640)
    assert new.read_text() == old.read_text() and old.stat().st_ino != before
    assert sorted(theirs.iterdir()) == [new, old]


@pytest.mark.parametrize("words", DIRECTORIES.values(), ids=DIRECTORIES)
def test_links_in_place_of_a_directory_or_its_files_are_refused(words, call, theirs, secret):
    (theirs / "way").symlink_to(secret.parent)
    assert_refused(call(words, f"{theirs}/way/"), secret)
    assert_refused(call(words, f"{theirs}/way/below/"), secret)
    assert call(words, f"{theirs}/made/")[0] in (0, 3)  # 3: too few boots for a history
    made = sorted((theirs / "made").iterdir())
    assert made and all(path.stat().st_size for path in made)
    assert {about(path) for path in made} == {(NOBODY, GROUP, 0o644)}
    assert about(theirs / "made")[:2] == (NOBODY, GROUP)
    for path in made:
        path.unlink()
        path.symlink_to(secret)
    assert_refused(call(words, f"{theirs}/made/"), secret)
