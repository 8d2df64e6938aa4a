"""Between two stamps there is only the event: counts of system calls, faults and memory do not grow."""

import re
from pathlib import Path

import harness
import pytest
from harness import command, json_of, path_of, traits, works

EXCESS = 8 << 20
# What the supervising process does while it waits, once a second or whenever a child stops.
WAITING = {"rt_sigtimedwait", "wait4", "restart_syscall"}
# A rest between samples: how many there are depends on the host.
RESTING = {"clock_nanosleep", "getrusage"}
# Before and after a real-time run, for each thread of the machine: see lib/run/neighbours.c.
SEARCHING = {"openat", "close", "fstat", "newfstatat", "getdents64", "sched_getscheduler"}
# Futexes of the barriers before and after the timed part: a few more or less each time.
FEW = 12


def calls(program: str, iterations: int, report: Path) -> dict[str, int]:
    policy = ["--policy", "other"] if traits(program).ordinary else []
    options = [*policy, "--warmup", "10", "--iterations", str(iterations), "--quiet"]
    words = ["strace", "--follow-forks", "--summary-only", "--output", report, path_of(program)]
    done = command([*words, *options, *traits(program).steady], limit=60)
    if done.status == harness.FAILED and "ptrace" in done.err.lower():
        harness.lacking("this machine allows no ptrace")
    assert done.status in (harness.MEASURED, harness.UNTRUSTED), str(done)
    # "% time, seconds, usecs/call, calls, [errors], syscall"
    lines = re.findall(
        r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) (?: *\d+)? *(\w+)$", report.read_text(), re.MULTILINE
    )
    assert lines, report.read_text()
    return {name: int(count) for count, name in lines if name != "total"}


@pytest.mark.alone
def test_only_the_measured_calls_grow_with_iterations(program, tmp_path):
    """In each of three pairs of runs: klat also looks at the machine's other processes, which come and go."""
    iterations = traits(program).traced_iterations
    known = traits(program).calls
    beside: set[str] | None = None
    for _ in range(3):
        once = calls(program, iterations, tmp_path / "once")
        twice = calls(program, 2 * iterations, tmp_path / "twice")
        grown = {name for name in twice if twice[name] - once.get(name, 0) > FEW}
        grown -= WAITING | RESTING | (set() if traits(program).ordinary else SEARCHING)
        if known is None:
            pytest.skip(f"nothing is written down of the calls of {program}: {sorted(grown)}")
        beside = grown - known if beside is None else beside & (grown - known)
        if not beside:
            break
    assert not beside, f"{beside} grew, too"
    if not known:
        return
    # Not that these grew: a wait for the other side takes any number of them, in either run.
    most = max(twice.get(name, 0) for name in known)
    shared = traits(program).iterations_per_call
    assert (
        most * shared >= 2 * iterations
    ), "each iteration makes one of them, or this is another program"


def test_a_worker_reads_its_state_only_before_and_after_its_body(tmp_path):
    """timer has no tail: its one worker must not be taken for one with the fault "edges"."""

    def readings(*options: str) -> int:
        trace = ["strace", "--follow-forks", "--trace=openat", "--output", tmp_path / "report"]
        words = [path_of("timer"), "--policy", "other", "--iterations", "10", "--quiet", *options]
        done = command([*trace, *words], limit=60)
        if done.status == harness.FAILED and "ptrace" in done.err.lower():
            harness.lacking("this machine allows no ptrace")
        return (tmp_path / "report").read_text().count('"/proc/thread-self/schedstat"')

    assert readings() == 3
    assert readings("--plant", "edges") > 3


# A program with a build of its own has no such copy.
COPIED = [
    p for p in harness.PROGRAMS if not (harness.ROOT / harness.FOLDERS[p] / "build.mk").exists()
]


@pytest.mark.parametrize("program", harness.shown_on_two(COPIED))
def test_no_fault_is_asked_for_in_the_timed_part(program):
    """The copy of the program that the test runs is killed where it asks."""
    done = command([path_of(program, "planted"), *traits(program).short])
    assert "killed by signal" not in done.err, str(done)


def test_memory_beyond_the_samples_stays_within_8_mib(program):
    for options in ([], ["--iterations", "20000", *traits(program).steady]):
        evidence = json_of(works(program, *options, "--json"))["evidence"]
        assert evidence["sample_bytes"] > 0
        assert evidence["memory_bytes"] > evidence["sample_bytes"], "or it was not measured"
        excess = evidence["memory_bytes"] - evidence["sample_bytes"]
        assert excess <= EXCESS, f"{excess / 2**20:.1f} MiB with {options}"


def test_no_page_fault_in_the_timed_part(program, root):
    def attempt() -> str:
        evidence = json_of(works(program, "--json"))["evidence"]
        if not evidence["counts"]["locked"]:
            harness.lacking("memory cannot be locked here")
        faults = {
            f"{worker['role']}: {worker['minor_faults']}+{worker['major_faults']}"
            for worker in evidence["workers"]
            if worker["minor_faults"] + worker["major_faults"]
            and program not in ("tlbflush", "fault", "spawn")
        }
        return " ".join(faults)

    harness.until(attempt)
