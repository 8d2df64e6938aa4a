"""--pairs: several pairs at once, each with its own samples and evidence."""

import re
import subprocess
import sys

import pytest
from harness import MEASURED, ROOT, SKIPPED, Session, UNTRUSTED, USAGE, assert_one_line, command
from harness import faults, injected_gap, json_of, run, shown_on_two, traits, until, works

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("two_cpus")]

PAIRED = ("pipes", "cv", "switch", "signal", "messages")
# The library's faults, in one program.
FAULTS = [(p, f) for p in PAIRED for f in faults(p) if f in traits(p).faults or p == "pipes"]


def two_pairs(program: str) -> tuple[str, ...]:
    """Each on one CPU."""
    return ("--pairs", "2", "--cpus", "0,1" if program == "switch" else "0,0,1,1")


@pytest.mark.parametrize("program", shown_on_two(PAIRED))
def test_a_spin_is_recovered_in_each_pair(program, real_time, tmp_path):
    """All samples of a pair come before those of the next one."""
    iterations, ns = 2000, 20000

    def attempt() -> str:
        session = Session(tmp_path / str(len(list(tmp_path.iterdir()))))
        options = ("--quiet", "--inject", str(ns), "--iterations", str(iterations))
        works(program, *two_pairs(program), *options, "--record", session.path)
        wrong = []
        for row in session.rows:
            samples = session.samples(row)
            assert (
                len(samples) == 2 * iterations
                and f"pairs=2;iterations={iterations}" in row["params"]
            )
            for pair in (samples[:iterations], samples[iterations:]):
                spin = ns * traits(program).injected.get(row["metric"], 1)
                gap = injected_gap(pair) / (session.info["tsc"]["khz"] / 1e6)
                if abs(gap - spin) > 0.05 * spin:
                    wrong.append(f"{row['metric']}: {gap:.0f} ns ({row['status']} {row['reason']})")
        return "; ".join(wrong)

    until(attempt)


@pytest.mark.parametrize("program, fault", FAULTS)
def test_a_fault_of_one_pair_is_caught(program, fault, real_time):
    few = ("--iterations", "20") if fault == "late" else ()

    def attempt() -> str:
        done = run(program, *two_pairs(program), "--plant", fault, *few, "--json")
        reason = json_of(done)["reason"]
        caught = done.status == UNTRUSTED and "pair 2: " in reason and "pair 1: " not in reason
        return "" if caught or fault == "edges" else str(done)

    until(attempt)


@pytest.mark.parametrize("program", shown_on_two(PAIRED))
def test_a_faster_pair_runs_on_until_the_slower_one_has_its_samples(program, tmp_path):
    """An ordinary program takes a part of the second pair's CPU."""
    spin = "import os\nos.sched_setaffinity(0, [1])\nwhile True: pass"
    iterations = 20_000  # so that the scheduler has time to be fair
    options = ("--policy", "other", "--iterations", str(iterations), "--under-load", "--json")

    def attempt() -> str:
        result = json_of(run(program, *two_pairs(program), *options, "--record", tmp_path))
        extra = result["evidence"]["counts"]["observed"] - 2 * iterations
        assert {metric["n"] for metric in result["metrics"]} == {2 * iterations}
        return "" if extra > 500 and result["status"] != "invalid" else f"{extra} {result}"

    with subprocess.Popen([sys.executable, "-c", spin]) as hog:
        try:
            until(attempt)
        finally:
            hog.kill()


def test_the_rate_is_that_of_all_pairs(real_time, tmp_path):
    """Nearly all of the time of a pair is in its samples."""
    iterations = 3000

    def attempt() -> str:
        session = Session(tmp_path / str(len(list(tmp_path.iterdir()))))
        options = ("--quiet", "--iterations", str(iterations), "--record", session.path)
        works("pipes", *two_pairs("pipes"), *options)
        (row,) = session.rows
        samples, khz = session.samples(row), session.info["tsc"]["khz"]
        pairs = (samples[:iterations], samples[iterations:])
        most = sum(1e3 * khz * iterations / sum(pair) for pair in pairs)
        (rate,) = re.findall(r"iterations_per_second=(\d+)", row["evidence"])
        return "" if 0.7 * most < int(rate) < 1.01 * most else f"{rate}, at most {most:.0f}"

    until(attempt)


@pytest.mark.parametrize(
    "words, status, message",
    [
        (("pipes", "--pairs", "500"), SKIPPED, "needs 1000 CPUs"),
        (("pipes", "--pairs", "2", "--cpus", "0,1"), USAGE, "takes 4 CPUs; --cpus names 2"),
        (("pipes", "--pairs", "2", "--cpus", "0,1,1,0"), USAGE, "names CPU 1 in two pairs"),
        (("pipes", "--pairs", "2", "--cpus", "0,0,1"), USAGE, "takes 4 CPUs; --cpus names 3"),
        (("pipes", "--pairs", "2", "--soak", "5", "--record", "x"), USAGE, "--soak"),
        (("signal", "--pairs", "16"), USAGE, "at most 15"),
        (("messages", "--pairs", "2", "--mode", "star", "--threads", "2"), USAGE, "no --threads"),
        (("timer", "--pairs", "2"), USAGE, "--pairs"),
        (("pipes", "--pairs", "2", "--cpus", "one"), MEASURED, ""),
    ],
)
def test_the_number_of_pairs_is_checked(words, status, message):
    done = run(*words, "--quiet")
    assert (done.status, message in done.err) == (status, True), str(done)


def test_a_matrix_measures_one_pair_at_a_time(tmp_path):
    line = "run pipes --matrix --option pipes.pairs=2 --output"
    done = command([ROOT / "klat", *line.split(), tmp_path])
    assert_one_line(done, "klat run", USAGE)
    assert "leave out pipes.pairs" in done.err
