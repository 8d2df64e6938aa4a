"""However a run is ended, nothing of it is recorded, nobody is left behind, and the machine is as it was."""

import contextlib
import ctypes
import fcntl
import itertools
import os
import resource
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, PROGRAMS, UNTRUSTED, Running, assert_one_line, command
from harness import gone, path_of

pytestmark = pytest.mark.alone

LATENCY = Path("/dev/cpu_dma_latency")
PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24


def knobs() -> dict[str, bytes]:
    """Everything of the machine that a program could have touched."""
    state = {str(LATENCY): latency()}
    for pattern in (
        "proc/sys/kernel/sched_*",
        "proc/sys/kernel/timer_migration",
        "proc/sys/kernel/numa_balancing",
        "proc/sys/kernel/watchdog*",
        "proc/sys/vm/*",
        "proc/sys/net/ipv4/ip_forward",
        "proc/sys/net/ipv4/conf/*/*",
        "proc/mounts",
        "proc/modules",
        "proc/irq/*/smp_affinity",
        "sys/devices/system/cpu/cpu*/online",
        "sys/devices/system/cpu/cpu*/cpufreq/scaling_*_freq",
        "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/module/haltpoll/parameters/*",
    ):
        for path in Path("/").glob(pattern):
            try:
                state[str(path)] = path.read_bytes()
            except OSError:
                pass
    # Only the names: use counts change for other reasons.
    modules = state.pop("/proc/modules", b"").splitlines()
    state["modules"] = b" ".join(sorted(line.split()[0] for line in modules))
    for words in ("link", "address", "route show table all", "-6 route", "netns list"):
        state[words] = command(["ip", "-o", *words.split()]).out.encode()
    return state


def latency() -> bytes:
    """The current latency request; empty if it cannot be read."""
    with contextlib.suppress(OSError), LATENCY.open("rb", buffering=0) as file:
        return file.read(4)
    return b""


def sent(number: signal.Signals) -> Callable[[Running], None]:
    return lambda running: running.process.send_signal(number)


def sent_to_group(running: Running) -> None:
    os.killpg(running.process.pid, signal.SIGINT)


def measured_process(number: signal.Signals) -> Callable[[Running], None]:
    return lambda running: os.kill(min(running.children), number)


INTERRUPTED = "interrupted, nothing recorded\n"
# What ends the run, the status of the program, and the end of what it says.
ENDINGS: dict[str, tuple[Callable[[Running], None], int, str]] = {
    "SIGINT": (sent(signal.SIGINT), -signal.SIGINT, INTERRUPTED),
    "SIGTERM": (sent(signal.SIGTERM), -signal.SIGTERM, INTERRUPTED),
    "SIGHUP": (sent(signal.SIGHUP), -signal.SIGHUP, INTERRUPTED),
    "SIGQUIT": (sent(signal.SIGQUIT), -signal.SIGQUIT, INTERRUPTED),
    "Ctrl-C": (sent_to_group, -signal.SIGINT, INTERRUPTED),
    "supervisor killed": (sent(signal.SIGKILL), -signal.SIGKILL, ""),
    "measured process killed": (measured_process(signal.SIGKILL), FAILED, "dmesg)\n"),
    "measured process crashed": (measured_process(signal.SIGSEGV), FAILED, "fault)\n"),
}


# The library ends a run. `make test-slow` ends programs that start processes or make a device in each way.
ENDED = list(zip(itertools.cycle(ENDINGS), PROGRAMS))
ALSO_ENDED = set(itertools.product(ENDINGS, ("eventloop", "network", "spawn"))) - set(ENDED)


@pytest.mark.parametrize(
    "ending, program",
    ENDED + [pytest.param(*pair, marks=pytest.mark.slow) for pair in sorted(ALSO_ENDED)],
)
def test_a_run_that_is_ended_leaves_nothing(ending, program, tmp_path, root, real_time):
    """No process, no change of the machine, and in the record at most the error."""
    end, status, said = ENDINGS[ending]
    before = knobs()
    with Running(program, "--record", tmp_path, "--dma-latency", "20") as running:
        if before[str(LATENCY)]:
            assert struct.unpack("i", latency()) == (20,), "the test would see it"
        begun = time.monotonic()
        end(running)
        done = running.end()
        assert not gone(running.children)
        assert time.monotonic() - begun < 2
    assert (done.status, done.out) == (status, ""), str(done)
    assert done.err.endswith(said) and done.err.count("\n") == bool(said), str(done)
    assert not list(tmp_path.glob("samples/*"))
    if status == FAILED:
        (row,) = harness.Session(tmp_path).rows
        assert (row["status"], row["metric"], row["n"]) == ("error", "", "0")
    else:
        assert not (tmp_path / "runs.csv").exists()

    def attempt() -> str:
        after = knobs()
        return " ".join(path for path in before | after if before.get(path) != after.get(path))

    harness.until(attempt)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_peer_process_that_is_killed_is_named_with_the_signal(number, two_cpus):
    with Running("pipes", "--peer", "process", "--cpus", "1,0") as running:
        (measured,) = harness.children(running.process.pid)
        (peer,) = harness.children(measured)
        os.kill(peer, number)
        done = running.end()
        assert_one_line(done, "pipes", FAILED)
        assert f"the reader on CPU 0 was killed by signal {number.value} (" in done.err, str(done)
        assert not gone(running.children)


# Without CAP_SYS_RESOURCE, klat cannot raise the hard limit on CPU time of real-time threads.
@pytest.mark.parametrize(
    "program, options",
    [("syscall", ("--iterations", "2000000")), ("tlbflush", ("--soak", "5", "--record", "x"))],
)
def test_a_limit_that_ends_a_run_is_named(program, options, tmp_path, root, real_time):
    def limit() -> None:
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) == 0
        resource.setrlimit(resource.RLIMIT_RTTIME, (10_000, 10_000))

    done = command([path_of(program), *options], cwd=tmp_path, preexec_fn=limit)
    assert_one_line(done, program, FAILED)
    said = "the cause may be the hard limit RLIMIT_RTTIME (10000 us without a sleep)"
    assert said in done.err, str(done)


def test_a_limit_that_klat_can_lift_ends_no_run(root, real_time):
    limit = (resource.RLIMIT_RTTIME, (10_000, resource.RLIM_INFINITY))
    words = [path_of("syscall"), "--iterations", "2000000"]
    done = command(words, preexec_fn=lambda: resource.setrlimit(*limit))
    assert done.status in (harness.MEASURED, harness.UNTRUSTED), str(done)


def test_a_peer_process_that_is_stopped_and_goes_on_has_not_ended(two_cpus):
    with Running("pipes", "--peer", "process") as running:
        (measured,) = harness.children(running.process.pid)
        (peer,) = harness.children(measured)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            os.kill(peer, number)
            time.sleep(0.2)
            assert running.process.poll() is None, str(running.end())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_the_caller_ignores_stays_ignored(number):
    ignore = f'trap "" {number.name[3:]}; exec "$@"'
    words = ["sh", "-c", ignore, "sh", path_of("pipes"), "--iterations", "20000", "--cpus", "1,1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.05)
    for _ in range(5):
        process.send_signal(number)
    assert process.wait(30) in (MEASURED, UNTRUSTED)


def test_a_child_that_the_caller_left_behind_is_no_worker():
    """SIGCHLD ignored, and a stranger for a child, are both inherited by exec."""
    words = ["sh", "-c", 'trap "" CHLD; sleep 0.02 & exec "$@"', "sh", path_of("pipes")]
    assert command([*words, "--cpus", "1,1"]).status in (MEASURED, UNTRUSTED)


def interrupted_while_it_waits(process: subprocess.Popen[bytes], program: str) -> None:
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == -signal.SIGINT, err
    assert err.decode() == f"{program}: interrupted, nothing recorded\n"
    assert time.monotonic() - begun < 2


def waits_for_a_lock(pid: int) -> bool:
    """Nothing is measured, and it sleeps between two tries: see lib/base/lock.c."""
    return not harness.children(pid) and "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


@pytest.mark.parametrize("measured", [False, True], ids=["to join", "to record"])
def test_a_program_that_waits_for_its_session_can_be_interrupted(measured, tmp_path):
    """Another program holds the session before it joins, or from when it measures."""
    harness.works("pipes", "--cpus", "1,1", "--quiet", "--record", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    session = os.open(tmp_path, os.O_RDONLY)
    if not measured:
        fcntl.flock(session, fcntl.LOCK_EX)
    words = [path_of("pipes"), "--cpus", "1,1", "--iterations", "100000", "--record", tmp_path]
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE) as process:
        try:
            if measured:
                harness.until(lambda: "" if harness.children(process.pid) else "no child", tries=20)
                fcntl.flock(session, fcntl.LOCK_EX)
            harness.until(
                lambda: "" if waits_for_a_lock(process.pid) else "it waits for no lock", tries=20
            )
            interrupted_while_it_waits(process, "pipes")
        finally:
            process.kill()
            os.close(session)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_supervisor_keeps_off_the_cpus_that_are_measured(root, real_time):
    """It wakes every second. Where no CPU is left, beside workers without a priority on the first."""
    every = sorted(os.sched_getaffinity(0))
    assert len(every) >= 2
    cases = [
        ("timer", ["--cpus", str(every[-1])], set(every[:-1])),
        ("switch", ["--cpus", str(every[0]), "--policy", "other"], set(every[1:])),
    ]
    if len(every) == 2:
        both = f"{every[1]},{every[0]}"
        cases += [
            ("pipes", ["--cpus", both, "--policy", "other"], {every[1]}),
            ("pipes", ["--cpus", both], set(every)),
        ]
    for name, words, expected in cases:
        with Running(name, *words) as running:
            assert os.sched_getaffinity(running.process.pid) == expected, (name, words)


@pytest.mark.parametrize("program", ["network", "pipes"])
def test_the_machine_is_as_it_was_after_a_whole_run(program, root):
    before = knobs()
    harness.works(program, "--dma-latency", "0", "--quiet")
    after = knobs()
    assert [path for path in before | after if before.get(path) != after.get(path)] == []
