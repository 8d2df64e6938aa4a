"""The values that a kernel has by default, as far as klat knows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from klat.compare.environment_conditions import BASIS, DEBUG, DISABLED_BY_DRIVER, ENABLED, GUEST
from klat.compare.environment_conditions import KERNEL, MEMORY, NET, NOT_LIMITED, PAGE, POLICY_BOOST
from klat.compare.environment_conditions import SAME_BOOST, SCALES_BY_ITSELF, SERVERS, Files, Rule
from klat.compare.environment_conditions import Values, node_count, rule_of, value_of
from klat.record.environment import ABSENT, CONFIG

_GOVERNOR, _HUGE = "CPU_FREQ_DEFAULT_GOV_", "TRANSPARENT_HUGEPAGE_"
_HUGE_CHOICES = ("always", "madvise", "never")
_DETECTOR, _BALANCING = "HARDLOCKUP_DETECTOR", "NUMA_BALANCING_DEFAULT_ENABLED"
_GOVERNORS = ("performance", "powersave", "userspace", "ondemand", "conservative", "schedutil")
_CONGESTION = "DEFAULT_"  # of TCP
_PROFILING = "MEM_ALLOC_PROFILING_ENABLED_BY_DEFAULT"
_CONGESTIONS = "bic cubic htcp hybla vegas veno westwood dctcp cdg bbr reno".split()
_OPTIONS = (
    *(f"{_CONGESTION}{name.upper()}" for name in _CONGESTIONS),
    _DETECTOR,
    _BALANCING,
    _PROFILING,
    *(f"{_HUGE}{choice.upper()}" for choice in _HUGE_CHOICES),
    *(f"{_GOVERNOR}{governor.upper()}" for governor in _GOVERNORS),
)
_SEVERAL_NODES, _SMALL_MEMORY, _PROFILE = "several-nodes", "small-memory", "acpi-profile-"
_FRAGMENTS = "MAX_SKB_FRAGS"
# Preferred_PM_Profile of the ACPI table FADT: desktop, mobile, workstation, appliance and tablet.
_CLIENTS = ("1", "2", "3", "6", "8")

# By file and by the first version of the kernel: the default, or the possible ones.
_ALWAYS = (0, 0)
_TUNABLES = {
    "conservative/down_threshold": "20",
    "conservative/freq_step": "5",
    "conservative/ignore_nice_load": "0",
    "conservative/sampling_down_factor": "1",
    "conservative/up_threshold": "80",
    "ondemand/ignore_nice_load": "0",
    "ondemand/sampling_down_factor": "1",
    "ondemand/up_threshold": "95|80",  # 80 without exact times of idle CPUs
}
_DEFAULTS = {
    "proc/sys/kernel/sched_rt_runtime_us": {_ALWAYS: "950000", (7, 2): "1000000"},
    "proc/sys/net/ipv4/tcp_rmem": {
        since: f"{PAGE} {initial} {largest}|{PAGE} {initial} {MEMORY}"
        for since, initial, largest in (
            (_ALWAYS, 87380, 6291456),
            ((4, 20), 131072, 6291456),
            ((6, 16), 131072, 33554432),
        )
    },
    # Before 6.11, most drivers showed 0 and boosted.
    POLICY_BOOST[1]: {_ALWAYS: f"{SAME_BOOST}|0|1", (6, 11): f"{SAME_BOOST}|1"},
    # For one CPU. Stable updates brought the new value to kernels before 6.15.
    f"{DEBUG}base_slice_ns": {_ALWAYS: "750000|700000", (6, 15): "700000"},
} | {
    name: {_ALWAYS: default}
    for name, default in {
        "sys/devices/system/cpu/cpufreq/boost": "1",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
        "proc/sys/kernel/lock_stat": "1",
        "proc/sys/kernel/prove_locking": "1",
        "proc/sys/kernel/randomize_va_space": "2|1",  # 1 with CONFIG_COMPAT_BRK
        "proc/sys/kernel/sched_cfs_bandwidth_slice_us": "5000",
        "proc/sys/kernel/sched_child_runs_first": "0",
        "proc/sys/kernel/sched_deadline_period_max_us": "4194304",
        "proc/sys/kernel/sched_deadline_period_min_us": "100",
        "proc/sys/kernel/sched_latency_ns": "6000000",
        "proc/sys/kernel/sched_migration_cost_ns": "500000",
        "proc/sys/kernel/sched_min_granularity_ns": "750000",
        "proc/sys/kernel/sched_rr_timeslice_ms": "100|90",  # 90 at 300 Hz
        "proc/sys/kernel/sched_rt_period_us": "1000000",
        "proc/sys/kernel/sched_schedstats": "0",
        "proc/sys/kernel/sched_tunable_scaling": "1",
        "proc/sys/kernel/sched_util_clamp_max": "1024",
        "proc/sys/kernel/sched_util_clamp_min": "1024",
        "proc/sys/kernel/sched_util_clamp_min_rt_default": "1024",
        "proc/sys/kernel/sched_wakeup_granularity_ns": "1000000",
        "proc/sys/kernel/stack_tracer_enabled": "0",
        "proc/sys/kernel/task_delayacct": "0",
        "proc/sys/kernel/timer_migration": "1",
        "proc/sys/kernel/watchdog": "1",
        "proc/sys/net/core/busy_poll": "0",
        "proc/sys/net/core/busy_read": "0",
        "proc/sys/net/core/high_order_alloc_disable": "0",
        "proc/sys/net/ipv4/tcp_adv_win_scale": "1",
        "proc/sys/net/ipv4/tcp_backlog_ack_defer": "1",
        "proc/sys/net/ipv4/tcp_moderate_rcvbuf": "1",
        "proc/sys/net/ipv4/tcp_mtu_probing": "0",
        "proc/sys/net/ipv4/tcp_notsent_lowat": "4294967295",
        "proc/sys/net/ipv4/tcp_tso_win_divisor": "3",
        "proc/sys/net/ipv4/tcp_window_scaling": "1",
        "proc/sys/net/ipv4/tcp_wmem": f"{PAGE} 16384 4194304|{PAGE} 16384 {MEMORY}",
        "proc/sys/vm/legacy_va_layout": "0",
        "proc/sys/vm/overcommit_memory": "0|1",
        "proc/sys/vm/percpu_pagelist_fraction": "0",
        "proc/sys/vm/percpu_pagelist_high_fraction": "0",
        "proc/sys/vm/stat_interval": "1",
        "sys/kernel/debug/x86/tlb_single_page_flush_ceiling": "33",
        "sys/kernel/debug/fault_around_bytes": "65536",
        "sys/kernel/mm/damon/admin/kdamonds/0/state": "off",
        "sys/kernel/mm/ksm/run": "0",
        f"{DEBUG}latency_ns": "6000000",
        f"{DEBUG}migration_cost_ns": "500000",
        f"{DEBUG}min_granularity_ns": "750000",
        f"{DEBUG}tunable_scaling": "1",
        f"{DEBUG}wakeup_granularity_ns": "1000000",
        **{
            f"sys/devices/system/cpu/{place}cpufreq/{name}": text
            for place in ("", "cpu*/")
            for name, text in _TUNABLES.items()
        },
        **{f"{DEBUG}{server}/cpu*/period": "1000000000" for server in SERVERS},
        **{f"{DEBUG}{server}/cpu*/runtime": "50000000" for server in SERVERS},
    }.items()
}
# They grow with the number of CPUs.
_SCALED = re.compile(".*(base_slice|latency|(min|wakeup)_granularity)_ns")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def is_default(key: str, name: str, value: str, values: Values) -> bool:
    """Whether the session's kernel brings this value. `values` are those of the session."""
    rule = rule_of(key)
    if rule not in (Rule.OWN, Rule.DEBUG, Rule.SET, Rule.SHARED):
        return False
    if GUEST in values or value == ABSENT:
        return True
    defaults = _defaults(key, name, values)
    return value in defaults if defaults else rule in (Rule.OWN, Rule.DEBUG)


def is_known_as_set(key: str, name: str, value: str, values: Values) -> bool:
    """Whether klat knows the default of the session's kernel, and the value is another one. A patched kernel can
    bring a base slice of its own."""
    if value == ABSENT or GUEST in values or key == "base-slice":
        return False
    defaults = _defaults(key, name, values)
    return bool(defaults) and value not in defaults


_TCP = "net.tcp_congestion_control"
_OF_CONFIGURATION = (
    *("governor", "huge-pages", "memory-profiling", "sysctl.nmi_watchdog", "sysctl.numa_balancing"),
    _TCP,
)
_FALLBACK_CLOCKS = frozenset({"", "hpet", "acpi_pm", "pit", "refined-jiffies", "jiffies"})


def _defaults(key: str, name: str, values: Values) -> Sequence[str]:
    """The values that the session's kernel can have by itself; empty if klat does not know them."""
    if key.startswith("idle-state."):
        return (ENABLED, DISABLED_BY_DRIVER)
    if key in ("frequency-min", "frequency-max"):
        is_of_firmware = key == "frequency-min" and may_be_of_firmware(values)
        return (NOT_LIMITED, *([value_of(values, key)] if is_of_firmware else []))
    if key == "clocksource":
        # The kernel lists them by rating. The machine may have lost its best one.
        top = value_of(values, "clocksources").partition(" ")[0]
        return () if top in _FALLBACK_CLOCKS else (top,)
    if key == f"{NET}.wmem_default":
        return _send_buffers(values.get(BASIS, ""))
    if key == f"{NET}.max_skb_frags":
        # Before Linux 6.4, by the size of a page (include/linux/skbuff.h).
        configured = _fragments(values.get(BASIS, ""))
        return (configured,) if configured else ("17", "16")
    if key in _OF_CONFIGURATION:
        return _configured(key, values)
    if not (version := _version(values)):
        return ()
    if key == "energy-preference":
        return _energy_preferences(values, version)
    if name not in _DEFAULTS:
        return ()
    if _SCALED.fullmatch(name):
        return [text for defaults in _scaled(name, version, values) for text in defaults]
    return _of_version(name, version)


def _version(values: Values) -> tuple[int, int] | None:
    release = _RELEASE.match(values.get(KERNEL, ""))
    return (int(release[1]), int(release[2])) if release else None


def may_be_of_firmware(values: Values) -> bool:
    """Whether the lowest frequency can be the one that the firmware requests. amd-pstate starts with it since 6.16
    (amd_pstate_cpu_init()), and no file shows it. Somebody who sets a fixed frequency mostly takes the highest.
    """
    is_amd = value_of(values, "frequency-driver").startswith(("amd-pstate", "amd_pstate"))
    lowest = _frequencies(values, "frequency-min")
    is_set = not lowest or lowest & _frequencies(values, "highest-frequency")
    return is_amd and not is_set and (_version(values) or _ALWAYS) >= (6, 16)


def _frequencies(values: Values, key: str) -> set[str]:
    """The frequencies of all CPUs. If they differ, the value has each with its CPUs: "2000000 (CPU 0-3), 3000000"."""
    return {text.partition(" ")[0] for text in value_of(values, key).split(", ") if text}


def _of_version(name: str, version: tuple[int, int]) -> list[str]:
    return [text for since, text in _DEFAULTS[name].items() if since <= version][-1].split("|")


def _scaled(name: str, version: tuple[int, int], values: Values) -> tuple[list[str], list[str]]:
    """The defaults for the CPUs online, and those for one CPU more: when a CPU goes offline, the kernel scales the
    value before it removes the CPU from the online mask (kernel/sched/fair.c, get_update_sysctl_factor()).
    """
    online = value_of(values, "kernel-cpus") or value_of(values, "cpus-online")
    cpus = (int(online), int(online) + 1) if online.isdecimal() else (1, 1)
    now, before = (
        [str(int(text) * min(count, 8).bit_length()) for text in _of_version(name, version)]
        for count in cpus
    )
    return now, before


def cpus_counted(name: str, value: str, values: Values) -> frozenset[int]:
    """How many CPUs that went offline the kernel can have counted when it scaled its default to this value: 0, 1, or
    both. Empty if the value is not such a default."""
    version = _version(values)
    if not version or name not in _DEFAULTS or not _SCALED.fullmatch(name):
        return frozenset()
    scaled = _scaled(name, version, values)
    return frozenset(more for more, defaults in enumerate(scaled) if value in defaults)


def _configured(key: str, values: Values) -> Sequence[str]:
    """The defaults that follow from the kernel's configuration; empty if klat does not know them."""
    basis = values.get(BASIS, "").split()
    if not basis:
        return ()
    if key == _TCP:
        return [name for name in _CONGESTIONS if f"{_CONGESTION}{name.upper()}" in basis]
    if key == "governor":
        return _governors(basis, value_of(values, "frequency-driver"))
    if key == "sysctl.nmi_watchdog":
        # A virtual machine may lack the counter that it needs, and an arm64 machine its interrupt.
        is_x86 = value_of(values, "architecture") == "x86_64"
        is_certain = is_x86 and value_of(values, "mode") == "hardware"
        return ("0",) if _DETECTOR not in basis else ("1",) if is_certain else ()
    if key == "memory-profiling":
        return ("1",) if _PROFILING in basis else ("0",)
    if key == "sysctl.numa_balancing":
        return ("1",) if {_BALANCING, _SEVERAL_NODES} <= {*basis} else ("0",)
    # mm/huge_memory.c, hugepage_init(). The little memory can be a container's alone (lxcfs).
    defaults = [choice for choice in _HUGE_CHOICES if f"{_HUGE}{choice.upper()}" in basis][:1]
    if not defaults or _SMALL_MEMORY in basis:
        defaults.append("never")
    return [" ".join(_HUGE_CHOICES).replace(default, f"[{default}]") for default in defaults]


def _fragments(basis: str) -> str:
    configured = re.search(rf"{_FRAGMENTS}=(\d{{1,3}})\b", basis)
    return configured[1] if configured else ""


def _send_buffers(basis: str) -> Sequence[str]:
    """For cache lines of 64 and 128 bytes: 256 packets of 256 bytes, each with struct sk_buff (256 bytes) and struct
    skb_shared_info (48 bytes, and 16 for each fragment), which fill cache lines (include/net/sock.h, SK_WMEM_MAX).
    """
    info = 48 + 16 * int(_fragments(basis) or 17)
    return [str(256 * (512 + -(-info // line) * line)) for line in (64, 128)]


def _governors(basis: Sequence[str], driver: str) -> Sequence[str]:
    named = [word.removeprefix(_GOVERNOR).lower() for word in basis if word.startswith(_GOVERNOR)]
    if driver not in SCALES_BY_ITSELF or named[:1] in (["performance"], ["powersave"]):
        return named[:1]
    if driver == "intel_pstate":
        return ("powersave",)
    # drivers/cpufreq/amd-pstate.c, amd_pstate_epp_cpu_init(): its default follows the machine's profile.
    is_client = _is_client(basis)
    if is_client is None:
        return ("performance", "powersave")
    return ("powersave",) if is_client else ("performance",)


def _is_client(basis: Sequence[str]) -> bool | None:
    """Whether the firmware's profile is of a client; None if it was not recorded."""
    profiles = [word.removeprefix(_PROFILE) for word in basis if word.startswith(_PROFILE)]
    return profiles[0] in _CLIENTS if profiles else None


def _energy_preferences(values: Values, version: tuple[int, int]) -> Sequence[str]:
    if value_of(values, "governor") == "performance":
        return ("performance",)  # the driver accepts no other
    driver = value_of(values, "frequency-driver")
    if driver == "intel_pstate":
        return ("balance_performance",)
    # Before 6.14, and on servers, amd-pstate keeps the firmware's value: of a client, performance.
    is_client = _is_client(values.get(BASIS, "").split())
    if driver not in SCALES_BY_ITSELF or is_client is False:
        return ()
    if is_client is None:
        return ("performance", "balance_performance")
    return ("balance_performance",) if version >= (6, 14) else ("performance",)


def basis_of(files: Files) -> str:
    """What the defaults follow from; empty if the configuration was not captured."""
    basis = [option for option in _OPTIONS if option in files.get(CONFIG, ())]
    memory = files.get("proc/meminfo", {}).get("MemTotal", "").partition(" ")[0]
    if basis and (fragments := files.get(CONFIG, {}).get(_FRAGMENTS)):
        basis.append(f"{_FRAGMENTS}={fragments}")
    if basis and node_count(files) > 1:
        basis.append(_SEVERAL_NODES)
    if basis and memory.isdecimal() and int(memory) < 512 << 10:
        basis.append(_SMALL_MEMORY)
    if basis and (profile := files.get("sys/firmware/acpi/pm_profile", {}).get("")):
        basis.append(f"{_PROFILE}{profile}")
    return " ".join(basis)
