"""Headings show the parameters that differ from the programs' own defaults."""

from __future__ import annotations

import re
import subprocess

import pytest
from fakes import ROOT

from klat.report.text.parameters import DEFAULTS, parameters


def documented(program: str) -> dict[str, str]:
    """The defaults in the program's --help."""
    path = ROOT / program / program
    if not path.is_file():
        pytest.skip(f"{program} is not built")
    text = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
    found = {}
    for option in re.split(r"^  --", text, flags=re.M)[1:]:
        name = re.match(r"[a-z-]+", option)
        default = re.search(r"\bdefault (\S+?)\)", " ".join(option.split()))
        if name and default:
            found[name[0]] = default[1]
    return found


@pytest.mark.parametrize("program", DEFAULTS)
def test_the_defaults_are_those_of_the_program(program: str) -> None:
    said = documented(program)
    switches = {name for name, value in DEFAULTS[program].items() if value == "no"}
    without = switches | ({"initiators"} if program == "tlbflush" else set())
    known = {name: value for name, value in DEFAULTS[program].items() if name not in without}
    assert known == {name: said.get(name) for name in known}
    assert not without & set(said)


def test_what_differs_between_settings_is_shown_even_at_its_default() -> None:
    params = "bytes=1;wait=epoll;iterations=500"
    assert parameters("pipes", params) == {"wait": "epoll"}
    others = ["bytes=100;wait=epoll;iterations=500"]
    assert parameters("pipes", params, others) == {"bytes": "1", "wait": "epoll"}
    assert parameters("my-own", "a=1") == {"a": "1"}
