"""A control group that forbids CPUs."""

import os
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from harness import ROOT, SKIPPED, USAGE, assert_one_line, command, path_of

# By version of control groups: the directory, and the file that a process is written into.
PLACES = ((Path("/sys/fs/cgroup/cpuset"), "tasks"), (Path("/sys/fs/cgroup"), "cgroup.procs"))
Words = list[str | Path]


@pytest.fixture
def held(root: None, two_cpus: None) -> Iterator[tuple[Words, int, int]]:
    """Words that put a command into a cpuset of one CPU; that CPU, and one outside."""
    outside, inside = sorted(os.sched_getaffinity(0))[:2]
    for base, joins in PLACES:
        group = base / f"klat-test-{os.getpid()}"
        try:
            group.mkdir()
            try:
                for name, value in (("cpuset.mems", "0"), ("cpuset.cpus", str(inside))):
                    (group / name).write_text(value)
                script = f'echo $$ >{group / joins} && exec "$@"'
                yield ["sh", "-c", script, "sh"], inside, outside
            finally:
                group.rmdir()
            return
        except OSError:
            continue
    harness.lacking("no cpuset can be made here")


def test_a_cpu_outside_the_cpuset_is_refused_before_anything_is_measured(held, tmp_path):
    enter, inside, outside = held
    words: Words = [*enter, path_of("timer"), "--iterations", "5", "--record", tmp_path / "r"]
    done = command([*words, "--cpus", str(outside)])
    assert_one_line(done, "timer", USAGE)
    assert f"CPU {outside} is outside the cpuset" in done.err
    assert not (tmp_path / "r").exists()
    assert command([*words, "--cpus", str(inside)]).status != USAGE


def test_two_cpus_are_not_to_be_had_in_a_cpuset_of_one(held):
    enter, _, _ = held
    assert_one_line(command([*enter, path_of("pipes")]), "pipes", SKIPPED)


def test_a_session_that_asks_for_it_ends_at_once_and_leaves_nothing(held, tmp_path):
    enter, _, outside = held
    words: Words = [*enter, ROOT / "klat", "run", "timer"]
    done = command([*words, "--cpus", str(outside)], cwd=tmp_path)
    assert done.status == USAGE, str(done)
    assert "outside the cpuset" in done.err
    assert not list((tmp_path / "results").glob("*"))
