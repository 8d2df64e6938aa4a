"""What holds for syscall alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import USAGE, Session, assert_one_line, combined, injected_gap, json_of, run
from harness import try_again_unless, with_tries, works

CALLS = dict.fromkeys(
    """\
    getppid gettid sched_yield close-bad write-null read-zero futex-wake-none clock_gettime-syscall
    stat open-close read-file write-file send-recv mmap-munmap select poll epoll_wait getcpu getrandom
    mseal clock_gettime-vdso getcpu-vdso getrandom-vdso""".split(),
    1,
)
CALLS |= {"open-close": 2, "send-recv": 2, "mmap-munmap": 2}
WITH_BYTES = ("write-null", "read-zero", "read-file", "write-file", "send-recv", "mmap-munmap")
WITH_BYTES += ("getrandom", "getrandom-vdso")
COUNTED = ("write-null", "read-zero", "read-file", "write-file")


def result_of(*options: str) -> dict[str, Any]:
    return json_of(works("syscall", *options, "--json"))


def counts_of(*options: str) -> dict[str, int]:
    return dict(result_of(*options)["evidence"]["counts"])


def median(metric: str, *options: str) -> float:
    for each in result_of(*options)["metrics"]:
        if each["name"] == metric:
            return float(each["p50"])
    pytest.fail(f"no metric {metric} with {options}")


def test_every_call_is_tried_here():
    offered = harness.help_options("syscall")["call"].split(" ")[0].split("|")
    assert offered == list(CALLS)


@pytest.mark.parametrize(
    "call, batch, caller", combined(list(CALLS), [1, 100], ["thread", "process"])
)
def test_each_call_returns_what_it_should_and_reaches_the_kernel(call, batch, caller):
    options = ("--call", call, "--batch", str(batch), "--caller", caller)
    counts = counts_of(*options)
    assert counts["wrong"] == 0
    assert counts["intercepted"] == (0 if call.endswith("-vdso") else 100 * CALLS[call])
    in_an_iteration = CALLS[call] * (1 if batch == 1 else 3 * batch)
    assert counts["calls"] == 550 * in_an_iteration
    if call in COUNTED and Path("/proc/self/io").exists():
        assert counts["counted"] == counts["observed"] * in_an_iteration


# A tracing instance disturbs all runs, and cannot be removed while one reads its files.
@pytest.mark.alone
def test_reads_of_the_library_are_no_reads_of_the_program(tracing):
    # While an event is traced, the library reads files of each CPU where the observed part begins.
    instance = tracing / "test-of-klat-syscall"
    instance.mkdir()
    try:
        (instance / "events/sched/sched_process_exec/enable").write_text("1\n")
        result = result_of("--call", "read-zero", "--batch", "10")
    finally:
        instance.rmdir()
    counts = result["evidence"]["counts"]
    assert counts["counted"] == counts["observed"] * 30, result["reason"]


@pytest.mark.parametrize("plant", ["cached", "refused"])
@pytest.mark.parametrize(
    "options",
    [
        ("--batch", "10"),
        ("--call", "write-null"),
        ("--call", "open-close"),
        ("--call", "send-recv", "--batch", "2"),
        ("--call", "epoll_wait"),
    ],
)
def test_a_call_that_is_none_is_caught(plant, options):
    done = run("syscall", "--plant", plant, *options, "--json")
    assert done.status == harness.UNTRUSTED, str(done)
    result = json_of(done)
    counts = result["evidence"]["counts"]
    assert counts["intercepted"] < 100 * CALLS.get(options[1], 1)
    assert (counts["wrong"] > 0) == (plant == "refused")
    if "write-null" in options and "counted" in counts:
        assert counts["counted"] == 0 and "kernel counted 0 calls" in result["reason"]


@pytest.mark.parametrize("call", ["clock_gettime", "getcpu", "getrandom"])
def test_a_function_of_the_vdso_that_does_nothing_or_enters_the_kernel_is_caught(call):
    for plant, reason in (("cached", "no effect"), ("refused", "instead of 0")):
        result = json_of(run("syscall", "--call", f"{call}-vdso", "--plant", plant, "--json"))
        assert result["status"] == "invalid" and reason in result["reason"], (plant, result)


@pytest.mark.alone
@pytest.mark.parametrize("call", ["select", "poll", "epoll_wait"])
def test_more_descriptors_take_longer(call):
    few, many = (
        median("call", "--call", call, "--batch", "1", "--descriptors", number)
        for number in ("1", "500")
    )
    assert many > 3 * few


def test_descriptors_are_for_calls_that_look_at_some():
    done = run("syscall", "--call", "stat", "--descriptors", "11")
    assert_one_line(done, "syscall", USAGE)


def test_more_descriptors_than_the_limit_skip_the_run():
    words = ["prlimit", "--nofile=200:200", harness.path_of("syscall"), "--call", "poll"]
    assert_one_line(harness.command([*words, "--descriptors", "500"]), "syscall", harness.SKIPPED)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_file_in_place_of_a_device_is_refused(device, tmp_path, root):
    """As `rm /dev/null` leaves one."""
    (tmp_path / "file").touch()
    cover = f'mount --bind {tmp_path}/file {device} && exec "$0"'
    done = harness.command(["unshare", "-m", "sh", "-c", cover, harness.path_of("syscall")])
    assert done.status == harness.FAILED
    assert f"{device} is not the kernel's device" in done.err


@pytest.mark.alone
@with_tries
def test_a_batch_leaves_the_floor_out():
    single = result_of("--batch", "1")
    (call,) = single["metrics"]
    batched = counts_of("--batch", "1000")["difference_ticks"] / 1000
    kept = call["p50"] - single["floor"] / 2
    try_again_unless(batched < kept, f"{batched} is not below {kept}")


def test_the_difference_is_signed_and_made_of_all_samples(tmp_path):
    works("syscall", "--batch", "300", "--quiet", "--record", tmp_path)
    session = Session(tmp_path)
    assert [row["metric"] for row in session.rows] == ["calls_n", "calls_2n"]
    once, twice = (session.samples(row) for row in session.rows)
    evidence = dict(pair.split("=") for pair in session.rows[0]["evidence"].split(";"))
    difference = sum(twice) / len(twice) - sum(once) / len(once)
    assert int(evidence["difference_ticks"]) == pytest.approx(difference, abs=1)
    assert int(evidence["call_ticks"]) == pytest.approx(difference / 300, abs=1)


@with_tries
def test_a_difference_below_zero_stays_below_zero():
    """With calls that take no time, noise decides, and either sign comes up."""
    options = ("--plant", "cached", "--batch", "2", "--iterations", "1")
    found = [
        json_of(run("syscall", *options, "--run", str(number), "--json")) for number in range(30)
    ]
    signs = {one["evidence"]["counts"]["difference_ticks"] < 0 for one in found}
    try_again_unless(signs == {True, False}, f"signs below zero: {signs}")


def test_the_order_of_n_and_2n_is_drawn_from_the_seed():
    def drawn(seed: str, number: str) -> int:
        return counts_of("--batch", "2", "--seed", seed, "--run", number)["n_first"]

    assert 200 < drawn("1", "1") < 300
    assert drawn("1", "1") == drawn("1", "1")
    assert len({drawn(seed, number) for seed in "12" for number in "123"}) > 3


@pytest.mark.alone
@with_tries
def test_a_batch_is_of_as_many_calls_as_it_says():
    ratio = median("calls_2n", "--batch", "2000") / median("calls_n", "--batch", "1000")
    try_again_unless(3.5 < ratio < 4.5, f"four times the calls took {ratio} times as long")


@pytest.mark.alone
@with_tries
def test_a_spin_in_the_batch_is_recovered(tmp_path):
    session = harness.next_session(tmp_path)
    options = ("--batch", "10", "--inject", "10000", "--iterations", "3000")
    works("syscall", *options, "--quiet", "--record", session.path)
    row = session.rows[1]
    found = injected_gap(session.samples(row))
    wanted = 10000 * session.info["tsc"]["khz"] / 1e6
    tolerance = max(0.02 * wanted, int(row["floor"]))
    try_again_unless(abs(found - wanted) <= tolerance, f"{wanted} ticks became {found}")


@pytest.mark.alone
def test_more_bytes_take_longer():
    """Which a buffer that nobody fills would not."""
    read = ("--call", "read-zero", "--batch", "1")
    few, many = (median("call", *read, "--bytes", number) for number in ("1", "65536"))
    assert many > 2 * few


def test_bytes_are_for_calls_that_move_some():
    for call in CALLS:
        assert "bytes=30;" in result_of("--call", call)["parameters"], "one line of a sweep"
        if call not in WITH_BYTES:
            done = run("syscall", "--call", call, "--bytes", "31")
            assert_one_line(done, "syscall", USAGE)


def test_published_figures_stand_beside_what_was_published():
    done = works("syscall", "--call", "write-null", "--batch", "100", "--published")
    here = r"^call 520 ns, here (\d+ ns|less than 1 tick \(\d+ ns\)) on average$"
    assert re.search(here, done.out, re.MULTILINE), str(done)
    assert "none for this metric" in works("syscall", "--published").out
    assert (
        "none for this metric"
        in works("syscall", "--call", "write-null", "--bytes", "31", "--published").out
    )


def test_without_go_selfbench_says_so(tmp_path):
    """The toolchain is no dependency."""
    words = ["/usr/bin/python3", "-B", harness.ROOT / "tests/selfbench/selfbench.py", "in Go"]
    done = harness.command(words, env={"PATH": str(tmp_path)})
    lines = done.out.splitlines()
    assert lines[0].startswith("n/a   a write of 30 bytes to /dev/null / the same in Go"), str(done)
    assert lines[1].startswith("      there is no go"), str(done)
    (tmp_path / "go").write_text("#!/bin/sh\necho no such file >&2; exit 1\n")
    (tmp_path / "go").chmod(0o755)
    done = harness.command(words, env={"PATH": str(tmp_path)})
    assert done.status == 1 and done.out.startswith("fail"), str(done)


def test_a_program_of_others_that_fails_is_no_failure_of_selfbench(tmp_path, monkeypatch):
    """make selfbench runs in this tree, where its name alone could be a file."""
    monkeypatch.syspath_prepend(harness.ROOT / "tests/selfbench")
    monkeypatch.chdir(harness.ROOT)
    monkeypatch.setenv("PATH", str(tmp_path))
    from rows import Failed, Unavailable, output_of

    (tmp_path / "perf").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "perf").chmod(0o755)
    with pytest.raises(Unavailable, match="perf ended with 1"):
        output_of("perf")
    with pytest.raises(Failed):
        output_of(harness.ROOT / "pipes/pipes", "--no-such-option")


@pytest.mark.slow
def test_the_loops_in_go_check_their_work(tmp_path):
    go = shutil.which("go")
    if not go:
        pytest.skip("there is no go")
    environment = os.environ | {
        "GOCACHE": str(tmp_path / "cache"),
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
    }
    words = [go, "build", "-o", tmp_path / "loops", harness.ROOT / "bench/syscall/go/published.go"]
    built = harness.command(words, env=environment, limit=300)
    assert built.status == 0, str(built)
    for good in (["write", "1000"], ["channels", "10", "0"], ["channels", "10", "1000"]):
        done = harness.command([tmp_path / "loops", *good])
        assert done.status == 0 and float(done.out) > 0, str(done)
    for bad in (
        [],
        ["write"],
        ["write", "x"],
        ["channels", "-1", "0"],
        ["write", "0"],
        ["read", "1"],
    ):
        done = harness.command([tmp_path / "loops", *bad])
        assert done.status and not done.out and len(done.err.splitlines()) == 1, str(done)
