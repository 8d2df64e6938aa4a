"""Bad machines: without privilege, with one CPU, without a device."""

import errno
import itertools
import os
import re
import resource

import harness
import pytest
from harness import FAILED, MEASURED, SKIPPED, UNTRUSTED, USAGE, Done, assert_one_line, command
from harness import on_two, path_of, run, shown_on_two, traits


def a_cpu() -> str:
    return str(max(os.sched_getaffinity(0)))


def test_an_ordinary_user_is_told_what_was_refused_and_gets_what_there_is(
    program, published, as_nobody
):
    done = command([*as_nobody, published / program, "--json"], cwd="/")
    assert done.status in (*traits(program).unprivileged, UNTRUSTED), str(done)
    lines = done.err.splitlines()
    if done.status == SKIPPED:
        assert len(lines) == 1 and lines[0].startswith(f"{program}: skipped: "), str(done)
        assert harness.json_of(done)["status"] == "skipped"
        return
    fell_back = any("refused" in line and "SCHED_OTHER" in line for line in lines)
    assert fell_back != traits(program).ordinary_by_default, str(done)
    assert any("memory cannot be locked" in line for line in lines), str(done)
    result = harness.json_of(done)
    assert {worker["policy"] for worker in result["evidence"]["workers"]} == {"other"}
    assert result["evidence"]["counts"]["locked"] == 0
    if done.status == UNTRUSTED:
        # Without its priority a run may be disturbed into invalidity, but not for want of evidence.
        assert not re.search("ran under|not held to", result["reason"]), str(done)


@on_two
def test_a_policy_that_was_asked_for_and_refused_is_an_error(program, published, as_nobody):
    done = command([*as_nobody, published / program, "--policy", "fifo"], cwd="/")
    assert_one_line(done, program, FAILED)
    assert "--policy other" in done.err


def test_a_policy_that_was_asked_for_is_obtained(program, root, real_time):
    high = "rr:97"
    done = harness.works(program, "--policy", high, "--json")
    workers = harness.json_of(done)["evidence"]["workers"]
    assert {worker["policy"] for worker in workers} == {"rr"}
    assert max(worker["priority"] for worker in workers) == 97
    if not traits(program).ordinary:
        assert run(program, "--policy", "other").status == SKIPPED
        return
    done = harness.works(program, "--policy", "other", "--json")
    workers = harness.json_of(done)["evidence"]["workers"]
    assert {(worker["policy"], worker["priority"]) for worker in workers} == {("other", 0)}


def test_one_cpu_is_enough_or_said_not_to_be(program):
    done = command(["taskset", "--cpu-list", a_cpu(), path_of(program), "--json"])
    allowed = traits(program).on_one_cpu
    if done.status == SKIPPED:
        assert SKIPPED in allowed and "CPUs" in harness.json_of(done)["reason"]
    else:
        assert MEASURED in allowed and done.status in (MEASURED, UNTRUSTED), str(done)
        assert set(harness.json_of(done)["cpus"]) == {int(a_cpu())}


def test_a_skip_is_recorded_with_its_reason(tmp_path):
    words = ["taskset", "--cpu-list", a_cpu(), path_of("pipes"), "--record", tmp_path, "--run", "3"]
    for _ in range(2):
        assert_one_line(command(words), "pipes", SKIPPED)
    rows = harness.Session(tmp_path).rows
    assert len(rows) == 2
    for row in rows:
        assert (row["status"], row["metric"], row["n"], row["run"]) == ("skipped", "", "0", "3")
        assert "CPUs" in row["reason"]
    assert int(rows[0]["start_ns"]) > 1_500_000_000 * 10**9
    assert rows[0]["start_ns"] != rows[1]["start_ns"], "two runs, not two rows of one"


@pytest.mark.parametrize("program", ["pipes", "timer"])
def test_all_roles_share_a_cpu_where_that_is_asked_for(program, two_cpus):
    done = run(program, "--cpus", "one", "--json")
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    assert len(set(harness.json_of(done)["cpus"])) == 1


@on_two
def test_a_cpu_outside_the_affinity_mask_can_be_named(program, two_cpus):
    """As isolated CPUs are: missing from the mask that is inherited."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    count = len(harness.json_of(harness.works(program, "--json"))["cpus"])
    cpus = ",".join(map(str, [second, first, *sorted(os.sched_getaffinity(0))[2:]][:count]))
    words = ["taskset", "--cpu-list", str(first), path_of(program), "--cpus", cpus, "--json"]
    done = command(words)
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    assert harness.json_of(done)["cpus"] == [int(cpu) for cpu in cpus.split(",")]


def test_no_tun_device_is_a_skip(root):
    hide = 'mount -t tmpfs none /dev/net && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", hide, "sh", path_of("network")]
    done = command(words)
    assert_one_line(done, "network", SKIPPED)
    assert "/dev/net/tun" in done.err


def test_more_responders_than_cpus_is_said():
    assert_one_line(run("tlbflush", "--responders", "4000"), "tlbflush", SKIPPED)


# These start threads or processes besides their workers, by default or with options.
USERS = itertools.count()
MORE_PROCESSES = {
    "network": [],
    "spawn": [],
    "syscall": [],
    "eventloop": ["--pairs", "10", "--writes", "20", "--count-syscalls"],
    "semaphore": ["--hog", "idle"],
    "transport": ["--transport", "tcp", "--peer", "netns"],
    "wakeup": ["--hogs", "8"],
}


def fill_descriptors() -> None:
    """As a parent that leaves open what it opened."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    for number in range(3, 95):
        os.dup2(0, number)


LOOP = "eventloop --pairs 300 --active 1 --writes 10 --iterations 1"
STAR = "messages --mode star --threads 100"
LIMIT = "open files, and the hard limit is"


@pytest.mark.parametrize(
    "line, limits, said",
    [
        *(("timer --iterations 20", str(limit), f"{LIMIT} {limit}") for limit in (7, 12, 40)),
        (LOOP, "100:600", f"needs 664 {LIMIT} 600"),
        (LOOP, "100:700", ""),
        (f"{LOOP} --descriptor eventfd", "100:600", ""),
        (STAR, "100", f"{LIMIT} 100"),
        (f"{STAR} --cpus 1,1 --iterations 100 --warmup 10", "50:4096", ""),
    ],
)
def test_the_descriptor_limit_is_raised_or_reported(line, limits, said):
    program, *options = line.split()
    words = ["prlimit", f"--nofile={limits}", path_of(program), *options]
    if said:
        done = command(words)
        assert_one_line(done, program, SKIPPED)
        assert said in done.err
        return
    done = command([*words, "--json"])
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    counts = harness.json_of(done)["evidence"]["counts"]
    assert program != "messages" or counts["messages"] == 200 * counts["observed"]


def test_descriptors_that_a_parent_left_open_are_counted():
    words = [path_of("timer"), "--iterations", "20"]
    done = command(words, preexec_fn=fill_descriptors, close_fds=False)
    assert_one_line(done, "timer", SKIPPED)
    assert LIMIT in done.err


@pytest.mark.parametrize("begun", [False, True])
def test_a_file_that_may_not_grow_is_an_error(begun, tmp_path):
    """The limit is exceeded by session.json or, if a session has begun, by the rows of a second run."""
    words = [harness.path_of("timer"), "--iterations", "20", "--record", tmp_path]
    limit = 1000
    if begun:
        assert command(words).status in (MEASURED, UNTRUSTED)
        limit = (tmp_path / "runs.csv").stat().st_size + 100
    done = command(["prlimit", f"--fsize={limit}", *words])
    assert done.status == USAGE and os.strerror(errno.EFBIG) in done.err, str(done)
    assert f"timer: cannot record into {tmp_path}" in done.err or not begun


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("program", shown_on_two([*harness.SHOWN, *MORE_PROCESSES]))
def test_a_limit_of_processes_is_a_skip_wherever_it_is_met(program, limit, published, as_nobody):
    # The limit is of a user's processes. Other tests have processes of nobody, and those of an earlier run can be
    # reaped late.
    user = str(100_000 + 100 * os.getpid() + next(USERS))
    as_user = [user if word == str(harness.NOBODY) else word for word in as_nobody]
    few = ["prlimit", f"--nproc={limit}", *as_user, published / program, "--iterations", "5"]
    more = MORE_PROCESSES.get(program)
    for options in ([], more) if more else ([],):
        done = command([*few, *options], cwd="/")
        assert done.status in (MEASURED, UNTRUSTED, SKIPPED), str(done)
        if done.status == SKIPPED:
            assert_one_line(done, program, SKIPPED)
            assert limit > 1 or "ulimit -u" in done.err, str(done)


@pytest.mark.parametrize(
    ("limit", "line", "named"),
    [
        ("--data=100000000", "spawn --resident 256", "ulimit -d"),
        ("--data=100000000", "spawn --resident 256 --soak 2 --segment 1", "ulimit -d"),
        ("--as=200000000", "spawn --resident 256", "ulimit -v"),
        ("--sigpending=0", "signal", "ulimit -i"),
        ("--sigpending=0", "signal --send sigqueue --peer process", "ulimit -i"),
    ],
)
def test_a_limit_of_memory_or_signals_is_a_skip_that_names_it(limit, line, named, tmp_path):
    program, *options = line.split()
    if "--soak" in options:
        options += ["--record", str(tmp_path / "session")]
    done = command(["prlimit", limit, path_of(program), *options])
    assert_one_line(done, program, SKIPPED)
    assert named in done.err, str(done)
