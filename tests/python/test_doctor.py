"""Each finding of `klat doctor` appears with its cause and disappears without it.

A healthy machine is planted as files; each case changes one thing in it.
"""

import gzip
import json
import os
import re
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fakes
import made_tools
import pytest
from made_tools import plant
from written_sessions import CPU

from klat.machine import checks, kernel_files, machine_state, probes
from klat.machine.probes import Gap, ProbeResults
from klat.machine.findings import Finding, Severity, to_json, to_text

CLOCK = "sys/devices/system/clocksource/clocksource0"
TRACING, SCHED_EXT = "sys/kernel/tracing", "sys/kernel/sched_ext"
HUGE = "sys/kernel/mm/transparent_hugepage/enabled"

INTERRUPTS = "     CPU0 CPU1 CPU2 CPU3\nTLB:  0 7 0 0  TLB shootdowns\nERR:  0\n"
HEALTHY = {
    "proc/cpuinfo": (
        "processor\t: 0\nmodel name\t: Fast CPU 9000\n"
        "flags\t\t: fpu tsc constant_tsc nonstop_tsc rdtscp\n"
        "processor\t: 1\nmodel name\t: Fast CPU 9000\nflags\t\t: fpu\n"
    ),
    "proc/1/comm": "systemd\n",
    "proc/2/comm": "kthreadd\n",
    "proc/stat": "cpu  1000 0 1000 100000 0 0 0 0 0 0\ncpu0 1 2 3\n",
    "proc/interrupts": INTERRUPTS,
    "proc/loadavg": "0.03 0.05 0.01 1/83 5175\n",
    "proc/meminfo": "MemTotal: 8000000 kB\nSwapTotal: 1000000 kB\nSwapFree: 1000000 kB\n",
    "proc/self/status": "Name:\tklat\nCpus_allowed_list:\t0-3\n",
    "proc/self/cgroup": "0::/user.slice/session\n",
    "proc/sys/kernel/osrelease": "6.1.0\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/1/stat": "1 (init) S 0 1 1 0 -1 0 0 0 0 0 50 50 0 0 20 0 1 0 1",
    # Distributions build their kernels with some of UBSAN's checks, to harden them.
    "boot/config-6.1.0": "CONFIG_SMP=y\n# CONFIG_KASAN is not set\nCONFIG_TUN=m\nCONFIG_UBSAN=y\n",
    f"{CPU}/online": "0-3\n",
    f"{CPU}/isolated": "\n",
    f"{CPU}/smt/active": "0\n",
    f"{CPU}/intel_pstate/no_turbo": "1\n",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "0\n",
    f"{CPU}/cpuidle/current_driver": "intel_idle\n",
    f"{CPU}/cpuidle/current_governor": "menu\n",
    f"{CPU}/cpu0/cpuidle/state0/name": "POLL\n",
    f"{CPU}/cpu0/cpuidle/state0/latency": "0\n",
    f"{CPU}/cpu0/cpuidle/state1/name": "C6\n",
    f"{CPU}/cpu0/cpuidle/state1/latency": "133\n",
    f"{CPU}/cpu0/cpuidle/state1/disable": "1\n",
    f"{CPU}/cpu1/power/pm_qos_resume_latency_us": "0\n",
    f"{CPU}/vulnerabilities/meltdown": "Not affected\n",
    f"{CLOCK}/current_clocksource": "tsc\n",
    f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm\n",
    "sys/devices/system/node/online": "0\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    HUGE: "always [madvise] never\n",
    f"{TRACING}/current_tracer": "nop\n",
    "sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
}

GRANTED = ProbeResults(
    realtime="",
    memory_lock="",
    namespace="",
    tun="",
    dma_latency="",
    results=Path("results"),
    results_refused="",
    results_free=50 << 30,
    programs="",
    missing=(),
    gaps=(Gap(0, 1, 210.0),),
    clock_ppm=-90.0,
)

NO_FLAGS = HEALTHY["proc/cpuinfo"].replace(" constant_tsc nonstop_tsc", "")
VIRTUAL = HEALTHY["proc/cpuinfo"].replace("rdtscp", "rdtscp hypervisor")
TCG = VIRTUAL.replace("Fast CPU 9000", "QEMU TCG CPU version 2.5+")


def gather(root: Path, later: dict[str, str | bytes] | None = None) -> machine_state.MachineState:
    """The facts of a planted machine on which `later` changes while it is watched."""
    watched: dict[str, str | bytes] = {
        "proc/stat": "cpu  1000 0 1000 100400 0 0 0 0 0 0\n",
        "proc/interrupts": INTERRUPTS.replace("7", "8"),
    }
    return machine_state.gather(root, 1.0, lambda _: plant(root, watched | (later or {})))


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    plant(tmp_path, dict(HEALTHY))
    return tmp_path


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/sys/kernel/osrelease": "5.10.0\n", "sys/kernel/debug/sched_features": ""},
        {"dev/cpu_dma_latency": struct.pack("i", 2_000_000_000)},
    ],
)
def test_a_healthy_machine_has_no_findings(machine, files):
    plant(machine, files)
    assert checks.examine(gather(machine), GRANTED) == []


def test_a_machine_without_any_file_shows_no_evidence(tmp_path):
    found = checks.examine(gather(tmp_path, {"proc/stat": ""}), GRANTED)
    assert [finding.check for finding in found] == ["interrupts", "cpu-time"]


def test_a_container_s_view_is_not_taken_for_this_machine(machine):
    """Its "online" lacks the CPU that klat may use, and its /proc/stat stands still."""
    view = {f"{CPU}/online": "0\n", "proc/loadavg": "3.80 1.05 0.01 1/83 5175\n"}
    plant(machine, view | {"proc/self/status": "Cpus_allowed_list:\t1\n"})
    findings = checks.examine(gather(machine, {"proc/stat": HEALTHY["proc/stat"]}), GRANTED)
    said = {f.check: f.title + f.cure for f in findings}
    assert [*said] == ["cpus", "cpu-time", "load"]
    assert "--cpus 1,1" in said["cpus"] and "idle" not in said["load"]


@pytest.mark.parametrize("name", [f"{CPU}/isolated", f"{CPU}/online", "proc/self/status"])
def test_no_list_of_cpus_takes_all_memory(machine, name):
    plant(machine, {name: "Cpus_allowed_list:\t0-9999999999\n"[18 if CPU in name else 0 :]})
    checks.examine(gather(machine), GRANTED)


def test_findings_have_no_control_characters(machine):
    plant(machine, {f"{CLOCK}/current_clocksource": "\x1b[31mx\n"})
    found = checks.examine(gather(machine), GRANTED)
    assert any("x1b" in finding.title for finding in found)
    assert "\x1b" not in "".join(f.title + f.detail + f.cure for f in found)


ODD = ("", "\0\0", "(null)\n", "-1\n", "9" * 30, b"\xff\xfe\n", "a\nb\n", "0\n", "1 2\n", None)


@pytest.mark.parametrize(
    "name", [*HEALTHY, "proc/config.gz", "proc/self/mountinfo", "sys/fs/cgroup/cpu.max"]
)
def test_no_content_of_a_file_stops_doctor(machine, name):
    for content in ODD:
        path = machine / name
        path.unlink(missing_ok=True)
        if content is None:
            path.mkdir(parents=True)
        else:
            plant(machine, {name: content})
        checks.examine(machine_state.gather(machine, 0, lambda _: None), GRANTED)


Files = dict[str, "str | bytes"]
SPOILS, DISTORTS, NOTE = Severity


RT = "proc/sys/kernel/sched_rt"


def rt_runtime(us: int) -> Files:
    files = {"runtime": us, "period": 1_000_000}
    return {f"{RT}_{name}_us": f"{value}\n" for name, value in files.items()}


INTEL: Files = {f"sys/devices/cpu_{n}/cpus": c for n, c in (("core", "0-1"), ("atom", "2-3"))}
NEW: Files = {"proc/sys/kernel/osrelease": "7.3.4\n"}
GROUPS = gzip.compress(b"CONFIG_RT_GROUP_SCHED=y\n")


def fair_server(runtime_ns: int) -> Files:
    server = "sys/kernel/debug/sched/fair_server/cpu0"
    return {f"{server}/runtime": f"{runtime_ns}\n", f"{server}/period": "1000000000\n"}


def clocks(current: str, available: str = "tsc hpet acpi_pm") -> Files:
    kinds = {"current": current, "available": available}
    return {f"{CLOCK}/{kind}_clocksource": f"{names}\n" for kind, names in kinds.items()}


ARM64 = "processor\t: 0\nFeatures\t: fp asimd cpuid\nCPU part\t: 0xd08\n"
CFS = "sys/fs/cgroup/cpu/box/cpu.cfs"
BOX: Files = {f"{CFS}_quota_us": "50000\n", f"{CFS}_period_us": "100000\n"}
# What is planted, by check: severity, files, and files that change while the machine is watched.
PLANTED: list[tuple[str, Severity, *tuple[Files, ...]]] = [
    ("counter", SPOILS, {"proc/cpuinfo": NO_FLAGS}),
    ("counter", SPOILS, {"proc/cpuinfo": HEALTHY["proc/cpuinfo"].replace("nonstop_tsc ", "")}),
    ("not-checked", NOTE, {"proc/cpuinfo": ARM64} | clocks("arch_sys_counter")),
    ("emulated", SPOILS, {"proc/cpuinfo": TCG}),
    ("virtual", DISTORTS, {"proc/cpuinfo": VIRTUAL}),
    ("cpus", SPOILS, {f"{CPU}/online": "0\n", "proc/self/status": ""}),
    ("cpus", SPOILS, {"proc/self/status": "Cpus_allowed_list:\t3\n"}),
    ("steal", DISTORTS, {}, {"proc/stat": "cpu  1000 0 1000 100399 0 0 0 1 0 0\n"}),
    ("steal", SPOILS, {}, {"proc/stat": "cpu  1000 0 1000 100350 0 0 0 50 0 0\n"}),
    ("neighbours", DISTORTS, {}, {"proc/stat": "cpu  1010 0 1000 100390 0 0 0 0\n"}),
    ("neighbours", SPOILS, {}, {"proc/stat": "cpu  1000 0 1060 100340 0 0 0 0\n"}),
    ("interrupts", SPOILS, {"proc/interrupts": ""}),
    ("interrupts", SPOILS, {"proc/interrupts": INTERRUPTS[:30]}),
    ("interrupts", SPOILS, {"proc/interrupts": INTERRUPTS.replace("CPU2 ", "")}),
    ("interrupts", SPOILS, {"proc/interrupts": INTERRUPTS.replace("7", "9" * 30)}),
    ("interrupts", SPOILS, {"proc/interrupts": INTERRUPTS.replace("7", "x")}),
    ("interrupts", SPOILS, {}, {"proc/interrupts": INTERRUPTS}),
    ("cpu-time", DISTORTS, {}, {"proc/stat": HEALTHY["proc/stat"]}),
    ("cpu-time", DISTORTS, {}, {"proc/stat": "(null)\n"}),
    ("cpu-time", DISTORTS, {"proc/self/mountinfo": "8 6 0:52 / /proc/stat rw - fuse.lxcfs x rw\n"}),
    ("load", NOTE, {"proc/loadavg": "3.80 1.05 0.01 1/83 5175\n"}),
    ("quota", SPOILS, {"sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n"}),
    ("quota", DISTORTS, {"sys/fs/cgroup/cpu.max": "300000 100000\n"}),
    ("quota", SPOILS, {"proc/self/cgroup": "5:memory:/a\n4:cpu,cpuacct:/box\n"} | BOX),
    ("debugging", SPOILS, {"boot/config-6.1.0": "CONFIG_PROVE_LOCKING=y\n"}),
    ("debugging", DISTORTS, {"boot/config-6.1.0": "CONFIG_DEBUG_PREEMPT=y\n"}),
    ("debugging", SPOILS, {"proc/config.gz": gzip.compress(b"CONFIG_SMP=y\nCONFIG_KASAN=y\n")}),
    ("traced-events", DISTORTS, {f"{TRACING}/instances/a/set_event": "ras:aer\nkmem:kfree\n"}),
    ("tracing", DISTORTS, {f"{TRACING}/current_tracer": "function\n"}),
    ("clocksource", SPOILS, clocks("hpet", "hpet acpi_pm")),
    ("clocksource", DISTORTS, clocks("acpi_pm")),
    *(
        ("clocksource", NOTE, clocks(name, name))
        for name in ("kvm-clock", "xen", "hyperv_clocksource_tsc_page", "new-clock")
    ),
    ("idle-states", DISTORTS, {f"{CPU}/cpu0/cpuidle/state1/disable": "0\n"}),
    ("latency-request", DISTORTS, {"dev/cpu_dma_latency": bytes(4)}),
    ("latency-request", DISTORTS, {f"{CPU}/cpu1/power/pm_qos_resume_latency_us": "n/a\n"}),
    ("governor", DISTORTS, {f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n"}),
    ("turbo", DISTORTS, {f"{CPU}/intel_pstate/no_turbo": "0\n"}),
    ("turbo", DISTORTS, {f"{CPU}/cpufreq/boost": "1\n"}),
    ("siblings", DISTORTS, {f"{CPU}/smt/active": "1\n"}),
    (
        "irqbalance",
        DISTORTS,
        {"proc/77/stat": f"77 (irqbalance) S 1 1 1 0 -1{' 0' * 5} 5 5 0 0 20 0 1"},
    ),
    ("numa-balancing", DISTORTS, {"sys/devices/system/node/online": "0-1\n"}),
    ("throttling", NOTE, rt_runtime(950000)),
    ("throttling", DISTORTS, rt_runtime(500000)),
    ("throttling", SPOILS, rt_runtime(0)),
    ("throttling", NOTE, rt_runtime(-1)),
    ("throttling", NOTE, rt_runtime(950000) | {f"{RT}_period_us": "0\n"}),
    ("throttling", NOTE, rt_runtime(950000) | {f"{RT}_runtime_us": "abc\n"}),
    ("throttling", NOTE, rt_runtime(int("9" * 23))),
    ("throttling", NOTE, rt_runtime(1_000_000) | NEW),
    ("throttling", NOTE, rt_runtime(-1) | NEW | fair_server(0)),
    ("scheduler", DISTORTS, {f"{SCHED_EXT}/state": "enabled\n", f"{SCHED_EXT}/root/ops": "lavd\n"}),
    ("hidden-tasks", NOTE, {"proc/2/comm": "sh\n"}),
    ("debugfs", NOTE, {"sys/kernel/debug/.keep": ""}),
    ("isolated", NOTE, {f"{CPU}/isolated": "2-3\n"}),
    ("core-types", NOTE, INTEL),
    ("unknown-nodes", NOTE, {"sys/devices/system/node/node0/cpulist": "0-2\n"}),
    ("rt-groups", NOTE, {"boot/config-6.1.0": "CONFIG_RT_GROUP_SCHED=y\n"}),
    ("heat", NOTE, {f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "12\n"}),
    ("huge-pages", NOTE, {HUGE: "[always] madvise never\n"}),
    ("watchdog", NOTE, {f"proc/sys/kernel/watchdog{end}": "10\n" for end in ("", "_thresh")}),
    ("swap", NOTE, {"proc/meminfo": "SwapTotal: 900000 kB\nSwapFree: 700000 kB\n"}),
    ("mitigations", NOTE, {f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Retpolines\n"}),
]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (rt_runtime(950000), ["get 950 of every 1000 ms"]),
        (rt_runtime(1_000_000), ["switched off", "sched_rt_runtime_us is 1000000"]),
        (rt_runtime(-1) | fair_server(0), ["switched off", "takes its CPU for good"]),
        (rt_runtime(-1) | NEW | fair_server(30_000_000), ["fair server", "30 of every 1000 ms"]),
        (
            rt_runtime(1_000_000) | NEW,
            ["fair server", "cannot be read; the default is 50 of every"],
        ),
        (
            rt_runtime(1_000_000) | NEW | fair_server(0),
            ["switched off", "fair_server/cpuN/runtime"],
        ),
        (
            rt_runtime(950000) | NEW | {"proc/config.gz": GROUPS},
            ["real-time tasks get 950", "Since Linux 6.12 the fair server"],
        ),
        (
            rt_runtime(950000) | NEW | {"proc/config.gz": gzip.compress(b"CONFIG_SMP=y\n")},
            ["the fair server takes time"],
        ),
    ],
)
def test_what_stops_a_real_time_task_depends_on_the_version(machine, files, said):
    plant(machine, files)
    found = [f for f in checks.examine(gather(machine), GRANTED) if f.check == "throttling"]
    (text,) = [f"{f.title} {f.detail} {f.cure}" for f in found]
    assert all(part in text for part in said), text


@pytest.mark.parametrize(
    ("files", "moves"),
    [({}, True), (NEW, False), (NEW | {"proc/cpuinfo": "processor : 0\n"}, True)],
    ids=["6.1", "7.3 on x86", "7.3 on another architecture"],
)
def test_a_corrected_clock_moves_timers_where_the_device_does_not_follow_it(machine, files, moves):
    plant(machine, files)
    findings = checks.examine(gather(machine), replace(GRANTED, clock_ppm=500.0))
    assert ("clock-rate" in [finding.check for finding in findings]) == moves


TRIED: list[tuple[str, Severity, ProbeResults]] = [
    ("realtime", SPOILS, replace(GRANTED, realtime="Operation not permitted")),
    ("network", SPOILS, replace(GRANTED, tun="No such file or directory")),
    ("network", SPOILS, replace(GRANTED, namespace="Operation not permitted")),
    ("memory-lock", DISTORTS, replace(GRANTED, memory_lock="Cannot allocate memory")),
    ("results", SPOILS, replace(GRANTED, results_refused="Permission denied")),
    ("results", SPOILS, replace(GRANTED, results_free=1 << 20)),
    ("results", NOTE, replace(GRANTED, results_free=500 << 20)),
    ("gaps", DISTORTS, replace(GRANTED, gaps=(Gap(0, 2, 210.0), Gap(1, 3, 4100.0)))),
    ("clock-rate", DISTORTS, replace(GRANTED, clock_ppm=-83330.0)),
    ("tools", NOTE, replace(GRANTED, missing=("gnuplot", "numpy"))),
]


@pytest.mark.parametrize(
    ("tried", "grants"),
    [
        (
            {"realtime": "Operation not permitted"},
            ("prlimit --pid $$ --rtprio=98 ", "LimitRTPRIO=98 ", "CAP_SYS_NICE"),
        ),
        (
            {"memory_lock": "Cannot allocate memory"},
            ("prlimit --pid $$ --memlock=unlimited ", "LimitMEMLOCK=infinity ", "CAP_IPC_LOCK"),
        ),
    ],
)
def test_a_limit_is_raised_by_a_command_a_container_and_a_unit(machine, tried, grants):
    (refused,) = checks.examine(gather(machine), replace(GRANTED, **tried))
    assert all(grant in refused.cure for grant in (*grants, "docker run --ulimit "))


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted[0])
def test_each_planted_cause_is_found_alone(machine, planted):
    check, severity, files, *later = planted
    plant(machine, files)
    findings = checks.examine(gather(machine, *later), GRANTED)
    assert [(finding.check, finding.severity) for finding in findings] == [(check, severity)]


@pytest.mark.parametrize(("check", "severity", "tried"), TRIED)
def test_each_refused_permission_is_found_alone(machine, check, severity, tried):
    findings = checks.examine(gather(machine), tried)
    assert [(finding.check, finding.severity) for finding in findings] == [(check, severity)]


def test_no_finding_is_without_a_test():
    planted = {check for check, *_ in PLANTED} | {check for check, *_ in TRIED}
    sources = Path(checks.__file__).parent.glob("*checks.py")
    begin = r'(?:Finding|spoils|distorts|note)\(\s+"([a-z-]+)"'
    named = (re.findall(begin, source.read_text()) for source in sources)
    assert planted == {name for names in named for name in names}


def everything(root: Path) -> list[Finding]:
    """The findings of all planted machines."""
    found = []
    for number, (_, _, files, *later) in enumerate(PLANTED):
        machine = root / str(number)
        plant(machine, dict(HEALTHY) | files)
        found += checks.examine(gather(machine, *later), GRANTED)
    healthy = root / "healthy"
    plant(healthy, dict(HEALTHY))
    for _, _, tried in TRIED:
        found += checks.examine(gather(healthy), tried)
    return found


def test_findings_are_in_order_of_harm(machine):
    for _, _, files, *_ in PLANTED:
        plant(machine, files)
    plant(machine, {"proc/cpuinfo": TCG})
    tried = replace(GRANTED, realtime="no", missing=("gnuplot",), memory_lock="no")
    findings = checks.examine(gather(machine), tried)
    ranks = [list(Severity).index(finding.severity) for finding in findings]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}
    assert findings[0].check == "emulated"


def test_the_busiest_neighbours_are_named_without_klat_itself(machine):
    stat = "{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 1"
    ticks = os.sysconf("SC_CLK_TCK")
    before, later = {}, {}
    for pid, name, spent in ((7, "cc1 (x) y", 0.9), (8, "idle", 0.0), (os.getpid(), "klat", 0.5)):
        path = f"proc/{pid}/stat"
        before[path] = stat.format(pid=pid, name=name, ticks=1000)
        later[path] = stat.format(pid=pid, name=name, ticks=1000 + round(spent * ticks))
    plant(machine, before)
    busy = 1000 + round(1.4 * ticks)
    idle = 100000 + 4 * ticks - round(1.4 * ticks)
    known = gather(machine, later | {"proc/stat": f"cpu  {busy} 0 1000 {idle} 0 0 0 0\n"})
    assert [(c.name, c.pid) for c in known.consumers] == [("cc1 (x) y", 7)]
    assert known.busy_cpus == pytest.approx(0.9)
    (finding,) = checks.examine(known, GRANTED)
    assert "cc1 (x) y (7) 90 %" in finding.detail


def test_the_hypervisor_is_named_by_its_own_word(machine):
    plant(machine, {"proc/cpuinfo": VIRTUAL})
    path = machine / "dev/cpu/0/cpuid"
    path.parent.mkdir(parents=True)
    with open(path, "wb") as file:
        file.seek(0x40000000)
        file.write(b"\x01\x00\x00\x40TCGTCGTCGTCG")
    assert [f.check for f in checks.examine(gather(machine), GRANTED)] == ["emulated"]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", ()), ("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("\n", ()), ("2,4-5", (2, 4, 5))],
)
def test_cpu_lists_are_read_as_the_kernel_writes_them(text, cpus):
    assert kernel_files.cpu_list(text) == cpus


def test_the_text_fits_80_columns(tmp_path):
    text = to_text(everything(tmp_path))
    assert max(map(len, text.splitlines())) <= 80
    for severity in Severity:
        assert f"\n{severity.value}" in f"\n{text}"


def test_colour_adds_nothing_but_colour(tmp_path):
    findings = everything(tmp_path)
    coloured = to_text(findings, colour=True)
    assert coloured != to_text(findings)
    assert re.sub("\x1b\\[[0-9]+m", "", coloured) == to_text(findings)


def test_json_and_text_hold_the_same_findings(tmp_path):
    findings = everything(tmp_path)
    document = json.loads(to_json(findings))
    assert document["spoiled"] is True
    assert [f["title"] for f in document["findings"]] == [f.title for f in findings]
    assert {f["severity"] for f in document["findings"]} == {"spoils", "distorts", "note"}


@pytest.mark.parametrize(
    ("tried", "status"),
    [
        (GRANTED, 0),
        (replace(GRANTED, missing=("gnuplot",), memory_lock="no"), 0),
        (replace(GRANTED, realtime="no"), 1),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_exit_status_is_1_if_a_finding_spoils(machine, monkeypatch, klat, tried, status, form):
    known = gather(machine)
    monkeypatch.setattr(machine_state, "gather", lambda: known)
    monkeypatch.setattr(probes, "probe", lambda results, cpus: tried)
    found, out, _ = klat("doctor", "--format", form)
    assert found == status and out


def scheduling() -> tuple[object, ...]:
    namespace = os.readlink("/proc/self/ns/net")
    locked = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmLck" in line
    ]
    return os.sched_getscheduler(0), os.sched_getaffinity(0), namespace, locked


def test_probes_change_nothing_and_leave_no_process(tmp_path):
    before = scheduling()
    probes.probe(tmp_path, sorted(os.sched_getaffinity(0)))
    assert scheduling() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def refusing(error: OSError) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise error

    return refuse


def test_a_refused_probe_holds_the_words_of_the_kernel(monkeypatch, tmp_path):
    refuse = refusing(PermissionError(1, "Operation not permitted"))
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(probes, "_call", refuse)
    tried = probes.probe(tmp_path, ())
    reasons = (tried.realtime, tried.memory_lock, tried.namespace)
    assert reasons == ("Operation not permitted",) * 3


def test_a_policy_that_is_granted_and_not_obtained_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    assert "obtained" in probes.probe(tmp_path, ()).realtime


@pytest.mark.parametrize("ppm", [-83_330, 0, 500])
def test_clock_ppm_compares_monotonic_with_monotonic_raw(monkeypatch, tmp_path, ppm):
    now = 5_000_000_000

    def read(clock: int) -> int:
        nonlocal now
        now += 1000
        return now * (1_000_000 + ppm) // 1_000_000 if clock == time.CLOCK_MONOTONIC else now

    def spin(_: object) -> tuple[Gap, ...]:
        nonlocal now
        now += 100_000_000
        return ()

    monkeypatch.setattr(time, "clock_gettime_ns", read)
    monkeypatch.setattr(probes, "find_gaps", spin)
    assert probes.probe(tmp_path, ()).clock_ppm == pytest.approx(ppm, abs=20)


def test_a_cpu_that_stands_still_is_seen(monkeypatch):
    cpu = min(os.sched_getaffinity(0))
    ticks = iter([0, 1000, 2000, 5_002_000, 5_003_000, 5_303_000, 200_000_000])
    monkeypatch.setattr(probes.time, "perf_counter_ns", lambda: next(ticks))
    assert probes.find_gaps([cpu]) == (Gap(cpu, 3, 194697.0),)


def test_an_unwritable_results_directory_is_found(tmp_path):
    (tmp_path / "file").touch()
    below = probes.probe(tmp_path / "file/below", ()).results_refused
    assert below == "Not a directory"
    fine = probes.probe(tmp_path / "new/below", ())
    assert fine.results_refused == ""
    assert fine.results_free


def test_doctor_answers_on_this_machine(tmp_path):
    done = made_tools.run(sys.executable, fakes.KLAT, "doctor", "--format", "json", cwd=tmp_path)
    assert done.stderr == ""
    assert done.returncode == int(json.loads(done.stdout)["spoiled"])


def test_a_file_of_proc_sys_is_read_although_the_kernel_refuses_large_buffers():
    assert kernel_files.text(Path("/proc/sys/kernel/osrelease")) == os.uname().release
