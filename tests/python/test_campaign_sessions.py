"""The sessions of a campaign: how many runs do not count, and the space that they take. How it requests a reboot, with a
systemctl of the test, and its units of systemd."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import made_tools
import pytest
from test_campaign_engine import planned
from written_sessions import run_facts, samples

from klat.base.errors import KlatError
from klat.campaign import boot_sessions, this_machine
from klat.campaign.boot_sessions import unusable_runs
from klat.campaign.campaign_file import BootAttempt
from klat.campaign.campaign_text import unusable_lines
from klat.campaign.this_machine import ThisMachine

MIB = 1 << 20


def test_the_runs_of_measured_boots_that_do_not_count(new_session, tmp_path):
    asked = "2026-01-01T00:00:00Z"
    attempts = (
        BootAttempt(1, "done", asked, "-", "a"),
        BootAttempt(2, "done", asked, "a", "b"),
        BootAttempt(3, "done", asked, "b", "c"),
        BootAttempt(4, "interrupted", asked, "c", "d"),
    )
    campaign = replace(
        planned(tmp_path / "campaign.json"), attempts=attempts, output=str(tmp_path / "results")
    )
    for name, boot_id, experiment, statuses in (
        ("rt/1", "a", campaign.identity, ("ok", "invalid", "disturbed")),
        ("rt/2", "b", campaign.identity, ("invalid", "skipped", "ok")),
        ("stock/1", "c", campaign.identity, ("ok", "disturbed")),
        ("stock/2", "d", campaign.identity, ("invalid",)),
        ("stock/3", "c", "another", ("invalid",)),
        ("rt/.failed", "a", campaign.identity, ()),
    ):
        session = new_session(name, label=name.split("/", maxsplit=1)[0], boot_id=boot_id)
        for number, status in enumerate(statuses, 1):
            metrics = {} if status == "skipped" else {"a": samples(900), "b": samples(9000)}
            session.run(metrics, order=number, run=number, status=status, reason=status)
        pairing = {"experiment": experiment, "pair": "1"}
        facts = run_facts() | {"boot_id": boot_id, "pairing": pairing}
        (session.path / "run.json").write_text(json.dumps(facts))
    counts = unusable_runs(campaign)
    assert counts == {tmp_path / "results/rt": (3, 6)}
    text = " ".join(" ".join(unusable_lines(counts)).split())
    summary = f"klat summary {tmp_path}/results/rt"
    assert text == f"warning: 3 of 6 runs of rt do not count; {summary} says why"


def test_a_disk_without_enough_space_is_refused(tmp_path, monkeypatch):
    """Two boots of the check have 1 MiB of samples each. The campaign has 2 rounds and 3 runs: 12 MiB,
    and what the rest of four sessions takes."""
    session = tmp_path / "session"
    (session / "samples").mkdir(parents=True)
    (session / "samples/pipes.u64").write_bytes(bytes(MIB))
    (session / "run.json").write_text("{}")
    monkeypatch.setattr(boot_sessions, "sessions_of", lambda campaign, boot_id: [session])
    attempts = tuple(BootAttempt(n, "done", "2026-01-01T00:00:00Z", "a", f"{n}") for n in (1, 2))
    campaign = replace(planned(tmp_path / "campaign.json"), is_check=True, attempts=attempts)
    for free in (13 * MIB, 12 * MIB):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        is_full = pytest.raises(KlatError, match="needs about 12 MiB, but only 12 MiB are")
        with nullcontext() if free > 12 * MIB else is_full:
            boot_sessions.check_space(campaign)


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
