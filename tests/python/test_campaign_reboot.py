"""How a campaign requests a reboot, with a systemctl of the test, and its units of systemd."""

from pathlib import Path

import made_tools
import pytest

from klat.base.errors import KlatError
from klat.campaign import this_machine
from klat.campaign.this_machine import ThisMachine

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {directory}/asked
case $1 in
is-system-running) echo {state} ;;
*)
	echo "Connection timed out" >&2
	[ "$(grep -c reboot {directory}/asked)" -gt {failures} ] ;;
esac
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(this_machine, "_REBOOT_PAUSE_S", 0.0)
    return tmp_path


def reboot(directory: Path, failures: int, state: str = "running") -> int:
    """How often the reboot was requested."""
    text = SYSTEMCTL.format(directory=directory, failures=failures, state=state)
    made_tools.script(directory / "systemctl", text)
    ThisMachine().reboot()
    return (directory / "asked").read_text().count("--no-block reboot")


@pytest.mark.parametrize("failures", (0, 1, 3))
def test_a_request_that_fails_is_repeated(directory, failures):
    assert reboot(directory, failures) == failures + 1


def test_a_machine_that_goes_down_needs_no_reboot(directory):
    assert reboot(directory, 9, state="stopping") == 1


def test_a_reboot_that_systemd_refuses_is_an_error(directory):
    with pytest.raises(KlatError, match="reboot: Connection timed out"):
        reboot(directory, 9)


def test_the_unit_that_reboots_after_a_crash_names_klats_word_with_any_label():
    """With an equals sign, systemd would look for one value of the word."""
    assert "\nConditionKernelCommandLine=klat.campaign\n" in this_machine._HOME_UNIT_TEXT


def test_the_unit_waits_for_its_file_systems_and_quotes_every_word():
    """systemd expands $ in a command line only, and % everywhere."""
    odd = 'a b$c%d"e\\f'
    lines = this_machine.unit_text(["/klat", odd], ["/klat", f"/{odd}"]).splitlines()
    assert r'RequiresMountsFor="/klat" "/a b$c%%d\"e\\f"' in lines
    assert r'ExecStart="/klat" "a b$$c%%d\"e\\f"' in lines
