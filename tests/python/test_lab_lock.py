"""The lock file of `klat lab trend`."""

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fakes
import pytest

from klat.base.errors import KlatError, SessionError
from klat.commands import _lab_trend
from klat.compare.verdicts import Rules
from klat.lab import kernels, lock
from klat.lab.apt import Package
from klat.lab.architectures import AMD64
from klat.lab.execution import Request
from klat.lab.image import Image
from klat.lab.modules import Module
from klat.lab.qemu import GuestSize

NAME = "linux-image-6.1.0-56-amd64"


def own_kernel(path: Path, label: str) -> kernels.Kernel:
    digest = hashlib.sha256(label.encode()).hexdigest()
    built = Image(path, AMD64.format, label, label, digest)
    return kernels.Kernel(kernels.parse(f"{label}={path}"), built, None, None, None)


def lock_request() -> Request:
    return Request(
        architecture=AMD64,
        specs=(),
        mode="counted",
        shape=GuestSize(1, 1, 512),
        sets=[("pipes", ()), ("timer", ("--method=nanosleep",))],
        loads=["none"],
        append="",
        boots=7,
        runs=1,
        seed=3,
        clock="2026-01-01T00:00:00",
        time_limit_s=60,
    )


@pytest.fixture
def written(tmp_path):
    """A lock file of a kernel of Debian and of two files, one after the other, then one alone."""
    files = [own_kernel(tmp_path / name, name) for name in ("one", "two", "three")]
    spec = replace(kernels.parse("debian:6.1"), label="lab-6.1")
    of_debian = replace(files[0], spec=spec, package=Package(NAME, "6.1.192-2", 1))
    obtained = dict(zip((0, 2, 3), (of_debian, *files[1:])))
    path = tmp_path / "lock.json"
    # The second kernel was not to be had.
    lock.write(path, lock_request(), Rules(0.03, 0.01), obtained, [[0, 1, 2], [3]])
    return path, obtained


def test_a_report_can_be_made_again_from_its_lock_file(written):
    path, obtained = written
    locked = lock.read(path)
    assert [spec.label for spec in locked.specs] == ["lab-6.1", "two", "three"]
    assert locked.specs[0].package == (NAME, "6.1.192-2") and locked.specs[1].path.name == "two"
    assert locked.series == [[0, 1], [2]]
    assert locked.sets == (("pipes", ()), ("timer", ("--method=nanosleep",)))
    facts = [locked.facts[name] for name in ("boots", "seed", "margin", "alpha")]
    assert facts == [7, 3, 0.03, 0.01]
    locked.check(dict(enumerate(obtained.values())))


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ([], ""),
        (["--boots", "7", "--seed", "3", "--arch", "amd64", "--load", "none"], ""),
        (["--kernel", "debian:6.1", "--kernel", "two={0}", "--kernel", "three={1}"], ""),
        (["timer", "pipes"], ""),
        (["--append", ""], ""),
        (["--option", "timer.method=nanosleep"], ""),
        (["--option", "timer.method=signal"], "--option"),
        (["--boots", "8"], "--boots"),
        (["--arch", "arm64"], "--arch"),
        (["--kernel", "debian:6.1", "--kernel", "two={1}", "--kernel", "three={0}"], "--kernel"),
        (["timer"], "benchmarks"),
        (["core"], "benchmarks"),
        (["--iterations", "9"], "--iterations"),
    ],
)
def test_a_command_with_its_lock_file_may_be_repeated_but_not_changed(
    written, words, refused, tmp_path, monkeypatch
):
    path, _ = written
    monkeypatch.setenv("KLAT_PROGRAMS", str(fakes.install(tmp_path / "klat", fakes.CORE)))
    words = [word.format(path.parent / "two", path.parent / "three") for word in words]
    parser = argparse.ArgumentParser()
    _lab_trend.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["trend", "--lock", str(path), *words])
    if refused:
        with pytest.raises(KlatError, match=f"which decides {refused}: leave out {refused}"):
            _lab_trend._lock(arguments)
    else:
        locked = _lab_trend._lock(arguments)
        assert locked and arguments.kernel == [*locked.specs] and arguments.boots == 7


def test_another_kernel_under_the_same_name_is_refused(written, tmp_path):
    path, obtained = written
    other = own_kernel(tmp_path / "two", "other")
    with pytest.raises(KlatError, match="is not the kernel other of .*lock.json"):
        lock.read(path).check({1: other})


def test_other_modules_of_the_same_kernel_are_refused(written, tmp_path):
    """The build of a module alone leaves the kernel's image as it is."""
    request, obtained = lock_request(), written[1]

    def with_module(data: bytes) -> kernels.Kernel:
        tree = SimpleNamespace(
            knows=lambda name: True,
            has=lambda name: True,
            closure=lambda names: [Module(name, data, (), "") for name in names],
        )
        return replace(obtained[3], tree=tree)

    path = tmp_path / "modules.json"
    lock.write(path, request, Rules(), {0: obtained[0], 1: with_module(b"a")}, [[0, 1]])
    locked = lock.read(path)
    locked.check({1: with_module(b"a")})
    with pytest.raises(KlatError, match="or its modules differ"):
        locked.check({1: with_module(b"b")})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"series": [[0, 1]]}, "series does not have each kernel once"),
        ({"series": [[0, 1], [5]]}, "series does not have each kernel once"),
        ({"clock": "noon"}, "must be a time"),
        ({"boots": "7"}, "boots is '7', not a whole number"),
        ({"programs": []}, "programs has 0 entries"),
        ({"programs": [["pipes", ["--record=/x"]]]}, "sets or forbids --record"),
        ({"programs": [["pipes", ["--help"]]]}, "sets or forbids --help"),
        ({"programs": [["pipes", ["--trace-above=1"]]]}, "sets or forbids --trace-above"),
        ({"programs": [["pipes", ["/bin/sh"]]]}, "is not --option=value"),
        ({"programs": [["pipes", ["bytes=1"]]]}, "is not --option=value"),
        ({"programs": [["pipes", ['--bytes="1']]]}, "cannot hold quotation marks"),
    ],
)
def test_an_edited_lock_file_is_refused(written, change, said):
    path, _ = written
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises((KlatError, SessionError), match=said):
        lock.read(path)


class OneBuild:
    """An archive that has one build of 6.1."""

    def packages(self) -> dict[str, Package]:
        return {NAME: Package(NAME, "6.1.193-1", 1)}

    def kept(self) -> dict[str, Package]:
        return {}


def test_a_build_that_the_archive_lost_is_named(written):
    spec = lock.read(written[0]).specs[0]
    spec = replace(spec, debian="6.1.0-56-amd64")
    with pytest.raises(KlatError, match=f"no longer has {NAME} 6.1.192-2"):
        kernels.obtain(spec, OneBuild(), AMD64)
