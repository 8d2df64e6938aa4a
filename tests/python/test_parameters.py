"""Headings show the parameters that differ from the programs' own defaults."""

from __future__ import annotations

import json
import subprocess

import pytest
from fakes import ROOT

from klat.report.text.parameters import DEFAULTS, parameters


@pytest.mark.parametrize("program", DEFAULTS)
def test_the_defaults_are_those_of_the_program(program: str) -> None:
    path = ROOT / program / program
    if not path.is_file():
        pytest.skip(f"{program} is not built")
    described = json.loads(
        subprocess.run([path, "--print-benchmark"], stdout=subprocess.PIPE, check=True).stdout
    )
    rows = described["options"] + described["common_options"]
    defaults = {row["name"]: row["default"] for row in rows}
    known = dict(DEFAULTS[program])
    if program == "tlbflush":
        # Recorded as 0 unless it is given, while 0 cannot be given.
        assert (known.pop("initiators"), defaults.pop("initiators")) == ("0", "")
    assert known == {name: defaults.get(name) for name in known}


def test_a_swept_parameter_is_shown_even_at_its_default() -> None:
    params = "bytes=1;wait=epoll;iterations=500"
    assert parameters("pipes", params) == {"wait": "epoll"}
    others = ["bytes=100;wait=epoll;iterations=500"]
    assert parameters("pipes", params, others) == {"bytes": "1", "wait": "epoll"}
    assert parameters("my-own", "a=1") == {"a": "1"}
