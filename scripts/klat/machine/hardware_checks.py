"""Checks of the CPUs, their clocks and counters, and the hypervisor below them.

Emulation, hypervisor, time-stamp counter and clock source are read from files and flags of x86. On
another architecture a finding says that they were not checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from klat.machine.findings import Finding, Severity, distorts, note, spoils
from klat.machine.machine_state import MachineState
from klat.machine.probes import ProbeResults

# A CPU that takes longer to wake affects every cross-CPU figure.
_DEEP_IDLE_US = 10
_STEAL_SPOILS = 0.02  # of all CPU time
# Clock sources of Linux. The counter that klat reads; clocks that a hypervisor makes from it; other clocks.
_COUNTERS = frozenset({"tsc", "arch_sys_counter", "riscv_clocksource"})
_FROM_COUNTER = frozenset({"kvm-clock", "xen", "hyperv_clocksource_tsc_page"})
_OTHER_CLOCKS = frozenset(
    {"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "hyperv_clocksource_msr"}
)
_CHOOSE = "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"

# A free-running oscillator drifts less.
_DRIFT_PPM = 200
# From this version on, the timer device of most x86 machines follows the corrected clock (lapic-deadline).
_COUPLED = (7, 1)


def is_emulated(machine: MachineState) -> bool:
    """Whether an emulator in software runs this kernel."""
    return "TCG" in machine.model or machine.hypervisor.startswith("TCG")


def hypervisor(machine: MachineState, _: ProbeResults) -> Iterator[Finding]:
    """What this kernel runs on."""
    if is_emulated(machine):
        yield spoils(
            "emulated",
            "this machine is emulated in software",
            "Its counter follows the host's clock, but its instructions do not run at the speed of"
            " any hardware. So no time measured here means anything. Counts of events are true.",
            "measure on hardware or under KVM, or count instructions: qemu -icount with one CPU",
        )
    elif "hypervisor" in machine.flags:
        yield distorts(
            "virtual",
            "this is a virtual machine"
            + (f" of {machine.hypervisor}" if machine.hypervisor else ""),
            "Interrupts between CPUs, timers and idle exits pass through the hypervisor. So those"
            " figures depend on the hypervisor as much as on the kernel. Compare kernels on this"
            " same host only, and not with hardware.",
            "measure on hardware, or pin the virtual CPUs and say so beside the figures",
        )
    if machine.steal:
        yield Finding(
            "steal",
            Severity.SPOILS if machine.steal >= _STEAL_SPOILS else Severity.DISTORTS,
            f"the hypervisor took {machine.steal:.1%} of the CPU time",
            "Other guests compete for the same cores. The time that they take is inside the"
            " samples.",
            "move to a host of its own or pin the virtual CPUs to cores, or measure at a calmer time",
        )


def clocks(machine: MachineState, probes: ProbeResults) -> Iterator[Finding]:
    """The time-stamp counter, and the kernel's clock."""
    if machine.clocksource and not machine.flags:
        yield note(
            "not-checked",
            "emulation, hypervisor and counter are not checked on this architecture",
            "doctor checks them only on x86. A program recognises most emulators, and then prints no"
            " times.",
            "run klat timer and read the floor and the step; session.json has the mode",
        )
    missing = [flag for flag in ("constant_tsc", "nonstop_tsc") if flag not in machine.flags]
    if "tsc" in machine.flags and missing:
        yield spoils(
            "counter",
            "the time-stamp counter is not invariant",
            f"/proc/cpuinfo does not show {' and '.join(missing)}. The counter may change its rate"
            " with the CPU's clock or stop when idle. Then ticks are no measure of time.",
            "in a virtual machine expose the host's counter (qemu: -cpu host,+invtsc); on old"
            " hardware, fix the frequency and disable idle states",
        )
    if machine.clocksource and machine.clocksource not in _COUNTERS:
        yield _clock_source(machine)
    is_coupled = bool(machine.flags) and machine.kernel >= _COUPLED
    if abs(probes.clock_ppm) >= _DRIFT_PPM and not is_coupled:
        yield distorts(
            "clock-rate",
            f"a program corrects the clock by {probes.clock_ppm:+,.0f} ppm",
            "Such programs are chrony and ntpd. Timer devices run at the uncorrected rate, so timers expire late or"
            " early. A run of timer is disturbed if this error is 5 % of its median lateness, and invalid from"
            " 10 % on.",
            "wait until the clock is correct (chronyc tracking), or stop the program for the session",
        )


def _clock_source(machine: MachineState) -> Finding:
    source, offered = machine.clocksource, "tsc" in machine.clocksources
    title = f"the kernel's clock is {source}, not the counter"
    if source in _FROM_COUNTER:
        return note(
            "clocksource",
            f"the kernel's clock is {source}",
            "The hypervisor makes this clock from the counter, so it is as steady as the counter. The"
            " kernel prefers it in this guest. To read it costs some nanoseconds more.",
            f"none needed; {_CHOOSE} for a clock without the hypervisor"
            if offered
            else "none needed",
        )
    if source not in _OTHER_CLOCKS:
        return note(
            "clocksource",
            title,
            "klat does not know how this clock source relates to the counter.",
            "run klat timer and read the floor and the step",
        )
    if offered:
        return distorts(
            "clocksource",
            title,
            "Timers and sleeps use that clock, which costs more to read.",
            _CHOOSE,
        )
    return spoils(
        "clocksource",
        title,
        "The kernel does not offer the CPU's counter as a clock, and klat measures with that counter. The"
        " usual causes: the CPUs' counters disagree, or the hypervisor does not declare the counter invariant.",
        "dmesg | grep -i tsc says why; measure on another machine, or in a guest with an invariant counter",
    )


def cpu_speed(machine: MachineState, probes: ProbeResults) -> Iterator[Finding]:
    """What changes the speed of a CPU."""
    deepest = machine.idle_states[-1] if machine.idle_states else None
    if deepest and deepest.latency_us >= _DEEP_IDLE_US:
        refused = f" (as this user: {probes.dma_latency})" if probes.dma_latency else ""
        yield distorts(
            "idle-states",
            f"idle CPUs sleep as deep as {deepest.name}, {deepest.latency_us} us to wake",
            f"Driver {machine.idle_driver or 'unknown'}, governor"
            f" {machine.idle_governor or 'unknown'}: a wakeup on an idle CPU includes the idle exit,"
            " and the governor's guess adds spread.",
            f"klat run --option all.dma-latency=0{refused}",
        )
    if machine.latency_requests:
        yield distorts(
            "latency-request",
            "a program or driver limits how deep idle CPUs sleep",
            f"{'; '.join(machine.latency_requests)}. Idle exits are then shorter than on a machine without the"
            " request. compare refuses sides with different requests.",
            "sudo fuser /dev/cpu_dma_latency names the program; write 0 to the files in /sys",
        )
    if others := sorted(machine.governors - {"performance"}):
        yield distorts(
            "governor",
            f"the frequency governor is {', '.join(others)}",
            "CPUs change their clock with load, and a short benchmark that sleeps looks like no"
            " load. Ticks are time, not cycles: at half the clock everything takes twice as many.",
            "cpupower frequency-set -g performance",
        )
    if machine.turbo:
        yield distorts(
            "turbo",
            "turbo is on",
            "The clock depends on temperature and on the other cores: it drifts over a session.",
            f"echo {'1' if machine.turbo.endswith('no_turbo') else '0'} | sudo tee {machine.turbo}",
        )
    if machine.smt:
        yield distorts(
            "siblings",
            "two CPUs share each core (SMT)",
            "klat places its threads on distinct cores, but work on a sibling takes half of the core"
            " from them.",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control",
        )
    if machine.throttled:
        yield note(
            "heat",
            f"thermal throttling slowed CPUs {machine.throttled} times since boot",
            "A session that is long enough to heat the machine drifts with its temperature.",
            "better cooling, or turbo off; see the run-by-run plot",
        )
