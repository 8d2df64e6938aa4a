"""Boots a guest of several emulated CPUs that soaks. Its programs are planted: for them, the emulator's time is real
and its counter is invariant."""

import shutil
import time
from pathlib import Path

import harness
from labs import ROOT, experiment

from klat.base.errors import KlatError
from klat.lab import guest, kernels
from klat.lab.apt import Archive
from klat.lab.boots import Booting
from klat.lab.guest_contents import Contents
from klat.lab.architectures import AMD64
from klat.lab.qemu import GuestSize, Machine, find

BOOT_LIMIT_S = 90
HEAD = "#!/bin/sh\nexport KLAT_TEST_MODE=virtual\n"


def soak(directory: Path, script: str, cpus: int = 3) -> Path:
    """Boot Debian's stock kernel and run the shell script in it. `timer` is the only program there. Returns what
    the script left in /results."""
    if not shutil.which("qemu-system-x86_64"):
        harness.lacking("there is no qemu-system-x86_64")
    timer, scene = ROOT / "build/static/planted/timer/timer", directory / "scene"
    assert timer.exists(), f"{timer} is not built: run the tests by 'make test-slow'"
    scene.write_text(HEAD + script)
    shape = GuestSize(cpus=cpus)
    machine = Machine(find(AMD64), "emulated", shape)
    planned = experiment(
        kernels=("debian:stock",),
        labels=("lab-stock",),
        mode="emulated",
        shape=shape,
        sets=(("scene", ()),),
        boots=1,
        runs=1,
        time_limit_s=BOOT_LIMIT_S,
    )
    archive = Archive(print)
    try:
        kernel = kernels.obtain(kernels.parse("debian:stock"), archive, AMD64)
    except KlatError as error:
        harness.lacking(f"no kernel from Debian: {error}")
    static = {"timer": timer, "scene": scene}
    contents = Contents(archive, AMD64, print)
    (ready,) = contents.ready(planned.sets, [kernel], contents.busybox(), static, machine)
    booting = Booting(
        planned, planned.schedule()[0], ready, machine, directory / "guest", BOOT_LIMIT_S
    )
    try:
        while not booting.poll():
            time.sleep(0.2)
        delivery, failure = booting.conclude()
    finally:
        booting.end()
        (directory / "console").write_text(booting.console())
    assert delivery and delivery.tar, (failure, booting.console()[-2000:])
    guest.unpack(delivery.tar, directory / "results")
    return directory / "results"
