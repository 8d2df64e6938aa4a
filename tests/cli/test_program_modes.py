"""Sessions of emulators: one that counts instructions, by copies of the programs that believe a test about their mode,
and those that translate a program's code."""

import os
import subprocess
import sys
from pathlib import Path

import harness
import pytest
from harness import MEASURED, Session, command, json_of

CPU = str(min(os.sched_getaffinity(0)))
SHORT = ("--iterations", "20", "--warmup", "2")


def planted(program: str, *words: str | Path, one_cpu: bool = False) -> None:
    told = {"KLAT_TEST_MODE": "counted"} | ({"KLAT_TEST_CPU": CPU} if one_cpu else {})
    path = harness.path_of(program, "planted")

    def attempt() -> str:
        done = command([path, *SHORT, *words], env=os.environ | told)
        return "" if done.status == MEASURED else str(done)

    harness.until(attempt)


@pytest.mark.alone
def test_only_a_path_length_of_one_cpu_has_a_number(two_cpus, tmp_path):
    pipes, cv = tmp_path / "pipes", tmp_path / "cv"  # a session has one number of CPUs
    planted("pipes", "--cpus", f"{CPU},{CPU}", "--record", pipes, one_cpu=True)
    planted("cv", "--record", cv)
    for path, numbers, says in (
        (pipes, 20, "round_trip  instructions"),
        (cv, 0, "handoff  not measurable in this mode"),
    ):
        session = Session(path)
        assert session.info["mode"] == "counted" and session.info["unit"] == "instructions"
        stored = {file.name for file in path.glob("samples/*")}
        assert stored == ({"pipes.u64"} if numbers else set())
        # planted() repeats a run that other work on the machine made invalid.
        for row in {row["metric"]: row for row in session.rows}.values():
            assert (row["status"], row["n"]) == ("ok", str(numbers))
            assert all(bool(row[name]) == bool(numbers) for name in ("mean", "min", "max", "floor"))
        done = command([sys.executable, "-B", harness.ROOT / "klat", "summary", "--verify", path])
        assert done.status == 0 and says in done.out and "ticks" not in done.out, str(done)


@pytest.mark.alone
def test_a_difference_of_metrics_without_a_number_is_no_figure(tmp_path):
    session = Session(tmp_path)
    planted("semaphore", "--cpus", f"{CPU},{CPU}", "--record", tmp_path, one_cpu=True)
    row = session.rows[-1]
    assert row["metric"] in ("item", "bare") and row["n"] == "0"
    assert "sleeps_per_1000_items=" in row["evidence"] and "net_ticks" not in row["evidence"]


def test_the_ordinary_programs_do_not_believe_the_environment():
    told = os.environ | {"KLAT_TEST_MODE": "counted", "KLAT_TEST_CPU": CPU}
    result = json_of(command([harness.path_of("timer"), *SHORT, "--json"], env=told))
    assert result["mode"] in ("hardware", "virtual") and result["metrics"][0]["n"] == 20


# A second C library, unknown to the dynamic linker's list of the program, makes the calls.
TRANSLATOR = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
long read(int file, void *data, size_t size)
{
    static long (*call)(int, void *, size_t);

    if (!call)
        call = dlsym(dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW), "read");
    return call(file, data, size);
}
"""


def test_a_program_whose_system_calls_other_code_makes_is_emulated(tmp_path):
    library = tmp_path / "libtranslator.so"
    build = ["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"]
    subprocess.run(build, input=TRANSLATOR, text=True, check=True)
    preloaded = os.environ | {"LD_PRELOAD": str(library)}
    result = json_of(command([harness.path_of("timer"), *SHORT, "--json"], env=preloaded))
    assert result["mode"] == "emulated" and result["metrics"][0]["n"] == 0
