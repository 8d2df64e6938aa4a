"""--guest-halt-poll holds a value of the kernel that the kernel does not put back by itself.

Each test runs on a /sys made up for it, by a copy of the program that believes in one, and besides on this
machine's own where that has what it takes.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, SKIPPED, UNTRUSTED, Done, Running, assert_one_line, command
from harness import gone, json_of, on_two, path_of
from made_tools import write

PROGRAM = "semaphore"
PARAMETERS = "module/haltpoll/parameters"
GOVERNOR = "devices/system/cpu/cpuidle/current_governor"
ONLINE = "devices/system/cpu/online"
SYS = Path("/sys")
HELD = 50000
HOLD = ("--guest-halt-poll", str(HELD))
SHORT = ("--iterations", "50", "--sleeps", "any")


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


OWN = (
    read(SYS / GOVERNOR) == "haltpoll"
    and read(SYS / PARAMETERS / "guest_halt_poll_allow_shrink") == "Y"
    and read(SYS / PARAMETERS / "guest_halt_poll_shrink") != "1"
    and os.access(SYS / PARAMETERS / "guest_halt_poll_ns", os.W_OK)
)
MACHINES = [
    "made-up",
    *([pytest.param("own", marks=[pytest.mark.slow, pytest.mark.alone])] if OWN else []),
]


@dataclass(frozen=True)
class Machine:
    sys: Path
    program: Path
    environment: dict[str, str]

    @property
    def file(self) -> Path:
        return self.sys / PARAMETERS / "guest_halt_poll_ns"

    @property
    def value(self) -> int:
        return int(self.file.read_text().split()[0])

    def running(self, *arguments: str) -> Running:
        return Running(
            PROGRAM, *HOLD, *arguments, executable=str(self.program), env=self.environment
        )

    def run(self, *arguments: str) -> Done:
        return command([self.program, *arguments], env=self.environment)

    def returns_to(self, value: int, limit: float = 5) -> bool:
        deadline = time.monotonic() + limit
        while self.value != value and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.value == value


def made_up(path: Path) -> Machine:
    for name, text in (
        (f"{PARAMETERS}/guest_halt_poll_ns", "200\n"),
        (f"{PARAMETERS}/guest_halt_poll_allow_shrink", "Y\n"),
        (f"{PARAMETERS}/guest_halt_poll_shrink", "2\n"),
        (GOVERNOR, "haltpoll\n"),
        (ONLINE, (SYS / ONLINE).read_text()),
    ):
        write(path / name, text)
    environment = os.environ | {"KLAT_TEST_SYS": str(path)}
    return Machine(path, path_of(PROGRAM, "planted"), environment)


def this_one() -> Machine:
    return Machine(SYS, path_of(PROGRAM), dict(os.environ))


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, tmp_path: Path, two_cpus: None) -> Iterator[Machine]:
    found = made_up(tmp_path / "sys") if request.param == "made-up" else this_one()
    before = found.value
    yield found
    assert found.value == before


@pytest.fixture
def copy(tmp_path: Path) -> Machine:
    return made_up(tmp_path / "sys")


def comm(pid: int) -> str:
    return read(Path(f"/proc/{pid}/comm"))


def guard(running: Running) -> int:
    (found,) = [pid for pid in running.children if comm(pid) == "klat-restore"]
    return found


def measured(running: Running) -> int:
    return min(harness.children(running.process.pid) - {guard(running)})


def sent(number: signal.Signals) -> Callable[[Running], int]:
    def end(running: Running) -> int:
        running.process.send_signal(number)
        return -number

    return end


def everybody_terminated(running: Running) -> int:
    """As a service manager does to all of a service."""
    for pid in (running.process.pid, *running.children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return -signal.SIGTERM


def measured_killed(running: Running) -> int:
    os.kill(measured(running), signal.SIGKILL)
    return FAILED


def guard_killed(running: Running) -> int:
    os.kill(guard(running), signal.SIGKILL)
    time.sleep(0.05)
    return sent(signal.SIGINT)(running)


def group_killed(running: Running) -> int:
    """As by klat itself at a time limit."""
    os.killpg(running.process.pid, signal.SIGKILL)
    return -signal.SIGKILL


def guard_terminated_and_program_killed(running: Running) -> int:
    os.kill(guard(running), signal.SIGTERM)
    time.sleep(0.05)
    return sent(signal.SIGKILL)(running)


# How the run ends, and whether the program itself puts the value back: after SIGKILL its guard does, somewhat later.
ENDINGS = {
    "interrupted": (sent(signal.SIGINT), True),
    "terminated": (sent(signal.SIGTERM), True),
    "everybody terminated": (everybody_terminated, True),
    "measured process killed": (measured_killed, True),
    "guard killed": (guard_killed, True),
    "killed": (sent(signal.SIGKILL), False),
    "group killed": (group_killed, False),
    "guard terminated, program killed": (guard_terminated_and_program_killed, False),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_is_put_back_however_the_run_ends(machine, ending):
    end, by_program = ENDINGS[ending]
    before = machine.value
    with machine.running() as running:
        assert machine.value == HELD, "the test would see it"
        status = end(running)
        # Not communicate(): that would wait for the guard as well.
        assert running.process.wait(10) == status
        assert machine.value == before if by_program else machine.returns_to(before)
        assert not gone(running.children)


def test_it_is_held_for_a_whole_run_and_in_its_params(machine):
    before = machine.value
    done = machine.run(*SHORT, *HOLD, "--json")
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    assert json_of(done)["parameters"].endswith(f";guest-halt-poll={HELD}")
    assert "somebody else" not in json_of(done)["reason"]
    assert machine.value == before


def test_nothing_is_touched_by_who_does_not_ask(machine):
    stamp = machine.file.stat().st_mtime_ns
    with Running(PROGRAM, executable=str(machine.program), env=machine.environment) as running:
        assert not [pid for pid in running.children if comm(pid) == "klat-restore"]
        assert machine.value != HELD
    assert machine.file.stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_a_second_holder_says_so(machine):
    with machine.running() as running:
        second = machine.run(*SHORT, "--guest-halt-poll", "60000")
        assert_one_line(second, PROGRAM, FAILED)
        holder = f"process {running.process.pid} ({PROGRAM})"
        assert f"{holder} holds guest_halt_poll_ns" in second.err
        assert machine.value == HELD, "and has changed nothing"
        running.process.terminate()
        running.end()


def test_a_second_holder_waits_for_the_end_of_the_first(machine):
    with machine.running() as running:
        words = [str(machine.program), *SHORT, *HOLD]
        with subprocess.Popen(
            words, env=machine.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as second:
            time.sleep(0.3)
            assert second.poll() is None
            running.process.kill()
            _, err = second.communicate(timeout=20)
        assert second.returncode in (MEASURED, UNTRUSTED), err


@pytest.mark.slow
def test_who_sets_it_meanwhile_makes_the_run_invalid(machine):
    before = machine.value
    words = [str(machine.program), "--iterations", "20000", *HOLD, "--json"]
    with subprocess.Popen(
        words, env=machine.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert machine.returns_to(HELD)
        time.sleep(0.3)
        machine.file.write_text("60000\n")
        out, err = process.communicate(timeout=30)
    assert process.returncode == UNTRUSTED, err
    assert "60000 at the end instead of 50000: another program set it" in err
    assert "another program set it" in out
    assert machine.value == before, "the value from before the run is restored"


@pytest.mark.slow
def test_a_cpu_that_polls_at_0_is_seen(copy):
    """As for a latency request of 0 that somebody holds."""
    usage = []
    for cpu in range(os.cpu_count() or 1):
        for state, name in enumerate(("POLL", "C1")):
            directory = copy.sys / f"devices/system/cpu/cpu{cpu}/cpuidle/state{state}"
            directory.mkdir(parents=True)
            (directory / "name").write_text(f"{name}\n")
            (directory / "usage").write_text("10\n")
        usage.append(directory.parent / "state0/usage")
    words = [str(copy.program), "--iterations", "20000", "--guest-halt-poll", "0"]
    with subprocess.Popen(words, env=copy.environment, stderr=subprocess.PIPE) as process:
        assert copy.returns_to(0)
        time.sleep(1.2)
        for path in usage:
            path.write_text("10000\n")
        _, err = process.communicate(timeout=30)
    assert process.returncode == UNTRUSTED, err
    assert b"despite --guest-halt-poll 0" in err


def assert_skipped(done: Done, why: str) -> None:
    assert_one_line(done, PROGRAM, SKIPPED)
    assert why in done.err and "--guest-halt-poll" in done.err, str(done)


def test_another_governor_is_a_reason_to_skip(copy):
    (copy.sys / GOVERNOR).write_text("menu\n")
    assert_skipped(copy.run(*HOLD), "cpuidle governor menu")
    (copy.sys / GOVERNOR).unlink()
    assert_skipped(copy.run(*HOLD), "cpuidle governor none")
    (copy.sys / f"{GOVERNOR}_ro").write_text("ladder\n")
    assert_skipped(copy.run(*HOLD), "cpuidle governor ladder")
    assert copy.value == 200


def test_no_such_parameter_is_a_reason_to_skip(copy):
    copy.file.unlink()
    assert_skipped(copy.run(*HOLD), "needs /sys/module/haltpoll")


def test_cpus_that_never_poll_less_are_a_reason_to_skip(copy):
    shrink = copy.sys / PARAMETERS / "guest_halt_poll_shrink"
    shrink.write_text("1\n")
    assert_skipped(copy.run(*HOLD), "cannot lower the polling limits")
    shrink.write_text("2\n")
    (copy.sys / PARAMETERS / "guest_halt_poll_allow_shrink").write_text("N\n")
    assert_skipped(copy.run(*HOLD), "cannot lower the polling limits")


def test_an_ordinary_user_skips(copy, open_directory, as_nobody):
    tree, program = open_directory / "sys", open_directory / PROGRAM
    shutil.copytree(copy.sys, tree)
    tree.chmod(0o755)
    shutil.copy(copy.program, program)
    program.chmod(0o755)
    (tree / PARAMETERS / "guest_halt_poll_ns").chmod(0o644)
    done = command(
        [*as_nobody, program, *HOLD], cwd="/", env=copy.environment | {"KLAT_TEST_SYS": str(tree)}
    )
    assert done.status == SKIPPED and done.out == "", str(done)
    assert "Permission denied; run as root, or without --guest-halt-poll" in done.err


@pytest.mark.alone
@on_two
def test_this_machine_measures_or_says_what_it_lacks(program):
    before = read(SYS / PARAMETERS / "guest_halt_poll_ns")
    done = harness.run(program, "--iterations", "20", *HOLD, "--quiet")
    if OWN and os.geteuid() == 0:
        assert done.status in (MEASURED, UNTRUSTED), str(done)
        assert "another program set" not in done.err
    else:
        assert_one_line(done, program, SKIPPED)
    assert read(SYS / PARAMETERS / "guest_halt_poll_ns") == before


needs_haltpoll = pytest.mark.skipif(
    not OWN, reason="its CPUs cannot be seen to poll where there is no haltpoll"
)


def counts(ns: int, *options: str) -> dict[str, int]:
    words = ("--sleeps", "any", "--iterations", "300", *options, "--guest-halt-poll", str(ns))
    return dict(json_of(this_one().run(*words, "--json"))["evidence"]["counts"])


def idled(found: dict[str, int]) -> bool:
    """Whether the consumer's CPU was idle in most iterations, which where there is other work it is not."""
    return found["halts_per_1000_iterations"] + found["idle_polls"] * 1000 // 350 > 600


def until_idle(attempt: Callable[[], list[dict[str, int]]], right: Callable[..., bool]) -> None:
    """Passes at the first right result. A try that other work spoiled is not a failure."""
    wrong: list[list[dict[str, int]]] = []
    for number in range(8):
        found = attempt()
        if all(map(idled, found)):
            if right(*found):
                return
            wrong.append(found)
        time.sleep(0.3 * number)
    if not wrong:
        harness.lacking("other work keeps this machine's CPUs from idling")
    pytest.fail(f"{wrong}")


@pytest.mark.slow
@pytest.mark.alone
@needs_haltpoll
def test_cpus_poll_as_long_as_they_are_told(two_cpus, real_time):
    # An idle CPU that polls is woken by a flag.
    interrupts = "wake_interrupts_per_1000_items"

    def right(polling: dict[str, int], halting: dict[str, int]) -> bool:
        polled = polling["halts_per_1000_iterations"] < 500 and polling[interrupts] < 500
        return polled and halting["idle_polls"] < 5 and halting[interrupts] > 600

    until_idle(lambda: [counts(ns, "--idle", "100000") for ns in (1_000_000, 0)], right)


@pytest.fixture
def parameters() -> Iterator[Path]:
    """Of the governor, as they were in the end."""
    path = SYS / PARAMETERS
    before = {file: file.read_text() for file in path.iterdir()}
    yield path
    for file, text in before.items():
        file.write_text(text)


def let_limits_grow(path: Path) -> None:
    """Of each CPU, by halts that are longer than its limit, to some milliseconds; they then stay, where
    nothing is idle for longer than 200 us, for some time."""
    (path / "guest_halt_poll_ns").write_text("10000000")
    (path / "guest_halt_poll_allow_shrink").write_text("N")
    allowed = os.sched_getaffinity(0)
    for cpu in allowed:
        os.sched_setaffinity(0, {cpu})
        for sleep in range(8):
            for _ in range(5):
                time.sleep(0.0001 * 2**sleep)
    os.sched_setaffinity(0, allowed)
    (path / "guest_halt_poll_ns").write_text("200000")
    (path / "guest_halt_poll_allow_shrink").write_text("Y")


@pytest.mark.slow
@pytest.mark.alone
@needs_haltpoll
def test_cpus_poll_no_longer_because_they_did_before(parameters, tmp_path, two_cpus, real_time):
    def once() -> dict[str, int]:
        let_limits_grow(parameters)
        # Into a session that is there already, which spares the program its own calibration.
        return counts(0, "--idle", "100000", "--record", str(tmp_path))

    once()
    until_idle(
        lambda: [once() for _ in range(5)],
        lambda *found: all(counted["idle_polls"] < 5 for counted in found),
    )


# What an idle CPU has done, (polls, halts), at each look of the program. Two looks frame a sleep. After a
# poll in vain the governor halts once without a poll, so two halts alone are needed to know that it stopped.
IDLED = [(0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 3), (1, 3), (1, 4)]


def answers(cpu_idle: Path, looks: int) -> bool:
    """Whether the program looks at how the CPU idles. It then sees the next of IDLED, or at last no such state."""
    name, following = cpu_idle / "state0/name", cpu_idle / "following"
    try:
        writer = os.open(name, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.mkfifo(following)
    following.rename(name)  # the next look opens another pipe
    known = looks < len(IDLED)
    for state, count in enumerate(IDLED[looks] if known else ()):
        (cpu_idle / f"state{state}/usage").write_text(f"{count}\n")
    os.write(writer, b"POLL\n" if known else b"none\n")
    os.close(writer)
    return True


@pytest.mark.alone  # within the time that the program gives the CPUs
@pytest.mark.parametrize("latency", [("--dma-latency", "0"), ()])
def test_a_run_begins_on_cpus_that_halt_whatever_ran_before(latency, copy, two_cpus):
    looks = {copy.sys / f"devices/system/cpu/cpu{cpu}/cpuidle": 0 for cpu in (0, 1)}
    for cpu in looks:
        for state in range(2):
            (cpu / f"state{state}").mkdir(parents=True)
        os.mkfifo(cpu / "state0/name")
    words = [str(copy.program), "--cpus", "0,1", *latency, *SHORT, "--quiet"]
    with subprocess.Popen(words, env=copy.environment, stderr=subprocess.PIPE) as process:
        try:
            while process.poll() is None:
                for cpu in looks:
                    begun = bool(harness.children(process.pid))
                    if answers(cpu, looks[cpu]) and not begun:
                        looks[cpu] += 1
                time.sleep(0.001)
        finally:
            process.kill()
    assert set(looks.values()) == {len(IDLED)}


def test_settling_can_be_interrupted(copy, two_cpus):
    """A CPU whose idle states are never told keeps it settling: nobody writes into that pipe."""
    before = copy.value
    for cpu in range(2):
        name = copy.sys / f"devices/system/cpu/cpu{cpu}/cpuidle/state0/name"
        name.parent.mkdir(parents=True)
        os.mkfifo(name)
    words = [str(copy.program), *HOLD, *SHORT]
    with subprocess.Popen(words, env=copy.environment, stderr=subprocess.PIPE) as process:
        try:
            harness.until(
                lambda: "" if copy.value == 0 and harness.children(process.pid) else "not yet",
                tries=20,
            )
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=5)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT, err
    assert err.decode() == f"{PROGRAM}: interrupted, nothing recorded\n"
    assert copy.returns_to(before)
