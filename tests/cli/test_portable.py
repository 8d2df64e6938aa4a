"""`make ARCH=portable`: the five programs and the unit tests work without code for this machine's ISA."""

import os

import harness
import pytest
from harness import MEASURED, ROOT, SKIPPED, command, json_of, path_of

# The variant is compiled first.
pytestmark = [pytest.mark.slow, pytest.mark.alone]

PROGRAMS = ("pipes", "cv", "tlbflush", "timer", "network")
UNITS = sorted(path.stem for path in (ROOT / "tests/unit").glob("test_*.c"))


@pytest.fixture(scope="session")
def portable() -> str:
    """The variant for path_of(). Only what has changed is compiled."""
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    targets = [f"build/portable/{program}/{program}" for program in PROGRAMS]
    words = ["make", "-s", "-j2", "ARCH=portable", "OUT=build/portable", *targets, "units"]
    done = command(words, cwd=ROOT, env=environment, limit=180)
    assert done.status == 0, str(done)
    return "portable"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_measures_with_the_clock_of_the_kernel(program, portable):
    def attempt() -> str:
        done = command([path_of(program, portable), "--iterations", "100", "--json"])
        if done.status == SKIPPED:
            harness.lacking(done.err.strip())
        if done.status != MEASURED:
            return str(done)
        khz = json_of(done)["tsc_khz"]
        assert abs(khz / 1e6 - 1) < 1e-3, f"a tick is not 1 ns: {khz} kHz"
        return ""

    harness.until(attempt)


def test_klat_explain_refuses_a_build_whose_counter_no_trace_clock_reads(portable):
    words = [
        "--trace-above=1",
        "--trace-instance=/",
        "--trace-output=/dev/null",
        "--check-for=virtual:1",
    ]
    done = command([path_of("pipes", portable), *words])
    assert done.status == SKIPPED
    assert "no trace clock that reads the counter" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("unit", UNITS)
def test_the_library_passes_its_unit_tests(unit, portable):
    done = command([ROOT / "build" / portable / "unit" / unit], cwd=ROOT)
    assert done.status == 0, str(done)
