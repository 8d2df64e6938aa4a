"""Shows that a TLB shootdown or a membarrier() reaches all CPUs of an emulated machine with many CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from klat.lab import qemu
from klat.lab.architectures import Architecture
from klat.lab.guest import delivered
from klat.lab.kernels import Spec
from klat.record.session import parse_pairs, printable, read_session

PROGRAM = "tlbflush"
MUNMAP, MEMBARRIER = "munmap", "membarrier"
# What a responder gets, and the row of /proc/interrupts that counts it.
_COUNTED = {
    MUNMAP: ("shootdowns", "the TLB row"),
    MEMBARRIER: ("membarrier() interrupts", "the row of function calls"),
}
_WARMUP = 5


def usual_nodes(architecture: Architecture) -> int:
    """Of NUMA: 2 if this machine's QEMU can. KlatError if there is no QEMU."""
    limit = architecture.nodes_before
    return limit[0] if limit and qemu.find(architecture).version < limit[1] else 2


def labelled(specs: Sequence[Spec], cpus: int) -> list[Spec]:
    """The specs with labels of their own, apart from measurements on other machines."""
    return [replace(spec, label=f"{spec.label}-{cpus}cpus") for spec in specs]


def parameter_set(cpus: int, iterations: int, operation: str) -> tuple[str, tuple[str, ...]]:
    """No real-time priority: throttling would count the time in which an emulated CPU did not run.
    The initiator is on CPU 0 with the kernel's threads, because a thread that preempts a responder
    makes the responder miss a shootdown."""
    words = (f"--responders={cpus - 1}", f"--iterations={iterations}", f"--warmup={_WARMUP}")
    conditions = (f"--operation={operation}", "--policy=other", f"--cpus={_listed(range(cpus))}")
    return PROGRAM, (*words, *conditions)


def command_line(cpus: int) -> str:
    """For the kernel. No ticks on the responders' CPUs: 80 ticking CPUs would take all the time of
    a small host, and a responder would take a tick for a shootdown. No NUMA balancing, because it
    makes shootdowns of its own. No proactive compaction, because its thread wakes on any CPU of its
    node."""
    return (
        f"nohz_full={_listed(range(1, cpus))} numa_balancing=disable"
        " sysctl.vm.compaction_proactiveness=0"
    )


def _listed(cpus: range) -> str:
    return f"{cpus[0]}-{cpus[-1]}" if len(cpus) > 1 else str(cpus[0])


def report(session: Path) -> bool:
    """Print the evidence of a session. Returns whether every responder was reached."""
    with delivered():
        return _report(session)


def _report(session: Path) -> bool:
    record = read_session(session)
    row = record.rows[0]
    counts = parse_pairs(row.evidence)
    who = f"{printable(record.label)}, {printable(str(record.info['kernel_release']))}"
    nodes = len(list((session / "environment/sys/devices/system/node").glob("node[0-9]*")))
    expected = int(counts.get("expected", 0))
    if row.status not in ("ok", "disturbed") or not expected:
        print(f"{who}: {row.status}: {printable(row.reason) or 'no shootdown was expected'}")
        return False
    options = row.options()
    timed = int(options["iterations"])
    print(f"{who}: {record.info['cpus_online']} CPUs" + (f" on {nodes} nodes" if nodes > 1 else ""))
    if "responders_reached" not in counts:
        # The run would be invalid if one of them did not fault.
        print(
            f"  {options['responders']} of {options['responders']} responders fault when they access the pages"
            f"\n  (after {counts['proofs']} of {expected} shootdowns; the kernel counts no interrupts for them)"
        )
        return True
    what, source = _COUNTED[options.get("operation", MUNMAP)]
    every = int(counts["least_delivered"]) >= expected
    delivered = f"at least {counts['least_delivered']} by {source}"
    # In an emulator, only an amd64 program sees an interrupt.
    least_seen = counts.get("least_interrupted", counts.get("least_gaps"))
    if least_seen is not None:
        every = every and int(least_seen) >= timed
        delivered += f"; each responder saw at least {least_seen} timed ones"
    else:
        delivered += ", which also counts other calls"
    print(
        f"  {counts['responders_reached']} of {options['responders']} responders got {'each' if every else 'not each'}"
        f" of {expected} {what}: {timed} timed, {expected - timed} not"
        f"\n  ({delivered})"
    )
    return every and counts["responders_reached"] == options["responders"]
