"""The newest kernels of Debian's archive: every program measures there, and a session describes the kernel."""

import re
from itertools import permutations
from pathlib import Path

import pytest
from test_lab_boots import SHORT, klat, lab_run, session_of

from klat.base import programs
from klat.lab import image
from klat.lab.architectures import AMD64
from klat.record.session import Session, read_session

pytestmark = pytest.mark.slow

# Since Linux 7, x86 has no other models.
MODELS = {"newest": ("lazy", "full"), "newest-rt": ("rt",)}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab")
    kernels = [word for name in (*MODELS, "6.1") for word in ("--kernel", f"debian:{name}")]
    lab_run(*kernels, *SHORT, "--output", path, "all", cwd=path)
    return path


@pytest.fixture(params=MODELS)
def session(request: pytest.FixtureRequest, output: Path) -> Session:
    return read_session(session_of(output, f"lab-{request.param}"))


def test_every_program_measures(session):
    assert {row.benchmark for row in session.rows} == {*programs.available()}
    for row in session.rows:
        assert (row.status, row.reason) == ("ok", ""), row.benchmark
        assert row.n or row.benchmark in ("semaphore", "transport"), row.metric


def test_a_session_describes_the_kernel(session):
    assert session.info["preemption"] in MODELS[session.label.removeprefix("lab-")]
    environment = session.path / "environment"
    (config,) = (environment / "boot").glob("config-*")
    assert image.lacking(config.read_bytes(), programs.available(), AMD64) == []
    runtime = (environment / "proc/sys/kernel/sched_rt_runtime_us").read_text()
    assert int(runtime) in (950_000, 1_000_000)


@pytest.mark.parametrize("name", MODELS)
def test_all_that_a_new_kernel_brings_is_compared(output, name):
    """docs/conditions.md says how to add the kernel to the table of all pairs."""
    sides = [output / "lab-6.1", output / f"lab-{name}"]
    for base, new in permutations(sides):
        done = klat("compare", base, new, cwd=output)
        assert done.returncode in (0, 1, 3) and "--allow" not in done.stdout, done.stdout


def test_the_newest_kernel_is_of_the_last_line_that_is_listed(session):
    listed = klat("lab", "kernels", cwd=session.path).stdout
    lines = re.findall(r"^debian:(\d+)\.(\d+) ", listed, re.MULTILINE)
    last = ".".join(max(lines, key=lambda line: [int(number) for number in line]))
    assert re.match(rf"{last}\b", session.info["kernel_release"])


def test_a_page_fault_that_an_old_kernel_begins_again_is_one_fault(tmp_path):
    """Before Linux 6.0, each fault of shared memory counts as major."""
    options = ("--option", "fault.kind=shared", "fault")
    lab_run("--kernel", "debian:5.10", *SHORT, "--output", tmp_path, *options, cwd=tmp_path)
    (row,) = read_session(session_of(tmp_path, "lab-5.10")).rows
    # 100 samples, and the lead of four.
    assert (row.status, row.n, row.major_faults) == ("ok", 100, "toucher=104")
