"""The programs under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer."""

import functools
import os
import platform
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, SKIPPED, UNTRUSTED, USAGE, Done, command, on_two, path_of
from harness import traits

pytestmark = pytest.mark.slow

QUICK = ("--iterations", "200", "--warmup", "20")


def sanitized(variant: str, program: str, *arguments: str | Path) -> Done:
    # Newer kernels place mappings where ThreadSanitizer of older compilers has its shadow.
    words = ["setarch", platform.machine(), "--addr-no-randomize"]
    # The three mutexes of cv rotate: their order is a cycle, and not a deadlock.
    deadlocks = int(program != "cv")
    environment = os.environ | {
        "ASAN_OPTIONS": "strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": f"halt_on_error=1:detect_deadlocks={deadlocks}",
    }
    # ThreadSanitizer waits for its own locks by sched_yield(). A real-time thread that does so
    # never lets a thread of lower priority release the lock. And the slow real-time spinners of a
    # sanitizer would leave other tests no CPU.
    needless = "--policy" in arguments or (variant == "asan" and not traits(program).ordinary)
    policy = [] if needless else ["--policy", "other"]
    done = command(
        [*words, path_of(program, variant), *policy, *arguments], env=environment, limit=60
    )
    assert done.status in (MEASURED, FAILED, USAGE, UNTRUSTED, SKIPPED), str(done)
    assert "Sanitizer" not in done.err and "runtime error" not in done.err, str(done)
    return done


@on_two
def test_runs_are_clean_under_address_sanitizer(program, tmp_path):
    for arguments in (
        [],
        ["--json"],
        ["--csv"],
        ["--record", tmp_path],
        ["--record", tmp_path, "--run", "2"],
    ):
        done = sanitized("asan", program, *QUICK, *traits(program).short, *arguments)
        assert done.status in (MEASURED, UNTRUSTED, SKIPPED), str(done)


def choices(program: str) -> list[list[str]]:
    """The defaults, every flag, and every word of every option that has words. The library's are tried on two programs."""
    words = words_of(program)
    if program in harness.SHOWN:
        return [[], *words]
    of_all = (words_of(name) for name in harness.PROGRAMS)
    common = functools.reduce(lambda one, two: [each for each in one if each in two], of_all)
    return [[], *(each for each in words if each not in common)]


@functools.cache
def words_of(program: str) -> list[list[str]]:
    found = []
    for name, rest in harness.help_options(program).items():
        argument = rest.split(" ")[0]
        if "|" in argument:
            found += [[f"--{name}", word] for word in argument.split("|")]
        # With --remote, network waits for a client on another machine.
        elif argument.islower() and name not in ("help", "version", "remote"):
            found.append([f"--{name}"])
    return found


def test_every_choice_is_clean_under_address_sanitizer(program):
    for words in choices(program):
        done = sanitized("asan", program, *QUICK, *traits(program).short, *words)
        assert done.status != FAILED, str(done)


@on_two
def test_refusals_are_clean_under_address_sanitizer(program, tmp_path):
    (tmp_path / "session.json").write_text("{")
    for words in (
        ["--help"],
        ["--version"],
        ["--print-benchmark"],
        ["--nonsense"],
        ["--iterations", "x"],
        ["--cpus", "0-8191,0-8191"],
        ["--cpus", "8191"],
        ["--cpus", "," * 1000],
        ["--policy", ":" * 1000],
        ["--plant", "x" * 10000],
        ["--record", ""],
        ["--record", "x" * 10000],
        ["--record", str(tmp_path)],
        ["--label", "x" * 100000, "--record", str(tmp_path / "new")],
    ):
        sanitized("asan", program, *QUICK, *words)


def test_runs_are_clean_under_thread_sanitizer(program):
    done = sanitized("tsan", program, *QUICK, *traits(program).short, *traits(program).tsan)
    assert done.status in (MEASURED, UNTRUSTED, SKIPPED), str(done)
    done = sanitized("tsan", program, *QUICK, *traits(program).steady, *traits(program).tsan)
    assert done.status in (MEASURED, UNTRUSTED, SKIPPED), str(done)


def test_every_choice_is_clean_under_thread_sanitizer(program):
    # Signals reach a spinning thread some 40 ms late here.
    for words in choices(program):
        done = sanitized("tsan", program, "--iterations", "20", "--warmup", "2", *words)
        assert done.status != FAILED, str(done)
