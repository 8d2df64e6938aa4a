"""The space that labs work in: each has its own, and what a killed one leaves goes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from labs import ROOT
import made_tools

from klat.base.errors import KlatError
from klat.lab import cache, replay

ANOTHER = "from klat.lab import cache\nwith cache.work(): pass"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def another() -> subprocess.Popen[bytes]:
    """A lab that starts, sweeps and ends."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    return subprocess.Popen([sys.executable, "-B", "-c", ANOTHER], env=environment)


def test_a_lab_that_starts_leaves_alone_what_another_has_only_just_made(monkeypatch):
    usual = tempfile.mkdtemp
    others = []

    def slow(**where: Any) -> str:
        path = usual(**where)
        others.append(another())
        try:
            others[0].wait(timeout=2)
        except subprocess.TimeoutExpired:
            pass
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", slow)
    with cache.work() as path:
        assert others[0].wait(timeout=60) == 0
        assert path.is_dir()


def test_a_lab_leaves_alone_what_another_works_in_and_removes_what_a_killed_one_left():
    with cache.work() as path:
        left = path.parent / "left"
        left.mkdir()
        assert another().wait(timeout=60) == 0
        assert path.is_dir() and not left.exists()
    assert not path.exists()


def test_two_labs_are_not_at_work_on_one_experiment():
    with cache.work("one"), cache.work("another"):
        with pytest.raises(KlatError, match="at work on this experiment"):
            with cache.work("one"):
                pass
    with cache.work("one"):
        pass


def test_a_lab_that_waited_while_all_was_cleared_works_in_what_is_there():
    with cache.exclusive("work"):
        waiting = another()
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=2)
        (cache.root() / "work").rename(cache.root() / "away")
    assert waiting.wait(timeout=60) == 0
    assert (cache.root() / "work").is_dir()


def test_nothing_is_cleared_while_a_lab_is_at_work():
    with cache.work():
        with pytest.raises(KlatError, match="at work in it"):
            cache.clear()
    cache.clear()
    assert not cache.root().exists()


def test_an_interrupted_removal_leaves_no_part_of_a_package(monkeypatch):
    package = cache.folder("packages") / "linux-image"
    package.mkdir(parents=True)
    (package / "vmlinux").write_bytes(bytes(8192))

    def interrupted(_: Path, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.clear()
    assert not package.exists()
    assert cache.clear() >= 8192
    assert not list(cache.root().parent.iterdir())


def test_who_waits_for_a_lock_says_for_whom_and_gives_up():
    said: list[str] = []
    with cache.exclusive("apt"):
        with pytest.raises(
            KlatError, match=rf"timed out after 0.2 s waiting for .*\(pid {os.getpid()}\)"
        ):
            with cache.exclusive("apt", 0.2, said.append):
                pass
    assert len(said) == 1 and f"(pid {os.getpid()})" in said[0]
    with cache.exclusive("apt", 0.2, said.append):
        pass
    assert len(said) == 1


def test_two_labs_do_not_build_the_programs_at_the_same_time(tmp_path, monkeypatch):
    building = '"$0.building"'
    made_tools.script(tmp_path / "make", f"mkdir {building} || exit\nsleep 0.5\nrmdir {building}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = [sys.executable, "-B", "-c", "from klat.lab import suite; suite.make([])"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    labs = [subprocess.Popen(words, env=environment) for _ in range(2)]
    assert [lab.wait(timeout=30) for lab in labs] == [0, 0]


def test_root_does_not_use_what_another_user_can_write(root):
    """apt's configuration there names commands."""
    cache.folder("apt")
    for place in (cache.root(), cache.root().parent):
        for user, bits in ((4242, 0o755), (0, 0o757)):
            os.chown(place, user, user)
            place.chmod(bits)
            with pytest.raises(KlatError, match=f"{place} .*XDG_CACHE_HOME"):
                cache.folder("apt")
        place.chmod(0o755)


def test_the_cache_keeps_the_newest_guests_up_to_a_size():
    for hour, name in enumerate(("first", "second", "third")):
        cache.keep("initramfs", name, bytes(40), most_bytes=100)
        os.utime(cache.root() / "initramfs" / name, (3600 * hour, 3600 * hour))
    cache.keep("initramfs", "second", bytes(40), most_bytes=100)
    cache.keep("initramfs", "fourth", bytes(40), most_bytes=100)
    assert {path.name for path in (cache.root() / "initramfs").iterdir()} == {"second", "fourth"}


def test_a_kept_file_that_was_damaged_is_written_again():
    cache.keep("initramfs", "guest", b"whole", most_bytes=100)
    kept = cache.root() / "initramfs" / "guest"
    kept.write_bytes(b"w")
    cache.keep("initramfs", "guest", b"whole", most_bytes=100)
    assert kept.read_bytes() == b"whole"


def test_kernel_symbols_are_kept():
    replay.keep_symbols("aa", "1 T startup\n")
    assert replay.kept_symbols("aa") == "1 T startup\n"


@pytest.mark.parametrize("damage", [lambda d: b"", lambda d: d[:-1], lambda d: d[:-12] + b"x" + d[-11:]])  # fmt: skip
def test_damaged_kernel_symbols_are_not_used(damage):
    replay.keep_symbols("aa", "1 T startup\n")
    kept = cache.root() / "symbols" / "aa"
    kept.write_bytes(damage(kept.read_bytes()))
    assert replay.kept_symbols("aa") is None


def test_the_symbols_of_another_boot_are_not_used():
    replay.keep_symbols("aa", "1 T startup\n")
    (cache.root() / "symbols" / "aa").rename(cache.root() / "symbols" / "bb")
    assert replay.kept_symbols("bb") is None
