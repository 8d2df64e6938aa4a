"""Help, version, and a command line that is wrong: one clear line, status 2, nothing measured.

test_program_fuzz.py tries wrong command lines of every program.
"""

import os
import re
import shlex

import harness
import pytest
from harness import FAILED, MEASURED, USAGE, assert_one_line, command, on_two, path_of, run

NO_SUCH_CPU = "8000"


def test_help_goes_to_stdout_within_79_columns(program):
    done = run(program, "--help")
    assert done.status == MEASURED
    assert done.err == ""
    assert done.out.startswith(f"Usage: {program} ")
    for line in done.out.splitlines():
        assert len(line) <= 79, line
        assert line == line.rstrip(), repr(line)
    for common in ("cpus", "iterations", "warmup", "policy", "record", "csv", "json", "version"):
        assert f"--{common}" in done.out
    assert "Exit status" in done.out


@on_two
def test_version_names_program_version_and_commit(program):
    done = run(program, "--version")
    assert done.status == MEASURED
    assert done.err == ""
    assert re.fullmatch(rf"{program} \(klat \d+\.\d+\.\d+, ([0-9a-f]{{12}}|unknown)\)\n", done.out)


@on_two
def test_help_counts_wherever_it_stands(program):
    assert run(program, "--iterations", "5", "--help").out == run(program, "--help").out
    assert run(program, "-h").out == run(program, "--help").out


@pytest.mark.parametrize("shows", ["--help", "--print-benchmark"])
def test_defaults_are_shown_whatever_is_given(shows):
    assert run("pipes", "--bytes", "7", "--wait", "epoll", shows).out == run("pipes", shows).out


BAD_INPUT = f"""\
--no-such-option | stray | '' | --iterations | --iterations 12x | --iterations \x1b[31mred
--iterations 99999999999999999999999 | --json=yes | --csv --json | --policy fifo:100
--cpus 0,,1 | --cpus {NO_SUCH_CPU} | --cpus 0,0,0,0,0,0,0,0,0 | --plant nothing
--guest-halt-poll 0 --dma-latency 0"""


@pytest.mark.parametrize("line", re.split(r"\n| \| ", BAD_INPUT))
@on_two
def test_bad_input_is_one_line_and_status_2(program, line):
    words = shlex.split(line)
    done = run(program, *words)
    assert_one_line(done, program, USAGE)
    assert NO_SUCH_CPU not in words or f"CPU {NO_SUCH_CPU} " in done.err


@on_two
def test_no_line_is_long_whatever_was_typed(program):
    done = run(program, "--iterations", "9" * 100000)
    assert_one_line(done, program, USAGE)
    assert len(done.err) < 1000


@on_two
def test_a_result_that_cannot_be_written_is_an_error(program):
    with open("/dev/full", "wb") as full:
        for option in ("--help", "--version"):
            assert run(program, option, stdout=full).status == FAILED
        # Line by line, so that nothing is left to be written at the end.
        for option in ("--help", "--version"):
            words = ["stdbuf", "--output=L", path_of(program), option]
            assert command(words, stdout=full).status == FAILED
        done = run(program, "--iterations", "20", stdout=full)
    if done.status == harness.SKIPPED:
        harness.lacking(done.err.strip())
    assert done.status == FAILED
    assert os.strerror(28) in done.err
