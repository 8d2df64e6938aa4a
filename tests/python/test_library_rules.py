"""`make lint` reports calls and includes of a higher layer of the library, and long files."""

import subprocess
from pathlib import Path

import pytest
from lint.library_rules import FILE_LINES, FUNCTION_LINES, violations
from made_tools import write

LOW = "void high(void);\nvoid low(void);\nvoid low(void) { high(); }\n"
TABLE = "void high(void);\nvoid (*table[])(void) = { high };\n"
HIGH = "void high(void);\nvoid high(void) {}\n"


def compiled(directory: Path, files: dict[str, str]) -> list[Path]:
    objects = []
    for name, text in files.items():
        source = write(directory / name, text)
        objects.append(source.with_suffix(".o"))
        subprocess.run(["cc", "-O2", "-c", "-o", objects[-1], source], check=True)
    return objects


@pytest.mark.parametrize(
    "caller, callee, text, user",
    [
        ("base", "run", LOW, "low()"),
        ("base", "run", TABLE, "data"),
        ("arch/x86_64", "base", LOW, "low()"),
        ("record", "cli", LOW, "low()"),
        ("run", "sync", LOW, "low()"),
        ("sync", "net", LOW, "low()"),
    ],
)
def test_a_planted_upward_call_is_reported_with_both_symbols_and_files(
    caller, callee, text, user, tmp_path
):
    files = {f"lib/{caller}/low.c": text, f"lib/{callee}/high.c": HIGH}
    (found,) = violations(compiled(tmp_path, files))
    assert f"lib/{caller}/low.c: {user} of" in found
    assert f"uses high of lib/{callee}/high.c" in found


def test_downward_calls_are_accepted(tmp_path):
    files = {"lib/cli/low.c": LOW, "lib/base/high.c": HIGH}
    assert not list(violations(compiled(tmp_path, files)))


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("lib/base/files.c", '#include "run/run.h"\n', "base includes a header of run"),
        ("pipes/pipes.c", '#include "machine/machine.h"\n', "a benchmark includes klat.h"),
        ("pipes/pipes.c", "\n" * (FILE_LINES + 1), f"file of {FILE_LINES + 1} lines"),
        ("lib/run/run.h", "{\n" + "\n" * (FUNCTION_LINES - 1) + "}\n", "function of"),
    ],
)
def test_a_planted_violation_in_a_source_is_reported(name, text, expected, tmp_path):
    (found,) = violations([write(tmp_path / name, text)])
    assert expected in found


def test_an_allowed_source_is_accepted(tmp_path):
    benchmark = '#include "klat.h"\n#include "sync/sync.h"\n#include "queue.h"\n'
    function = "{\n" + "\n" * (FUNCTION_LINES - 2) + "}\n"
    files = {"lib/run/run.c": '#include "base/base.h"\n' + function, "pipes/pipes.c": benchmark}
    assert not list(violations(write(tmp_path / name, text) for name, text in files.items()))
