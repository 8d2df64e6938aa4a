"""Whatever happens beside the event makes a run disturbed or invalid: tracers, stops, quotas and neighbours."""

import contextlib
import ctypes
import itertools
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import pytest
from harness import PROGRAMS, UNTRUSTED, Running, command, json_of, path_of, run, until
from test_inherited import set_slice

pytestmark = [pytest.mark.alone, pytest.mark.slow]

CPU = str(max(os.sched_getaffinity(0)))
SLEEPER = ("--method", "nanosleep")
# Options for one CPU, and a number of iterations that takes some hundred milliseconds.
ONE_CPU = {
    "pipes": ("--cpus", f"{CPU},{CPU}"),
    "cv": ("--cpus", f"{CPU},{CPU}"),
    "messages": ("--cpus", f"{CPU},{CPU}"),
    "semaphore": ("--cpus", f"{CPU},{CPU}"),
    "transport": ("--wait", "block", "--cpus", f"{CPU},{CPU}"),
    "timer": (*SLEEPER, "--cpus", CPU),
    "inherit": ("--cpus", CPU),
    "signal": ("--cpus", f"{CPU},{CPU}"),
    "switch": ("--cpus", CPU),
    "syscall": ("--cpus", CPU),
    "eventloop": ("--cpus", CPU),
}
LONG = {"timer": 1000, "semaphore": 5000, "eventloop": 200, "network": 20000, "syscall": 2000000}
LONG |= {"noise": 50, "spawn": 5000, "wakeup": 10000}


def long(program: str) -> tuple[str, ...]:
    return ("--iterations", str(LONG.get(program, 200000)))


def judged(
    wanted: str, attempt: Callable[[], harness.Done], reason: str = "", always: bool = False
) -> None:
    """Other work on the machine may end an attempt before it is of use. With `always`, an invalid run has the
    reason, too."""

    def wrong() -> str:
        done = attempt()
        if done.status == harness.SKIPPED:
            harness.lacking(done.err.strip())
        result = json_of(done)
        # The reasons of an invalid run replace those that disturb it.
        said = reason in result["reason"] or (result["status"] == "invalid" and not always)
        return "" if result["status"] in wanted and result["reason"] and said else str(done)

    until(wrong, tries=3)


# A worker that is a thread, and one that is a process.
@pytest.mark.parametrize(
    "line",
    [
        f"pipes --cpus {CPU},{CPU} --iterations 100",
        f"eventloop --cpus {CPU} --iterations 5 --pairs 100 --writes 1000",
    ],
)
@pytest.mark.parametrize("tracer", ["strace --follow-forks", "perf trace"])
def test_a_tracer_makes_a_run_invalid(line, tracer, root):
    program, *options = line.split()
    name, *follow = tracer.split()
    if command(["which", name]).status:
        harness.lacking(f"{name} is not installed")
    words = [name, *follow, "-o", "/dev/null", path_of(program), *options, "--json"]
    judged("invalid", lambda: command(words, limit=60))


def send(number: int, pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def stopped_process(pids: set[int]) -> Iterator[None]:
    send(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        send(signal.SIGCONT, pids)


@contextlib.contextmanager
def frozen_group(pids: set[int]) -> Iterator[None]:
    version_1, version_2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")
    if version_1.is_dir():
        group, name, words = version_1 / "klat-test", "freezer.state", ("FROZEN", "THAWED")
    elif (version_2 / "cgroup.procs").exists():
        group, name, words = version_2 / "klat-test", "cgroup.freeze", ("1", "0")
    else:
        harness.lacking("there is no freezer")
    group.mkdir(exist_ok=True)
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))
    (group / name).write_text(words[0])
    try:
        yield
    finally:
        (group / name).write_text(words[1])
    # Processes must leave the group before it can be removed.
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (group.parent / "cgroup.procs").write_text(str(pid))
    with contextlib.suppress(OSError):
        group.rmdir()


# A stop ends some system calls: see signal(7). The default of messages is epoll_wait().
INTERRUPTED = [
    ("pipes", "--wait", "epoll"),
    ("timer", "--method", "timerfd", "--wait", "epoll"),
    ("semaphore", "--primitive", "sysv"),
]


STOPS = (stopped_process, frozen_group)


@pytest.mark.parametrize(
    ("words", "stop"),
    [
        *zip([(program,) for program in PROGRAMS], itertools.cycle(STOPS)),
        *itertools.product(INTERRUPTED, STOPS),
    ],
    ids=lambda value: harness.name_of((value,)),
)
def test_a_stop_disturbs_a_run(words, stop, root, two_cpus):
    def attempt() -> harness.Done:
        program, *options = words
        one_cpu = ONE_CPU.get(program, ())
        with Running(program, *one_cpu, *long(program), *options, "--json") as running:
            with stop(running.children):
                time.sleep(0.05)
            return running.end(limit=60)

    judged("disturbed invalid", attempt)


def parent_of_groups(file: str) -> Path:
    parents = (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup"))
    parent = next((path for path in parents if (path / file).exists()), None)
    if parent is None:
        harness.lacking("there is no cgroup file system with such a file")
    return parent


# The measured process, the worker of eventloop that is a process, and one thread of two.
@pytest.mark.parametrize(
    ("words", "moved", "file"),
    [
        (("syscall",), "children", "cgroup.procs"),
        (("eventloop", "--writes", "1000"), "worker", "cgroup.procs"),
        (("pipes",), "worker", "tasks"),
    ],
    ids=str,
)
def test_a_move_to_another_cgroup_makes_a_run_invalid(words, moved, file, root):
    program, *options = words
    group = parent_of_groups(file) / "klat-test"
    group.mkdir(exist_ok=True)
    line = (*ONE_CPU.get(program, ("--cpus", CPU)), *long(program), *options, "--json")
    try:
        with Running(program, *line) as running:
            pids = running.children
            for pid in pids if moved == "children" else {spinner(pids)}:
                (group / file).write_text(str(pid))
            result = json_of(running.end(limit=60))
    finally:
        group.rmdir()
    assert result["status"] == "invalid"
    assert re.search("the cgroup of the .* changed during the run", result["reason"])


def renice(pid: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, 5)


def set_slack(pid: int) -> None:
    Path(f"/proc/{pid}/timerslack_ns").write_text("1000000")


CHANGES = [
    (renice, "nice value"),
    (set_slack, "timer slack"),
    (lambda pid: set_slice(3_000_000, pid), "time slice"),
    (lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (9999, 10**6)), "limit on CPU time"),
]


@pytest.mark.parametrize(("change", "name"), CHANGES, ids=[name for _, name in CHANGES])
@pytest.mark.parametrize("program", ["syscall", "eventloop"])
def test_what_a_process_inherits_may_not_change_in_a_run(program, change, name, root):
    line = ("--policy", "other", "--cpus", CPU, *long(program), "--json")

    def attempt() -> harness.Done:
        with Running(program, *line) as running:
            for process in running.children:
                for thread in os.listdir(f"/proc/{process}/task"):
                    change(int(thread))
            return running.end(limit=60)

    judged("invalid", attempt, f"the {name} of the", always=True)


def test_a_policy_that_is_changed_and_put_back_makes_a_run_invalid(root, real_time):
    words = ("--method", "nanosleep", "--period", "1000", "--iterations", "3000", "--json")
    with Running("timer", "--cpus", CPU, *words) as running:
        threads = [int(t) for p in running.children for t in os.listdir(f"/proc/{p}/task")]
        first = {t: (os.sched_getscheduler(t), os.sched_getparam(t)) for t in threads}
        for thread in threads:
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        time.sleep(1.3)
        for thread, (policy, parameter) in first.items():
            os.sched_setscheduler(thread, policy, parameter)
        result = json_of(running.end(limit=60))
    assert result["status"] == "invalid"
    assert "the scheduling policy of the waiter changed during the run" in result["reason"]


# The measured process is a child. One instruction: SECCOMP_RET_ALLOW, for all of its threads.
FILTER = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *load(void *unused)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };
	usleep(300000);
	syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
	return unused;
}
static void start(void) { pthread_t thread; pthread_create(&thread, NULL, load, NULL); }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(NULL, NULL, start); }
"""


def test_a_seccomp_filter_that_is_loaded_in_a_run_makes_it_invalid(root, tmp_path):
    build = ["cc", "-shared", "-fPIC", "-o", tmp_path / "filter.so", "-x", "c", "-"]
    subprocess.run(build, input=FILTER, text=True, check=True)
    preloaded = os.environ | {"LD_PRELOAD": str(tmp_path / "filter.so")}
    line = ("--cpus", CPU, *long("syscall"), "--json")
    result = json_of(run("syscall", *line, env=preloaded))
    assert result["status"] == "invalid"
    assert "the seccomp filters of the" in result["reason"]


@pytest.fixture
def quota(root: None) -> Iterator[Callable[[], None]]:
    """Enters a cgroup with 20 ms of each 100 ms."""
    version_1, version_2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    limits = {version_1: {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"}}
    parent = version_1 if version_1.is_dir() else version_2
    group = parent / "klat-test"
    try:
        group.mkdir(exist_ok=True)
        for name, value in limits.get(parent, {"cpu.max": "20000 100000"}).items():
            (group / name).write_text(value)
    except OSError as error:
        harness.lacking(f"no quota can be set: {error}")
    yield lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None
    time.sleep(0.1)
    group.rmdir()


@pytest.mark.parametrize("program", ["pipes", "syscall"])
def test_a_quota_disturbs_ordinary_threads(program, quota):
    words = (*ONE_CPU.get(program, ()), *long(program), "--policy", "other", "--json")
    judged("disturbed invalid", lambda: run(program, *words, preexec_fn=quota))


def test_a_quota_that_reaches_the_median_makes_a_run_invalid(quota):
    words = ("--policy", "other", "--json")
    judged("invalid", lambda: run("eventloop", *words, preexec_fn=quota))


def test_the_real_time_budget_of_a_cgroup_disturbs_a_run(real_time, root):
    """The budget of the inner cgroup stops a thread for 7 ms, that of the outer one for 700 ms."""
    outer = Path("/sys/fs/cgroup/cpu/klat-test")
    groups = {outer: ("1000000", "300000"), outer / "inner": ("10000", "3000")}
    try:
        try:
            for group, (period, runtime) in groups.items():
                group.mkdir()
                (group / "cpu.rt_period_us").write_text(period)
                (group / "cpu.rt_runtime_us").write_text(runtime)
        except OSError as error:
            harness.lacking(f"no real-time budget can be set: {error}")
        join = (outer / "inner/cgroup.procs").write_text
        words = ("--cpus", CPU, *long("syscall"), "--json")
        judged(
            "disturbed invalid",
            lambda: run("syscall", *words, preexec_fn=lambda: join(str(os.getpid())) and None),
            "a sample is as long as real-time throttling",
        )
    finally:
        time.sleep(0.1)
        for group in reversed([group for group in groups if group.is_dir()]):
            group.rmdir()


@pytest.fixture
def neighbour(real_time: None) -> Iterator[None]:
    """A pair of the same priority on the same CPU. It rests, so that this machine stays usable."""
    words = [path_of("pipes"), *ONE_CPU["pipes"], "--iterations", "2000000", "--quiet"]
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL) as process:
        time.sleep(0.5)
        yield
        process.terminate()


@pytest.mark.parametrize("program", ["pipes", "messages", "transport"])
def test_an_equal_neighbour_makes_a_run_invalid(program, neighbour):
    words = (*ONE_CPU[program], "--iterations", "60000", "--json")
    judged("invalid", lambda: run(program, *words))


@pytest.mark.parametrize("program", ["cv", "switch", "semaphore"])
def test_a_neighbour_between_two_priorities_disturbs_a_run(program, neighbour):
    words = (*ONE_CPU[program], "--iterations", str(LONG.get(program, 20000)), "--json")
    judged("disturbed invalid", lambda: run(program, *words))


def test_a_deadline_task_disturbs_a_run(two_cpus, real_time):
    """It can run on all CPUs, and has no priority."""
    words = (
        "chrt --deadline --sched-runtime 500000 --sched-deadline 5000000 --sched-period 5000000 0"
    )
    with subprocess.Popen([*words.split(), "sh", "-c", "while :; do :; done"]) as process:
        try:
            reason = "real-time tasks of other programs ran"
            judged("disturbed invalid", lambda: run("pipes", "--json"), reason)
        finally:
            process.kill()


# A run of network takes 20 ms, which can lie within a rest of the neighbour.
@pytest.mark.parametrize("program", ["pipes", "messages", "semaphore", "tlbflush"])
def test_an_equal_neighbour_on_one_of_two_cpus_disturbs_a_run(program, two_cpus, neighbour):
    judged("disturbed invalid", lambda: run(program, "--json"), "other ")


@pytest.fixture
def short_neighbour(real_time: None) -> Iterator[None]:
    """Every 30 us it takes some microseconds of the CPU, so it lengthens many samples."""
    words = (*SLEEPER, "--mode", "periodic", "--period", "30", "--inject", "5000")
    line = [path_of("timer"), *words, "--cpus", CPU, "--iterations", "400000", "--quiet"]
    with subprocess.Popen(list(map(str, line)), stderr=subprocess.DEVNULL) as process:
        time.sleep(0.5)
        yield
        process.terminate()


@pytest.mark.parametrize("program", ["pipes", "cv", "messages"])
def test_a_neighbour_that_proc_hides_disturbs_a_run(program, short_neighbour):
    """As in a container: another PID namespace."""
    words = ("unshare", "--pid", "--fork", "--mount-proc", path_of(program), *ONE_CPU[program])
    judged("disturbed invalid", lambda: command([*words, "--json"]), "kept waiting for its CPU")


# 60,000 timers, 10 us apart. RLIMIT_NOFILE spreads them over several processes, which only sleep.
TIMERS = """
import ctypes, os, resource, time
libc = ctypes.CDLL(None)
most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 70_000)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
first = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 10**9
for part in range(0, 60_000, most - 100):
    if os.fork() == 0:
        for number in range(part, min(part + most - 100, 60_000)):
            at = divmod(first + 10_000 * number, 10**9)
            libc.timerfd_settime(libc.timerfd_create(1, 0), 1, (ctypes.c_long * 4)(0, 0, *at), None)
        time.sleep(3)
        os._exit(0)
time.sleep(0.7)
print(flush=True)
"""
# Reads /proc/PID/smaps of tlbflush. Each read holds the lock of that process's memory map.
READER = """
import glob
print(flush=True)
while True:
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            if open(path).read() == "tlbflush\\n":
                for _ in range(100):
                    open(path[:-4] + "smaps").read()
        except OSError:
            pass
"""


@contextlib.contextmanager
def running(source: str, cpu: str) -> Iterator[None]:
    line = ["taskset", "-c", cpu, sys.executable, "-c", source]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            yield
        finally:
            process.kill()


# The turns of an ordinary task are few and long: the median hides them, the mean and the maximum do not.
@pytest.mark.parametrize("program", ["pipes", "messages", "signal", "spawn", "syscall", "fault"])
def test_turns_of_an_ordinary_task_disturb_an_ordinary_run(program):
    words = (*ONE_CPU.get(program, ("--cpus", CPU)), *long(program), "--policy", "other", "--json")
    with running("print(flush=True)\nwhile True: pass", CPU):
        judged("disturbed", lambda: run(program, *words, limit=60), "kept waiting for its CPU")


# An item of semaphore takes 150 us, a sample of eventloop many milliseconds.
@pytest.mark.parametrize(
    ("words", "iterations"),
    [
        ("pipes", 100000),
        ("cv", 100000),
        ("messages", 100000),
        ("transport --transport tcp", 20000),
        ("semaphore", 2000),
        ("eventloop", 10),
    ],
)
def test_timers_of_others_disturb_a_run(words, iterations, root):
    program, *options = words.split()

    def attempt() -> harness.Done:
        with running(TIMERS, CPU):
            line = (*ONE_CPU[program], *options, "--iterations", str(iterations), "--json")
            return run(program, *line)

    judged("disturbed invalid", attempt, "interrupts from devices or other programs")


@pytest.mark.parametrize(
    "words",
    [
        ("network", "--cpus", f"{CPU},{CPU}"),
        ("pipes", "--mode", "one-way", "--gap", "100"),
        ("timer", "--method", "timerfd", "--mode", "periodic", "--period", "50"),
    ],
    ids=" ".join,
)
def test_the_timers_of_a_run_do_not_disturb_it(words, two_cpus):
    def wrong() -> str:
        result = json_of(run(*words, "--json"))
        is_judged = result["status"] in ("ok", "disturbed")
        return "" if is_judged and "interrupts from" not in result["reason"] else str(result)

    until(wrong, tries=3)


def test_a_reader_of_the_memory_map_disturbs_tlbflush(two_cpus, root):
    words = ("--responders", "0", "--cpus", CPU, "--iterations", "20000", "--dma-latency", "0")
    other = str(min(os.sched_getaffinity(0)))
    with running(READER, other), running(READER, other):
        judged("disturbed invalid", lambda: run("tlbflush", *words, "--json"), "initiator slept")


# Ends before the run, so that no TracerPid shows it. It stops one thread, not the process.
STEPS = """
import ctypes, os, sys, time
seize, interrupt, step, detach, wall = 0x4206, 0x4207, 9, 17, 0x40000000
ptrace = ctypes.CDLL(None).ptrace
thread = int(sys.argv[1])
assert ptrace(seize, thread, None, None) == 0 == ptrace(interrupt, thread, None, None)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    os.waitpid(thread, wall)
    ptrace(step, thread, None, None)
os.waitpid(thread, wall)
ptrace(detach, thread, None, None)
"""


def spinner(pids: set[int]) -> int:
    """The thread of the lowest real-time priority; if there are several, the busiest."""

    def rank(thread: int) -> tuple[int, int]:
        busy = int(Path(f"/proc/{thread}/schedstat").read_text().split()[0])
        return os.sched_getparam(thread).sched_priority, -busy

    threads = [int(path.name) for pid in pids for path in Path(f"/proc/{pid}/task").iterdir()]
    return min(filter(os.sched_getscheduler, threads), key=rank)


@pytest.mark.parametrize(
    "words",
    [
        ("cv", "--primitive", "mutex", "--contention", "none"),
        ("eventloop", "--writes", "1000"),
        ("messages", "--wake", "spin"),
        ("network",),
        ("pipes", "--mode", "one-way", "--cpus", f"{CPU},{CPU}"),
        ("semaphore",),
        ("switch",),
        ("switch", "--by", "futex"),
    ],
    ids=" ".join,
)
def test_a_debugger_of_one_thread_disturbs_a_run(words, two_cpus, real_time):
    def attempt() -> harness.Done:
        # An iteration of eventloop takes 8 ms.
        iterations = "500" if words[0] == "eventloop" else "8000"
        length = ("--iterations", iterations, "--inject", "200000", "--json")
        with Running(*words, *length) as running:
            time.sleep(0.1)
            line = [sys.executable, "-c", STEPS, str(spinner(running.children))]
            done = command(line)
            assert done.status == 0, str(done)
            return running.end(limit=60)

    judged("disturbed invalid", attempt, " slept ", always=True)


# kmem has no event in the path of pipes. So a list of the groups that matter would miss it.
@pytest.mark.parametrize(
    ("place", "group", "status"),
    [
        ("", "sched", "invalid"),
        ("instances/test-of-klat", "sched", "invalid"),  # in each sample
        ("", "kmem", "disturbed invalid"),  # other tasks of a busy CPU cause them, too
        ("", "ras", "ok"),
    ],
)
def test_events_that_others_trace_disturb_a_run(place, group, status, root, two_cpus):
    trace = Path("/sys/kernel/tracing") / place
    switch = trace / "events" / group / "enable"
    try:
        trace.mkdir(exist_ok=True)
        switch.write_text("1")
    except OSError as error:
        harness.lacking(f"no event can be traced: {error}")
    try:
        if status == "ok":
            assert "the kernel traces" not in json_of(run("pipes", "--json"))["reason"]
        else:
            judged(
                status,
                lambda: run("pipes", "--json"),
                f"the kernel traces events, for example {group}:",
            )
    finally:
        switch.write_text("0")
        if place:
            trace.rmdir()


@pytest.mark.parametrize("file", ["events/sched/sched_switch/trigger", "options/stacktrace"])
def test_stacks_that_others_record_at_events_make_a_run_invalid(file, root, two_cpus):
    """With a stack at each event, a context switch took three times as long."""
    instance = Path("/sys/kernel/tracing/instances/test-of-klat")
    try:
        instance.mkdir(exist_ok=True)
        (instance / "events/sched/sched_switch/enable").write_text("1")
        (instance / file).write_text("stacktrace" if file.endswith("trigger") else "1")
    except OSError as error:
        harness.lacking(f"no stack can be recorded: {error}")
    try:
        done = run("pipes", "--json")
    finally:
        (instance / file).write_text("!stacktrace" if file.endswith("trigger") else "0")
        (instance / "events/sched/sched_switch/enable").write_text("0")
        instance.rmdir()
    assert done.status == UNTRUSTED, str(done)
    assert "the kernel records stacks at events, for example sched:sched_switch" in done.out


PERF_EVENT_OPEN = 298 if os.uname().machine == "x86_64" else 241


@pytest.mark.parametrize(("program", "function"), [("pipes", "read"), ("eventloop", "epoll_wait")])
def test_a_probe_on_a_function_makes_a_run_invalid(program, function, root):
    """The probe affects only this run: the child opens the event before exec. The worker of eventloop is a separate
    process."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.cast(getattr(libc, function), ctypes.c_void_p).value
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, _, offset, *_, path = line.split()
        start, end = (int(part, 16) for part in area.split("-"))
        if start <= address < end:
            break
    kind = Path("/sys/bus/event_source/devices/uprobe/type")
    if not kind.exists():
        harness.lacking("this kernel has no uprobes")
    name, place = ctypes.create_string_buffer(path.encode()), address - start + int(offset, 16)
    # struct perf_event_attr
    fields = (int(kind.read_text()), 112, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(name), place)
    event = ctypes.create_string_buffer(struct.pack("<IIQQQQQIIQQ", *fields), 112)

    def probe() -> int:
        return int(libc.syscall(PERF_EVENT_OPEN, event, 0, -1, -1, 0))

    if (descriptor := probe()) < 0:
        harness.lacking(f"no probe can be set: {os.strerror(ctypes.get_errno())}")
    os.close(descriptor)
    words = (program, "--iterations", "200", "--json")
    judged(
        "invalid",
        lambda: run(*words, preexec_fn=lambda: probe() and None, close_fds=False),
        "a uprobe of another program stopped the",
    )


# Lines of enabled_functions of Linux 6.12: a probe; BPF of systemd and HID, and a livepatch; BPF of another program.
PROBED = "vfs_read (1)              ->ftrace_graph_func+0x0/0x1a0\n"
OF_SYSTEM = (
    "bpf_lsm_file_open (1) R   D   M \ttramp: ftrace_regs_caller+0x0/0x65\n"
    "free_user_ns (1) R     \ttramp: 0xffffffffc05e2000 (kprobe_ftrace_handler+0x0/0x1c0) ->kprobe_ftrace_handler\n"
    "__hid_bpf_tail_call (1) R   D   M \ttramp: ftrace_regs_caller+0x0/0x65\n"
    "cmdline_proc_show (1) R I     M \ttramp: 0xffffffffc05e0000\n"
)
ATTACHED = "vfs_write (1) R   D   M \ttramp: ftrace_regs_caller+0x0/0x65\n"
COVER = 'mount --bind "$1" /sys/kernel/tracing && shift && exec "$@"'


@pytest.mark.parametrize(
    ("functions", "example"),
    [(PROBED, "vfs_read"), (OF_SYSTEM + ATTACHED, "vfs_write"), (OF_SYSTEM, ""), ("", "")],
)
def test_functions_that_the_kernel_traces_disturb_a_run(functions, example, tmp_path, root):
    if not Path("/sys/kernel/tracing").is_dir():
        harness.lacking("this kernel has no tracefs")
    for name, text in {"enabled_functions": functions, "set_event": ""}.items():
        (tmp_path / name).write_text(text)
    words = ["unshare", "-m", "sh", "-c", COVER, "sh", tmp_path, path_of("syscall"), "--json"]
    reason = json_of(command([*words, "--iterations", "20"]))["reason"] or ""
    assert ("the kernel traces functions" in reason) == bool(example)
    assert example in reason
