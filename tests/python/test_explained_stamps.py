"""The functions that a metric names for `klat lab explain` have its stamps."""

import json
import subprocess
from pathlib import Path

import pytest
from made_tools import script

from klat.base import programs
from klat.base.errors import KlatError
from klat.explain import stamps

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [path.parent for path in programs.nested(ROOT, ".c")]


def bounds_of(program: Path, metric: str) -> stamps.Bounds:
    return stamps.of_metric(program.name, stamps.bounds_of_all(program), metric)


@pytest.mark.parametrize("folder", [p for p in PROGRAMS if p.name != "load"], ids=lambda p: p.name)
def test_every_function_that_a_metric_names_has_a_stamp_of_its_kind(folder):
    program = folder / folder.name
    assert program.exists(), f"{program} is not built: run the tests by 'make test'"
    words = [program, "--print-benchmark"]
    told = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    held = {True: set[str](), False: set[str]()}
    for stamp in stamps.of_program(program):
        held[stamp.begins].update(stamp.functions)
    for metric in told["metrics"]:
        if not metric["ends_in"]:
            assert not metric["begins_in"]
            continue
        bounds = bounds_of(program, metric["name"])
        assert bounds.begins_in and set(bounds.begins_in) <= held[True], metric["name"]
        assert bounds.ends_in and set(bounds.ends_in) <= held[False], metric["name"]


def test_a_metric_without_such_functions_is_refused_with_those_that_have_them():
    with pytest.raises(KlatError, match=r"^pipes\.one_way cannot be explained.*has round_trip$"):
        bounds_of(ROOT / "pipes/pipes", "one_way")


def test_a_misspelt_metric_is_refused_with_those_that_can_be_explained():
    with pytest.raises(KlatError, match=r"^pipes\.rond_trip .*round_trip$"):
        bounds_of(ROOT / "pipes/pipes", "rond_trip")


def test_the_table_of_an_earlier_program_has_the_present_names(tmp_path):
    """A boot is repeated with the programs that it ran."""
    row = {"name": "wakeup", "begins_in": "a", "ends_in": "b", "mean_of": 1, "from_deadline": False}
    program = script(tmp_path / "network", f"echo '{json.dumps({'metrics': [row]})}'")
    for name in ("interrupt_to_read", "timer_to_read"):
        assert bounds_of(program, name).ends_in == ("b",)
