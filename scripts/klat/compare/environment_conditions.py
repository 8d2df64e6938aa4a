"""The conditions in a session's environment: what a kernel was set to, and what it brings.

A value that both kernels could have counts as set. A value that only one of them can have comes
from that kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

# By (key, name).
Values = dict[tuple[str, str], str]
# Of each file, its values by key; a file that is one value has the key ''.
Files = Mapping[str, Mapping[str, str]]


class Rule(Enum):
    """When a difference is refused."""

    GIVEN = "always: absent is a value too"
    SHARED = "where both sides have it"
    SET = "where both sides have it; between sides of one kernel always"
    OWN = "between sides of one kernel: another kernel has its own"
    NEVER = "never: it decides what others count as"


_CPU = r"sys/devices/system/cpu/"
_FREQUENCY = rf"{_CPU}cpu\*/cpufreq/"
_STATE = re.compile(rf"{_CPU}cpu\*/cpuidle/state(\d+)/name")
_MODULE = r"sys/module/{}/parameters/(.+)"
# Their defaults change from version to version.
_SYSCTL = (
    r"proc/sys/(?:kernel|net/core|vm)/"
    r"(nmi_watchdog|watchdog|numa_balancing|timer_migration|sched_(?!rt_).+|busy_.+|stat_interval)"
)
# Words of Documentation/admin-guide/kernel-parameters.txt: those that turn a mitigation on or off, on
# any architecture; then those for idle states, frequency, and CPUs that are kept apart; then those for
# ticks, clocks and watchdogs, interrupts, address spaces, pages and allocators; then those that check
# each system call; then those for statistics of the scheduler; then those of arm64 and riscv64.
_WORDS = (
    "mitigations pti nopti kpti nospectre_v1 nospectre_v2 nospectre_bhb spectre_v2 spectre_v2_user"
    " spectre_bhi spec_store_bypass_disable nospec_store_bypass_disable ssbd l1tf l1d_flush mds tsx"
    " tsx_async_abort mmio_stale_data retbleed srbds gather_data_sampling reg_file_data_sampling"
    " spec_rstack_overflow indirect_target_selection tsa vmscape kvm.nx_huge_pages"
    " kvm_intel.vmentry_l1d_flush no_stf_barrier stf_barrier no_rfi_flush no_entry_flush"
    " no_uaccess_flush nobp"
    " idle nohlt hlt intel_pstate amd_pstate"
    " isolcpus nohz_full rcu_nocbs irqaffinity nosmt maxcpus nr_cpus"
    " nohz highres skew_tick clocksource tsc notsc hpet nohpet nmi_watchdog nowatchdog threadirqs"
    " nopcid noinvpcid nosmap nosmep clearcpuid transparent_hugepage init_on_alloc init_on_free"
    " slub_debug page_poison debug_pagealloc kfence.sample_interval"
    " randomize_kstack_offset audit hardened_usercopy"
    " psi schedstats delayacct"
    " irqchip.gicv3_pseudo_nmi kvm_arm.mode rodata nokaslr no4lvl no5lvl"
).split()
_WORDS_OF_MODULES = r"(?:cpuidle|cpuidle_haltpoll|haltpoll|intel_idle|processor|cpufreq)\..+"
# arm64.no... and its long forms, the fields of ID registers.
_FEATURES_OFF = r"arm64\.no.+|arm64_sw\..+|id_aa64.+"
_WORD = re.compile(
    "|".join([*(re.escape(word) for word in _WORDS), _WORDS_OF_MODULES, _FEATURES_OFF])
)
_WORD_DEFAULTS = {"mitigations": "auto"}  # with this value, a word counts as absent
# Words that are never a condition, even between sides of one kernel: those for consoles and messages;
# the root file system and the network of the boot, which can differ from boot to boot; what happens
# after a panic; user space; klat. Sessions record the preemption model itself.
_HARMLESS = re.compile(
    "console|earlycon|earlyprintk|keep_bootcon|no_console_suspend|consoleblank|netconsole|quiet|debug"
    r"|splash|loglevel|ignore_loglevel|log_buf_len|no_hash_pointers|printk\..+|vga|video|fbcon|vt\..+"
    r"|root|rootflags|rootfstype|rootwait|rootdelay|ro|rw|resume|resume_offset|noresume|init|rdinit"
    r"|fsck\..+|ostree|nfsroot|ip|BOOTIF|hostname|net\.ifnames|biosdevname"
    "|panic|oops|panic_on_warn|crashkernel|reboot"
    r"|systemd\..+|rd\..+|luks\..+|plymouth\..+|locale\..+|vconsole\..+|androidboot\..+|klat\..+"
    "|preempt"
)

# Key, file, rule. A group of the pattern goes behind the key, after a dot.
_FILES = [
    (key, re.compile(pattern), rule)
    for key, pattern, rule in (
        ("microcode", rf"{_CPU}cpu\*/microcode/version|proc/cpuinfo microcode", Rule.SHARED),
        ("vulnerability", rf"{_CPU}vulnerabilities/(.+)", Rule.SHARED),
        ("frequency-driver", rf"{_FREQUENCY}scaling_driver", Rule.OWN),
        ("governor", rf"{_FREQUENCY}scaling_governor", Rule.SET),
        ("energy-preference", rf"{_FREQUENCY}energy_performance_preference", Rule.SET),
        ("frequency-min", rf"{_FREQUENCY}scaling_min_freq", Rule.SET),
        ("frequency-max", rf"{_FREQUENCY}scaling_max_freq", Rule.SET),
        ("frequency-speed", rf"{_FREQUENCY}scaling_setspeed", Rule.SET),
        ("boost", rf"{_CPU}cpufreq/boost", Rule.SET),
        ("no-turbo", rf"{_CPU}intel_pstate/no_turbo", Rule.SET),
        ("idle-driver", rf"{_CPU}cpuidle/current_driver", Rule.OWN),
        ("idle-governor", rf"{_CPU}cpuidle/current_governor", Rule.SET),
        ("idle-governors", rf"{_CPU}cpuidle/available_governors", Rule.NEVER),
        ("haltpoll", _MODULE.format("haltpoll"), Rule.SET),
        ("intel_idle", _MODULE.format("intel_idle"), Rule.SET),
        ("processor", _MODULE.format("processor"), Rule.SET),
        ("clocksource", r"sys/devices/system/clocksource/.*/current_clocksource", Rule.SET),
        ("isolated", rf"{_CPU}isolated", Rule.SET),
        ("nohz-full", rf"{_CPU}nohz_full", Rule.SET),
        ("smt", rf"{_CPU}smt/control", Rule.SET),
        ("rt-throttling", r"proc/sys/kernel/sched_rt_(?:runtime|period)_us", Rule.SET),
        ("sysctl", _SYSCTL, Rule.OWN),
        ("huge-pages", r"sys/kernel/mm/transparent_hugepage/enabled", Rule.OWN),
        ("ksm", r"sys/kernel/mm/ksm/run", Rule.OWN),
        ("rcutree", _MODULE.format("rcutree"), Rule.OWN),
    )
]
# Whether kexec started the kernel. The devices are then in another state than after the firmware.
STARTED = ("boot", "what started the kernel")
_LOADER, _KEXEC_LOADER = "proc/sys/kernel/bootloader_type", "208"
KERNEL = ("kernel", "release and version")
# Words of the command line that this label's kernel alone was given, by experiment.
WORDS = "words"
RULES = {key: rule for key, _, rule in _FILES} | {
    STARTED[0]: Rule.SHARED,
    KERNEL[0]: Rule.NEVER,
    WORDS: Rule.NEVER,
    "cmdline": Rule.GIVEN,  # only listed words: see rule_of()
    "idle-states": Rule.OWN,
    "idle-state": Rule.SET,
}
# Those that stand for many keys, KEY.NAME.
FAMILIES = (
    "cmdline",
    "vulnerability",
    "haltpoll",
    "intel_idle",
    "processor",
    "rcutree",
    "sysctl",
    "idle-state",
)


def rule_of(key: str) -> Rule | None:
    """None if the key does not come from the environment. klat does not know the effect of a word that
    is not in the lists above: another kernel may need the word, or ignore it."""
    family, _, name = key.partition(".")
    if family == "cmdline" and not _WORD.fullmatch(name):
        return Rule.OWN
    return RULES.get(family)


_NO_SMT = {"forceoff": "off"}
_NO_STATEMENT = frozenset({"notsupported", "notimplemented"})
_NOT_LIMITED = "the driver's own limit"
# Governors that follow the load, by driver: powersave does so where the driver scales by itself.
_SCALING = frozenset({"schedutil", "ondemand", "conservative"})
_SCALES_BY_ITSELF = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})


def of_files(files: Files) -> Values:
    """The conditions that the files of one environment hold."""
    found: Values = {}
    for file, values in files.items():
        for part, value in values.items():
            if file == "proc/cmdline":
                found |= _word(part, value)
                continue
            name = f"{file} {part}".rstrip()
            for key, pattern, _ in _FILES:
                if match := pattern.fullmatch(name):
                    found[".".join([key, *match.groups()]), name] = value
    if loader := files.get(_LOADER, {}).get(""):
        found[STARTED] = "kexec" if loader == _KEXEC_LOADER else "a boot loader"
    for limit, bounds in _LIMITS.items():
        _unless_limited(found, files, limit, bounds)
    return found | dict(_idle_states(files))


def _word(word: str, value: str) -> Values:
    # In names the kernel takes a hyphen for an underscore.
    word = word.replace("-", "_")
    if _HARMLESS.fullmatch(word) or _WORD_DEFAULTS.get(word) == value:
        return {}
    return {(f"cmdline.{word}", f"proc/cmdline {word}"): value}


_FREQUENCY_FILES = "sys/devices/system/cpu/cpu*/cpufreq/"
_LIMITS = {
    "min": ("cpuinfo_min_freq", "amd_pstate_lowest_nonlinear_freq"),
    "max": ("cpuinfo_max_freq",),
}


def _unless_limited(found: Values, files: Files, limit: str, bounds: Iterable[str]) -> None:
    """The driver's own limit was not set by anybody, whatever its value."""
    key = (f"frequency-{limit}", f"{_FREQUENCY_FILES}scaling_{limit}_freq")
    own = {files.get(_FREQUENCY_FILES + name, {}).get("", "unknown") for name in bounds}
    if found.get(key) in own:
        found[key] = _NOT_LIMITED


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
            text = {"0": "enabled", "1": "disabled"}.get(disabled, f"disabled: {disabled}")
            yield (f"idle-state.{'-'.join(name.split())}", f"the idle state {name}"), text
    if shown:
        yield ("idle-states", "the idle states"), ", ".join(text for _, text in sorted(shown))


@dataclass(frozen=True)
class Alike:
    """What all sessions of a comparison have in common. It decides what a value counts as."""

    kernel: bool
    frequency_driver: bool
    idle_governors: frozenset[str]  # that every kernel has

    @staticmethod
    def of(sessions: Sequence[Values]) -> Alike:
        known = [set(_first(values, "idle-governors").split()) for values in sessions]
        return Alike(
            kernel=len({values.get(KERNEL) for values in sessions}) < 2,
            frequency_driver=len({_first(values, "frequency-driver") for values in sessions}) < 2,
            idle_governors=frozenset(set.intersection(*known) if known else ()),
        )


def _first(values: Values, key: str) -> str:
    return next((value for (found, _), value in values.items() if found == key), "")


def meaning(key: str, value: str, values: Values, alike: Alike) -> str | None:
    """What a value counts as; None if it says nothing. `values` are the values of its session."""
    family = key.partition(".")[0]
    if family == "vulnerability":
        return _class(value, alike.kernel)
    if key == "governor" and not alike.frequency_driver:
        by_itself = _first(values, "frequency-driver") in _SCALES_BY_ITSELF
        scales = value in _SCALING or (value == "powersave" and by_itself)
        return "follows the load" if scales else value
    if key == "energy-preference" and not alike.frequency_driver:
        return None
    if key == "idle-governor" and not alike.kernel and value not in alike.idle_governors:
        return None
    if key == "smt":
        return None if value in _NO_STATEMENT and not alike.kernel else _NO_SMT.get(value, value)
    if key in ("isolated", "nohz-full"):
        return value.replace("(null)", "")
    if key == "clocksource":
        return "tsc" if value == "tsc-early" else value
    return value


def _class(text: str, is_one_kernel: bool) -> str | None:
    """Not affected, vulnerable or mitigated. If one kernel lacks a mitigation, or words it
    differently, the kernel brings that. If somebody turned a mitigation off, the command line says
    so."""
    match = re.search("not affected|vulnerable|mitigation", text, re.IGNORECASE)
    if not match:
        return None
    found = match[0].lower()
    return found if is_one_kernel or found == "not affected" else "affected"
