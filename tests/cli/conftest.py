"""A test with a `program` runs for two programs in `make test` and for the others in `make test-slow`."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest

from klat.base.errors import KlatError
from klat.tracing import instance


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = [str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")]
    if "program" in metafunc.fixturenames and not any("program" in names for names in given):
        metafunc.parametrize("program", harness.shown_on_two(harness.PROGRAMS))


@pytest.fixture
def root() -> None:
    if os.geteuid() != 0:
        harness.lacking("this test needs root")


@pytest.fixture
def two_cpus() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        harness.lacking("this test needs two CPUs")


@pytest.fixture
def tracing(root: None) -> Path:
    """The directory of the tracing instances."""
    try:
        instance.clock()
        instances = instance.tracefs() / "instances"
    except KlatError as error:
        harness.lacking(str(error))
    return instances


@pytest.fixture
def real_time() -> None:
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        os.sched_setscheduler(0, policy, parameters)
    except PermissionError:
        harness.lacking("this test needs real-time priorities")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may read and write, as /tmp is; tmp_path is its owner's alone."""
    path = Path(tempfile.mkdtemp(prefix="klat-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def published(open_directory: Path) -> Path:
    """The programs where an ordinary user can run them, wherever the tree is."""
    for program in harness.PROGRAMS:
        copy = open_directory / program
        shutil.copy(harness.path_of(program), copy)
        copy.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    return open_directory


@pytest.fixture
def as_nobody(root: None) -> list[str | Path]:
    """Words before a command that take every privilege, and the limits that grant some."""
    nobody = str(harness.NOBODY)
    return [
        *("prlimit", "--rtprio=0", "--memlock=65536", "--nice=0"),
        *("setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups", "--inh-caps=-all"),
        "--",
    ]
