"""Headings show the parameters that differ from the programs' own defaults."""

import json
import subprocess

import pytest

from klat.base import programs
from klat.report.text.parameters import DEFAULTS, parameters

# What is recorded for an option without a fixed default, and its default by --print-benchmark. 0 cannot be given; a coarse
# counter has another batch; a soak and an emulator have another period; a policy has another method.
RECORDED = {
    "tlbflush": {"initiators": ("0", "")},
    "syscall": {"batch": ("1", "")},
    "timer": {"period": ("200", ""), "method": ("signal", "auto")},
}


@pytest.mark.parametrize("program", DEFAULTS)
def test_the_defaults_are_those_of_the_program(program):
    path = programs.locate(program)
    if not path:
        pytest.skip(f"{program} is not built")
    described = json.loads(
        subprocess.run([path, "--print-benchmark"], stdout=subprocess.PIPE, check=True).stdout
    )
    rows = described["options"] + described["common_options"]
    defaults = {row["name"]: row["default"] for row in rows}
    known = dict(DEFAULTS[program])
    for name, values in RECORDED.get(program, {}).items():
        assert (known.pop(name), defaults.pop(name)) == values
    assert known == {name: defaults.get(name) for name in known}


def test_a_swept_parameter_is_shown_even_at_its_default():
    params = "bytes=1;wait=epoll;iterations=500"
    assert parameters("pipes", params) == {"wait": "epoll"}
    others = ["bytes=100;wait=epoll;iterations=500"]
    assert parameters("pipes", params, others) == {"bytes": "1", "wait": "epoll"}
    assert parameters("my-own", "a=1") == {"a": "1"}
