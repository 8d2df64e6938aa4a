"""Where a program places itself, with copies of the programs that read a made-up /sys."""

import os
from pathlib import Path

import pytest
from harness import MEASURED, SKIPPED, USAGE, Session, command, path_of
from made_tools import plant

CPUS = sorted(os.sched_getaffinity(0))
LAST = CPUS[-1]


def made_up(path: Path, files: dict[str, str]) -> dict[str, str]:
    plant(path / "devices", files)
    return os.environ | {"KLAT_TEST_SYS": str(path)}


@pytest.mark.parametrize("online", ["", f"{LAST + 1}\n"])
def test_a_cpu_that_the_kernel_allows_is_taken_whatever_the_files_say(tmp_path, online):
    files = {"system/cpu/online": online} if online else {}
    words = ("taskset", "-c", str(LAST), path_of("timer", "planted"), "--iterations", "5")
    done = command([*words, "--cpus", str(LAST)], env=made_up(tmp_path, files))
    assert done.status == MEASURED, str(done)


@pytest.mark.parametrize("isolated", ["", "1-2"])
def test_a_program_that_lacks_cpus_names_the_isolated_ones(tmp_path, isolated):
    environment = made_up(tmp_path, {"system/cpu/isolated": f"{isolated}\n"})
    done = command(["taskset", "-c", str(LAST), path_of("cv", "planted")], env=environment)
    assert done.status == SKIPPED and "needs 2 CPUs and may use 1" in done.err
    assert ("the isolated CPUs: 1-2; --cpus with" in done.err) == bool(isolated), done.err


def test_the_check_of_options_asks_the_kernel_for_this_machine_s_cpus(two_cpus):
    on_last: list[str | Path] = [
        "taskset",
        "-c",
        str(LAST),
        path_of("pipes"),
        "--check-for=virtual",
    ]
    assert command([*on_last, "--cpus", f"{LAST},{LAST}"]).status == MEASURED
    assert command(on_last).status == SKIPPED
    assert command([*on_last, "--cpus", f"{LAST},8191"]).status == USAGE


def test_output_and_record_name_the_type_of_the_cores(two_cpus, tmp_path):
    environment = made_up(
        tmp_path / "sys",
        {
            "system/cpu/online": f"0-{LAST}\n",
            "cpu_core/cpus": f"{LAST}\n",
            "cpu_atom/cpus": f"0-{LAST - 1}\n",
        },
    )
    words = (path_of("timer", "planted"), "--iterations", "5", "--record", tmp_path / "record")
    done = command(words, env=environment)
    assert f"CPUs {LAST} (one-cpu:core)" in done.out, str(done)
    done = command([*words, "--cpus", str(CPUS[0])], env=environment)
    assert f"CPUs {CPUS[0]} (one-cpu:atom)" in done.out, str(done)
    session = Session(tmp_path / "record")
    placements = dict.fromkeys(row["placement"] for row in session.rows)
    assert list(placements) == ["one-cpu:core", "one-cpu:atom"]
