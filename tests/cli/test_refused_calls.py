"""The filter of a container or service refuses a system call. A run does without it, or says why it ends; it never takes
the refusal for data."""

import ctypes
import errno
import functools
import os
import re
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, SKIPPED, UNTRUSTED, USAGE, Session, command, path_of, refusing
from harness import try_again_unless, with_tries

# The C library and the loader cannot do without these, or they cannot fail.
STARTING = frozenset(
    "execve execveat arch_prctl mmap mprotect openat read write close newfstatat pread64 futex rt_sigreturn"
    " set_tid_address exit_group getpid getppid".split()
)
MISLEADING = ("no reason", "UTF-8", "no progress", "real-time task on", "killed by", "offline")
# Counts that may be negative: see docs/runs.md.
SIGNED = re.compile(r"_ticks$|_per_|^other_busy_us$|^clock_ppm$")
PR_SET_THP_DISABLE = 41
FAST = "clock_adjtime uname getrusage gettid rt_sigtimedwait sched_get_priority_max".split()


@functools.cache
def numbers() -> dict[str, int]:
    done = command(["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"])
    return {name: int(n) for name, n in re.findall(r"#define __NR_(\w+) (\d+)$", done.out, re.M)}


def calls(program: str, report: Path) -> list[str]:
    """The system calls of a run that records."""
    trace = ["strace", "--follow-forks", "--summary-only", "--output", report, path_of(program)]
    done = command([*trace, *words(program, report.with_suffix(".session"))], limit=60)
    if done.status == FAILED and "ptrace" in done.err.lower():
        harness.lacking("this machine allows no ptrace")
    lines = re.findall(r"^ *[\d.]+ +[\d.]+ .* (\w+)$", report.read_text(), re.MULTILINE)
    return sorted(set(lines) & numbers().keys() - STARTING)


def words(program: str, session: Path) -> list[str | Path]:
    short = [*harness.traits(program).short, *harness.traits(program).bounded]
    return [*short, "--iterations", "50", "--quiet", "--record", session]


def fault(program: str, call: str, error: int, session: Path) -> str:
    """What is wrong with the end of a run that is refused `call`. Empty: nothing."""
    refused = refusing(numbers()[call], error)
    done = command([path_of(program), *words(program, session)], preexec_fn=refused)
    last = done.err.splitlines()[-1:] or [""]
    if done.seconds > 20 or any(word in done.err for word in MISLEADING):
        return str(done)
    if done.status in (FAILED, USAGE):
        return "" if last[0].startswith(program) and os.strerror(error) in last[0] else str(done)
    if done.status not in (MEASURED, UNTRUSTED, SKIPPED):
        return str(done)
    tsc = Session(session).info["tsc"]
    evidence = [row["evidence"] for row in Session(session).rows]
    negative = [
        count
        for count in evidence[0].split(";")
        if "=-" in count and not SIGNED.search(count.partition("=")[0])
    ]
    sane = tsc["uncertainty_ppm"] < 1000 and not negative
    return "" if sane else f"{call} {error}: {tsc} {negative}"


# The worker of eventloop is a process, which has an errno of earlier calls.
@pytest.mark.parametrize("call", FAST)
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_a_refused_call_is_said_or_done_without(call, error, tmp_path):
    assert not fault("eventloop", call, error, tmp_path / "session")


def test_an_inherited_timer_slack_that_cannot_be_set_is_an_error():
    refuse, set_slack = refusing(numbers()["prctl"]), 29

    def prepare() -> None:
        ctypes.CDLL(None).prctl(set_slack, 1)
        refuse()

    done = harness.run("timer", "--policy", "other", preexec_fn=prepare)
    harness.assert_one_line(done, "timer", FAILED)
    assert "timer slack" in done.err and os.strerror(errno.EPERM) in done.err


@pytest.mark.parametrize("line", ["fault --kind huge", "spawn --huge yes"])
def test_huge_pages_that_the_parent_turned_off_are_a_skip(line):
    def turn_off() -> None:
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)

    program, *options = line.split()
    done = harness.run(program, *options, preexec_fn=turn_off)
    harness.assert_one_line(done, program, SKIPPED)
    assert "huge pages" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("program", ["cv", "tlbflush", "timer", "network", "eventloop", "wakeup"])
def test_no_refused_call_becomes_data(program, tmp_path):
    """The calls that all of them make are the library's: one program shows them."""
    made = calls(program, tmp_path / "report")
    if program != "cv":
        made = sorted(set(made) - set(calls("cv", tmp_path / "of-cv")))
    faults = [
        f"{call}: {wrong}"
        for call in made
        for error in (errno.EPERM, errno.ENOSYS)
        if (wrong := fault(program, call, error, tmp_path / f"{call}{error}"))
    ]
    assert not faults, "\n".join(faults)


ODD = (b"", b"0\n", b"(null)\n", b"\xff\x00 x\n", b"9" * 30 + b" 9\n")
COVERED = (
    *("cpuinfo", "cmdline", "interrupts", "meminfo", "self/status", "stat"),
    *("sys/kernel/sched_rt_period_us", "sys/kernel/sched_rt_runtime_us"),
)
BIND = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


@pytest.mark.slow
@pytest.mark.parametrize("program", ["pipes", "tlbflush"])
@pytest.mark.parametrize("name", COVERED)
def test_no_odd_content_of_a_file_becomes_data(program, name, tmp_path, root):
    for number, content in enumerate(ODD):
        (tmp_path / "odd").write_bytes(content)
        session = tmp_path / str(number)
        bind = ["unshare", "-m", "sh", "-c", BIND, "sh", tmp_path / "odd", f"/proc/{name}"]
        done = command([*bind, path_of(program), *words(program, session)])
        assert done.status in (MEASURED, UNTRUSTED) and not any(w in done.err for w in MISLEADING)
        row = Session(session).rows[0]
        assert not re.findall(r"(?<!other_busy_us)=-", row["evidence"]), row["evidence"]
        if name == "stat":
            assert row["steal_ms"] == "" and "other_busy_unknown=1" in row["evidence"]
        if name == "interrupts":
            assert row["irq_tlb"] == row["irq_res"] == ""


FREEZE = 'cat /proc/interrupts >"$1" && mount --bind "$1" /proc/interrupts && shift && exec "$@"'


@pytest.mark.parametrize(
    ("program", "options", "status"),
    [
        ("pipes", "", MEASURED),
        ("tlbflush", "", UNTRUSTED),
        ("tlbflush", "--initiators 2", MEASURED),
    ],
)
@with_tries
def test_interrupts_that_stand_still_are_no_counts(
    program, options, status, tmp_path, root, two_cpus
):
    frozen = ["unshare", "-m", "sh", "-c", FREEZE, "sh", tmp_path / "frozen", path_of(program)]
    session = harness.next_session(tmp_path)
    done = command([*frozen, *options.split(), *words(program, session.path)])
    row = session.rows[0]
    assert {row[f"irq_{name}"] for name in ("res", "cal", "tlb", "loc")} == {""}
    assert "wake_interrupts" not in row["evidence"]
    if status == UNTRUSTED:
        assert "hypervisor" not in row["reason"]
        assert "/proc/interrupts does not count" in row["reason"]
    try_again_unless(done.status == status, done)
