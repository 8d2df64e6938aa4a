"""What holds for eventloop alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import errno
import os
import platform
import re
import subprocess
from pathlib import Path

import harness
import pytest
from harness import ROOT, SKIPPED, UNTRUSTED, Done, assert_one_line, combined, command
from harness import json_of, refusing, run, works

# A run of few iterations has to be ok: a preemption can be in its only sample of `teardown`.
pytestmark = pytest.mark.alone

OWN = ("epoll", "epoll-oneshot", "epoll-edge", "poll", "select")
LIBRARIES = ("libev", "libevent", "libuv", "io_uring-poll", "io_uring-read")
ALL = (*OWN, *LIBRARIES, "none")
DESCRIPTORS = ("socketpair", "pipe", "eventfd")
SMALL = ("--pairs", "50", "--active", "10", "--writes", "500", "--iterations", "4")


def evidence(*options: str) -> dict[str, int]:
    """A run whose evidence holds. Skips the test if this machine or build lacks the backend."""
    done = works("eventloop", *options, "--json")
    assert done.status == harness.MEASURED, str(done)
    return dict(json_of(done)["evidence"]["counts"])


EXTRAS = [("--timers",), (), ("--fresh",), ("--fresh", "--timers")]


@pytest.mark.parametrize("backend, descriptor, extras", combined(ALL, DESCRIPTORS, EXTRAS))
def test_every_byte_is_written_and_read_where_it_belongs(backend, descriptor, extras):
    """And a timer is set for each pair and in each callback, and none fires."""
    counts = evidence("--backend", backend, "--descriptor", descriptor, *extras, *SMALL)
    assert counts["written"] == counts["read"] == counts["observed"] * 500
    assert counts["wrong_bytes"] == counts["wrong_pairs"] == 0
    # Ten bytes in step: fifty rounds of the chain.
    assert counts["passes"] - counts["empty_passes"] >= counts["observed"] * 50
    assert counts["events_per_pass"] == counts["read"] // counts["passes"]
    if "--timers" in extras:
        assert counts["timers_fired"] == 0
        assert counts["timers_set"] == counts["observed"] * 50 + counts["read"] + counts["spurious"]


SIZES = [(1, 1, 1), (1, 1, 100), (2, 2, 2), (7, 7, 7000), (10, 9, 11), (252, 100, 1000)]


@pytest.mark.parametrize("backend, size, extras", combined(ALL, SIZES, [(), ("--timers",)]))
def test_any_chain_comes_to_its_end(backend, size, extras):
    """Bytes that meet in a pair, that go round many times, that stop where they began."""
    pairs, active, writes = size
    sizes = ("--pairs", str(pairs), "--active", str(active), "--writes", str(writes))
    counts = evidence("--backend", backend, *sizes, "--iterations", "3", *extras)
    assert counts["written"] == counts["read"] == counts["observed"] * writes


@pytest.mark.parametrize("backend", [*OWN, *LIBRARIES])
def test_urgent_pairs_go_first(backend):
    options = ("--backend", backend, "--priorities", "--timers", *SMALL)
    if backend == "libuv":
        assert_one_line(run("eventloop", *options), "eventloop", SKIPPED)
        return
    counts = evidence(*options)
    # libevent asks the kernel again between priorities, so its order cannot be checked.
    assert counts.get("disordered", 0 if backend == "libevent" else None) == 0


@pytest.mark.parametrize("backend", [*OWN, *LIBRARIES])
def test_no_pass_handles_more_events_than_its_limit(backend):
    options = ("--backend", backend, "--batch", "3", *SMALL)
    if backend in ("libev", "libuv"):
        assert_one_line(run("eventloop", *options), "eventloop", SKIPPED)
        return
    if backend == "libevent":
        # It asks the kernel several times in one pass of the benchmark.
        calls = evidence(*options, "--count-syscalls")["calls_loop"]
        assert calls >= 500 + 490 + 500 // 3
        return
    counts = evidence(*options)
    # On Linux 6.1, a pair can hold several bytes when its poll request completes: one event.
    assert backend == "io_uring-poll" or counts["passes"] >= counts["read"] / 3
    assert counts["passes"] > evidence("--backend", backend, *SMALL)["passes"]


@pytest.mark.parametrize(
    "backend, descriptor, fault", combined(ALL, DESCRIPTORS, ["lost", "stray"])
)
def test_a_byte_lost_or_gone_astray_is_found_out(backend, descriptor, fault):
    options = ("--backend", backend, "--descriptor", descriptor, "--plant", fault)
    done = run("eventloop", *options, *SMALL, "--json")
    if done.status == SKIPPED:
        harness.lacking(done.err.strip())
    assert done.status == UNTRUSTED, str(done)
    result = json_of(done)
    assert "another number of bytes than planned" in result["reason"]
    assert result["evidence"]["counts"]["wrong_pairs"] > 0
    if fault == "stray" and descriptor != "eventfd" and backend != "none":
        assert result["evidence"]["counts"]["wrong_bytes"] > 0
    assert done.seconds < 5, "a byte that does not come is waited for, but not long"


def test_system_calls_are_those_of_the_backend():
    """For 500 events that come ten at a time: a read and a write each but for the last ten, and what each way asks."""

    def loop_calls(backend: str) -> int:
        return evidence("--backend", backend, "--count-syscalls", *SMALL)["calls_loop"]

    bare = 500 + 490
    assert loop_calls("none") == bare
    assert loop_calls("epoll") == loop_calls("epoll-edge") == bare + 50
    assert loop_calls("epoll-oneshot") == bare + 50 + 500
    assert loop_calls("poll") == loop_calls("select") == bare + 50
    counts = evidence("--count-syscalls", *SMALL)
    assert counts["calls_registration"] == 50 + 1
    assert counts["calls_teardown"] == 50
    assert counts["calls_per_1000_events"] == 1000 * counts["calls_loop"] // 500


def test_io_uring_reads_with_fewer_system_calls():
    reads = evidence("--backend", "io_uring-read", "--count-syscalls", *SMALL)
    assert reads["calls_loop"] < 0.7 * evidence("--count-syscalls", *SMALL)["calls_loop"]


def test_the_loop_is_a_process_of_one_thread():
    """Else the kernel counts references to each file in every read and write, 3 to 7 % of the loop here."""
    with harness.Running("eventloop") as running:
        (measured,) = harness.children(running.process.pid)
        (loop,) = harness.children(measured)
        assert len(os.listdir(f"/proc/{loop}/task")) == 1


def test_counting_is_apart_from_timing():
    """Traced, each call takes microseconds more: none of them may be in a sample."""

    def least(*options: str) -> float:
        result = json_of(works("eventloop", *SMALL, "--iterations", "50", *options, "--json"))
        return min(m["min"] for m in result["metrics"] if m["name"] == "loop")

    assert least("--count-syscalls") < 2 * least()


def test_every_call_costs_something():
    """Metrics apart: registering four times as many pairs takes longer, and so does writing four times as much."""

    def medians(*options: str) -> dict[str, float]:
        result = json_of(works("eventloop", "--active", "10", *options, "--json"))
        return {metric["name"]: metric["p50"] for metric in result["metrics"]}

    small = medians("--pairs", "100", "--writes", "2000")
    pairs = medians("--pairs", "400", "--writes", "2000")
    writes = medians("--pairs", "100", "--writes", "8000")
    assert pairs["registration"] > 2 * small["registration"]
    assert pairs["teardown"] > 2 * small["teardown"]
    assert writes["loop"] > 2 * small["loop"]
    for each in (small, pairs, writes):
        assert each["total"] >= 0.8 * (each["registration"] + each["loop"])


def test_select_says_how_many_it_can_watch():
    done = run("eventloop", "--backend", "select", "--pairs", "1100")
    assert_one_line(done, "eventloop", SKIPPED)
    assert "1008 pairs at most, not 1100" in done.err
    evidence("--backend", "select", "--pairs", "1000", "--iterations", "1")


def test_inherited_descriptors_leave_the_low_numbers_to_select():
    inherited = [os.open("/dev/null", os.O_RDONLY) for _ in range(900)]
    try:
        works("eventloop", "--backend", "select", "--pairs", "500", *SMALL, pass_fds=inherited)
    finally:
        for descriptor in inherited:
            os.close(descriptor)


URING = ("io_uring-poll", "io_uring-read")
# More than a ring takes at once, so that requests go to the kernel while there are more to make.
MANY = ("--pairs", "3000", "--active", "10", "--writes", "500", "--iterations", "2")


def assert_refused(done: Done, why: str) -> None:
    if "built without" in done.err:
        harness.lacking(done.err.strip())
    assert_one_line(done, "eventloop", SKIPPED)
    assert f"refused: {why}" in done.err
    assert "kernel.io_uring_disabled" in done.err
    assert done.seconds < 5, "the program waits for a byte that does not come"


REFUSALS = [(425, errno.EPERM), (425, errno.ENOSYS), (426, errno.EPERM)]


@pytest.mark.parametrize("refusal, backend, size", combined(REFUSALS, URING, [SMALL, MANY]))
def test_a_kernel_that_refuses_io_uring_is_a_skip(refusal, backend, size):
    """io_uring_setup(), as a sysctl, a filter and an old kernel do, and io_uring_enter() alone."""
    call, error = refusal
    done = run("eventloop", "--backend", backend, *size, preexec_fn=refusing(call, error))
    assert_refused(done, os.strerror(error))


@pytest.fixture(scope="module")
def lesser_kernel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program that finds less of io_uring."""
    library = tmp_path_factory.mktemp("planted") / "uring.so"
    source = ROOT / "tests" / "planted" / "uring.c"
    built = command(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source])
    if "liburing.h" in built.err:
        harness.lacking("there is no liburing")
    assert built.status == 0, str(built)
    return os.environ | {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("backend, size", combined(URING, [SMALL, MANY]))
def test_an_operation_that_the_kernel_refuses_is_a_skip(backend, size, lesser_kernel):
    environment = lesser_kernel | {"KLAT_URING_RESTRICTED": "1"}
    words = ("--backend", backend, *size)
    assert_refused(run("eventloop", *words, env=environment), os.strerror(errno.EACCES))
    done = run("eventloop", *words, "--count-syscalls", env=environment)
    assert_one_line(done, "eventloop", SKIPPED)
    assert "the backend is refused: " + os.strerror(errno.EACCES) in done.err


DEFERRED, COOPERATIVE, SIZED = 1 << 12 | 1 << 13, 1 << 8, 1 << 3


@pytest.mark.parametrize("backend", URING)
@pytest.mark.parametrize(
    "unknown, found",
    [(0, DEFERRED), (DEFERRED, COOPERATIVE), (DEFERRED | COOPERATIVE, 0)],
    ids=["6.1", "5.19", "5.13"],
)
def test_an_older_kernel_does_by_an_older_way(backend, unknown, found, lesser_kernel, tmp_path):
    log = tmp_path / "flags"
    told = {"KLAT_URING_UNKNOWN": str(unknown), "KLAT_URING_LOG": str(log)}
    options = ("--backend", backend, "--timers", "--priorities", *SMALL, "--json")
    done = works("eventloop", *options, env=lesser_kernel | told)
    assert done.status == harness.MEASURED, str(done)
    counts = json_of(done)["evidence"]["counts"]
    assert counts["written"] == counts["read"] == counts["observed"] * 500
    (flags,) = map(int, log.read_text().split())
    if unknown == 0 and flags == COOPERATIVE | SIZED:
        harness.lacking("this kernel has no deferred task work")
    assert flags == found | SIZED


@pytest.mark.parametrize("backend", URING)
def test_a_kernel_that_knows_no_way_at_all_is_a_skip(backend, lesser_kernel):
    environment = lesser_kernel | {"KLAT_URING_UNKNOWN": str(DEFERRED | COOPERATIVE | SIZED)}
    done = run("eventloop", "--backend", backend, *SMALL, env=environment)
    assert_refused(done, os.strerror(errno.EINVAL))


def test_system_calls_that_cannot_be_traced_are_a_skip():
    ptrace = 101 if platform.machine() == "x86_64" else 117
    done = run("eventloop", "--count-syscalls", *SMALL, preexec_fn=refusing(ptrace))
    assert_one_line(done, "eventloop", SKIPPED)
    assert "ptrace() or the backend is refused" in done.err


def test_published_figures_stand_beside_the_published_workload():
    def shown(*options: str) -> str:
        return works("eventloop", "--iterations", "1", "--warmup", "0", "--published", *options).out

    assert re.search(r"^loop 7465000 ns, here \d+ ns on average\n  libev, ", shown(), re.MULTILINE)
    assert "total 9513000 ns" in shown("--timers") and "loop 9562000 ns" in shown("--timers")
    assert "loop 6077000 ns" in shown("--active", "800")
    assert "loop 8683000 ns" in shown("--timers", "--priorities", "--batch", "16")
    assert "none for this metric" in shown("--pairs", "100")


@pytest.mark.slow
def test_a_library_that_is_missing_is_left_out_and_said(tmp_path):
    """A compiler that finds none of libev's files."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        '#!/bin/sh\ncase "$* " in\n*print-file-name=libev.*) echo libev.so ;;\n'
        '*"-lev "* | *backend-libev.c*) exit 1 ;;\n*) exec cc "$@" ;;\nesac\n'
    )
    compiler.chmod(0o755)
    program = tmp_path / "out/bench/eventloop/eventloop"
    words = ["make", "-j2", f"OUT={tmp_path}/out", f"CC={compiler}", program]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    done = command(words, cwd=ROOT, env=environment, limit=180)
    assert done.status == 0 and done.err == "", str(done)
    assert re.search(r"^  WITHOUT \S+/eventloop: .*\blibev\b", done.out, re.MULTILINE)
    left_out = command([program, "--backend", "libev"])
    assert_one_line(left_out, "eventloop", SKIPPED)
    assert "built without libev" in left_out.err
    again = command(words, cwd=ROOT, env=environment, limit=180)
    assert "WITHOUT" not in again.out, "once is enough"


def test_headers_of_dasynq_that_are_not_there_are_an_error(tmp_path):
    words = ["make", "-n", "-C", str(ROOT), f"DASYNQ={tmp_path}", f"OUT={tmp_path}/out"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"DASYNQ={tmp_path} has no dasynq.h" in done.stderr


@pytest.fixture(scope="module")
def dasynq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    eventloop with Dasynq, which no distribution has: the one that DASYNQ names, as for make, or a stand-in with
    the same interface.
    """
    out = tmp_path_factory.mktemp("dasynq")
    program = out / "bench/eventloop/eventloop"
    headers = os.environ.get("DASYNQ") or ROOT / "tests" / "planted"
    words = ["make", "-j2", f"OUT={out}", f"DASYNQ={headers}", "CXX=c++", program]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    built = command(words, cwd=ROOT, env=environment, limit=300)
    assert built.status == 0 and built.err == "", str(built)
    assert "(make DASYNQ" not in built.out, "it is not left out"
    return program


def dasynq_counts(program: Path, *options: str) -> dict[str, int]:
    session = program.parents[1] / "session"
    words = [program, "--backend", "dasynq", *SMALL, *options, "--record", session, "--json"]
    done = command(words)
    assert done.status == harness.MEASURED, str(done)
    return dict(json_of(done)["evidence"]["counts"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, descriptor",
    combined([(), ("--timers",), ("--timers", "--fresh"), ("--batch", "3")], DESCRIPTORS),
)
def test_dasynq_brings_every_byte(dasynq, options, descriptor):
    counts = dasynq_counts(dasynq, "--descriptor", descriptor, *options)
    assert counts["written"] == counts["read"] == counts["observed"] * 500
    assert counts["wrong_bytes"] == counts["wrong_pairs"] == 0
    if "--timers" in options:
        assert counts["timers_set"] == counts["observed"] * 50 + counts["read"] + counts["spurious"]
        assert counts["timers_fired"] == 0
    if "--batch" in options:
        assert counts["passes"] >= counts["read"] / 3


@pytest.mark.slow
def test_dasynq_keeps_the_order_and_arms_each_watcher_again(dasynq):
    assert dasynq_counts(dasynq, "--priorities")["disordered"] == 0
    calls = dasynq_counts(dasynq, "--count-syscalls")["calls_loop"]
    # A read, a write and an epoll_ctl for each event, and a call that asks for ten of them.
    assert calls >= 500 + 490 + 500 + 50


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", "stray"])
def test_dasynq_is_found_out_where_a_byte_is_lost_or_gone_astray(dasynq, fault):
    done = command([dasynq, "--backend", "dasynq", *SMALL, "--plant", fault, "--json"])
    assert done.status == UNTRUSTED, str(done)
    assert "another number of bytes than planned" in json_of(done)["reason"]
