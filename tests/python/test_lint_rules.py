"""`make lint` reports what depends on the ISA outside lib/arch; calls and includes of a higher layer of the library; upward
imports of the package; and long files and functions."""

import subprocess
from pathlib import Path

import pytest
from lint import isa_rules, library_rules, package_rules
from made_tools import plant, write

TREE = Path(__file__).parents[2]


def test_nothing_outside_lib_arch_depends_on_the_isa():
    sources = [path for path in TREE.glob("*/**/*.[ch]") if TREE / "build" not in path.parents]
    assert sources and not list(isa_rules.violations(sources))


@pytest.mark.parametrize(
    "line",
    [
        '__asm__ volatile("pause");',
        'register long fourth __asm__("r10");',
        "#include <x86intrin.h>",
        "uint64_t now = __rdtsc();",
        "__cpuid(1, a, b, c, d);",
        'open("/dev/cpu/0/msr", O_RDONLY);',
        "#ifdef __x86_64__",
    ],
)
def test_what_depends_on_the_isa_is_reported(line, tmp_path):
    for folder in ("pipes", "lib/arch/x86_64"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "planted.c").write_text(f"\n{line}\n")
    (found,) = isa_rules.violations(list(tmp_path.rglob("*.c")))
    assert "pipes/planted.c:2:" in found


def test_a_barrier_for_the_compiler_is_not_reported(tmp_path):
    source = tmp_path / "barrier.c"
    source.write_text('__asm__ volatile("" : "+r"(seed));\n')
    assert not list(isa_rules.violations([source]))


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
    (found,) = library_rules.violations(compiled(tmp_path, files))
    assert f"lib/{caller}/low.c: {user} of" in found
    assert f"uses high of lib/{callee}/high.c" in found


def test_downward_calls_are_accepted(tmp_path):
    files = {"lib/cli/low.c": LOW, "lib/base/high.c": HIGH}
    assert not list(library_rules.violations(compiled(tmp_path, files)))


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("lib/base/files.c", '#include "run/run.h"\n', "base includes a header of run"),
        ("pipes/pipes.c", '#include "machine/machine.h"\n', "a benchmark includes klat.h"),
        (
            "pipes/pipes.c",
            "\n" * (library_rules.FILE_LINES + 1),
            f"file of {library_rules.FILE_LINES + 1} lines",
        ),
        ("lib/run/run.h", "{\n" + "\n" * (library_rules.FUNCTION_LINES - 1) + "}\n", "function of"),
    ],
)
def test_a_planted_violation_in_a_source_of_the_library_is_reported(name, text, expected, tmp_path):
    (found,) = library_rules.violations([write(tmp_path / name, text)])
    assert expected in found


def test_an_allowed_source_is_accepted(tmp_path):
    benchmark = '#include "klat.h"\n#include "sync/sync.h"\n#include "queue.h"\n'
    function = "{\n" + "\n" * (library_rules.FUNCTION_LINES - 2) + "}\n"
    files = {"lib/run/run.c": '#include "base/base.h"\n' + function, "pipes/pipes.c": benchmark}
    assert not list(library_rules.violations(write(tmp_path / n, t) for n, t in files.items()))


def long_function(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


def test_the_package_has_no_violation():
    assert not list(package_rules.violations(TREE / "scripts/klat"))


@pytest.mark.parametrize("name", package_rules.COMPUTING)
def test_a_module_that_no_report_may_import_exists(name):
    assert TREE.joinpath("scripts", *name.split(".")).with_suffix(".py").exists()


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"stats/means.py": "from klat.record.rows import Row\n"}, "higher layer"),
        ({"stats/means.py": "from klat import record\n"}, "higher layer"),
        ({"base/files.py": "import klat.stats.means\n"}, "higher layer"),
        ({"base/files.py": "def late():\n    import klat.cli\n"}, "higher layer"),
        ({"base/files.py": "from . import errors\n"}, "relative import"),
        ({"report/page.py": "from klat.compare.matching import matched\n"}, "computes results"),
        ({"report/renderers/a.py": "from klat.report.text import wording\n"}, "knows results"),
        ({"misc/things.py": ""}, "misc is no layer"),
        (
            {"base/files.py": "\n" * (package_rules.MODULE_LINES + 1)},
            f"module of {package_rules.MODULE_LINES + 1} lines",
        ),
        ({"base/files.py": long_function(package_rules.FUNCTION_LINES + 1)}, "function long of"),
    ],
)
def test_a_planted_violation_in_the_package_is_reported(files, expected, tmp_path):
    (found,) = package_rules.violations(plant(tmp_path / "klat", files))
    assert expected in found


def test_downward_imports_and_lengths_at_the_limit_are_accepted(tmp_path):
    files = {
        "cli.py": "from klat import commands\nfrom klat.base import files\n",
        "base/files.py": "\n" * package_rules.MODULE_LINES,
        "base/errors.py": "from klat.base import files\n"
        + long_function(package_rules.FUNCTION_LINES),
    }
    assert not list(package_rules.violations(plant(tmp_path / "klat", files)))
