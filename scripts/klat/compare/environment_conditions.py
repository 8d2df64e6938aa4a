"""The conditions in a session's environment: what a kernel was set to, and what it brings.

A value counts as set if it differs from the default of its own kernel, or if klat does not know the
default and both kernels could have the value. All that a kernel brings is the same in each of its boots.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import Enum
from functools import lru_cache

from klat.record.environment import CONFIG

# By (key, name).
Values = dict[tuple[str, str], str]
# Of each file, its values by key; a file that is one value has the key ''.
Files = Mapping[str, Mapping[str, str]]


class Rule(Enum):
    """When a difference is refused."""

    GIVEN = "always: absent is a value too"
    SHARED = "where both sides have it"
    SET = "where both sides have it; between sides of one kernel always"
    OWN = "between sides of one kernel always; else a value that is known as set"
    DEBUG = (
        "where both have it: between sides of one kernel always, else a value that is known as set"
    )
    NEVER = "never: it decides what others count as"


_CPU = r"sys/devices/system/cpu/"
_FREQUENCY, _POLICIES = rf"{_CPU}cpu\*/cpufreq/", rf"{_CPU}(?:cpu\*/)?cpufreq/"
_HUGE = r"sys/kernel/mm/transparent_hugepage/"
_STATE = re.compile(rf"{_CPU}cpu\*/cpuidle/state(\d+)/name")
_MODULE = r"sys/module/{}/parameters/(.+)"
_SYSCTL = (
    r"proc/sys/(?:kernel|net/core|vm)/"
    r"(nmi_watchdog|watchdog|numa_balancing|stack_tracer_enabled|task_delayacct|timer_migration"
    r"|sched_(?!rt_).+|busy_.+|stat_interval|percpu_pagelist.*_fraction"
    # These changed the instructions of tlbflush by 1 to 2 %.
    r"|randomize_va_space|legacy_va_layout|overcommit_memory)"
)
DEBUG, SERVERS = "sys/kernel/debug/sched/", ("fair_server", "ext_server")
NET, PAGE, MEMORY = "net", "page", "memory/128"
_DEFAULT_WORDS = {"mitigations": "auto"}  # with this value, a word counts as absent
# Words that are no condition. Every other word is one: somebody set it, and klat does not know all of its
# effects. These are for consoles and messages; for the root file system and the network of the boot, which can
# differ from boot to boot; for what happens after a panic; for user space, as far as it decides no CPU,
# interrupt, limit or control group; and klat's own. Sessions record the preemption model itself.
_HARMLESS = re.compile(
    "console|earlycon|earlyprintk|keep_bootcon|no_console_suspend|consoleblank|netconsole|quiet|debug"
    r"|splash|rhgb|loglevel|ignore_loglevel|log_buf_len|no_hash_pointers|printk\..+|vga|video|fbcon"
    r"|nomodeset|vt\..+|vt_handoff"
    r"|root|rootflags|rootfstype|rootwait|rootdelay|ro|rw|resume|resume_offset|noresume|init|rdinit"
    r"|fsck\..+|fsck_.+|ostree|nfsroot|ip|BOOTIF|hostname|net\.ifnames|biosdevname|cryptdevice|netroot"
    r"|roothash|(?:verity\.)?usrhash|gnu\.(?:load|system)|mount\.usr(?:flags|fstype)?|zfs|rauc\.slot"
    r"|ubi\.(?:mtd|block)|dm_mod\.create|kern_guid|systemConfig|snap_(?:core|kernel)|snapd_recovery_.+"
    "|panic|oops|panic_on_warn|crashkernel|reboot|single|emergency|rescue|[S1-5]"
    r"|systemd\.(?:unit|run.*|wants|log_.+|journald\..+|show_status|status_unit_format|dump_core|crash_.+"
    r"|confirm_spawn|debug_shell|default_debug_tty|default_standard_.+|default_.*timeout.*|machine_id|hostname"
    r"|firstboot|condition_.+|gpt_auto|verity.*|volatile|tty\..+|clock_usec|random_seed|restore_state"
    r"|getty_auto|battery_check|early_core_pattern|set_credential.*|import_credentials|ssh_.+|vsock)"
    r"|rd\..+|luks\..+|plymouth\..+|locale\..+|LANG|vconsole\..+|androidboot\..+|ds|cloud_init"
    r"|klat\..+|preempt"
)
# The keys of what words of the command line change. Words of modules have the names of their parameters.
_EFFECTS = {
    "audit": "process.audit",
    "cgroup_disable": "process.memory_cgroup process.memory_cgroup_depth",
    "clocksource": "clocksource",
    "cpufreq.default_governor": "governor",
    "cpuidle.governor": "idle-governor",
    "cpuidle.off": "idle-driver idle-governor idle-states idle-state",
    "delayacct": "sysctl.task_delayacct",
    "idle": "idle-driver idle-governor idle-states idle-state",
    "intel_idle.max_cstate": "idle-driver idle-states idle-state",
    "isolcpus": "isolated",
    "maxcpus": "cpus-online",
    "nmi_watchdog": "sysctl.nmi_watchdog",
    "nohz_full": "nohz-full",
    "nosmt": "smt cpus-online",
    "nowatchdog": "sysctl.watchdog sysctl.nmi_watchdog",
    "nr_cpus": "cpus-online",
    "norandmaps": "sysctl.randomize_va_space",
    "numa_balancing": "sysctl.numa_balancing",
    "processor.max_cstate": "idle-states idle-state",
    "transparent_hugepage": "huge-pages",
    "transparent_hugepage_shmem": "huge-pages-shared",
    **dict.fromkeys(("thp_anon", "thp_shmem"), "huge-pages-of-size"),
    "tsc": "clocksource cpu-features",
    "numa": "nodes process.Mems_allowed_list",
    **dict.fromkeys(
        "mitigations nopti pti tsx nopcid noinvpcid nosmap nosmep nopku noxsave noxsaveopt noxsaves nofsgsbase"
        " nousershstk no5lvl nosgx nox2apic split_lock_detect clearcpuid setcpuid nopat notsc"
        " arm64.nobti arm64.nomops arm64.nomte arm64.nopauth arm64.nosme arm64.nosve".split(),
        "cpu-features",
    ),
}

# Key, file, rule. A group of the pattern goes behind the key, after a dot.
_FILES = [
    (key, re.compile(pattern), rule)
    for key, pattern, rule in (
        ("microcode", rf"{_CPU}cpu\*/microcode/version|proc/cpuinfo microcode", Rule.SHARED),
        # Whether a newer microcode existed when the kernel was released.
        ("old-microcode", rf"{_CPU}vulnerabilities/old_microcode", Rule.OWN),
        ("vulnerability", rf"{_CPU}vulnerabilities/(?!old_microcode)(.+)", Rule.SHARED),
        ("frequency-driver", rf"{_FREQUENCY}scaling_driver", Rule.OWN),
        ("governor", rf"{_FREQUENCY}scaling_governor", Rule.SET),
        ("energy-preference", rf"{_FREQUENCY}energy_performance_preference", Rule.SET),
        ("frequency-min", rf"{_FREQUENCY}scaling_min_freq", Rule.SET),
        ("frequency-max", rf"{_FREQUENCY}scaling_max_freq", Rule.SET),
        ("frequency-speed", rf"{_FREQUENCY}scaling_setspeed", Rule.SET),
        ("cpu-features", r"proc/cpuinfo (?:flags|Features)", Rule.OWN),
        ("cache-size", r"proc/cpuinfo cache size", Rule.OWN),
        ("highest-frequency", rf"{_FREQUENCY}cpuinfo_max_freq", Rule.OWN),
        ("boost", rf"{_POLICIES}boost", Rule.SET),
        ("no-turbo", rf"{_CPU}intel_pstate/no_turbo", Rule.SET),
        ("dynamic-boost", rf"{_CPU}intel_pstate/hwp_dynamic_boost", Rule.SHARED),
        # Most of their defaults depend on the driver and on the kernel's version.
        ("tunable", rf"{_POLICIES}(ondemand|conservative|schedutil)/(.+)", Rule.DEBUG),
        ("uncore-max", rf"{_CPU}intel_uncore_frequency/[^/]+/max_freq_khz", Rule.SHARED),
        ("uncore-min", rf"{_CPU}intel_uncore_frequency/[^/]+/min_freq_khz", Rule.SHARED),
        ("power-limit", r"sys/class/powercap/.+/constraint_\d+_power_limit_uw", Rule.SHARED),
        ("c1-demotion", rf"{_CPU}cpuidle/intel_c1_demotion", Rule.SHARED),
        ("lockdep", r"proc/sys/kernel/(lock_stat|prove_locking)", Rule.SHARED),
        ("memory-profiling", r"proc/sys/vm/mem_profiling", Rule.SHARED),
        ("performance-limit-max", rf"{_CPU}intel_pstate/max_perf_pct", Rule.SHARED),
        ("performance-limit-min", rf"{_CPU}intel_pstate/min_perf_pct", Rule.SHARED),
        ("energy-bias", rf"{_CPU}cpu\*/power/energy_perf_bias", Rule.SHARED),
        ("platform-profile", r"sys/firmware/acpi/platform_profile", Rule.SHARED),
        ("idle-driver", rf"{_CPU}cpuidle/current_driver", Rule.OWN),
        ("idle-governor", rf"{_CPU}cpuidle/current_governor", Rule.SET),
        ("idle-governors", rf"{_CPU}cpuidle/available_governors", Rule.NEVER),
        ("resume-latency", rf"{_CPU}cpu\*/power/pm_qos_resume_latency_us", Rule.SHARED),
        ("haltpoll", _MODULE.format("haltpoll"), Rule.SET),
        ("intel_idle", _MODULE.format("intel_idle"), Rule.SET),
        ("processor", _MODULE.format("processor"), Rule.SET),
        ("clocksource", r"sys/devices/system/clocksource/.*/current_clocksource", Rule.SET),
        ("clocksources", r"sys/devices/system/clocksource/.*/available_clocksource", Rule.NEVER),
        # lxcfs does not change this file. It shows a container its own CPUs as the online ones.
        ("kernel-cpus", r"proc/interrupts CPUs", Rule.NEVER),
        ("isolated", rf"{_CPU}isolated", Rule.SET),
        ("nohz-full", rf"{_CPU}nohz_full", Rule.SET),
        ("smt", rf"{_CPU}smt/control", Rule.SET),
        ("rt-throttling", r"proc/sys/kernel/sched_rt_(?:runtime|period)_us", Rule.SET),
        ("fair-server", rf"{DEBUG}fair_server/cpu\*/(?:runtime|period)", Rule.SHARED),
        ("ext-server", rf"{DEBUG}ext_server/cpu\*/(?:runtime|period)", Rule.SHARED),
        ("base-slice", rf"{DEBUG}base_slice_ns", Rule.SHARED),
        (
            "scheduler",
            rf"{DEBUG}(?!base_slice)(features|nr_migrate|tunable_scaling|.+_ns)",
            Rule.DEBUG,
        ),
        ("sysctl", _SYSCTL, Rule.OWN),
        # Only for sessions with transport.
        (NET, r"proc/sys/net/(?:core|ipv4)/(high_.+|max_.+|wmem_.+|tcp_.+)", Rule.SHARED),
        # For sessions with transport or network.
        (
            NET,
            r"(?:proc/sys/net/core|sys/class/net/lo/.+|proc/net)/(rps_.+|flow_limit_.+|ptype)",
            Rule.SHARED,
        ),
        ("tlb-flush-ceiling", r"sys/kernel/debug/x86/tlb_single_page_flush_ceiling", Rule.SHARED),
        # Not only for fault: a fork and an executed program also touch pages of files.
        ("fault-around", r"sys/kernel/debug/fault_around_bytes", Rule.SHARED),
        ("huge-pages", rf"{_HUGE}enabled", Rule.OWN),
        ("huge-pages-of-size", rf"{_HUGE}hugepages-(.+/(?:shmem_)?enabled)", Rule.DEBUG),
        ("huge-pages-shared", rf"{_HUGE}shmem_enabled", Rule.DEBUG),
        ("lru-gen", r"sys/kernel/mm/lru_gen/enabled", Rule.DEBUG),
        ("damon", r"sys/kernel/mm/damon/admin/kdamonds/0/state", Rule.OWN),
        ("ksm", r"sys/kernel/mm/ksm/run", Rule.OWN),
        ("rcutree", _MODULE.format("rcutree"), Rule.OWN),
    )
]
# Whether kexec started the kernel. The devices are then in another state than after the firmware.
STARTED = ("boot", "what started the kernel")
_LOADER, _KEXEC_LOADER = "proc/sys/kernel/bootloader_type", "208"
KERNEL = ("kernel", "release and version")
# What the programs inherited, by its name in session.json, and the libraries that they loaded.
PROCESS, LIBRARIES = "process", "libraries"
# Words of the command line that this label's kernel alone was given, by experiment.
WORDS = "words"
# What decides a kernel's defaults: options of its configuration, and the machine's nodes and memory.
BASIS = ("basis", "what the defaults follow from")
# A guest of klat lab: only its command line can change a default of its kernel.
GUEST = ("guest", "a guest of klat lab")
# The BPF scheduler in effect.
SCHEDULER = ("sched-ext", "the sched_ext scheduler")
NO_SCHEDULER = "none"
RULES = {key: rule for key, _, rule in _FILES} | {
    **dict.fromkeys((STARTED[0], PROCESS, LIBRARIES), Rule.SHARED),
    **dict.fromkeys((KERNEL[0], WORDS, GUEST[0], BASIS[0]), Rule.NEVER),
    **dict.fromkeys((SCHEDULER[0], "cmdline"), Rule.GIVEN),
    **dict.fromkeys(("idle-states", "nodes"), Rule.OWN),
    "idle-state": Rule.SET,
}
# Those that stand for many keys, KEY.NAME.
FAMILIES = (
    *"cmdline vulnerability haltpoll intel_idle processor rcutree scheduler sysctl".split(),
    *(NET, "idle-state", "huge-pages-of-size", "lockdep", "tunable", PROCESS),
)


def scheduling(values: Values) -> str:
    """What schedules ordinary tasks, for the head of a report; empty if nothing was recorded."""
    name, base_slice = values.get(SCHEDULER, NO_SCHEDULER), value_of(values, "base-slice")
    parts = [f"sched_ext scheduler {name}"] if name != NO_SCHEDULER else []
    if base_slice.isdecimal():
        parts.append(f"base slice {int(base_slice) / 1e6:g} ms")
    return ", ".join(parts)


def uses_network(key: str, programs: Iterable[str]) -> bool:
    """Whether one of the programs depends on this sysctl of the network."""
    is_of_receiving = key.startswith((f"{NET}.rps_", f"{NET}.flow_limit_", f"{NET}.ptype"))
    return "transport" in programs or (is_of_receiving and "network" in programs)


def explained_by(keys: Set[str]) -> Set[str]:
    """The keys whose difference a difference in `keys` explains."""
    words = {key.removeprefix("cmdline.") for key in keys if key.startswith("cmdline.")}
    boost = {"highest-frequency"} if {"boost", "no-turbo"} & keys else set()
    of_words = (_EFFECTS.get(word, "").split() for word in words)
    return boost.union((word for word in words if "." in word), *of_words)


def rule_of(key: str) -> Rule | None:
    """None if the key does not come from the environment."""
    return RULES.get(key.partition(".")[0])


ENABLED, DISABLED_BY_DRIVER = "enabled", "disabled, by default disabled"
NOT_LIMITED = "the driver's own limit"
SAME_BOOST = "that of all CPUs"
# Drivers that follow the load with the governor powersave.
SCALES_BY_ITSELF = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})


def of_files(files: Files) -> Values:
    """The conditions that the files of one environment hold."""
    conditions: Values = {}
    for file, values in files.items():
        if file == CONFIG:
            continue
        for part, value in values.items():
            if file == "proc/cmdline":
                conditions |= _word(part, value)
                continue
            conditions |= dict.fromkeys(_conditions_of_file(f"{file} {part}".rstrip()), value)
    conditions[SCHEDULER] = _scheduler(files)
    if loader := files.get(_LOADER, {}).get(""):
        conditions[STARTED] = "kexec" if loader == _KEXEC_LOADER else "a boot loader"
    if nodes := node_count(files):
        conditions["nodes", "the number of NUMA nodes"] = str(nodes)
    for limit, bounds in _LIMITS.items():
        _unless_limited(conditions, files, limit, bounds)
    boost = conditions.get(("boost", f"{_CPU}cpufreq/boost"))
    if boost and conditions.get(POLICY_BOOST) == boost:
        conditions[POLICY_BOOST] = SAME_BOOST
    for server in SERVERS:
        _unless_started(conditions, f"{DEBUG}{server}/cpu*/", server.replace("_", "-"))
    for file in ("tcp_rmem", "tcp_wmem"):
        buffers = (f"{NET}.{file}", f"proc/sys/net/ipv4/{file}")
        if buffers in conditions:
            conditions[buffers] = _tcp_buffers(conditions[buffers], files)
    return conditions | dict(_idle_states(files))


@lru_cache(maxsize=1 << 12)
def _conditions_of_file(name: str) -> tuple[tuple[str, str], ...]:
    matches = ((key, pattern.fullmatch(name)) for key, pattern, _ in _FILES)
    return tuple((".".join([key, *match.groups()]), name) for key, match in matches if match)


def _word(word: str, value: str) -> Values:
    if _HARMLESS.fullmatch(word) or _DEFAULT_WORDS.get(word) == value:
        return {}
    return {(f"cmdline.{word}", f"proc/cmdline {word}"): value}


def _unless_started(conditions: Values, directory: str, key: str) -> None:
    """The server of a CPU that came up late shows 0 in both files until a task needs it."""
    names = [(key, f"{directory}{file}") for file in ("period", "runtime")]
    idle = [
        p for p in conditions.get(names[0], "").split(", ") if p == "0" or p.startswith("0 (CPU ")
    ]
    for name in names if idle else ():
        kept = [part for part in conditions.pop(name, "").split(", ") if part not in idle]
        if kept:
            conditions[name] = kept[0].partition(" ")[0] if len(kept) == 1 else ", ".join(kept)


def _tcp_buffers(text: str, files: Files) -> str:
    """Replaces what depends on the machine by words: the size of a page, and a largest size near 1/128 of the memory
    (net/ipv4/tcp.c, tcp_init()). Somebody who sets a size takes a whole number of MiB."""
    sizes = re.fullmatch(r"(4096|16384|65536)\s+(\d+)\s+(\d{1,12})", text)
    memory = re.match(r"\d{1,12}(?= kB)", files.get("proc/meminfo", {}).get("MemTotal", ""))
    if not sizes:
        return text
    limit, largest = int(memory[0]) * 1024 // 128 if memory else 0, int(sizes[3])
    is_limit = 0.7 * limit <= largest <= limit and largest % (1 << 20)
    return f"{PAGE} {sizes[2]} {MEMORY if is_limit else largest}"


def _scheduler(files: Files) -> str:
    state, operations, switch_all = (
        files.get(f"sys/kernel/sched_ext/{file}", {}).get("", "")
        for file in ("state", "root/ops", "switch_all")
    )
    if state in ("", "disabled"):
        return NO_SCHEDULER
    state = "" if state == "enabled" else f", {state}"
    return (operations or "unnamed") + state + (", partial" if switch_all == "0" else "")


_FREQUENCY_FILES = "sys/devices/system/cpu/cpu*/cpufreq/"
POLICY_BOOST = ("boost", f"{_FREQUENCY_FILES}boost")
_LIMITS = {
    "min": ("cpuinfo_min_freq", "amd_pstate_lowest_nonlinear_freq"),
    "max": ("cpuinfo_max_freq",),
}


_CPPC_FILES = "lowest_nonlinear_perf lowest_perf nominal_perf lowest_freq nominal_freq".split()


def _cppc_lowest_khz(files: Files) -> str:
    """The lowest frequency with which cppc_cpufreq starts, in kHz, where all CPUs have the same one
    (drivers/acpi/cppc_acpi.c, cppc_perf_to_khz())."""
    texts = [files.get(f"{_CPU}cpu*/acpi_cppc/{name}", {}).get("", "") for name in _CPPC_FILES]
    is_cppc = files.get(f"{_FREQUENCY_FILES}scaling_driver") == {"": "cppc_cpufreq"}
    if not is_cppc or not all(re.fullmatch(r"[1-9]\d{0,8}", text) for text in texts):
        return "unknown"
    performance, low, nominal, low_mhz, nominal_mhz = map(int, texts)
    khz, steps = (nominal_mhz - low_mhz) * 1000, nominal - low
    if khz <= 0 or steps <= 0:
        return "unknown"
    return str(nominal_mhz * 1000 - nominal * khz // steps + performance * khz // steps)


def node_count(files: Files) -> int:
    return sum(file.startswith("sys/devices/system/node/") for file in files)


def _unless_limited(conditions: Values, files: Files, limit: str, bounds: Iterable[str]) -> None:
    """A limit that is the driver's own was not set by anybody, whatever its value."""
    key = (f"frequency-{limit}", f"{_FREQUENCY_FILES}scaling_{limit}_freq")
    driver_limits = {files.get(_FREQUENCY_FILES + name, {}).get("", "unknown") for name in bounds}
    if limit == "min":
        driver_limits.add(_cppc_lowest_khz(files))
    if conditions.get(key) in driver_limits:
        conditions[key] = NOT_LIMITED


def _idle_states(files: Files) -> Iterator[tuple[tuple[str, str], str]]:
    """All states as one value. Also whether each one was disabled, by name, because drivers number
    the states differently."""
    shown = []
    for file, values in files.items():
        if not (match := _STATE.fullmatch(file)):
            continue
        name, place = values[""], file.removesuffix("name")
        latency = files.get(f"{place}latency", {}).get("", "unknown")
        shown.append((int(match[1]), f"{name} {latency} us"))
        if disabled := files.get(f"{place}disable", {}).get(""):
            text = {"0": ENABLED, "1": "disabled"}.get(disabled, f"disabled: {disabled}")
            if files.get(f"{place}default_status", {}).get("") == "disabled":
                text = f"{text}, by default disabled"
            yield (f"idle-state.{'-'.join(name.split())}", f"the idle state {name}"), text
    if shown:
        yield ("idle-states", "the idle states"), ", ".join(text for _, text in sorted(shown))


def value_of(values: Values, key: str) -> str:
    return next((value for (name, _), value in values.items() if name == key), "")
