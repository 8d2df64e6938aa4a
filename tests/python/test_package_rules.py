"""`make lint` reports upward imports, and long modules and functions."""

from pathlib import Path

import pytest
from lint.package_rules import COMPUTING, FUNCTION_LINES, MODULE_LINES, violations
from made_tools import plant

TREE = Path(__file__).parents[2]


def long_function(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


def test_the_package_has_no_violation():
    assert not list(violations(TREE / "scripts/klat"))


@pytest.mark.parametrize("name", COMPUTING)
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
        ({"base/files.py": "\n" * (MODULE_LINES + 1)}, f"module of {MODULE_LINES + 1} lines"),
        ({"base/files.py": long_function(FUNCTION_LINES + 1)}, "function long of"),
    ],
)
def test_each_planted_violation_is_reported(files, expected, tmp_path):
    (found,) = violations(plant(tmp_path / "klat", files))
    assert expected in found


def test_downward_imports_and_lengths_at_the_limit_are_accepted(tmp_path):
    files = {
        "cli.py": "from klat import commands\nfrom klat.base import files\n",
        "base/files.py": "\n" * MODULE_LINES,
        "base/errors.py": "from klat.base import files\n" + long_function(FUNCTION_LINES),
    }
    assert not list(violations(plant(tmp_path / "klat", files)))
