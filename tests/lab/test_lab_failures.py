"""What can go wrong with a boot is told apart, from kernels that were planted to do it. Real QEMU, no real kernel."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
import made_tools
import planted
import pytest
from labs import ROOT, Lab, experiment, hash_of, header, tar_of, write_session

from klat.base.errors import KlatError, SessionError
from klat.lab.experiment import of_session
from klat.lab.initramfs import recorded_machine_id
from klat.lab.architectures import AMD64
from klat.lab.qemu import Machine, GuestSize, find

pytestmark = pytest.mark.usefixtures("qemu")
READY = "klat-lab: ready\n"
LIMIT = ("--time-limit", "3")


def failed(lab: Lab) -> dict[str, str]:
    """What run.json says of the one boot that failed; no session may be there."""
    (facts,) = lab.results.glob("planted/.failed/*/run.json")
    assert [p.name for p in (lab.results / "planted").iterdir()] == [".failed"]
    found: dict[str, str] = json.loads(facts.read_text())["lab"]
    assert (facts.parent / "lab/console.log").exists()
    assert (facts.parent / "lab/machine.json").exists()
    return found


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    line = done.stderr.splitlines()[-1]
    assert line.startswith("klat lab: "), done.stderr
    assert "Traceback" not in done.stderr
    return line


PANIC = "Kernel panic - not syncing: planted"


@pytest.mark.parametrize(
    ("says", "then", "message", "failure"),
    [
        (f"early words\n{PANIC}\n", planted.RESET, f"did not boot: {PANIC}", "boot"),
        ("here\n", planted.HANG, "did not boot within 3 s", "boot"),
        ("", planted.RESET, "ended before its first program", "boot"),
        (READY, planted.HANG, "0 of 1 runs were over after 3 s", "time-limit"),
        (READY + "klat-lab: run 1 0\n", planted.RESET, "ended after 1 of 1 runs", "results"),
        (
            READY + "[    9.1] BUG: planted\n",
            planted.RESET,
            "died after 0 of 1 runs: BUG: planted",
            "boot",
        ),
        (
            READY + "klat-lab: no space for the results on the disk\n",
            planted.RESET,
            "no space for the results on the disk",
            "results",
        ),
    ],
    ids=["panics", "hangs", "ends", "hangs at work", "without results", "dies at work", "no space"],
)
def test_a_boot_that_fails_is_told_by_how_it_failed(lab, tmp_path, says, then, message, failure):
    limit = LIMIT if then == planted.HANG else ()
    done = lab.boot(planted.kernel(tmp_path / "k", says, then), *limit)
    assert done.returncode == 1
    assert message in one_line(done)
    for line in says.splitlines():
        assert f"  | {line}" in done.stderr, "the last lines of the console are shown"
    assert failed(lab)["failure"] == failure
    assert not lab.working()


def test_a_kernel_is_booted_with_its_own_words(lab, tmp_path):
    kernel = planted.kernel(tmp_path / "k", then=planted.RESET)
    own = ("--mode", "counted", "--boots", "1", "--runs", "1", "--append", "quiet", "pipes")
    lab("run", "--kernel", f"planted={kernel},append=isolcpus=1,2 mitigations=off", *own)
    (path,) = lab.results.glob("planted/.failed/*/lab/machine.json")
    command = json.loads(path.read_text())["command"]
    assert command[-1].endswith(" quiet isolcpus=1,2 mitigations=off"), command[-1]


OWN_WORDS = ("rdinit=/bin/sh", "init=/bin/sh", "klat.mode=emulated", "x.klat.mode=counted")


@pytest.mark.parametrize(
    ("word", "of_all"),
    [*((w, of_all) for w in OWN_WORDS for of_all in (True, False)), ('"rdinit=/x"', False)],
)
def test_a_word_that_decides_what_the_lab_decides_is_refused(lab, tmp_path, word, of_all):
    spec = f"planted={planted.kernel(tmp_path / 'k')}"
    words = ("--append", f"quiet {word}") if of_all else ()
    spec += "" if of_all else f",append=quiet {word}"
    done = lab.inside("run", "--kernel", spec, *words, "pipes")
    assert done.returncode == 2 and f"append {word!r}: the lab itself sets" in one_line(done)
    assert not lab.results.exists()


def test_results_that_cannot_be_unpacked_are_one_boot_that_failed(lab, tmp_path):
    # The planted kernel has room for little more than the headers and the end of the archive.
    data = tar_of(("runs.csv", b""), ("runs.csv", b""))[: 512 * 4]
    gives = header("failed", b"") + data + header("complete", data)
    done = lab.boot(planted.kernel(tmp_path / "k", READY, planted.RESET, gives=gives))
    assert done.returncode == 1
    assert "the results " in one_line(done)
    told = failed(lab)
    assert told["failure"] == "results" and "runs.csv" in told["reason"]
    (kept,) = lab.results.glob("planted/.failed/*/lab/results.tar")
    assert kept.read_bytes() == data
    assert not lab.working()


def test_an_emulator_that_fails_is_told_from_a_kernel(lab, tmp_path):
    done = lab.boot(planted.kernel(tmp_path / "k"), "--memory", "1048576")
    assert done.returncode == 1
    assert "QEMU failed: " in one_line(done)
    assert failed(lab)["failure"] == "emulator"


QEMU_7 = "echo QEMU emulator version 7.2.22 '(Debian)'"


@pytest.mark.parametrize(
    ("tool", "text", "words", "said"),
    [
        ("none", "", (), "apt install qemu-system-x86"),
        (
            *("qemu-system-x86_64", QEMU_7, ("--mode", "emulated", "--cpus", "300")),
            "QEMU 7.2.22 (Debian) emulates at most 255 CPUs; from 9.0 on",
        ),
        ("qemu-system-x86_64", QEMU_7, ("--cpus", "2"), "counted on one CPU"),
    ],
)
def test_a_machine_that_no_qemu_here_makes_is_refused(lab, tmp_path, tool, text, words, said):
    path = made_tools.script(tmp_path / "bin" / tool, text).parent
    done = lab.boot(planted.kernel(tmp_path / "k"), *words, PATH=str(path))
    assert done.returncode == 2
    assert said in one_line(done)


def test_without_room_for_a_guests_files_nothing_is_recorded(lab, tmp_path, root):
    lab.cache.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", lab.cache]).returncode:
        harness.lacking("no file system can be mounted here")
    try:
        done = lab.boot(planted.kernel(tmp_path / "k"))
    finally:
        subprocess.run(["umount", lab.cache], check=True)
    assert done.returncode == 2
    assert "no room for a guest's files" in one_line(done)
    assert "No space left on device" in one_line(done)
    assert not list(lab.results.glob("*/*"))


def guests(directory: Path) -> list[int]:
    """Processes of QEMU that were started with files below the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"qemu-system" in words.split(b"\0")[0] and str(directory).encode() in words:
            found.append(int(path.parent.name))
    return found


@contextmanager
def running(
    lab: Lab, *words: str | Path, guests_at_once: int = 1
) -> Iterator[subprocess.Popen[str]]:
    """klat lab, once so many guests of it are there. It does not outlive the test."""
    with subprocess.Popen(
        lab.words(*words),
        cwd=lab.directory,
        env=lab.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            within(60, lambda: len(guests(lab.cache)) >= guests_at_once, process)
            yield process
        finally:
            process.kill()


def within(
    seconds: float, true: Callable[[], bool], process: subprocess.Popen[str] | None = None
) -> None:
    """Wait until that is so, and a process has not ended before."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end and (process is None or process.poll() is None)
        time.sleep(0.05)


def four_boots(kernel: Path) -> tuple[str, ...]:
    own = ("--mode", "counted", "--boots", "4", "--runs", "1", "--jobs", "2", "pipes")
    return ("run", "--kernel", f"planted={kernel}", *own)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_stop_ends_every_guest(lab, tmp_path, number):
    words = four_boots(planted.kernel(tmp_path / "k"))
    with running(lab, *words, guests_at_once=2) as process:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert stderr.splitlines()[-1] == f"stopped: {signal.Signals(number).name}"
    assert not guests(lab.cache)
    assert not lab.working()
    assert not list(lab.results.glob("*/*"))


def test_a_killed_lab_leaves_no_guest_and_the_next_one_tidies_up(lab, tmp_path):
    kernel = planted.kernel(tmp_path / "k")
    with running(lab, *four_boots(kernel), guests_at_once=2) as process:
        process.kill()
        process.communicate(timeout=60)
    within(10, lambda: not guests(lab.cache))
    assert lab.working(), "what a killed lab leaves is in the cache"
    lab.boot(kernel, *LIMIT)
    assert not lab.working()
    assert stat.S_ISDIR(lab.cache.stat().st_mode)
    assert lab("clear").returncode == 0
    assert not (lab.cache / "klat/lab").exists()


def test_a_killed_check_of_a_bisection_leaves_nothing_that_the_next_lab_does_not_remove(
    lab, tmp_path
):
    kernel = planted.kernel(tmp_path / "k")
    machine = recorded_machine_id(Machine(find(AMD64), "counted", GuestSize()).describe(""))
    planned = experiment(
        labels=("good", "bad"),
        programs={"pipes": hash_of(tmp_path / "programs/pipes")},
        sets=(("pipes", ("--cpus=0,0",)),),
        boots=1,
    )
    for number in (1, 2):
        session = write_session(lab.results, planned, number, machine_id=machine)
        session.run({"round_trip": [100 * number] * 10}, order=1, run=1)
    sides = ("--good", lab.results / "good", "--bad", lab.results / "bad", "--kernel", kernel)
    with running(lab, "bisect-check", *sides, "--metric", "pipes.round_trip") as process:
        process.kill()
        process.communicate(timeout=60)
    within(10, lambda: not guests(lab.cache))
    lab.boot(kernel, *LIMIT)
    assert not lab.working()
    kept = {path.name for path in (lab.cache / "klat/lab").iterdir()}
    assert kept <= {"apt", "build", "images", "initramfs", "packages", "work"}


FETCHES_BUSYBOX = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / 'scripts')!r})
from klat import cli
from klat.lab import elf
usual = elf.is_static
elf.is_static = lambda path, machine: path != Path("/bin/busybox") and usual(path, machine)
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_request_to_stop_ends_a_download(lab, tmp_path):
    """Of busybox, on a machine that has none."""
    apt = lab.cache / "klat/lab/apt"
    apt.mkdir(parents=True)
    (apt / "index.json").write_text(json.dumps([["busybox-static", "1", 1]]))
    fetches = f"echo $$ >{tmp_path}/fetching\nexec sleep 60"
    tools = made_tools.script(tmp_path / "bin/apt-get", fetches).parent
    kernel = planted.kernel(tmp_path / "k")
    words = lab.words("run", "--kernel", f"a={kernel}", "--mode", "counted", "pipes")[3:]
    fetching = tmp_path / "fetching"
    with subprocess.Popen(
        [sys.executable, "-B", "-c", FETCHES_BUSYBOX, *words],
        cwd=tmp_path,
        env=lab.environment | {"PATH": f"{tools}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            within(60, lambda: fetching.exists() and bool(fetching.read_text()), process)
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert stderr.splitlines()[1:] == ["klat lab: interrupted"], stderr
    within(10, lambda: not Path(f"/proc/{fetching.read_text().strip()}").exists())
    assert not list((lab.cache / "klat/lab/packages").iterdir())


def test_what_failed_is_booted_again_by_one_lab_at_a_time(lab, tmp_path):
    kernel = planted.kernel(tmp_path / "k")
    planned = experiment(
        kernels=(f"planted={kernel}",),
        labels=("planted",),
        releases=("6.6.6-planted",),
        hashes=(hash_of(kernel),),
        programs={"pipes": hash_of(tmp_path / "programs/pipes")},
        sets=(("pipes", ()),),
        boots=1,
    )
    died = write_session(tmp_path, planned, 1).path
    (lab.results / "planted/.failed").mkdir(parents=True)
    died.rename(lab.results / "planted/.failed/1")
    with running(lab, "run", "--resume", lab.results) as process:
        second = lab("run", "--resume", lab.results)
        assert second.returncode == 2
        assert "another klat lab is at work on this experiment" in one_line(second)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert not lab.working()


def test_another_kernel_or_program_than_the_experiment_began_with_is_refused(lab, tmp_path):
    kernel = planted.kernel(tmp_path / "k")
    lab.boot(kernel, *LIMIT)
    planted.kernel(kernel, "another")
    done = lab.inside("run", "--resume", lab.results)
    assert done.returncode == 2
    assert "differs from the kernel of the experiment's first boots" in one_line(done)
    planted.kernel(kernel)
    with (tmp_path / "programs/pipes").open("ab") as file:
        file.write(b"another")
    done = lab.inside("run", "--resume", lab.results)
    assert done.returncode == 2
    assert "pipes was rebuilt since" in one_line(done)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("experiment.boots", "2"),
        ("experiment.mode", "quick"),
        ("experiment.labels", ["../outside", "b"]),
        ("experiment.labels", ["only"]),
        ("experiment.kernels", 5),
        ("experiment.shape", {"cpus": "many"}),
        ("experiment.clock", "noon"),
        ("experiment", None),
        ("boot", "1"),
        ("boot", 0),
        ("boot", 9),
        ("boot", None),
    ],
)
def test_an_experiment_whose_record_was_edited_is_not_resumed(tmp_path, where, what):
    path = write_session(tmp_path, experiment(), 1).path
    facts = json.loads((path / "run.json").read_text())
    inner = facts["lab"]
    *above, last = where.split(".")
    for name in above:
        inner = inner[name]
    inner[last] = what
    (path / "run.json").write_text(json.dumps(facts))
    with pytest.raises((KlatError, SessionError), match="run.json is damaged or was edited"):
        of_session(path)


def test_what_no_lab_began_is_not_resumed(lab, tmp_path):
    for path, why in (
        (tmp_path, "holds no session of klat lab run"),
        (tmp_path / "no", "no such directory"),
    ):
        done = lab.inside("run", "--resume", path)
        assert done.returncode == 2
        assert why in one_line(done)


def test_what_is_resumed_follows_its_own_plan(lab, tmp_path):
    done = lab.inside("run", "--resume", tmp_path, "--boots", "3", "pipes")
    assert done.returncode == 2
    assert "without benchmarks, --boots" in one_line(done)
