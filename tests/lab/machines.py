"""Two emulated machines, each with a kernel of its own, joined by a virtual network."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import harness
import pytest
from labs import static_program

from klat.base.errors import KlatError
from klat.lab import cache, guest, image, initramfs, kernels, qemu
from klat.lab.apt import Archive

BOOT_SECONDS = 180
# A shell on the second serial line. Its answer to a line, a number and a command, is one of numbers
# (the same, status, bytes of stdout, bytes of stderr), and those bytes.
INIT = rb"""#!/bin/sh
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
while read -r module; do insmod "/modules/$module.ko"; done </klat/modules
. /klat/settings
busybox ip link set lo up
busybox ip address add "$ADDRESS/24" dev eth0
busybox ip link set eth0 up
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1
echo ready
while read -r number words; do
    sh -c "$words" </dev/null >/out 2>/err
    echo $number $? $(wc -c </out) $(wc -c </err)
    cat /out /err
done
"""


class Emulated(qemu.Guest):
    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)


class Machine:
    """One of the two. Whatever it is asked for has a limit."""

    def __init__(self, words: list[str], work: Path, address: str) -> None:
        self.address = address
        self._console = work / "console"
        self._line = socket.socket(socket.AF_UNIX)
        self._waiting: list[str] = []
        self._asked = 0
        self._read = b""
        self.qemu = Emulated(words, work / "stderr", 64 << 20)
        try:
            self._attach(work / "line")
            assert self._until(BOOT_SECONDS, self._line_end) == b"ready\n"
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        self.qemu.end()
        self._line.close()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """As a machine that loses its network: nothing says that it is gone."""
        self.qemu.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.qemu.send(signal.SIGCONT)

    def start(self, *words: str) -> None:
        self._waiting = list(words)
        self._asked += 1
        self._line.sendall(f"{self._asked} {' '.join(words)}\n".encode())

    def finish(self, limit: float) -> harness.Done:
        """What was started, once it has ended."""
        since = time.monotonic()
        answered = 0
        # What a test before asked for in vain may be answered only now.
        while answered != self._asked:
            sizes = [int(word) for word in self._until(limit, self._line_end).split()]
            answered, status, out, err = sizes
            data = self._until(limit, lambda: out + err)
        seconds = time.monotonic() - since
        return harness.Done(
            self._waiting, status, data[:out].decode(), data[out:].decode(), seconds
        )

    def _attach(self, path: Path) -> None:
        self._line.settimeout(10)
        deadline = time.monotonic() + 10
        while True:
            try:
                return self._line.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                if self.qemu.status() is not None or time.monotonic() > deadline:
                    pytest.fail(f"QEMU did not start: {self.qemu.complaint()}")
                time.sleep(0.05)

    def _line_end(self) -> int | None:
        return self._read.find(b"\n") + 1 or None

    def _until(self, limit: float, size: Callable[[], int | None]) -> bytes:
        """As many bytes as `size` says, once it does and they are there."""
        deadline = time.monotonic() + limit
        while (end := size()) is None or len(self._read) < end:
            self._line.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                more = self._line.recv(65536)
            except TimeoutError:
                more = b""
            if not more:
                last = self._console.read_text(errors="replace")[-2000:]
                pytest.fail(f"no answer in {limit} s to {' '.join(self._waiting)}\n{last}")
            self._read += more
        found, self._read = self._read[:end], self._read[end:]
        return found


@contextmanager
def joined(work: Path, busybox: Path) -> Iterator[tuple[Machine, Machine]]:
    """Debian's stock kernel, twice. The first holds the end of the cable that the second is plugged into."""
    emulator = qemu.find()
    shape = qemu.Machine(emulator, "emulated", qemu.GuestSize(memory_mib=256))
    try:
        spec = kernels.parse("debian:stock")
        kernel = kernels.obtain(spec, lambda line: None, Archive(lambda line: None))
    except KlatError as error:
        harness.lacking(f"Debian's kernel cannot be had: {error}")
    assert kernel.tree
    modules = kernel.tree.closure(["virtio_pci", "virtio_net"])
    programs = {"transport": static_program("transport")}
    box = busybox.read_bytes()
    shared = initramfs.base(INIT, box, programs, modules, [], None, shape.describe(""))
    unpacked = image.vmlinux(kernel.image, cache.folder("images")) or kernel.image.path
    cable = f"addr.type=unix,addr.path={work / 'cable'}"
    with ExitStack() as stack:
        pair = []
        for number in (1, 2):
            own = work / str(number)
            own.mkdir()
            address = f"10.168.79.{number}"
            boot = qemu.BootFiles(
                kernel=unpacked,
                initrd=own / "initrd",
                disk=own / "disk",
                console=own / "console",
                serial=own / "line",
                seed=number,
                clock="2026-01-01T00:00:00",
            )
            boot.initrd.write_bytes(shared + initramfs.of_boot("", {"ADDRESS": address}))
            guest.prepare(boot.disk, guest.OFFSET)
            words = [
                # The second serial line is one to talk by.
                f"socket,id=results,path={boot.serial},server=on,wait=off"
                if word.startswith("file,id=results,")
                else word
                for word in qemu.command(shape, boot)
            ]
            words += ["-netdev", f"stream,id=cable,server={'on' if number == 1 else 'off'},{cable}"]
            mac = f"52:54:00:12:34:{number:02}"
            words += ["-device", f"virtio-net-pci,netdev=cable,mac={mac},romfile="]
            machine = Machine(words, own, address)
            stack.callback(machine.end)
            pair.append(machine)
        yield pair[0], pair[1]
