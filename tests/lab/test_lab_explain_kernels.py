"""`klat lab explain --kernel`: which sessions it reuses, and what it boots."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from labs import experiment
from test_lab_boots import klat
from test_lab_explain_refusals import KERNEL, Recording

from klat.base.errors import KlatError
from klat.lab.architectures import AMD64
from klat.lab import needed, qemu
from klat.lab.boots import Ready
from klat.lab.execution import Request
from klat.lab.kernels import parse
from klat.lab.qemu import GuestSize

PLANNED = experiment(
    kernels=("debian:stock",), labels=("lab-stock",), releases=("a",), hashes=("a",)
)
REQUEST = Request(
    architecture=AMD64,
    specs=[parse("debian:stock")],
    mode="counted",
    shape=GuestSize(),
    sets=PLANNED.sets,
    loads=["none"],
    append="",
    boots=1,
    runs=1,
    seed=6,
    clock="2026-01-01T00:00:00",
    time_limit_s=60,
)


def fits(request: Request = REQUEST, *fixed: str, kernel: str = "a", files: str = "0") -> bool:
    (boot, *_) = PLANNED.schedule()
    facts = {"sha256": kernel, "initramfs_sha256": files, "started_as": "vmlinux"}
    made = Ready("", Path(), b"", facts)
    return needed.fits(PLANNED, boot, request, frozenset(fixed), made, ("0", "vmlinux"))


def test_a_session_that_did_what_is_requested_is_reused():
    assert fits()
    assert fits(replace(REQUEST, seed=PLANNED.seed), "seed", "clock")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_uses_no_boot_that_another_user_may_have_written(tmp_path):
    needed.require_trusted(tmp_path)
    os.chown(tmp_path, 65534, 65534)
    made = Ready("", Path(), b"", {})
    emulator: Any = None  # not asked
    with pytest.raises(KlatError, match="not used, because .* belongs to user"):
        needed.reusable(tmp_path, REQUEST, frozenset(), made, emulator)


@pytest.mark.usefixtures("qemu")
@pytest.mark.parametrize(
    ("stopped", "can_stop", "reused"),
    [(True, True, True), (False, True, False), (False, False, True), (True, False, True)],
)
def test_a_session_without_a_stopped_clock_is_reused_only_where_no_clock_can_be_stopped(
    lab, monkeypatch, stopped, can_stop, reused
):
    recording = Recording(lab)
    recording.machine["stopped_clock"] = stopped
    recording.write()
    monkeypatch.setenv("XDG_CACHE_HOME", str(lab.cache))
    variables = {"LD_PRELOAD": "trace.so"} if can_stop else {}
    monkeypatch.setattr(qemu, "_stopped_clock", lambda path: variables)
    request = replace(REQUEST, sets=(("pipes", ()),))
    facts = {"sha256": KERNEL, "initramfs_sha256": recording.guest.name, "started_as": ""}
    made = Ready("", Path(), b"", facts)
    fitting = needed.reusable(recording.path, request, frozenset(), made, qemu.find(AMD64))
    assert bool(fitting) == reused


@pytest.mark.parametrize(
    "other",
    [
        {"sets": (("pipes", ("--cpus=0,0", "--bytes=64")),)},
        {"loads": ["fork"]},
        {"append": "quiet"},
        {"specs": [parse("x=debian:stock,append=quiet")]},
        {"shape": GuestSize(memory_mib=600)},
    ],
)
def test_a_session_that_did_something_else_is_not(other):
    assert not fits(replace(REQUEST, **other))


def test_a_session_of_another_kernel_other_files_or_a_wanted_seed_is_not():
    assert not fits(kernel="b")
    assert not fits(files="1")
    assert not fits(REQUEST, "seed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("results", "--seed", "1"), "--seed needs --kernel"),
        ((), "give BASE, or BASE and NEW, or --kernel and a benchmark"),
        (("--kernel", "debian:rt"), "give a benchmark"),
        (("--kernel", "debian:rt", "pipes", "--load", "fork", "--load", "none"), "one load"),
        (
            ("--kernel", "debian:rt", "pipes", "--boots", "5"),
            "--boots: is fixed to 1: klat repeats",
        ),
        (("--kernel", "debian:rt", "pipes", "--mode", "kvm"), "--mode: is fixed to counted"),
        (("--kernel", "debian:rt", "--runs", "1", "--boots", "1"), "give a benchmark"),
        (("results", "--boots", "1"), "--boots needs --kernel"),
    ],
)
def test_what_cannot_be_meant_is_refused(lab, words, message):
    done = lab.inside("explain", *words)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.slow
def test_a_kernel_is_booted_once_and_explained_again_without_a_boot(tmp_path):
    words = ("explain", "--kernel", "debian:rt", "--iterations", "100", "pipes", "cv")
    first = klat("lab", *words, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    again = klat("lab", *words, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert [p.name for p in (tmp_path / "results/explain").iterdir()] == ["lab-rt"]
    assert len(list((tmp_path / "results/explain/lab-rt").iterdir())) == 1
    for metric in ("pipes.round_trip", "cv.handoff", "cv.round_trip"):
        assert f"{metric}, typical sample" in first.stdout
    session = "results/explain/lab-rt"
    alone = klat(
        "lab", "explain", session, "--metric", "cv.round_trip", "--least", "0", cwd=tmp_path
    )
    assert alone.returncode == 0, alone.stderr
    every = first.stdout.split("\n\n")
    (at,) = [n for n, part in enumerate(every) if part.startswith("cv.round_trip")]
    *ten, _, total = every[at + 2].splitlines()[1:]
    rows = [line.split() for line in alone.stdout.splitlines()]
    assert len(ten) == 10
    assert all(line.split() in rows for line in (*ten, total))
