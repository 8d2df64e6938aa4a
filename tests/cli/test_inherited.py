"""What a program inherits: it is recorded, and the timer slack does not depend on it."""

import ctypes
import json
import os
import platform
import re
import resource
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from harness import (
    FAILED,
    MEASURED,
    ROOT,
    UNTRUSTED,
    Running,
    assert_one_line,
    command,
    json_of,
    lacking,
)
from harness import path_of, run, works

PR_SET_TIMERSLACK, PR_SET_THP_DISABLE, PR_SET_MEMORY_MERGE = 29, 41, 67
SET_ATTRIBUTES, SET_MEMORY_POLICY = (314, 238) if platform.machine() == "x86_64" else (274, 237)
MPOL_BIND = 2
NETLINK_AUDIT = 9
ADDR_NO_RANDOMIZE = 0x40000
LINKER = "ld-linux-x86-64.so.2" if platform.machine() == "x86_64" else "ld-linux-aarch64.so.1"
LIBC = ctypes.CDLL(None)


def inherited(directory: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((directory / "session.json").read_text())["inherited"]
    return found


def set_slice(ns: int, thread: int = 0) -> None:
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, os.nice(0), 0, ns, 0, 0)
    assert LIBC.syscall(SET_ATTRIBUTES, thread, attributes, 0) == 0


def bind_memory() -> None:
    nodes = ctypes.byref(ctypes.c_ulong(1))
    assert LIBC.syscall(SET_MEMORY_POLICY, MPOL_BIND, nodes, 64) == 0


# The worker of eventloop is a process.
@pytest.mark.parametrize(
    ("program", "policy"),
    [("timer", os.SCHED_OTHER), ("cv", os.SCHED_FIFO), ("eventloop", os.SCHED_OTHER)],
)
def test_every_thread_has_the_default_timer_slack(program, policy, two_cpus, real_time):
    def prepare() -> None:
        LIBC.prctl(PR_SET_TIMERSLACK, 1)
        os.sched_setscheduler(0, policy, os.sched_param(int(policy != os.SCHED_OTHER)))

    with Running(program, "--policy", "other", preexec_fn=prepare) as running:
        slacks = {
            task: Path(f"/proc/{task}/timerslack_ns").read_text()
            for pid in running.children
            for task in os.listdir(f"/proc/{pid}/task")
        }
    # The measured process, a worker, and the thread that detects stops.
    assert len(slacks) > 2 and set(slacks.values()) == {"50000\n"}


@pytest.mark.parametrize(
    ("name", "prepare", "value"),
    [
        ("nice", lambda: os.nice(3), str(os.nice(0) + 3)),
        ("personality", lambda: LIBC.personality(ADDR_NO_RANDOMIZE), "0x40000"),
        ("THP_enabled", lambda: LIBC.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), "0"),
        ("slice_ns", lambda: set_slice(3_000_000), "3000000"),
        ("cpu_limit", lambda: resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999)), "9999"),
        ("memory_merge", lambda: LIBC.prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0), "1"),
        ("mempolicy", lambda: bind_memory(), "mode 2, nodes 0x1"),
        ("GLIBC_TUNABLES", None, "glibc.pthread.rseq=0"),
        ("MALLOC_PERTURB_", None, "7"),
    ],
)
def test_it_is_recorded_and_another_process_cannot_join(name, prepare, value, tmp_path, real_time):
    words = ("--policy", "other", "--iterations", "20", "--record", tmp_path, "--quiet")
    environment = os.environ if prepare else os.environ | {name: value}
    assert run("syscall", *words, env=environment, preexec_fn=prepare).status in (
        MEASURED,
        UNTRUSTED,
    )
    assert inherited(tmp_path)[name] == value
    done = run("syscall", *words)
    assert_one_line(done, "syscall", FAILED)
    assert f"inherited {name} {value}, and this run inherits" in done.err
    # What real-time policies ignore is no difference to a real-time run.
    joins = run("syscall", "--policy", "fifo:50", *words[2:]).status in (MEASURED, UNTRUSTED)
    assert joins == (name in ("nice", "slice_ns"))


def test_a_load_that_the_user_started_is_recorded(tmp_path):
    words = ("--iterations", "20", "--record", tmp_path, "--quiet")
    assert run("syscall", *words, "--under-load").status in (MEASURED, UNTRUSTED)
    assert json.loads((tmp_path / "session.json").read_text())["under_load"] is True
    assert run("syscall", *words, "--under-load").status in (MEASURED, UNTRUSTED)
    done = run("syscall", *words)
    assert_one_line(done, "syscall", FAILED)
    assert "has runs with --under-load, but this run is without" in done.err


def test_no_variable_chooses_another_backend_of_libevent():
    words = (
        "--backend",
        "libevent",
        "--pairs",
        "50",
        "--iterations",
        "4",
        "--count-syscalls",
        "--json",
    )
    done = works("eventloop", *words, env=os.environ | {"EVENT_NOEPOLL": "1"})
    assert json_of(done)["evidence"]["counts"]["calls_registration"] == 50 + 1


@pytest.mark.parametrize("name", ["libafew.so", "libm.so.6", LINKER])
def test_a_preloaded_library_is_recorded_by_its_name(name, tmp_path):
    library = tmp_path / name
    library.symlink_to(next(Path("/lib").glob("*/librt.so.1")).resolve())
    words = ("--iterations", "20", "--quiet", "--record", tmp_path / "record")
    preloaded = os.environ | {"LD_PRELOAD": str(library)}
    assert run("syscall", *words, env=preloaded).status in (MEASURED, UNTRUSTED)
    session = json.loads((tmp_path / "record/session.json").read_text())
    loaded = session["libraries"]["syscall"].split(", ")
    assert [part.split()[0] for part in loaded] == [name, "libc.so.6"]
    assert all(len(part.split()[1]) == 16 for part in loaded)
    assert "syscall with other libraries" in run("syscall", *words).err


def test_libraries_without_a_build_id_differ_by_their_files(tmp_path):
    library = tmp_path / "libshim.so"
    preloaded = os.environ | {"LD_PRELOAD": str(library)}
    words = ("--iterations", "20", "--quiet", "--record", tmp_path / "record")
    build = ["cc", "-shared", "-Wl,--build-id=none", "-o", library, "-x", "c", "-"]
    for text, status in (("int a;", (MEASURED, UNTRUSTED)), ("int b;", (FAILED,))):
        subprocess.run(build, input=text, text=True, check=True)
        assert run("syscall", *words, env=preloaded).status in status


MOVE = 'mount --bind /sys/fs/cgroup/cpu "$1" && umount /sys/fs/cgroup/cpu && shift && exec "$@"'


@pytest.mark.parametrize(
    ("moved", "file", "value", "name", "recorded"),
    [
        (False, "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"),
        (True, "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"),
        (False, "cpu.shares", "512", "cpu.weight", "512"),
        (False, "cpu.idle", "1", "cpu.weight", "3"),
    ],
)
def test_what_an_ancestor_sets_is_recorded(moved, file, value, name, recorded, tmp_path, root):
    group = Path("/sys/fs/cgroup/cpu/klat-test-quota")
    try:
        (group / "below").mkdir(parents=True)
    except OSError:
        lacking("no cgroup of version 1 with the CPU controller can be made")
    try:
        if not (group / file).exists():
            lacking(f"this kernel has no {file}")
        (group / file).write_text(value)
        (point := tmp_path / "point").mkdir()
        elsewhere = ("unshare", "-m", "sh", "-c", MOVE, "sh", point) if moved else ()
        words = ("--iterations", "20", "--quiet", "--policy", "other", "--record", tmp_path / "s")
        join = (group / "below/cgroup.procs").write_text
        joined = {"preexec_fn": lambda: join(str(os.getpid())) and None}
        command([*elsewhere, path_of("syscall"), *words], **joined)
        values = inherited(tmp_path / "s")
        names = ("cpu.max", "cpu.weight", "cpu.uclamp.min", "cpu.uclamp.max")
        assert {key: values[key] for key in names} == dict.fromkeys(names, "none") | {
            name: recorded
        }
    finally:
        (group / "below").rmdir()
        group.rmdir()


CGROUP_NAMESPACE = "0 below the root of a cgroup namespace"
OLD_DEPTHS, OLD_MOUNT = ("cpu_cgroup_depth", "rt_cgroup_depth"), "1 below the top of a mount"
# As container engines do: a mount that shows only the container's own cgroup.
SHELL = ["unshare", "-m", "sh", "-c"]
MOUNT = 'exec unshare -C sh -c \'umount {point} && mount -t cgroup2 cgroup2 {point} && exec "$@"\' sh "$@"'
BIND = 'mount --bind {point}/klat-test-depth/below {point} && exec "$@"'


@pytest.mark.parametrize(
    ("kind", "prefix", "written", "depths"),
    [
        ("cgroup2", [], "", {"cgroup_depth": "2"}),
        ("cgroup2", ["unshare", "-C"], "", {"cgroup_depth": CGROUP_NAMESPACE}),
        ("cgroup2", [], "cgroup.pressure 0", {"cgroup_depth": "1"}),
        ("cgroup2", [*SHELL, MOUNT], "cgroup.pressure 0", {"cgroup_depth": CGROUP_NAMESPACE}),
        (
            "cgroup",
            [],
            "cpu.rt_runtime_us 1000",
            dict.fromkeys(OLD_DEPTHS, "2") | {"cpu.rt_runtime_us": "1000 1000000, 1000 1000000"},
        ),
        ("cgroup", [*SHELL, BIND], "cpu.rt_runtime_us 1000", dict.fromkeys(OLD_DEPTHS, OLD_MOUNT)),
    ],
)
def test_the_depth_of_the_cgroup_is_recorded(kind, prefix, written, depths, tmp_path, root):
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    options = {"cgroup2": "", "cgroup": "cpu"}[kind]
    points = [m[1] for m in mounts if m[2] == kind and options in [*m[3].split(","), ""]]
    group = Path(points[0] if points else tmp_path) / "klat-test-depth"
    if not points or (kind == "cgroup2" and not Path("/proc/pressure/cpu").exists()):
        lacking(f"no {kind} with the cpu controller is mounted, or the kernel has no PSI")
    try:
        (group / "below").mkdir(parents=True)
        file, _, value = written.partition(" ")
        for level in (group, group / "below")[: None if file.startswith("cpu") or prefix else 1]:
            if file and not (level / file).exists():
                lacking(f"this kernel has no {file}")
            if file:
                (level / file).write_text(value)
        join = (group / "below/cgroup.procs").write_text
        words = [
            *(word.replace("{point}", points[0]) for word in prefix),
            *(["sh"] if prefix[:-1] == SHELL else []),
            str(path_of("syscall")),
            "--iterations",
            "20",
            "--record",
            str(tmp_path / "s"),
        ]
        command(words, preexec_fn=lambda: join(str(os.getpid())) and None)
        recorded = inherited(tmp_path / "s")
        assert {name: recorded[name] for name in depths} == depths
    finally:
        (group / "below").rmdir()
        group.rmdir()


@pytest.mark.parametrize(
    ("file", "covering", "values"),
    [
        ("memory/cgroup.procs", "", {"memory_cgroup": "root", "cpu.max": "none"}),
        ("memory/klat-test-group/cgroup.procs", "", {"memory_cgroup": "child"}),
        ("cpu/klat-test-group/cgroup.procs", "/sys/fs/cgroup", {"cpu.max": "unknown"}),
    ],
)
def test_the_cgroup_that_is_charged_and_one_that_is_hidden(file, covering, values, tmp_path, root):
    group = (Path("/sys/fs/cgroup") / file).parent
    if not group.parent.is_dir():
        lacking("no cgroups of version 1 are mounted")
    if is_new := not group.is_dir():
        group.mkdir()
    try:
        hide = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {covering} && exec "$@"', "sh"]
        words = [path_of("syscall"), "--iterations", "20", "--quiet", "--record", tmp_path / "s"]
        join = (group / "cgroup.procs").write_text
        command(
            [*(hide if covering else []), *words],
            preexec_fn=lambda: join(str(os.getpid())) and None,
        )
        recorded = inherited(tmp_path / "s")
        assert {name: recorded[name] for name in values} == values
    finally:
        if is_new:
            group.rmdir()


# With lxcfs, /proc/stat is a container's, too.
COVER = 'mount --bind "$1" "$2" && mount --bind "$1" /proc/stat && shift 2 && exec "$@"'


@pytest.mark.parametrize(
    "file", ["/proc/sys/kernel/random/boot_id", "/proc/cmdline", "/proc/sys/kernel/watchdog"]
)
def test_a_file_that_covers_the_kernels_is_not_taken_for_it(file, tmp_path, root):
    """systemd-nspawn and LXC give each container a boot id of its own."""
    (other := tmp_path / "other").write_text("5eed5eed-5eed-45ee-85ee-5eed5eed5eed\n")
    amount = ["--iterations", "20"]
    by_hand = [path_of("syscall"), *amount, "--record", tmp_path / "by-hand"]
    by_klat = [
        ROOT / "klat",
        "run",
        "syscall",
        *amount,
        "--runs",
        "1",
        "--output",
        tmp_path / "by-klat",
    ]
    boots = set()
    for tool in (by_hand, by_klat):
        command(["unshare", "-m", "sh", "-c", COVER, "sh", other, file, *tool])
        (session,) = (place.parent for place in tool[-1].rglob("session.json"))
        boot = json.loads((session / "session.json").read_text())["boot_id"]
        assert boot.startswith("00000000-0000-4000-8000-") == file.endswith("boot_id")
        assert not boot.endswith("-000000000000")
        boots.add(boot)
        assert not (session / f"environment{file}").exists()
    assert len(boots) == 1


def test_a_boot_is_one_in_another_time_namespace(tmp_path, root):
    """/proc/stat and the clocks have the offset of the namespace. Linux 6.6 or later."""
    if not any(map(os.path.ismount, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"))):
        lacking("there are no cgroups of version 2")
    (other := tmp_path / "other").write_text("5eed5eed-5eed-45ee-85ee-5eed5eed5eed\n")
    boots = set()
    for number, namespace in enumerate(([], ["unshare", "--time", "--boottime", "5000", "--fork"])):
        tool = [path_of("syscall"), "--iterations", "20", "--record", tmp_path / str(number)]
        cover = ["sh", "-c", COVER, "sh", other, "/proc/sys/kernel/random/boot_id"]
        command([*namespace, "unshare", "-m", *cover, *tool])
        info = json.loads((tmp_path / str(number) / "session.json").read_text())
        boots.add(info["boot_id"])
    assert len(boots) == 1


def test_the_latency_that_others_request_is_recorded(tmp_path, root):
    if not Path("/dev/cpu_dma_latency").exists():
        lacking("there is no /dev/cpu_dma_latency")
    words = ("--iterations", "20", "--record", tmp_path, "--quiet")
    with open("/dev/cpu_dma_latency", "r+b", buffering=0) as device:
        device.write(struct.pack("i", 0))
        assert run("syscall", *words).status in (MEASURED, UNTRUSTED)
    assert inherited(tmp_path)["dma_latency"] == "0"
    assert "/dev/cpu_dma_latency is none, and was 0" in run("syscall", *words).err


def test_the_mtu_of_the_loopback_device_is_recorded(tmp_path, root):
    words = ("sh", "-c", 'ip link set lo mtu 1500 && exec "$@"', "sh", path_of("syscall"))
    command(["unshare", "-n", *words, "--iterations", "20", "--record", tmp_path / "s"])
    assert inherited(tmp_path / "s")["lo_mtu"] == "1500"


@pytest.mark.parametrize("is_capable", [True, False])
def test_the_state_of_audit_is_recorded_where_the_kernel_shows_it(is_capable, tmp_path, root):
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_AUDIT).close()
    except OSError:
        lacking("this kernel has no audit")
    prefix = [] if is_capable else ["setpriv", "--bounding-set=-audit_control"]
    command([*prefix, path_of("syscall"), "--iterations", "20", "--record", tmp_path / "s"])
    audit = inherited(tmp_path / "s")["audit"]
    assert re.fullmatch(r"off|on(, \d+ rules?)?" if is_capable else "unknown", audit)


@pytest.mark.parametrize("patches", [("kpatch_a", "kpatch_b"), ()])
def test_the_livepatches_of_the_kernel_are_recorded(patches, tmp_path, root):
    for name in ("", *patches):
        (tmp_path / "kernel/livepatch" / name).mkdir(parents=True)
    cover = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /sys/kernel && shift && exec "$@"']
    words = [path_of("syscall"), "--iterations", "20", "--record", tmp_path / "s"]
    command([*cover, "sh", tmp_path / "kernel", *words])
    assert inherited(tmp_path / "s")["livepatch"] == (", ".join(patches) or "none")
