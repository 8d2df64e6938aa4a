"""What klat writes as root in a directory of another user: nothing outside it, whatever lies in it."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from klat.base import files, owners
from klat.base.errors import KlatError

NOBODY, GROUP, STRANGER = 65534, 65533, 4242
BEFORE = b"only root reads this"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as under sudo")


@pytest.fixture(autouse=True)
def sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(GROUP))


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A directory of the user who called sudo, where other users can go."""
    path = Path(tempfile.mkdtemp(prefix="klat-test-"))
    path.chmod(0o755)
    os.chown(path, NOBODY, GROUP)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def secret(theirs: Path) -> Iterator[Path]:
    """A file of root's, which is as it was at the end of the test."""
    directory = Path(tempfile.mkdtemp(prefix="klat-test-", dir=theirs.parent))
    path = directory / "secret"
    path.write_bytes(BEFORE)
    path.chmod(0o600)
    before = path.stat()
    yield path
    after = path.stat()
    assert path.read_bytes() == BEFORE
    assert (after.st_uid, after.st_gid, after.st_mode) == (0, 0, before.st_mode)
    assert list(directory.iterdir()) == [path]
    shutil.rmtree(directory)


def owner(path: Path) -> tuple[int, int]:
    return path.lstat().st_uid, path.lstat().st_gid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def whole(path: Path) -> None:
    files.write_whole(path, b"new")


def appended(path: Path) -> None:
    descriptor = files.append(path)
    try:
        os.write(descriptor, b"new")
    finally:
        os.close(descriptor)


def put_out(path: Path) -> None:
    with files.output(path) as out:
        out.write(b"new")


WRITERS = [whole, appended, put_out]


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_is_refused_with_its_target(theirs, secret, write):
    target = os.path.relpath(secret, theirs)
    (theirs / "file").symlink_to(target)
    with pytest.raises(KlatError, match=f"{theirs}/file is a symbolic link to {target}.* remove"):
        write(theirs / "file")
    assert list(theirs.iterdir()) == [theirs / "file"]


@pytest.mark.parametrize("write", [*WRITERS, files.make_directories])
def test_a_directory_on_the_way_that_is_a_link_is_refused(theirs, secret, write):
    (theirs / "way").symlink_to(secret.parent)
    with pytest.raises(KlatError, match="way is a symbolic link"):
        write(
            theirs / "way" / "a" / "b" if write is files.make_directories else theirs / "way/file"
        )


@pytest.mark.parametrize("write", WRITERS)
def test_a_directory_that_becomes_a_link_meanwhile_is_an_error(theirs, secret, write, monkeypatch):
    """Between the look at the name and the opening."""
    way = theirs / "way"
    way.mkdir()
    usual = files._link

    def exchanging(parent: int, name: str) -> str | None:
        found = usual(parent, name)
        if name == "way" and not way.is_symlink():
            way.rmdir()
            way.symlink_to(secret.parent)
        return found

    monkeypatch.setattr(files, "_link", exchanging)
    with pytest.raises(KlatError, match="Not a directory"):
        write(way / "file")


@pytest.mark.parametrize("write", [whole, put_out])
def test_a_file_that_becomes_a_link_meanwhile_is_replaced_and_not_followed(
    theirs, secret, write, monkeypatch
):
    file = theirs / "file"
    usual = os.rename

    def late(*names: object, **where: object) -> None:
        file.symlink_to(secret)
        usual(*names, **where)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", late)
    write(file)
    assert not file.is_symlink() and file.read_bytes() == b"new"


def test_a_hard_link_is_not_appended_to(theirs, secret):
    os.link(secret, theirs / "file")
    with pytest.raises(KlatError, match="has 2 hard links"):
        appended(theirs / "file")
    (theirs / "file").unlink()


@pytest.mark.parametrize("write", [whole, put_out])
def test_a_hard_link_is_replaced_and_the_other_name_keeps_its_data(theirs, secret, write):
    os.link(secret, theirs / "file")
    write(theirs / "file")
    assert (theirs / "file").read_bytes() == b"new"


@pytest.mark.parametrize("write", [whole, appended])
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "directory"])
def test_only_a_regular_file_is_written(theirs, write, kind):
    plant(theirs / "file", kind)
    with pytest.raises(KlatError, match="not a regular file|Is a directory"):
        write(theirs / "file")


def plant(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
    elif kind == "directory":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))


@pytest.mark.parametrize("write", WRITERS)
def test_a_new_file_belongs_to_the_caller_of_sudo(theirs, write):
    write(theirs / "file")
    assert owner(theirs / "file") == (NOBODY, GROUP) and mode(theirs / "file") == 0o644
    assert list(theirs.iterdir()) == [theirs / "file"]


@pytest.mark.parametrize("write", WRITERS)
def test_an_existing_file_keeps_its_owner_and_mode(theirs, write):
    file = theirs / "file"
    file.touch()
    os.chown(file, STRANGER, STRANGER)
    file.chmod(0o640)
    write(file)
    assert file.read_bytes() == b"new"
    assert (owner(file), mode(file)) == ((STRANGER, STRANGER), 0o640)


@pytest.mark.parametrize("write", [whole, put_out])
def test_a_replaced_file_is_never_setuid(theirs, write):
    (theirs / "file").touch()
    (theirs / "file").chmod(0o6755)
    write(theirs / "file")
    assert mode(theirs / "file") == 0o755


def test_a_new_directory_belongs_to_the_caller(theirs):
    (theirs / "there").mkdir()
    files.make_directories(theirs / "there" / "a" / "b")
    assert owner(theirs / "there") == (0, 0)
    assert {owner(theirs / "there/a"), owner(theirs / "there/a/b")} == {(NOBODY, GROUP)}


def test_a_directory_of_roots_put_in_place_of_a_new_one_is_not_given_away(theirs, monkeypatch):
    (theirs / "private").mkdir(0o700)
    (theirs / "private" / "key").touch()
    usual = os.mkdir

    def exchanged(*names: object, **where: object) -> None:
        usual(*names, **where)  # type: ignore[arg-type]
        (theirs / "new").rmdir()
        (theirs / "private").rename(theirs / "new")

    monkeypatch.setattr(os, "mkdir", exchanged)
    files.make_directories(theirs / "new")
    assert owner(theirs / "new") == (0, 0) and owner(theirs / "new" / "key") == (0, 0)


@pytest.mark.parametrize("text", ["4294967296", "-1", "1e3", "x", "9" * 5000, "٣"])
def test_a_caller_that_is_not_a_user_is_an_error(theirs, text, monkeypatch):
    monkeypatch.setenv("SUDO_UID", text)
    with pytest.raises(KlatError, match="SUDO_UID"):
        whole(theirs / "file")
    with pytest.raises(KlatError, match="SUDO_UID"):
        files.make_directories(theirs / "new")
    assert not list(theirs.iterdir())


@pytest.mark.parametrize(
    ("user", "group", "bits", "why"),
    [
        (0, 0, 0o644, ""),
        (NOBODY, GROUP, 0o644, ""),
        (STRANGER, 0, 0o644, f"belongs to user {STRANGER}"),
        (NOBODY, NOBODY, 0o664, ""),
        (NOBODY, STRANGER, 0o664, f"group {STRANGER}"),
        (NOBODY, NOBODY, 0o646, "every user"),
    ],
)
def test_who_else_can_have_written_a_file(theirs, user, group, bits, why):
    file = theirs / "file"
    file.touch()
    os.chown(file, user, group)
    file.chmod(bits)
    doubt = owners.doubt(file)
    assert why in doubt and bool(why) == bool(doubt)


def test_the_caller_of_an_earlier_sudo_is_another_user(theirs, monkeypatch):
    monkeypatch.delenv("SUDO_UID")
    assert owners.doubt(theirs)


def test_a_link_that_only_root_can_have_made_is_followed(secret):
    (secret.parent / "real").mkdir()
    (secret.parent / "way").symlink_to("real")
    (secret.parent / "real" / "file").symlink_to(secret.parent / "real" / "target")
    put_out(secret.parent / "way" / "file")
    assert (secret.parent / "real" / "target").read_bytes() == b"new"
    assert (secret.parent / "real" / "file").is_symlink()
    shutil.rmtree(secret.parent / "real")
    (secret.parent / "way").unlink()


@pytest.mark.parametrize("bits", [0o1777, 0o775])
def test_a_link_in_a_directory_of_roots_that_others_can_write_is_refused(theirs, secret, bits):
    os.chown(theirs, 0, GROUP)
    theirs.chmod(bits)
    (theirs / "file").symlink_to(secret)
    with pytest.raises(KlatError, match="symbolic link"):
        put_out(theirs / "file")


def test_an_ordinary_user_writes_through_links(theirs):
    (theirs / "real").mkdir()
    os.chown(theirs / "real", NOBODY, GROUP)
    (theirs / "way").symlink_to("real")
    (theirs / "file").symlink_to("way/target")
    os.setegid(GROUP)
    os.seteuid(NOBODY)
    try:
        put_out(theirs / "file")
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert (theirs / "real" / "target").read_bytes() == b"new"
    assert (theirs / "file").is_symlink()


def test_a_circle_of_links_is_an_error(secret):
    (secret.parent / "a").symlink_to("b")
    (secret.parent / "b").symlink_to("a")
    for path in (secret.parent / "a", secret.parent / "a" / "file"):
        with pytest.raises(KlatError, match="Too many levels"):
            put_out(path)
    (secret.parent / "a").unlink()
    (secret.parent / "b").unlink()


def test_devices_and_inherited_streams_are_written_as_they_are(theirs):
    put_out(Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    reader, writer = os.pipe()
    put_out(Path(f"/dev/fd/{writer}"))
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    os.close(writer)
    with pytest.raises(KlatError, match="Bad file descriptor"):
        put_out(Path(f"/proc/self/fd/{writer}"))


def test_a_pipe_is_written_unless_it_is_another_users(theirs):
    pipe = theirs / "pipe"
    os.mkfifo(pipe)
    os.chown(pipe, NOBODY, GROUP)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put_out(pipe)
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    with pytest.raises(KlatError, match="not a regular file"):
        with files.output(pipe, streams=False):
            pass
    os.chown(pipe, STRANGER, STRANGER)
    with pytest.raises(KlatError, match=f"pipe that belongs to user {STRANGER}"):
        put_out(pipe)


def test_a_pipe_that_becomes_a_file_meanwhile_is_not_written(theirs, secret, monkeypatch):
    pipe = theirs / "pipe"
    os.mkfifo(pipe)
    usual = files._check_stream

    def exchanging(*known: object) -> None:
        usual(*known)  # type: ignore[arg-type]
        if stat.S_ISFIFO(pipe.lstat().st_mode):
            pipe.unlink()
            os.link(secret, pipe)

    monkeypatch.setattr(files, "_check_stream", exchanging)
    with pytest.raises(KlatError, match="not a file, a pipe"):
        put_out(pipe)
    pipe.unlink()


@pytest.mark.parametrize("kind", ["socket", "directory"])
def test_a_socket_and_a_directory_are_not_written(theirs, kind):
    plant(theirs / "file", kind)
    with pytest.raises(KlatError, match="name a file|Is a directory"):
        put_out(theirs / "file")
    for path in ("/", ".", ""):
        with pytest.raises(KlatError, match="Is a directory"):
            put_out(Path(path))


def test_after_an_error_the_file_is_as_before_and_nothing_is_left(theirs):
    (theirs / "file").write_text("before")
    with pytest.raises(ZeroDivisionError):
        with files.output(theirs / "file") as out:
            out.write(b"half")
            1 / 0
    assert (theirs / "file").read_text() == "before"
    assert list(theirs.iterdir()) == [theirs / "file"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("context", ["private_directory()", "output(Path('file'))"])
def test_a_signal_that_ends_klat_leaves_nothing(tmp_path, number, context):
    code = f"""
import os, time
from pathlib import Path
from klat.base import files
with files.{context}:
    print(len(os.listdir()), flush=True)
    time.sleep(60)
"""
    words = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(Path(files.__file__).parents[2]), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as ended:
        assert ended.stdout and ended.stdout.readline() == "1\n"
        ended.send_signal(number)
        assert ended.wait(30) == -number
    assert not list(tmp_path.iterdir())


def test_a_private_directory_that_was_exchanged_is_refused(theirs, monkeypatch):
    usual = tempfile.mkdtemp

    def exchanged(*words: object, **where: object) -> str:
        name = usual(dir=theirs)
        os.chown(name, NOBODY, GROUP)
        return name

    monkeypatch.setattr(tempfile, "mkdtemp", exchanged)
    with pytest.raises(KlatError, match="replaced by another user"):
        with files.private_directory():
            pass


def test_the_holder_of_a_lock_is_known_by_name(theirs):
    holding = os.open(theirs, os.O_RDONLY)
    asking = os.open(theirs, os.O_RDONLY)
    assert owners.try_lock(holding) and not owners.try_lock(asking)
    assert owners.lock_holder(asking) == os.getpid()
    assert owners.process_name(os.getpid()).endswith(f"(pid {os.getpid()})")
    os.close(holding)
    assert owners.lock_holder(asking) is None and owners.try_lock(asking)
    os.close(asking)
