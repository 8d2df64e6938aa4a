"""What a program inherits: it is recorded, and the timer slack does not depend on it."""

import ctypes
import json
import os
import platform
import re
import resource
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import FAILED, MEASURED, ROOT, SKIPPED, UNTRUSTED, Running, assert_one_line, command
from harness import json_of, lacking, path_of, run, works
from made_tools import write

PR_SET_TIMERSLACK, PR_SET_THP_DISABLE, PR_SET_MEMORY_MERGE = 29, 41, 67
SET_ATTRIBUTES, SET_MEMORY_POLICY = (314, 238) if platform.machine() == "x86_64" else (274, 237)
MPOL_BIND = 2
NETLINK_AUDIT = 9
ADDR_NO_RANDOMIZE = 0x40000
LINKER = "ld-linux-x86-64.so.2" if platform.machine() == "x86_64" else "ld-linux-aarch64.so.1"
AUTOGROUP = Path("/proc/self/autogroup")
LIBC = ctypes.CDLL(None)
SHORT = ("--iterations", "20", "--quiet")


def session_of(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / "session.json").read_text()))


def inherited(directory: Path) -> dict[str, str]:
    return dict(session_of(directory)["inherited"])


def recorded(directory: Path, *before: str | Path, group: Path | None = None) -> dict[str, str]:
    """What a run of syscall records as inherited, started by the command `before` in the cgroup `group`."""

    def join() -> None:
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    words = [*before, path_of("syscall"), *SHORT, "--record", directory]
    done = command(words, preexec_fn=join)
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    return inherited(directory)


@contextmanager
def made(group: Path) -> Iterator[None]:
    """Makes the cgroup, and removes it at the end. A cgroup of the system stays. What a killed test left is removed
    first."""
    try:
        for left in (group / "below", group) if group.name.startswith("klat-test") else ():
            if left.is_dir():
                left.rmdir()
        group.mkdir()
    except FileExistsError:
        yield
    except OSError as error:
        lacking(f"no cgroup can be made: {error}")
    else:
        try:
            yield
        finally:
            group.rmdir()


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
        ("autogroup_nice", lambda: AUTOGROUP.write_text("5"), "5"),
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
    words = ("--policy", "other", *SHORT, "--record", tmp_path)
    environment = os.environ if prepare else os.environ | {name: value}
    works("syscall", *words, env=environment, preexec_fn=prepare)
    assert inherited(tmp_path)[name] == value
    done = run("syscall", *words)
    assert_one_line(done, "syscall", FAILED)
    assert f"inherited {name} {value}, and this run inherits" in done.err
    # What real-time policies ignore is no difference to a real-time run.
    joins = run("syscall", "--policy", "fifo:50", *words[2:]).status in (MEASURED, UNTRUSTED)
    assert joins == (name in ("nice", "autogroup_nice", "slice_ns"))


def test_the_nodes_of_the_cpuset_are_recorded(tmp_path):
    works("syscall", *SHORT, "--record", tmp_path)
    nodes = re.search(r"Mems_allowed_list:\s*(.+)", Path("/proc/self/status").read_text())
    assert inherited(tmp_path).get("Mems_allowed_list") == (nodes and nodes[1])


def test_a_load_that_the_user_started_is_recorded(tmp_path):
    words = (*SHORT, "--record", tmp_path)
    works("syscall", *words, "--under-load")
    assert session_of(tmp_path)["under_load"] is True
    works("syscall", *words, "--under-load")
    done = run("syscall", *words)
    assert_one_line(done, "syscall", FAILED)
    assert "has runs with --under-load, but this run is without" in done.err


def test_no_variable_chooses_another_backend_of_libevent():
    words = "--backend libevent --pairs 50 --iterations 4 --count-syscalls --json".split()
    done = works("eventloop", *words, env=os.environ | {"EVENT_NOEPOLL": "1"})
    assert json_of(done)["evidence"]["counts"]["calls_registration"] == 50 + 1


@pytest.mark.parametrize("name", ["libafew.so", "libm.so.6", LINKER])
def test_a_preloaded_library_is_recorded_by_its_name(name, tmp_path):
    library = tmp_path / name
    library.symlink_to(next(Path("/lib").glob("*/librt.so.1")).resolve())
    words = (*SHORT, "--record", tmp_path / "record")
    works("syscall", *words, env=os.environ | {"LD_PRELOAD": str(library)})
    loaded = session_of(tmp_path / "record")["libraries"]["syscall"].split(", ")
    assert [part.split()[0] for part in loaded] == [name, "libc.so.6"]
    assert all(len(part.split()[1]) == 16 for part in loaded)
    assert "syscall with other libraries" in run("syscall", *words).err


def test_libraries_without_a_build_id_differ_by_their_files(tmp_path):
    library = tmp_path / "libshim.so"
    preloaded = os.environ | {"LD_PRELOAD": str(library)}
    words = (*SHORT, "--record", tmp_path / "record")
    build = ["cc", "-shared", "-Wl,--build-id=none", "-o", library, "-x", "c", "-"]
    for text, status in (("int a;", (MEASURED, UNTRUSTED)), ("int b;", (FAILED,))):
        subprocess.run(build, input=text, text=True, check=True)
        assert run("syscall", *words, env=preloaded).status in status


MOVE = 'mount --bind /sys/fs/cgroup/cpu "$1" && umount /sys/fs/cgroup/cpu && shift && exec "$@"'


@pytest.mark.parametrize(
    ("moved", "file", "value", "name", "kept"),
    [
        (False, "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"),
        (True, "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"),
        (False, "cpu.shares", "512", "cpu.weight", "512"),
        (False, "cpu.idle", "1", "cpu.weight", "3"),
    ],
)
def test_what_an_ancestor_sets_is_recorded(moved, file, value, name, kept, tmp_path, root):
    group = Path("/sys/fs/cgroup/cpu/klat-test-quota")
    with made(group), made(group / "below"):
        if not (group / file).exists():
            lacking(f"this kernel has no {file}")
        (group / file).write_text(value)
        (point := tmp_path / "point").mkdir()
        elsewhere = ("unshare", "-m", "sh", "-c", MOVE, "sh", point) if moved else ()
        values = recorded(tmp_path / "s", *elsewhere, group=group / "below")
    names = ("cpu.max", "cpu.weight", "cpu.uclamp.min", "cpu.uclamp.max")
    assert {key: values[key] for key in names} == dict.fromkeys(names, "none") | {name: kept}


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
    with made(group), made(group / "below"):
        file, _, value = written.partition(" ")
        for level in (group, group / "below")[: None if file.startswith("cpu") or prefix else 1]:
            if file and not (level / file).exists():
                lacking(f"this kernel has no {file}")
            if file:
                (level / file).write_text(value)
        before = [word.replace("{point}", points[0]) for word in prefix]
        before += ["sh"] if prefix[:-1] == SHELL else []
        values = recorded(tmp_path / "s", *before, group=group / "below")
    assert {name: values[name] for name in depths} == depths


@pytest.mark.parametrize(
    ("file", "covering", "values"),
    [
        (
            "memory/cgroup.procs",
            "",
            {"memory_cgroup_depth": "0", "memory_cgroup": "root", "cpu.max": "none"},
        ),
        (
            "memory/klat-test-group/cgroup.procs",
            "",
            {"memory_cgroup": "child", "memory_cgroup_depth": "1"},
        ),
        ("cpu/klat-test-group/cgroup.procs", "/sys/fs/cgroup", {"cpu.max": "unknown"}),
    ],
)
def test_the_cgroup_that_is_charged_and_one_that_is_hidden(file, covering, values, tmp_path, root):
    group = (Path("/sys/fs/cgroup") / file).parent
    if not group.parent.is_dir():
        lacking("no cgroups of version 1 are mounted")
    hide = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {covering} && exec "$@"', "sh"]
    with made(group):
        inherits = recorded(tmp_path / "s", *(hide if covering else []), group=group)
    assert {name: inherits[name] for name in values} == values


def test_memory_that_a_cgroup_of_version_1_does_not_grant_is_a_skip(root):
    group = Path("/sys/fs/cgroup/memory/klat-test-limit")
    if not group.parent.is_dir():
        lacking("no memory cgroups of version 1 are mounted")

    def join() -> None:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        (group / "cgroup.procs").write_text(str(os.getpid()))

    with made(group):
        done = command([path_of("spawn"), "--resident", "128"], preexec_fn=join)
    assert_one_line(done, "spawn", SKIPPED)
    assert "limit of the memory cgroup" in done.err, str(done)


ROWS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\n"
HIDE = 'mount -t tmpfs none "$point"'
BELOW = 'mount --bind "$point/klat-test-part" "$point"'
MADE = 'mkdir -p "$point/a/b" && cd "$point/a/b" && touch memory.max cpu.weight'
PART = f"{HIDE} && {MADE} && echo isolated > cpuset.cpus.partition && cd /"

AT_ROOT = {"memory_cgroup": "root", "memory_cgroup_depth": "0"}
DEPTHS = ("memory_cgroup_depth", "cpu_cgroup_depth")
BELOW_MOUNT = dict.fromkeys(DEPTHS, OLD_MOUNT) | {"memory_cgroup": "child"}


@pytest.mark.parametrize(
    ("rows", "path", "root_has", "built", "mount", "kept"),
    [
        ("", "/", "cpu memory", "memory.reclaim", "", AT_ROOT),
        ("", "/", "cpu", "memory.reclaim", "", {}),  # cgroup_disable=memory
        ("memory\t0\t1\t0\n", "/", "cpu", "memory.reclaim", HIDE, {}),
        ("memory\t0\t1\t1\n", "/", "cpu", "", HIDE, AT_ROOT),
        ("", "/", "", "memory.reclaim", HIDE, AT_ROOT),
        ("", "/", "", "pids.max", HIDE, {}),
        ("", "/hidden", "", "memory.reclaim", HIDE, {"memory_cgroup": "unknown"}),
        (
            "",
            "/klat-test-part",
            "cpu memory",
            "memory.reclaim",
            BELOW,
            {"memory_cgroup": "unknown"},
        ),
        ("", "/a/b", "", "memory.reclaim", PART, BELOW_MOUNT),
    ],
)
def test_a_memory_controller_of_version_2_alone(
    rows, path, root_has, built, mount, kept, tmp_path, root
):
    """From Linux 6.14 on, /proc/cgroups lacks the memory controller in a kernel without CONFIG_MEMCG_V1."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    points = [words[1] for words in mounts if words[2] == "cgroup2"]
    if not points:
        lacking("there are no cgroups of version 2")
    files = {
        "/proc/cgroups": f"{ROWS}{rows}",
        "/proc/$$/cgroup": f"0::{path}\n",
        "/sys/kernel/cgroup/delegate": f"cgroup.procs\n{built}\n",
    }
    if not mount:
        files[f"{points[0]}/cgroup.controllers"] = f"{root_has}\n"
    steps = [f"point={points[0]}", *filter(None, [mount])]
    for number, (file, text) in enumerate(files.items()):
        (tmp_path / str(number)).write_text(text)
        steps.append(f"mount --bind {tmp_path / str(number)} {file}")
    with made(Path(points[0]) / "klat-test-part"):
        shell = ["unshare", "-m", "sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh"]
        values = recorded(tmp_path / "s", *shell)
    assert {name: values[name] for name in BELOW_MOUNT if name in values} == kept
    assert (values["cpuset.cpus.partition"] == "isolated") == (mount == PART)


# With lxcfs, /proc/stat is a container's, too.
COVER = 'mount --bind "$1" "$2" && mount --bind "$1" /proc/stat && shift 2 && exec "$@"'


@pytest.mark.parametrize(
    "file", ["/proc/sys/kernel/random/boot_id", "/proc/cmdline", "/proc/sys/kernel/watchdog"]
)
def test_a_file_that_covers_the_kernels_is_not_taken_for_it(file, tmp_path, root):
    """systemd-nspawn and LXC give each container a boot id of its own."""
    (other := tmp_path / "other").write_text("5eed5eed-5eed-45ee-85ee-5eed5eed5eed\n")
    by_hand = [path_of("syscall"), *SHORT, "--record", tmp_path / "by-hand"]
    by_klat = [ROOT / "klat", *"run syscall --iterations 20 --runs 1 --output".split()]
    by_klat.append(tmp_path / "by-klat")
    boots = set()
    for tool in (by_hand, by_klat):
        command(["unshare", "-m", "sh", "-c", COVER, "sh", other, file, *tool])
        (session,) = (place.parent for place in tool[-1].rglob("session.json"))
        boot = session_of(session)["boot_id"]
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
        cover = ["sh", "-c", COVER, "sh", other, "/proc/sys/kernel/random/boot_id"]
        recorded(tmp_path / str(number), *namespace, "unshare", "-m", *cover)
        boots.add(session_of(tmp_path / str(number))["boot_id"])
    assert len(boots) == 1


def test_the_latency_that_others_request_is_recorded(tmp_path, root):
    if not Path("/dev/cpu_dma_latency").exists():
        lacking("there is no /dev/cpu_dma_latency")
    with open("/dev/cpu_dma_latency", "r+b", buffering=0) as device:
        device.write(struct.pack("i", 0))
        assert recorded(tmp_path)["dma_latency"] == "0"
    done = run("syscall", *SHORT, "--record", tmp_path)
    assert "/dev/cpu_dma_latency is none, and was 0" in done.err


def test_the_mtu_of_the_loopback_device_is_recorded(tmp_path, root):
    words = ("unshare", "-n", "sh", "-c", 'ip link set lo mtu 1500 && exec "$@"', "sh")
    assert recorded(tmp_path / "s", *words)["lo_mtu"] == "1500"


@pytest.mark.parametrize("is_capable", [True, False])
def test_the_state_of_audit_is_recorded_where_the_kernel_shows_it(is_capable, tmp_path, root):
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_AUDIT).close()
    except OSError:
        lacking("this kernel has no audit")
    prefix = [] if is_capable else ["setpriv", "--bounding-set=-audit_control"]
    audit = recorded(tmp_path / "s", *prefix)["audit"]
    assert re.fullmatch(r"off|on(, \d+ rules?)?" if is_capable else "unknown", audit)


@pytest.mark.parametrize("patches", [("kpatch_a", "kpatch_b"), ()])
def test_the_livepatches_of_the_kernel_are_recorded(patches, tmp_path, root):
    for name in ("", *patches):
        (tmp_path / "kernel/livepatch" / name).mkdir(parents=True)
    cover = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /sys/kernel && shift && exec "$@"']
    livepatch = recorded(tmp_path / "s", *cover, "sh", tmp_path / "kernel")["livepatch"]
    assert livepatch == (", ".join(patches) or "none")


def test_the_power_limits_are_captured(tmp_path, root):
    limit = "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
    write(tmp_path / limit, "65000000\n")
    cover = ["unshare", "-m", "sh", "-c", 'mount --bind "$1" /sys/class && shift && exec "$@"']
    recorded(tmp_path / "s", *cover, "sh", tmp_path / "class")
    assert (tmp_path / "s/environment/sys" / limit).read_text() == "65000000\n"


def test_files_and_an_alarm_of_the_caller_reach_no_measured_process():
    """A fork copies open files: with 4,000, it took twice as long. And select() has room for 1024."""

    def open_many() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        for _ in range(1500):
            os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    done = works(
        "syscall", "--call", "select", "--iterations", "200000", "--json", preexec_fn=open_many
    )
    assert "files" not in json_of(done)["reason"]
