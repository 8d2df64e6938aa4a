"""load/load: each load does the work it is named for, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
import pytest
from harness import FAILED, USAGE, children, command, gone

LOAD = harness.ROOT / "load" / "load"
NAMES = ["files", "fork", "pipe", "populate", "proc", "zero"]
KLAT = harness.ROOT / "klat"


@contextmanager
def running(name: str, *words: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [LOAD, name, *words],
        env=os.environ | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        time.sleep(0.1)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def stat(pid: int, field: int) -> int:
    """A field of /proc/PID/stat, numbered as in proc(5)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[field - 3])


def io(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        key, _, value = line.partition(": ")
        if key == name:
            return int(value)
    raise AssertionError(name)


def grows(value: Callable[[], int], by: int) -> bool:
    first = value()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if value() - first >= by:
            return True
        time.sleep(0.05)
    return False


def test_the_list_names_them_all():
    done = command([LOAD, "--list"])
    assert [line.split()[0] for line in done.out.splitlines()] == NAMES, str(done)
    done = command([LOAD, "--help"])
    assert done.status == 0 and "--record" not in done.out and done.out.isascii(), str(done)


@pytest.mark.parametrize("words", [[], ["nosuch"], ["--nosuch"], ["zero", "pipe"], ["populat"]])
def test_what_is_no_load_is_refused_with_the_list(words):
    done = command([LOAD, *words])
    harness.assert_one_line(done, "load", USAGE)
    assert done.err.rstrip().endswith(", ".join(NAMES)), str(done)


def test_populate_fills_memory_and_gives_it_back():
    with running("populate") as process:
        last, risen, fallen, deadline = 0, 0, 0, time.monotonic() + 10
        while (risen < 5 or fallen < 5) and time.monotonic() < deadline:
            resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096
            risen += resident > last + (1 << 20)
            fallen += resident < last - (1 << 20)
            last = resident
        assert risen >= 5 and fallen >= 5


def test_zero_reads_much_at_once():
    with running("zero") as process:
        # In this order and then the other, so that no call is counted without its bytes.
        amount, calls = io(process.pid, "rchar"), io(process.pid, "syscr")
        assert grows(lambda: io(process.pid, "syscr"), 5)
        calls, amount = io(process.pid, "syscr") - calls, io(process.pid, "rchar") - amount
        assert amount >= (calls - 1) * (4 << 20)


def test_proc_reads_the_files_of_processes():
    with running("proc") as process:
        assert grows(lambda: io(process.pid, "syscr"), 1000)
        paths = set()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not any(p.endswith("/stat") for p in paths):
            for entry in Path(f"/proc/{process.pid}/fd").iterdir():
                try:
                    paths.add(os.readlink(entry))
                except OSError:
                    continue
        assert any(path.startswith("/proc/") and path.endswith("/stat") for path in paths), paths


def forked() -> int:
    (line,) = [
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("processes")
    ]
    return int(line.split()[1])


def test_fork_makes_processes_that_end():
    with running("fork") as process:
        # Their faults are added to the parent's account when they have been waited for.
        assert grows(lambda: stat(process.pid, 11), 1000) and grows(forked, 100)
        assert len(children(process.pid)) <= 1


def test_fork_ends_if_the_kernel_refuses_every_process(as_nobody, open_directory):
    """Otherwise the session would name a load that does not run."""
    copy = open_directory / "load"
    shutil.copy(LOAD, copy)
    copy.chmod(0o755)
    done = command([*as_nobody, "prlimit", "--nproc=1", copy, "fork"], cwd="/")
    harness.assert_one_line(done, "load", FAILED)
    assert "fork" in done.err


def test_pipe_moves_bytes_from_one_process_to_another():
    with running("pipe") as process:
        (writer,) = children(process.pid)
        assert grows(lambda: io(writer, "wchar"), 1 << 20)
        assert grows(lambda: io(process.pid, "rchar"), 1 << 20)
        process.kill()
        assert not gone({writer})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_files_are_made_and_none_is_left(tmp_path, number):
    with running("files", TMPDIR=str(tmp_path)) as process:
        (directory,) = tmp_path.iterdir()
        seen = set()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and len(seen) < 32:
            seen.update(os.listdir(directory))
        assert len(seen) >= 32
        assert grows(lambda: io(process.pid, "wchar"), 64 * 4096)
        process.send_signal(number)
        process.wait(timeout=60)
    harness.until(lambda: "left behind" if list(tmp_path.iterdir()) else "", 10)


def test_a_link_in_place_of_its_directory_is_not_followed(tmp_path):
    parent, victim = tmp_path / "parent", tmp_path / "victim"
    parent.mkdir()
    victim.mkdir()
    for number in range(64):
        (victim / str(number)).touch()
    with running("files", TMPDIR=str(parent)) as process:
        (directory,) = parent.iterdir()
        aside = directory.rename(parent / "aside")
        directory.symlink_to(victim)
        assert grows(lambda: io(process.pid, "wchar"), 64 * 4096)
        process.terminate()
    harness.until(lambda: "left behind" if list(aside.iterdir()) else "", 10)
    assert sorted(os.listdir(victim), key=int) == [str(number) for number in range(64)]


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path):
    done = command([LOAD, "files"], env=os.environ | {"TMPDIR": str(tmp_path / "none")})
    harness.assert_one_line(done, "load", 1)
    assert "No such file or directory" in done.err


@pytest.mark.parametrize("name", NAMES)
def test_a_load_ends_with_its_parent(name, tmp_path):
    """Also where that is killed."""
    told = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        ["/bin/sh", "-c", f"{LOAD} {name} & echo $!; wait"], env=told, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        load = int(parent.stdout.readline())
        time.sleep(0.2)
        started = {load} | children(load)
        parent.kill()
    assert not gone(started)
    harness.until(lambda: "left behind" if list(tmp_path.iterdir()) else "", 10)


def test_a_load_is_an_ordinary_thread_on_its_cpu(real_time):
    cpu = min(os.sched_getaffinity(0))
    words = ["chrt", "-f", "10", str(LOAD), "zero", "--cpu", str(cpu)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:
        time.sleep(0.3)
        try:
            assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
            assert os.sched_getaffinity(process.pid) == {cpu}
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["zero", "files"])
def test_a_session_runs_under_a_load_of_that_name_and_ends_it(tmp_path, name):
    words = ("run", "timer", "--runs", "1", "--load", name, "--label", "x", "--output", tmp_path)
    told = os.environ | {"TMPDIR": str(tmp_path)}
    done = command([sys.executable, "-B", KLAT, *words, "--iterations", "20"], env=told)
    assert done.status in (0, 3), str(done)
    (session,) = (tmp_path / "x").iterdir()
    assert json.loads((session / "run.json").read_text())["load"] == name
    assert (session / "load.log").read_text() == ""
    harness.until(lambda: "left behind" if list(tmp_path.glob("klat-load*")) else "", 10)


@pytest.mark.parametrize("words", [["run"], ["ab", "--a", "one", "--b", "two"]])
def test_a_word_that_is_no_load_is_refused_with_the_list(tmp_path, words):
    more = ("timer", "--load", "nosuchload", "--output", tmp_path)
    done = command([sys.executable, "-B", KLAT, *words, *more])
    assert done.status == USAGE and "files, fork, pipe, populate, proc, zero" in done.err, str(done)
    assert not list(tmp_path.iterdir())
