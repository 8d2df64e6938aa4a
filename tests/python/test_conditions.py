"""What is refused because somebody set it, and what is listed because the kernels bring it, on the
environments of real kernels (tests/python/environments; `origin` says where each is from)."""

import json
import re
from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path, PurePath
from typing import Any

import pytest
from made_tools import write
from written_sessions import SyntheticSession

from klat.compare.conditions import Condition, Values, conditions, disagreements, is_allowable
from klat.compare.conditions import words_under_test
from klat.record.session import read_session

MACHINES = {
    path.stem: json.loads(path.read_text())
    for path in sorted(Path(__file__).with_name("environments").glob("*.json"))
}

Files = dict[str, str | None]  # None: not recorded
Captured = Callable[..., Values]


def files_of(machine: str, kernel: str) -> Files:
    return {
        name: text
        for name, texts in MACHINES[machine]["files"].items()
        for text, kernels in texts.items()
        if kernels == "all" or kernel in kernels.split()
    }


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """The conditions of a session of that kernel on that machine; `files` and `info` are what
    differs."""
    unchanged: dict[tuple[str, str], Values] = {}

    def capture(machine: str, kernel: str, *files: Files, **info: Any) -> Values:
        if files or info:
            return written(machine, kernel, *files, **info)
        if (machine, kernel) not in unchanged:
            unchanged[machine, kernel] = written(machine, kernel)
        return unchanged[machine, kernel]

    def written(
        machine: str, kernel: str, files: Files | None = None, facts: Any = None, **info: Any
    ) -> Values:
        release, _, version = MACHINES[machine]["kernels"][kernel].partition(" ")
        recorded = MACHINES[machine].get("info", {})
        info = {"kernel_release": release, "kernel_version": version, **recorded} | info
        session = SyntheticSession(tmp_path_factory.mktemp("session") / "1", **info)
        for name, text in (files_of(machine, kernel) | (files or {})).items():
            if text is not None:
                write(session.path / "environment" / name, f"{text}\n")
        return conditions(read_session(session.path), facts or {})

    return capture


def keys(found: list[Condition]) -> list[str]:
    return [condition.key for condition in found]


def refusals(base: Values, new: Values) -> list[str]:
    """The keys of what differs between two sides of a session each."""
    return keys(disagreements([base], [new]))


@pytest.mark.parametrize("machine", MACHINES)
def test_every_pair_of_kernels_of_one_machine_compares_in_both_directions(captured, machine):
    held = {kernel: captured(machine, kernel) for kernel in MACHINES[machine]["kernels"]}
    for one, two in permutations(held, 2):
        assert refusals(held[one], held[two]) == [], (one, two)


CPU = "sys/devices/system/cpu"
FREQUENCY = f"{CPU}/cpu0/cpufreq"
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
GIVEN = (
    "mitigations=off nopti pti=off spectre_v2=off spectre-v2=off mds=off kvm.nx_huge_pages=off tsx=on"
    " ssbd=force-off kpti=0 vmscape=off no_stf_barrier mitigations=auto,nosmt idle=poll nohlt"
    " cpuidle.off=1 cpuidle.governor=teo intel_idle.max_cstate=0 processor.max_cstate=1"
    " haltpoll.guest_halt_poll_ns=7 intel_pstate=disable amd_pstate=passive isolcpus=1 nohz_full=1"
    " rcu_nocbs=1 nosmt maxcpus=2 nohz=off threadirqs nopcid clearcpuid=smap init_on_alloc=1"
    " transparent_hugepage=never skew_tick=1 randomize_kstack_offset=off audit=1"
    " irqchip.gicv3_pseudo_nmi=1 arm64.nopauth kvm-arm.mode=nvhe rodata=full no5lvl nokaslr psi=1"
    " id_aa64mmfr1.vh=0 nosoftlockup systemd.cpu_affinity=0 systemd.unified_cgroup_hierarchy=0"
    " systemd.mask=irqbalance.service sysctl.kernel.sched_rt_runtime_us=-1 workqueue.unbound_cpus=0"
    " hung_task_panic=1 rcu_nocb_poll rcutree.kthread_prio=1 ftrace=function trace_event=sched"
    " kprobe_event=p,vfs_read dyndbg=+p sched_verbose cgroup_disable=memory lsm=none"
).split()
# Key, file, and what it is set to: something else than any of the kernels has by itself.
SET = [
    ("governor", f"{FREQUENCY}/scaling_governor", "performance"),
    ("frequency-min", f"{FREQUENCY}/scaling_min_freq", "4426000"),  # the highest of amd
    ("frequency-max", f"{FREQUENCY}/scaling_max_freq", "1000000"),
    ("boost", f"{CPU}/cpufreq/boost", "0"),
    ("no-turbo", f"{CPU}/intel_pstate/no_turbo", "1"),
    ("microcode", f"{CPU}/cpu0/microcode/version", "0xff"),
    ("smt", f"{CPU}/smt/control", "off"),
    ("smt", f"{CPU}/smt/control", "forceoff"),
    ("isolated", f"{CPU}/isolated", "1"),
    ("nohz-full", f"{CPU}/nohz_full", "1"),
    ("clocksource", CLOCK, "hpet"),
    ("idle-state", f"{CPU}/cpu0/cpuidle/state1/disable", "1"),
    ("haltpoll.guest_halt_poll_ns", "sys/module/haltpoll/parameters/guest_halt_poll_ns", "7"),
    ("processor.max_cstate", "sys/module/processor/parameters/max_cstate", "1"),
    ("vulnerability.meltdown", f"{CPU}/vulnerabilities/meltdown", None),
]
RECORDED = {
    "machine": {"machine_id": "other"},
    "cpu": {"cpu_model": "other"},
    "architecture": {"architecture": "other"},
    "cpus-online": {"cpus_online": 80},
    "mode": {"mode": "hardware"},
}


Pair = tuple[str, str, str]


def neighbours() -> list[Pair]:
    """Of each machine, the oldest and the newest kernel in both directions, and one with itself."""
    found = []
    for machine, held in MACHINES.items():
        oldest, newest = list(held["kernels"])[0], list(held["kernels"])[-1]
        found += [(machine, oldest, newest), (machine, newest, oldest), (machine, newest, newest)]
    return found


OLD_AND_NEW = [pair for pair in neighbours() if pair[0] in ("skylake", "amd")]


@pytest.mark.parametrize("word", GIVEN)
def test_a_word_of_one_command_line_alone_is_refused_by_its_own_key(captured, word):
    name = word.partition("=")[0].replace("-", "_")
    for machine, one, two in OLD_AND_NEW:
        line = f"{files_of(machine, two)['proc/cmdline']} {word}"
        (found,) = disagreements(
            [captured(machine, one)], [captured(machine, two, {"proc/cmdline": line})]
        )
        assert found.key == f"cmdline.{name}" and f"--allow {found.key}" in found.refusal()


@pytest.mark.parametrize(
    ("word", "files"),
    [
        (
            "nowatchdog",
            {f"proc/sys/kernel/{dog}": ("1", "0") for dog in ("watchdog", "nmi_watchdog")},
        ),
        ("isolcpus=1", {f"{CPU}/isolated": ("", "1")}),
        ("clocksource=hpet", {CLOCK: ("tsc", "hpet")}),
        ("intel_idle.max_cstate=0", {"sys/module/intel_idle/parameters/max_cstate": ("9", "0")}),
        ("idle=poll", {f"{CPU}/cpu0/cpuidle/state1/name": ("C1", "")}),
    ],
)
def test_the_effect_of_a_word_is_not_refused_beside_the_word(captured, word, files):
    without = {name: texts[0] for name, texts in files.items()}
    effects = {name: texts[1] or None for name, texts in files.items()}
    line = f"{files_of('skylake', '6.1')['proc/cmdline']} {word}"
    base = captured("skylake", "6.1", without)
    (found,) = disagreements(
        [base], [captured("skylake", "6.1", {**effects, "proc/cmdline": line})]
    )
    assert found.key == f"cmdline.{word.partition('=')[0]}"
    assert disagreements([base], [captured("skylake", "6.1", effects)])


def test_a_word_with_the_name_of_a_condition_hides_nothing(captured):
    line = {"proc/cmdline": f"{files_of('skylake', '6.1')['proc/cmdline']} machine=a"}
    other = captured("skylake", "6.1", line, machine_id="other")
    assert refusals(captured("skylake", "6.1"), other) == ["cmdline.machine", "machine"]


def opposite(text: str) -> str:
    return "Mitigation: PTI" if text == "Not affected" else "Not affected"


@pytest.mark.parametrize(("key", "file", "value"), SET)
def test_a_setting_of_one_side_is_refused_with_both_values(captured, key, file, value):
    tried = 0
    for machine, one, two in neighbours():
        texts = [files_of(machine, kernel).get(file) for kernel in (one, two)]
        if None in texts or "notsupported" in texts or tried > 5:  # nothing could be set
            continue
        tried += 1
        changed = {file: value or opposite(str(texts[1]))}
        base, new = captured(machine, one), captured(machine, two, changed)
        for sides in (([base], [new]), ([new], [base])):
            (found,) = disagreements(*sides)
            assert key in (found.key, found.family)
            assert f"is {found.base} in BASE and {found.new} in NEW" in found.refusal()
            assert found.base != found.new and f"--allow {found.key}" in found.refusal()
    assert tried, "no kernel has this file"


@pytest.mark.parametrize(("mode", "refused"), [("hardware", False), ("virtual", True)])
def test_the_kernels_lists_of_affected_cpus_differ(captured, mode, refused):
    """On hardware the CPU is the same. A hypervisor can show another."""
    file = f"{CPU}/vulnerabilities/spectre_v2"
    old = captured("amd", "6.12", {file: "Not affected"}, mode=mode)
    for kernel, is_set in (("6.18", refused), ("6.12", True)):
        new = captured("amd", kernel, {file: "Mitigation: CSV2, BHB"}, mode=mode)
        assert refusals(old, new) == ["vulnerability.spectre_v2"] * is_set


def test_the_same_values_on_other_cpus_were_set_differently(captured):
    name = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
    for kernel in ("6.1", "6.12"):
        sides = []
        for own in (0, 1):
            governors = {name.format(cpu): "powersave" for cpu in range(4)}
            governors[name.format(own)] = "performance"
            sides.append(captured("intel", kernel if own else "6.12", governors))
        (found,) = disagreements([sides[0]], [sides[1]])
        assert found.base == "performance (CPU 0), powersave (CPU 1-3)"
        assert found.new == "powersave (CPU 0,2-3), performance (CPU 1)"


def test_a_refusal_shows_where_two_long_texts_differ(captured):
    driver, governor = f"{FREQUENCY}/scaling_driver", f"{FREQUENCY}/scaling_governor"
    base = captured("intel", "6.1", {driver: "intel_pstate", governor: "powersave"})
    new = captured("intel", "6.12", {driver: "intel_cpufreq", governor: "powersave"})
    (found,) = disagreements([base], [new])
    assert (found.base, found.new) == ("powersave (follows the load)", "powersave (powersave)")
    lines = [{"proc/cmdline": f"isolcpus={'1,' * 50}{last}"} for last in "78"]
    (found,) = disagreements(*([captured("intel", "6.1", line)] for line in lines))
    assert found.base.endswith("1,7") and found.new.endswith("1,8")


@pytest.mark.parametrize("key", RECORDED)
def test_another_machine_or_mode_is_refused(captured, key):
    for machine, one, two in OLD_AND_NEW:
        found = disagreements([captured(machine, one)], [captured(machine, two, **RECORDED[key])])
        assert keys(found) == [key]


def test_of_two_architectures_nothing_else_is_told(captured):
    other = {"architecture": "aarch64", "machine_id": "other", "cpu_model": "other"}
    found = disagreements([captured("intel", "6.1")], [captured("intel", "6.12", **other)])
    assert keys(found) == ["architecture"]


# Their defaults follow from the configuration, which is not here.
UNKNOWN = {"huge-pages": "always [madvise] never", "sysctl.numa_balancing": "0"}


def test_between_sides_of_one_kernel_every_difference_was_set(captured):
    for key, name, value in (
        ("idle-driver", f"{CPU}/cpuidle/current_driver", "acpi_idle"),
        ("idle-governor", f"{CPU}/cpuidle/current_governor", "ladder"),
        ("frequency-driver", f"{FREQUENCY}/scaling_driver", "acpi-cpufreq"),
        ("energy-preference", f"{FREQUENCY}/energy_performance_preference", "power"),
        ("vulnerability.mds", f"{CPU}/vulnerabilities/mds", "Vulnerable"),
        ("idle-states", f"{CPU}/cpu0/cpuidle/state1/latency", "99"),
        ("huge-pages", "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
        ("sysctl.numa_balancing", "proc/sys/kernel/numa_balancing", "2"),
    ):
        base = captured("intel", "6.12", {name: UNKNOWN[key]} if key in UNKNOWN else {})
        changed = captured("intel", "6.12", {name: value})
        assert key in refusals(base, changed), key
        if key in UNKNOWN:
            other = captured("intel", "6.1", {name: value})
            assert refusals(base, other) == [], "another kernel has its own"


RUNTIME, SLICE = "proc/sys/kernel/sched_rt_runtime_us", "sys/kernel/debug/sched/base_slice_ns"
SERVER = "sys/kernel/debug/sched/fair_server/cpu0/runtime"
DAMON = "sys/kernel/mm/damon/admin/kdamonds/0/state"
KSM, AUTOGROUP = "sys/kernel/mm/ksm/run", "proc/sys/kernel/sched_autogroup_enabled"
MIGRATION, POLL = "proc/sys/kernel/timer_migration", "proc/sys/net/core/busy_poll"
BOOST, NO_TURBO = f"{CPU}/cpufreq/boost", f"{CPU}/intel_pstate/no_turbo"
PAGES = "proc/sys/vm/percpu_pagelist_high_fraction"
TRACER = "proc/sys/kernel/stack_tracer_enabled"
PERFORMANCE, BIAS = f"{CPU}/intel_pstate/max_perf_pct", f"{CPU}/cpu0/power/energy_perf_bias"
# What decides where the kernel maps memory, its default, and another value.
LAYOUT = (
    ("kernel/randomize_va_space", "2", "0"),
    ("vm/legacy_va_layout", "0", "1"),
    ("vm/overcommit_memory", "0", "2"),
)
AROUND = "sys/kernel/debug/fault_around_bytes"
PLATFORM, LRU = "sys/firmware/acpi/platform_profile", "sys/kernel/mm/lru_gen/enabled"
POWER = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
SHMEM = "sys/kernel/mm/transparent_hugepage/shmem_enabled"
COST, LATENCY = "sys/kernel/debug/sched/migration_cost_ns", "proc/sys/kernel/sched_latency_ns"
SCALED = {
    *(f"proc/sys/kernel/sched_{name}_granularity_ns" for name in ("min", "wakeup")),
    *(f"sys/kernel/debug/sched/{name}_ns" for name in ("latency", "min_granularity")),
    "sys/kernel/debug/sched/wakeup_granularity_ns",
}


@pytest.mark.parametrize(
    ("key", "file", "one", "two", "is_set"),
    [
        ("rt-throttling", RUNTIME, ("6.1", "950000"), ("7.3", "1000000"), False),
        ("rt-throttling", RUNTIME, ("6.1", "950000"), ("7.3", "950000"), False),
        ("rt-throttling", RUNTIME, ("7.2", "1000000"), ("7.3", "950000"), True),
        ("rt-throttling", RUNTIME, ("6.1", "950000"), ("6.12", "-1"), True),
        ("rt-throttling", RUNTIME, ("6.1", "-1"), ("7.3", "1000000"), True),
        ("rt-throttling", RUNTIME, ("6.1", "950000"), ("6.1", "-1"), True),
        ("base-slice", SLICE, ("6.12", "1500000"), ("7.3", "1400000"), False),
        ("base-slice", SLICE, ("6.12", "1500000"), ("7.3", "1500000"), False),
        ("base-slice", SLICE, ("6.12", "1400000"), ("7.3", "1500000"), True),
        ("base-slice", SLICE, ("6.12", "3000000"), ("7.3", "1400000"), True),
        ("base-slice", SLICE, ("7.3", "3000000"), ("7.3", "1400000"), True),
        ("fair-server", SERVER, ("6.18", "50000000"), ("7.3", "0"), True),
        # A file that the other kernel lacks, or that could not be read.
        ("fair-server", SERVER, ("6.1", None), ("7.3", "50000000"), False),
        ("fair-server", SERVER, ("6.1", None), ("7.3", "200000000"), True),
        ("fair-server", SERVER, ("7.3", None), ("7.3", "0"), True),
        ("rt-throttling", RUNTIME, ("6.1", None), ("7.3", "-1"), True),
        ("base-slice", SLICE, ("6.16", None), ("7.3", "100000"), False),
        ("sysctl.timer_migration", MIGRATION, ("6.1", "1"), ("7.3", "0"), True),
        ("sysctl.timer_migration", MIGRATION, ("6.1", "0"), ("7.3", "0"), False),
        ("sysctl.timer_migration", MIGRATION, ("6.1", None), ("7.3", "0"), False),  # off, too
        ("sysctl.timer_migration", MIGRATION, ("7.3", "1"), ("7.3", "0"), True),
        ("sysctl.busy_poll", POLL, ("6.1", "0"), ("7.3", "50"), True),
        ("sysctl.busy_poll", POLL, ("5.10-rt", None), ("7.3", "50"), True),
        ("sysctl.percpu_pagelist_high_fraction", PAGES, ("6.1", "0"), ("7.3", "8"), True),
        ("sysctl.percpu_pagelist_high_fraction", PAGES, ("7.3", None), ("7.3", "0"), False),
        ("sysctl.sched_latency_ns", LATENCY, ("5.10", "24000000"), ("6.1", None), True),
        ("scheduler.migration_cost_ns", COST, ("6.1", "500000"), ("7.3", "5000000"), True),
        # Earlier versions of klat did not record it.
        ("sysctl.stack_tracer_enabled", TRACER, ("7.3", None), ("7.3", "0"), False),
        ("sysctl.stack_tracer_enabled", TRACER, ("7.3", None), ("7.3", "1"), True),
        *(
            (f"sysctl.{name.partition('/')[2]}", f"proc/sys/{name}", *values)
            for name, default, other in LAYOUT
            for values in (
                (("6.1", default), ("7.3", other), True),
                (("7.3", default), ("7.3", other), True),
                (("7.3", None), ("7.3", default), False),
                (("7.3", None), ("7.3", other), True),
            )
        ),
        (
            "sysctl.overcommit_memory",
            "proc/sys/vm/overcommit_memory",
            ("6.1", "0"),
            ("7.3", "1"),
            False,
        ),
        ("ksm", KSM, ("6.1", "0"), ("7.3", "1"), True),
        # Only a machine where somebody made a monitor has the file.
        ("damon", DAMON, ("6.1", None), ("7.3", "on"), True),
        ("damon", DAMON, ("7.3", None), ("7.3", "off"), False),
        # A driver without the file does not limit the frequency.
        ("boost", BOOST, ("6.1", None), ("7.3", "0"), True),
        ("boost", BOOST, ("6.1", None), ("7.3", "1"), False),
        ("no-turbo", NO_TURBO, ("6.1", "1"), ("7.3", None), True),
        # Distributions change this default.
        ("sysctl.sched_autogroup_enabled", AUTOGROUP, ("6.1", "0"), ("7.3", "1"), False),
        ("sysctl.sched_autogroup_enabled", AUTOGROUP, ("7.3", "0"), ("7.3", "1"), True),
        ("performance-limit-max", PERFORMANCE, ("6.1", "100"), ("7.3", "50"), True),
        ("performance-limit-max", PERFORMANCE, ("7.3", "50"), ("7.3", None), False),
        ("energy-bias", BIAS, ("6.1", "6"), ("7.3", "15"), True),
        ("power-limit", POWER, ("6.1", "95000000"), ("7.3", "65000000"), True),
        ("power-limit", POWER, ("7.3", None), ("7.3", "65000000"), False),
        ("platform-profile", PLATFORM, ("6.1", "balanced"), ("7.3", "low-power"), True),
        ("platform-profile", PLATFORM, ("7.3", None), ("7.3", "low-power"), False),
        # The kernel's configuration chooses their defaults.
        ("lru-gen", LRU, ("6.1", "0x0000"), ("7.3", "0x0007"), False),
        ("lru-gen", LRU, ("7.3", "0x0000"), ("7.3", "0x0007"), True),
        ("lru-gen", LRU, ("7.3", None), ("7.3", "0x0007"), False),
        ("huge-pages-shared", SHMEM, ("7.3", "[always] never"), ("7.3", "always [never]"), True),
    ],
)
def test_a_value_was_set_if_its_own_kernel_has_another_by_default(
    captured, key, file, one, two, is_set
):
    cpus = 2 if key == "base-slice" else 1
    sides = [captured("counted", k, {file: value}, cpus_online=cpus) for k, value in (one, two)]
    for base, new in permutations(sides):
        assert refusals(base, new) == [key] * is_set


@pytest.mark.parametrize(("shown", "refused"), [(16, []), (None, ["sysctl.sched_latency_ns"])])
def test_a_default_follows_from_the_cpus_of_the_kernel_not_from_those_of_a_container(
    captured, shown, refused
):
    """lxcfs shows a container its own CPUs as the online ones. It does not change /proc/interrupts."""
    header = "".join(f"{f'CPU{cpu}':>11}" for cpu in range(shown or 0))
    interrupts = {"proc/interrupts": f"    {header}\n  1: " if shown else None}
    sides = [
        captured("counted", kernel, {**interrupts, LATENCY: value} | {name: None for name in gone})
        for kernel, value, gone in (
            ("5.10", "24000000", files_of("counted", "5.10").keys() & SCALED),
            ("6.1", None, files_of("counted", "6.1").keys() & SCALED),
        )
    ]
    for base, new in permutations(sides):
        assert refusals(base, new) == refused


NET = "proc/sys/net/"
RMEM, WMEM = f"{NET}ipv4/tcp_rmem", f"{NET}ipv4/tcp_wmem"
HANDLERS = "Type Device      Function\n0800          ip_rcv\n"
MODULE = " [af_packet]"


def tap(device: str, module: str = "") -> str:
    """net/core/net-procfs.c, ptype_seq_show()"""
    return f"ALL  {device:8} packet_rcv{module}\n"


SMALL, LARGE = "4096\t131072\t6291456", "4096\t131072\t33554432"
MEMORY: Files = {"proc/meminfo": "MemTotal: 700000 kB"}  # 5,600,000 is 1/128 of it


@pytest.mark.parametrize(
    ("file", "base_sysctl", "new_sysctl", "is_set"),
    [
        (RMEM, ("6.1", SMALL), ("7.3", LARGE), False),
        (RMEM, ("6.1", LARGE), ("6.12", SMALL), True),
        (RMEM, ("7.3", "4096\t8192\t16384"), ("7.3", LARGE), True),
        (RMEM, ("6.1", "4096\t131072\t5500000"), ("7.3", "65536\t131072\t5300000"), False),
        (RMEM, ("7.3", "4096\t131072\t5500000"), ("7.3", "4096\t131072\t5300000"), False),
        (RMEM, ("7.3", "4096\t131072\t2800000"), ("7.3", "4096\t131072\t5300000"), True),
        (RMEM, ("7.3", ""), ("7.3", "9" * 5000), True),
        (RMEM, ("7.3", None), ("7.3", LARGE), False),  # an earlier klat
        (WMEM, ("6.1", "4096\t16384\t4194304"), ("7.3", "4096\t16384\t4194304"), False),
        (WMEM, ("6.1", "4096\t65536\t4194304"), ("7.3", "4096\t16384\t4194304"), True),
        (f"{NET}core/wmem_default", ("6.1", "212992"), ("7.3", "229376"), False),
        (f"{NET}core/wmem_default", ("6.1", "212992"), ("7.3", "16384"), True),
        (f"{NET}core/high_order_alloc_disable", ("6.1", "0"), ("7.3", "1"), True),
        (f"{NET}ipv4/tcp_window_scaling", ("6.1", "1"), ("7.3", "0"), True),
        (f"{NET}ipv4/tcp_notsent_lowat", ("6.1", "4294967295"), ("7.3", "131072"), True),
        (f"{NET}ipv4/tcp_tso_win_divisor", ("6.1", "3"), ("7.3", "1"), True),
        (f"{NET}ipv4/tcp_backlog_ack_defer", ("6.1", None), ("7.3", "1"), False),
        (f"{NET}ipv4/tcp_backlog_ack_defer", ("6.1", None), ("7.3", "0"), True),
        (f"{NET}core/max_skb_frags", ("6.1", "17"), ("7.3", "1"), True),
        (f"{NET}ipv4/tcp_congestion_control", ("6.1", "cubic"), ("7.3", "bbr"), True),
        (f"{NET}core/rps_sock_flow_entries", ("6.1", "0"), ("7.3", "32768"), True),
        (f"{NET}core/rps_sock_flow_entries", ("7.3", None), ("7.3", "32768"), False),
        (f"{NET}core/rps_default_mask", ("6.1", "00000000,00000000"), ("7.3", "0"), False),
        (f"{NET}core/flow_limit_cpu_bitmap", ("6.1", "0"), ("7.3", "3"), True),
        ("sys/class/net/lo/queues/rx-0/rps_cpus", ("6.1", "0"), ("7.3", "3"), True),
        ("proc/net/ptype", ("6.1", HANDLERS), ("7.3", HANDLERS + tap("")), True),
        ("proc/net/ptype", ("6.1", HANDLERS + tap("", MODULE)), ("7.3", HANDLERS + tap("")), False),
        ("proc/net/ptype", ("6.1", HANDLERS), ("7.3", HANDLERS + tap("", MODULE)), True),
        ("proc/net/ptype", ("6.1", HANDLERS), ("7.3", HANDLERS + tap("lo")), True),
        ("proc/net/ptype", ("6.1", HANDLERS), ("7.3", HANDLERS + tap("eth0")), False),
    ],
)
def test_sysctls_of_the_network_count_for_programs_that_use_it(
    captured, file, base_sysctl, new_sysctl, is_set
):
    is_of_receiving = Path(file).name.startswith(("rps", "flow", "ptype"))
    for program in ("transport", "network", "pipes"):
        base, new = (
            captured("counted", kernel, {**MEMORY, file: value}, programs={program: "0"})
            for kernel, value in (base_sysctl, new_sysctl)
        )
        differing = refusals(base, new)
        counts = program == "transport" or (is_of_receiving and program == "network")
        assert differing == [f"net.{Path(file).name}"] * (is_set and counts)


def test_the_configuration_of_a_kernel_chooses_its_congestion_control(captured):
    for given, refused in (("BBR", []), ("CUBIC", ["net.tcp_congestion_control"])):
        base, new = (
            captured(
                "counted",
                kernel,
                {
                    f"boot/config-{kernel}": f"CONFIG_DEFAULT_{option}=y\n",
                    f"{NET}ipv4/tcp_congestion_control": value,
                },
                programs={"transport": "0"},
            )
            for kernel, option, value in (("6.1", "CUBIC", "cubic"), ("7.3", given, "bbr"))
        )
        assert refusals(base, new) == refused


def scaled(driver: str, governor: str, preference: str, profile: str | None = "2") -> Files:
    return {
        f"{FREQUENCY}/scaling_driver": driver,
        f"{FREQUENCY}/scaling_governor": governor,
        f"{FREQUENCY}/energy_performance_preference": preference,
        "sys/firmware/acpi/pm_profile": profile,
    }


INTEL, AMD = "intel_pstate", "amd-pstate-epp"
BALANCED = "balance_performance"


@pytest.mark.parametrize(
    ("one", "two", "refused"),
    [
        # The Linux 6.14 driver chooses a preference of its own.
        (("6.12", AMD, "powersave", "performance"), ("6.18", AMD, "powersave", BALANCED), []),
        (("6.12", AMD, "powersave", "power"), ("6.18", AMD, "powersave", BALANCED), [0]),
        (("6.12", AMD, "powersave", "power", "4"), ("6.18", AMD, "powersave", BALANCED, "4"), [0]),
        (("6.6", AMD, "powersave", BALANCED), ("6.12", AMD, "powersave", "performance"), [0]),
        # Without the profile, the default is one of two.
        (
            ("6.6", AMD, "powersave", BALANCED, None),
            ("6.12", AMD, "powersave", "performance", None),
            [],
        ),
        # The governor performance, a default of the kernel or not, decides the preference.
        (("6.6", INTEL, "performance", "performance"), ("6.12", INTEL, "powersave", BALANCED), []),
        (("6.6", INTEL, "performance", "performance"), ("6.18", INTEL, "powersave", BALANCED), [1]),
        (("6.12", INTEL, "powersave", BALANCED), ("6.18", INTEL, "powersave", "power"), [0]),
    ],
)
def test_an_energy_preference_that_the_kernel_brings_is_not_refused(captured, one, two, refused):
    sides = []
    for kernel, *values in (one, two):
        by_default = "PERFORMANCE" if kernel == "6.6" and two[0] == "6.12" else "SCHEDUTIL"
        config = {"boot/config-x": f"CONFIG_CPU_FREQ_DEFAULT_GOV_{by_default}=y"}
        sides.append(captured("amd", kernel, scaled(*values) | config, mode="hardware"))
    names = ["energy-preference", "governor"]
    for base, new in permutations(sides):
        assert refusals(base, new) == [names[i] for i in refused]


NODES: Files = {f"sys/devices/system/node/node{node}/cpulist": "0" for node in (0, 1)}
CHOICES = ("[always] madvise never", "always [madvise] never", "always madvise [never]")


@pytest.mark.parametrize(
    ("key", "file", "one", "two", "is_set"),
    [
        ("sysctl.numa_balancing", "proc/sys/kernel/numa_balancing", *sides)
        for sides in (
            (("NUMA_BALANCING_DEFAULT_ENABLED", "1"), ("NUMA", "0"), False),
            (("NUMA_BALANCING_DEFAULT_ENABLED", "1"), ("NUMA", "1"), False),
            (
                ("NUMA_BALANCING_DEFAULT_ENABLED", "1"),
                ("NUMA_BALANCING_DEFAULT_ENABLED", "0"),
                True,
            ),
            (("NUMA_BALANCING_DEFAULT_ENABLED", "0"), ("NUMA", None), False),
            (("NUMA_BALANCING_DEFAULT_ENABLED", "2"), ("NUMA", None), True),
        )
    ]
    + [
        ("sysctl.nmi_watchdog", "proc/sys/kernel/nmi_watchdog", *sides)
        for sides in (
            (("HARDLOCKUP_DETECTOR", "1"), ("SOFTLOCKUP_DETECTOR", "0"), False),
            (("HARDLOCKUP_DETECTOR", "1"), ("HARDLOCKUP_DETECTOR", "0"), True),
        )
    ]
    + [
        ("huge-pages", "sys/kernel/mm/transparent_hugepage/enabled", *sides)
        for sides in (
            (("TRANSPARENT_HUGEPAGE_ALWAYS", 0), ("TRANSPARENT_HUGEPAGE_MADVISE", 1), False),
            (("TRANSPARENT_HUGEPAGE_ALWAYS", 0), ("TRANSPARENT_HUGEPAGE_ALWAYS", 1), True),
            (("TRANSPARENT_HUGEPAGE_ALWAYS", 2), ("PREEMPT_RT", None), False),
        )
    ],
)
def test_some_defaults_follow_from_the_configuration(captured, key, file, one, two, is_set):
    sides = []
    for kernel, (option, value) in (("6.1", one), ("6.12", two)):
        text = CHOICES[value] if isinstance(value, int) else value
        config = f"CONFIG_CPU_FREQ_DEFAULT_GOV_SCHEDUTIL=y\nCONFIG_{option}=y"
        files = {file: text, "boot/config-x": config, **NODES}
        sides.append(captured("intel", kernel, files, mode="hardware"))
    for base, new in permutations(sides):
        assert refusals(base, new) == [key] * is_set


@pytest.mark.parametrize(
    ("seen", "other", "refused"),
    # With another value than never, the memory is not the machine's: lxcfs shows that of a container.
    [(2, 0, []), (0, 1, []), (1, 0, ["huge-pages"])],
)
def test_huge_pages_off_is_a_default_with_little_memory(captured, seen, other, refused):
    file = "sys/kernel/mm/transparent_hugepage/enabled"
    little: Files = {"proc/meminfo": "MemTotal: 430000 kB", file: CHOICES[seen]}
    config = "CONFIG_TRANSPARENT_HUGEPAGE_ALWAYS=y"
    old = captured("intel", "6.1", {**little, "boot/config-x": config})
    config = f"CONFIG_TRANSPARENT_HUGEPAGE_{('ALWAYS', 'MADVISE')[other]}=y"
    new = captured("intel", "6.12", {file: CHOICES[other], "boot/config-x": config})
    assert refusals(old, new) == refused


def test_a_side_whose_command_line_was_not_recorded_is_refused(captured):
    base, unread = captured("intel", "6.1"), captured("intel", "6.12", {"proc/cmdline": None})
    assert "environment" in refusals(base, unread)


def test_files_of_debugfs_say_nothing_where_they_were_not_recorded(captured):
    files = files_of("counted", "7.3")
    unread = captured("counted", "7.3", {name: None for name in files if "kernel/debug" in name})
    for kernel in ("6.18", "7.3"):
        assert refusals(captured("counted", kernel), unread) == []


def test_the_server_of_a_cpu_that_came_up_late_says_nothing_yet(captured):
    late = {
        SERVER.replace("cpu0", "cpu1").replace("runtime", f): "0" for f in ("runtime", "period")
    }
    old, new = captured("counted", "6.18"), captured("counted", "7.3", late)
    assert refusals(old, new) == []
    off = captured("counted", "7.3", {SERVER.replace("cpu0", "cpu1"): "0"})
    assert refusals(old, off) == ["fair-server"]


def test_in_a_guest_of_the_lab_the_kernel_brings_all_that_its_command_line_does_not_set(captured):
    lab = {"lab": {"mode": "kvm"}}
    files = {RUNTIME: "900000", CLOCK: "new", f"{CPU}/isolated": "1"}
    old, new = captured("counted", "6.1", facts=lab), captured("counted", "7.3", files, facts=lab)
    assert refusals(old, new) == []
    found = disagreements([captured("counted", "6.1")], [captured("counted", "7.3", files)])
    assert keys(found) == ["clocksource", "isolated", "rt-throttling"]
    # What a kernel brings is the same in each of its boots.
    boots = [new, captured("counted", "7.3", facts=lab)]
    assert "rt-throttling" in keys(disagreements([old], boots))


def test_what_a_kernel_brings_must_agree_within_a_side(captured):
    name = "sys/kernel/mm/transparent_hugepage/enabled"
    boots = [captured("intel", "6.1", {name: f"{text} madvise"}) for text in ("[always]", "always")]
    other = captured("intel", "6.12", {name: "[always] madvise"})
    assert keys(disagreements(boots, [other])) == ["huge-pages"]
    assert disagreements(boots[1:], [other]) == []


def test_a_loaded_scheduler_is_another_kernel_in_effect(captured):
    def loaded(kernel: str, operations: str, **files: str) -> Values:
        held = {"state": "enabled", "root/ops": operations, "switch_all": "1"} | files
        return captured(
            "counted", kernel, {f"sys/kernel/sched_ext/{file}": text for file, text in held.items()}
        )

    lavd = loaded("6.18", "lavd_1.0.9")
    assert refusals(lavd, loaded("7.3", "lavd_1.0.9")) == []
    for kernel in ("6.1", "6.18", "7.3"):  # 6.1 cannot load any
        (found,) = disagreements([captured("counted", kernel)], [lavd])
        assert (found.key, found.base, found.new) == ("sched-ext", "none", "lavd_1.0.9")
    for other in (loaded("6.18", "rusty"), loaded("6.18", "lavd_1.0.9", switch_all="0")):
        assert refusals(lavd, other) == ["sched-ext"]


def test_an_idle_state_that_the_driver_disables_was_not_set(captured):
    state = f"{CPU}/cpu0/cpuidle/state2"
    by_driver = {f"{state}/disable": "1", f"{state}/default_status": "disabled"}
    old, new = captured("intel", "6.1"), captured("intel", "6.18", by_driver)
    assert refusals(old, new) == []
    by_hand = captured("intel", "6.18", by_driver | {f"{state}/disable": "0"})
    (found,) = disagreements([new], [by_hand])
    assert (found.key, found.new) == ("idle-state.C1E", "enabled, by default disabled")
    assert refusals(old, by_hand) == ["idle-state.C1E"]


def test_a_governor_was_set_if_the_configuration_names_another(captured):
    def configured(
        kernel: str, driver: str, governor: str, built_in: str, profile: str | None = None
    ) -> Values:
        files: Files = {f"{FREQUENCY}/scaling_governor": governor}
        files |= {"sys/firmware/acpi/pm_profile": profile}
        files |= {f"{FREQUENCY}/scaling_driver": driver}
        files |= {"boot/config-x": f"CONFIG_CPU_FREQ_DEFAULT_GOV_{built_in}=y"}
        return captured("intel", kernel, files)

    stock = configured("6.1", "acpi-cpufreq", "schedutil", "SCHEDUTIL")
    for governor, built_in in (("performance", "PERFORMANCE"), ("ondemand", "ONDEMAND")):
        for kernel, refused in (("6.12", 0), ("6.1", 1)):
            brought = configured(kernel, "acpi-cpufreq", governor, built_in)
            assert refusals(stock, brought) == ["governor"] * refused
    was_set = configured("6.12", "acpi-cpufreq", "performance", "SCHEDUTIL")
    assert refusals(stock, was_set) == ["governor"]
    files: Files = {f"{FREQUENCY}/scaling_{file}": None for file in ("governor", "driver")}
    without = captured("intel", "6.1", files)
    by_itself = configured("6.12", "acpi-cpufreq", "performance", "PERFORMANCE")
    assert refusals(without, by_itself) == []
    (found,) = disagreements([without], [was_set])
    assert (found.key, found.base, found.new) == ("governor", "absent", "performance")
    active = [
        configured("6.1", "intel_pstate", "powersave", "SCHEDUTIL"),
        configured("6.12", "intel_pstate", "performance", "PERFORMANCE"),
    ]
    assert disagreements(active[:1], active[1:]) == []
    for profile, refused in ((None, 0), ("4\n", 0), ("2\n", 1)):  # not recorded, a server, a laptop
        server = configured("6.12", "amd-pstate-epp", "performance", "SCHEDUTIL", profile)
        assert refusals(stock, server) == ["governor"] * refused


def test_a_clock_source_was_set_if_the_kernel_rates_another_higher(captured):
    rated = CLOCK.replace("current", "available")
    kvm = captured("intel", "6.1", {CLOCK: "kvm-clock", rated: "kvm-clock tsc acpi_pm"})
    for chosen, order, is_set in (
        ("tsc", "tsc kvm-clock", 0),
        ("tsc", "kvm-clock tsc", 1),
        ("hpet", "hpet acpi_pm", 1),
    ):
        other = captured("intel", "6.12", {CLOCK: chosen, rated: order})
        assert refusals(kvm, other) == ["clocksource"] * is_set


def test_a_boot_by_kexec_is_another_kind_of_boot(captured):
    """The numbers are those of GRUB, of the kernel's EFI stub, and of kexec."""
    file = "proc/sys/kernel/bootloader_type"
    grub, stub, kexec = (captured("intel", "6.1", {file: n}) for n in ("114", "33", "208"))
    assert refusals(grub, stub) == []
    assert refusals(captured("intel", "6.1"), kexec) == []  # recorded by an earlier klat
    for one, two in (([grub], [kexec]), ([grub, kexec], [grub, kexec])):
        (found,) = disagreements(one, two)
        assert found.key == "boot"
    (found,) = disagreements([grub], [captured("intel", "6.12", {file: "208"})])
    said = "boot: what started the kernel is a boot loader in BASE and kexec in NEW"
    assert found.sentence() == said


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ('"mitigations=off"', {"mitigations": "off"}),
        ('dyndbg="file a.c +p; file b.c +p"', {"dyndbg": "file a.c +p; file b.c +p"}),
        ("module_blacklist=a module_blacklist=b", {"module_blacklist": "a b"}),
        ("isolcpus=1 isolcpus=1", {"isolcpus": "1"}),
        ("rcu_nocbs=1 rcu-nocbs=2", {"rcu_nocbs": "1 2"}),
        ("-- --port 7 systemd.cpu-affinity=0", {"systemd.cpu_affinity": "0"}),
    ],
)
def test_a_line_is_read_as_the_kernel_reads_it(captured, words, found):
    line = files_of("intel", "6.1")["proc/cmdline"]
    other = captured("intel", "6.1", {"proc/cmdline": f"{line} {words}"})
    held = disagreements([captured("intel", "6.1")], [other])
    assert {c.key.removeprefix("cmdline."): c.new for c in held} == found


def test_an_idle_governor_that_both_kernels_have_was_set(captured):
    governor = f"{CPU}/cpuidle/current_governor"
    ladder = captured("intel", "6.1", {governor: "ladder"})
    assert refusals(captured("intel", "6.12"), ladder) == ["idle-governor"]
    assert refusals(captured("intel", "6.18"), ladder) == []  # which has only teo


@pytest.mark.parametrize(
    ("one", "two", "classes"),
    [
        ("Vulnerable: No microcode", "Mitigation: Microcode", 1),
        ("KVM: Mitigation: VMX disabled", "KVM: Vulnerable", 1),
        ("Processor vulnerable", "Mitigation: a", 1),
        ("Mitigation: a, b", "Mitigation: a; b; c: Vulnerable", 0),
        ("Unknown: Dependent on hypervisor status", "Vulnerable", 0),
        ("Not affected", "Mitigation: a", 2),
        ("Not affected", "Vulnerable", 2),
    ],
)
def test_a_vulnerability_counts_by_class(captured, one, two, classes):
    """1: refused between sides of one kernel; 2: also refused between sides of two kernels."""
    file = f"{CPU}/vulnerabilities/odd"
    base = captured("intel", "6.1", {file: one})
    for kernel, refused in (("6.1", classes > 0), ("6.12", classes > 1)):
        found = disagreements([base], [captured("intel", kernel, {file: two})])
        assert keys(found) == ["vulnerability.odd"] * refused, kernel


def test_whether_a_cpu_has_threads_is_for_the_kernel_to_say(captured):
    control = f"{CPU}/smt/control"
    for silent in ("notsupported", "notimplemented"):
        base = captured("intel", "6.1", {control: silent})
        assert refusals(base, captured("intel", "6.12")) == []
        assert refusals(base, captured("intel", "6.1")) == ["smt"]


def test_one_more_file_of_one_kernel_is_listed(captured):
    more = captured("intel", "6.1", {f"{CPU}/vulnerabilities/new": "Vulnerable"})
    assert refusals(captured("intel", "6.1"), more) == []


def test_a_default_on_the_command_line_is_not_a_difference(captured):
    aloud = captured("intel", "6.1", {"proc/cmdline": "quiet mitigations=auto"})
    assert refusals(captured("intel", "6.1"), aloud) == []


def test_a_word_that_klat_does_not_know_is_refused(captured):
    aloud = {"proc/cmdline": "quiet module-x.odd=1"}
    for kernel in ("6.1", "6.12"):
        found = disagreements([captured("intel", kernel)], [captured("intel", "6.1", aloud)])
        assert keys(found) == ["cmdline.module_x.odd"] and is_allowable(found[0].key)


def test_words_without_effect_on_what_is_timed_are_never_refused(captured):
    line = (
        "BOOT_IMAGE=/vmlinuz root=UUID=2 rw rootwait console=ttyAMA0,115200 earlycon loglevel=3"
        " ip=10.0.0.2::10.0.0.1 nfsroot=/job/2 systemd.unit=a panic=10 klat.campaign=rt preempt=none"
        " usrhash=2 gnu.load=/2/boot mount.usr=/dev/b zfs=rpool/b rauc.slot=B ubi.mtd=b"
        " dm-mod.create=b snap_kernel=pc-kernel_2.snap snapd_recovery_mode=run"
        " systemd.set_credential=a:b systemd.default_timeout_start_sec=9 -- --port 7"
    )
    for kernel in ("6.1", "6.12"):
        other = captured("intel", kernel, {"proc/cmdline": line})
        assert refusals(captured("intel", "6.1"), other) == []


def test_each_difference_has_a_key_of_its_own(captured):
    line = {"proc/cmdline": "mitigations=off spectre_v2=off idle=poll processor.max_cstate=1"}
    found = disagreements([captured("intel", "6.1")], [captured("intel", "6.12", line)])
    words = ("idle", "mitigations", "processor.max_cstate", "spectre_v2")
    assert keys(found) == [f"cmdline.{word}" for word in words]


def declared(experiment: str, append: str) -> Mapping[str, Any]:
    return {"under_test": {"experiment": experiment, "append": append}}


def test_words_are_under_test_only_between_labels_of_one_experiment(captured):
    plain = captured("intel", "6.1", facts=declared("e", ""))
    off = captured("intel", "6.1", facts=declared("e", "mitigations=off"))
    assert words_under_test([plain], [off]) == ("", "mitigations=off")
    assert words_under_test([off], [plain]) == ("mitigations=off", "")
    other = captured("intel", "6.1", facts=declared("f", "mitigations=off"))
    for sides in (([plain], [other]), ([plain], [off, other]), ([plain], [plain]), ([plain], [])):
        assert words_under_test(*sides) is None
    for facts in ({}, {"under_test": None}, {"under_test": {"append": "x"}}):
        assert words_under_test([captured("intel", "6.1", facts=facts)], [off]) is None


def test_two_architectures_are_refused_with_the_reason_and_cannot_be_allowed():
    condition = Condition("architecture", "architecture", "x86_64", "aarch64")
    assert condition.refusal() == (
        "architecture: architecture is x86_64 in BASE and aarch64 in NEW; programs and kernels have"
        " other instructions there"
    )
    assert not is_allowable("architecture")


@pytest.mark.parametrize(
    ("cpus", "base", "new", "is_set"),
    [
        (3, "2250000", "2100000", False),  # one of four CPUs went offline, and still counted
        (3, "1500000", "1400000", False),
        (1, "1500000", "1400000", False),
        (3, "1500000", "2100000", True),  # a CPU went offline on one side only
        (4, "1500000", "1400000", True),
    ],
)
def test_the_base_slice_counts_a_cpu_that_went_offline(captured, cpus, base, new, is_set):
    sides = [
        captured("counted", kernel, {SLICE: value}, cpus_online=cpus)
        for kernel, value in (("6.12", base), ("7.3", new))
    ]
    assert keys(disagreements(*([side] for side in sides))) == ["base-slice"] * is_set


POLICY = f"{FREQUENCY}/boost"
UNBOOSTED = {f"{FREQUENCY}/{file}_max_freq": "3000000" for file in ("cpuinfo", "scaling")}


@pytest.mark.parametrize(
    ("base", "new", "refused"),
    [
        (("6.12", "1", "1"), ("6.18", "1", "0"), ["boost"]),
        (("6.18", "1", "1"), ("6.18", "1", "0"), ["boost"]),
        (("6.12", "1", "1"), ("6.18", "0", "0"), ["boost"]),
        (("6.6", "1", "0"), ("6.18", "1", "1"), []),
        (("6.12", "1", None), ("6.18", "1", "1"), []),  # an earlier klat
        (("6.18", "1", None), ("6.18", "1", "1"), []),
    ],
)
def test_a_policy_without_boost_was_set(captured, base, new, refused):
    sides = [captured("amd", k, {BOOST: boost, POLICY: policy}) for k, boost, policy in (base, new)]
    for one, two in permutations(sides):
        assert refusals(one, two) == refused
    assert keys(disagreements(sides, sides)) == refused


def test_the_boots_of_a_kernel_have_one_highest_frequency(captured):
    whole, lower = captured("amd", "6.18"), captured("amd", "6.18", UNBOOSTED)
    for sides in (([whole], [lower]), ([whole, lower], [whole, lower])):
        assert keys(disagreements(*sides)) == ["highest-frequency"]
    assert refusals(captured("amd", "6.12"), lower) == []
    slower = captured("amd", "6.18", {**UNBOOSTED, BOOST: "0"})
    assert refusals(whole, slower) == ["boost"]  # it lowers the highest frequency


def cpuinfo(mhz: str = "800.1", apicid: int = 0, **fields: str) -> Files:
    """Of two CPUs, which differ by themselves in three fields."""
    lines = {"flags": "fpu pcid invpcid", "cache size": "1024 KB", "cpu MHz": mhz} | fields
    cpus = (
        {"processor": str(cpu), "apicid": str(apicid + cpu), "bogomips": f"{mhz}{cpu}"} | lines
        for cpu in (0, 1)
    )
    text = "\n".join("".join(f"{key}\t: {cpu[key]}\n" for key in cpu) for cpu in cpus)
    return {"proc/cpuinfo": text}


@pytest.mark.parametrize(
    ("key", "one", "two"),
    [
        ("cpu-features", cpuinfo(), cpuinfo(flags="fpu")),
        ("cpu-features", cpuinfo(Features="fp asimd"), cpuinfo(Features="fp asimd sve")),
        ("cache-size", cpuinfo(), cpuinfo(**{"cache size": "512 KB"})),
        ("nodes", NODES, {name: NODES[name] for name in list(NODES)[:1]}),
        (None, cpuinfo(), cpuinfo("2600.5", apicid=8)),
    ],
)
def test_the_boots_of_a_kernel_have_one_kind_of_cpus_and_nodes(captured, key, one, two):
    base, new = (captured("intel", "6.12", files) for files in (one, two))
    refused = [key] if key else []
    for sides in (([base], [new]), ([new], [base]), ([base, new], [base, new])):
        assert keys(disagreements(*sides)) == refused
    assert refusals(captured("intel", "6.1", one), new) == []


@pytest.mark.parametrize("word", ["nopcid", "arm64.nosve"])
def test_a_word_that_removes_a_feature_of_the_cpus_is_refused_alone(captured, word):
    line = {"proc/cmdline": f"{files_of('intel', '6.12')['proc/cmdline']} {word}"}
    off = captured("intel", "6.12", {**cpuinfo(flags="fpu"), **line})
    assert refusals(captured("intel", "6.12", cpuinfo()), off) == [f"cmdline.{word}"]


PROFILING = "proc/sys/vm/mem_profiling"
THRESHOLD = f"{CPU}/cpufreq/ondemand/up_threshold"
RATE_LIMIT = f"{FREQUENCY}/schedutil/rate_limit_us"
HUGE = "sys/kernel/mm/transparent_hugepage"
UNCORE = f"{CPU}/intel_uncore_frequency/package_00_die_00"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("key", "file", "one", "two", "refused"),
    [  # between two kernels, and between sides of one
        ("c1-demotion", f"{CPU}/cpuidle/intel_c1_demotion", "1", "0", (1, 1)),
        ("dynamic-boost", f"{CPU}/intel_pstate/hwp_dynamic_boost", "1", "0", (1, 1)),
        ("uncore-max", f"{UNCORE}/max_freq_khz", "2400000", "800000", (1, 1)),
        ("uncore-min", f"{UNCORE}/min_freq_khz", "2400000", "800000", (1, 1)),
        ("fault-around", AROUND, "65536", "4096", (1, 1)),
        ("fault-around", AROUND, "65536", None, (0, 0)),
        ("fault-around", AROUND, None, "4096", (1, 1)),
        *((f"sysctl.{n.partition('/')[2]}", f"proc/sys/{n}", a, b, (1, 1)) for n, a, b in LAYOUT),
        ("lockdep.lock_stat", "proc/sys/kernel/lock_stat", "1", "0", (1, 1)),
        ("lockdep.prove_locking", "proc/sys/kernel/prove_locking", "1", "0", (1, 1)),
        ("lockdep.lock_stat", "proc/sys/kernel/lock_stat", "1", None, (0, 0)),
        ("lockdep.lock_stat", "proc/sys/kernel/lock_stat", "0", None, (1, 1)),
        ("tunable.ondemand.up_threshold", THRESHOLD, "95", "5", (1, 1)),
        ("tunable.ondemand.up_threshold", THRESHOLD, "95", "80", (0, 1)),
        ("tunable.schedutil.rate_limit_us", RATE_LIMIT, "1", "2", (0, 1)),
        ("tunable.schedutil.rate_limit_us", RATE_LIMIT, "1", None, (0, 0)),
        ("huge-pages-of-size.2048kB/enabled", f"{HUGE}/hugepages-2048kB/enabled", "a", "b", (0, 1)),
        ("memory-profiling", PROFILING, "0", None, (0, 0)),
        ("memory-profiling", PROFILING, "0", "1", (1, 1)),
    ],
)
def test_a_changed_value_of_a_file_is_a_condition(captured, key, file, one, two, refused):
    patterns = re.findall(r'^\t"/(.+)",$', (ROOT / "lib/machine/environment.c").read_text(), re.M)
    assert any(PurePath(file).match(pattern) for pattern in patterns)
    for kernel, is_refused in zip(("6.1", "6.12"), refused):
        base, new = captured("intel", kernel, {file: one}), captured("intel", "6.12", {file: two})
        for sides in (([base], [new]), ([new], [base])):
            assert keys(disagreements(*sides)) == [key] * is_refused
    assert is_allowable(key)


def test_a_kernel_can_be_configured_to_profile_memory(captured):
    option = {"boot/config-x": "CONFIG_MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT=y\n", PROFILING: "1"}
    for value in ("0", None):
        config = {"boot/config-x": "CONFIG_CPU_FREQ_DEFAULT_GOV_SCHEDUTIL=y\n"}
        other = captured("intel", "6.1", {PROFILING: value, **config})
        assert refusals(other, captured("intel", "6.12", option)) == []


@pytest.mark.parametrize(
    ("base", "new", "is_refused"),
    [
        (("6.12", "1742000"), ("6.18", "2000000"), False),
        (("6.12", "1742000"), ("6.18", "4426000"), True),  # the highest
        (("6.12", "2000000"), ("6.18", "1742000"), True),
        (("6.18", "1742000"), ("6.18", "2000000"), True),
    ],
)
def test_the_firmware_can_request_a_lowest_frequency(captured, base, new, is_refused):
    file = f"{FREQUENCY}/scaling_min_freq"
    sides = [captured("amd", kernel, {file: lowest}) for kernel, lowest in (base, new)]
    for one, two in permutations(sides):
        assert refusals(one, two) == ["frequency-min"] * is_refused


@pytest.mark.parametrize(
    ("lowest", "cppc", "is_refused"),
    [
        ("952000", (34, 10, 100, 280, 2800), False),
        ("1422222", (50, 10, 100, 320, 2800), False),
        ("1600000", (50, 10, 100, 320, 2800), True),
        ("1422222", (50, 10, 100, 0, 2800), True),
        ("1422222", (50, 100, 100, 2800, 2800), True),
    ],
)
def test_cppc_starts_with_the_lowest_nonlinear_performance(captured, lowest, cppc, is_refused):
    names = ("lowest_nonlinear_perf", "lowest_perf", "nominal_perf", "lowest_freq", "nominal_freq")
    files = {f"{CPU}/cpu0/acpi_cppc/{name}": str(value) for name, value in zip(names, cppc)}
    files |= {f"{FREQUENCY}/scaling_driver": "cppc_cpufreq"}
    file = f"{FREQUENCY}/scaling_min_freq"
    old = captured("intel", "6.1", {**files, file: "800000"})  # cpuinfo_min_freq
    new = captured("intel", "6.12", {**files, file: lowest})
    assert refusals(old, new) == ["frequency-min"] * is_refused


@pytest.mark.parametrize(
    ("fragments", "size", "is_set"),
    [("45", "327680", False), ("17", "327680", True), ("32", "278528", False)],
)
def test_the_default_send_buffer_and_fragments_depend_on_the_configuration(
    captured, fragments, size, is_set
):
    config = "CONFIG_CPU_FREQ_DEFAULT_GOV_SCHEDUTIL=y\nCONFIG_MAX_SKB_FRAGS="
    base, new = (
        captured(
            "counted",
            kernel,
            {
                "boot/config-x": f"{config}{count}\n",
                f"{NET}core/wmem_default": value,
                f"{NET}core/max_skb_frags": count,
            },
            programs={"transport": "0"},
        )
        for kernel, count, value in (("6.12", "17", "212992"), ("7.3", fragments, size))
    )
    assert refusals(base, new) == ["net.wmem_default"] * is_set
