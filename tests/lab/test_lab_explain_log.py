"""QEMU's own log of a sample has the same instructions as klat's trace, in the same order."""

import re
import socket
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from test_lab_boots import CLOCK, lab_run, session_of

from klat.base.process import Signals
from klat.explain import explanation
from klat.explain.trace import Executed
from klat.lab.architectures import AMD64, ARM64, RISCV64
from klat.lab import explaining, guest, qemu, reading
from klat.lab.boots import Booting
from klat.lab.choosing import Subject, Wanted

pytestmark = pytest.mark.slow

RECORDED = ("--mode", "counted", "--boots", "1", "--runs", "1", "--iterations", "20000")
LIMITED = ("--time-limit", "240")
SECONDS, PAUSE_SECONDS, POLL_SECONDS = 240, 0.3, 0.02
BURST_BYTES = 4 << 20  # of the log: three samples of 12,000 lines
TRACE = re.compile(r"Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/[0-9a-f]+/([0-9a-f]+)\]")
# QEMU logs a block, and can then find that it must not execute it yet.
CANCELLED = re.compile(r"Stopped execution of TB chain before |cpu_io_recompile: rewound ")
MOST_INSTRUCTIONS = 0x1FF  # the bits of a block's flags that limit its instructions


def logged(log: Path) -> list[int]:
    """The addresses of the executed instructions. 0 stands for a block of several
    instructions, at the begin or end of a burst."""
    found: list[int] = []
    for line in log.read_text().splitlines():
        if match := TRACE.match(line):
            single = int(match[2], 16) & MOST_INSTRUCTIONS == 1
            found.append(int(match[1], 16) if single else 0)
        elif CANCELLED.match(line):
            del found[-1:]
    return found


def window(instructions: list[int], begin: int, end: int, length: int) -> list[int]:
    """The first window from `begin` to `end` that has `length` instructions; [] if there is none."""
    at = -1
    for number, address in enumerate(instructions):
        if address == begin:
            at = number
        elif not address:
            at = -1
        elif address == end and at >= 0 and number - at == length:
            return instructions[at:number]
    return []


def log_in_bursts(
    subject: Subject, begin: int, end: int, work: Path, patch: pytest.MonkeyPatch
) -> list[int]:
    """The instructions of a sample of median length, from the log of a boot. QEMU does not stop for
    its monitor, so the samples of the boot are those of the record."""
    boot, command = subject.guest.boot, qemu.command
    path = work / "monitor"
    words = ["-monitor", f"unix:{path},server=on,wait=off"]
    patch.setattr(qemu, "command", lambda *given: command(*given) + words)
    version, place = boot.machine.emulator.version, work / "boot"
    single = "one-insn-per-tb" if version >= (8, 1) else "singlestep"
    booting = Booting(boot.planned, boot.boot, boot.loaded(), boot.machine, place, SECONDS)
    found: list[int] = []
    connected = False
    try:
        with Signals() as signals, socket.socket(socket.AF_UNIX) as monitor:
            for burst in count():
                signals.wait(PAUSE_SECONDS)
                if booting.poll():
                    break
                if booting.ready_s is None or found:
                    continue
                if not connected:
                    monitor.connect(str(path))
                    connected = True
                log = work / f"log-{burst}"
                monitor.sendall(f"logfile {log}\n{single} on\nlog exec,nochain\n".encode())
                while not booting.poll() and not (
                    log.exists() and log.stat().st_size > BURST_BYTES
                ):
                    signals.wait(POLL_SECONDS)
                if booting.poll():
                    break
                monitor.sendall(f"log none\n{single} off\nlogfile {work}/log\n".encode())
                signals.wait(POLL_SECONDS)
                found = window(logged(log), begin, end, subject.chosen.sample)
                log.unlink()
        delivery, failure = booting.conclude()
        assert delivery and not failure, failure
        (work / "results").mkdir()
        guest.unpack(delivery.tar, work / "results")
        return found
    finally:
        booting.end()
        booting.clean()


@pytest.mark.parametrize("architecture", [AMD64, ARM64, RISCV64], ids=lambda each: each.name)
def test_the_emulators_log_of_a_sample_has_the_same_instructions(
    tmp_path, monkeypatch, architecture
):
    words = ("--arch", architecture.name, "--kernel", "debian:stock", *RECORDED, *LIMITED, *CLOCK)
    lab_run(*words, "--seed", "5", "--output", tmp_path, "pipes", cwd=tmp_path)
    session = session_of(tmp_path, f"{architecture.label}stock")
    with explaining._replays([session], print) as replays:
        subject = replays.subject(session, Wanted("pipes", "round_trip"))
        ((_, trace),) = replays._read([[subject]])
        assert isinstance(trace, reading.Reading)
        side, _ = reading.explained(subject, trace)
        stamps, samples = reading.find(subject, trace)
        sample, _ = explanation.choose_typical(stamps, samples, subject.chosen.sample, False)
        begin, end = (
            trace.sites[stamps.rows[row, 0]]
            for row in (sample.windows[0].begin, sample.windows[0].end)
        )
        instructions = log_in_bursts(subject, begin, end, tmp_path, monkeypatch)
    assert side and len(instructions) == subject.chosen.sample == side.sample.ticks
    again = (tmp_path / "results/samples/pipes.u64").read_bytes()
    assert again == (session / "samples/pipes.u64").read_bytes()
    table = []
    for item in side.sample.contents[0].items:
        if isinstance(item, Executed):
            part = item.block.addresses[item.first : item.first + item.instructions]
            table += part * item.times
    assert table == instructions
    assert side.sample.functions.own == Counter(side.symbols.at(a).name for a in instructions)
