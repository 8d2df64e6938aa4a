"""A campaign with an interim look, with real reboots in QEMU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import harness
import pytest
from campaign_image import GRUB, KLAT_PACKAGES, build
from klat.campaign.campaign_file import ASKED, RUNNING, Campaign, read_campaign
from klat.campaign.campaign_text import time_left
from test_campaign_boots import PLAN, STATE, files_are_as_before, follow, prepare
from test_lab_boots import klat

ROUNDS = 20
PLANNED = PLAN.replace("--boots 2", f"--boots {ROUNDS} --looks 2")


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        harness.lacking("this test needs root and mmdebstrap")
    disk = build(tmp_path, GRUB, (*KLAT_PACKAGES, "python3-scipy"))
    yield disk
    disk.unlink()  # pytest keeps its directories


@pytest.mark.long
def test_a_look_saves_the_second_half_of_the_boots(image: Path, tmp_path: Path) -> None:
    prepare(image, f"{PLANNED} && klat campaign start")
    campaign = follow(image, ROUNDS + 2, tmp_path / "out")
    assert (campaign["phase"], campaign["why"]) == ("ended", ""), campaign
    outcomes = [attempt["outcome"] for attempt in campaign["attempts"]]
    assert outcomes == ["done"] * ROUNDS
    status = (tmp_path / "out/status").read_text()
    assert "settled at look 1 of 2, after 10 of 20 rounds: 20 boots saved" in status
    assert files_are_as_before(tmp_path / "out")
    results = tmp_path / "out/results"
    done = klat("compare", results / "stock", results / "rt", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "round_trip, median: " in done.stdout and "slower" in done.stdout
    assert_the_estimate_after_a_block_is_right(read_campaign(tmp_path / "out" / Path(STATE).name))


def assert_the_estimate_after_a_block_is_right(campaign: Campaign) -> None:
    """Within 10 % of the time that a boot takes afterwards."""
    block = 2 * len(campaign.settings)
    asked = [
        datetime.fromisoformat(each.asked.replace("Z", "+00:00")) for each in campaign.attempts
    ]
    first = campaign.attempts[block]
    begun = (*campaign.attempts[:block], replace(first, outcome=ASKED))
    as_then = replace(campaign, phase=RUNNING, attempts=begun, is_settled=False, looked_after=0)
    left = time_left(as_then, asked[block])
    assert left is not None
    estimated = left / (campaign.rounds * len(campaign.settings) - block)
    took = (asked[-1] - asked[block]).total_seconds() / (len(asked) - 1 - block)
    assert took == pytest.approx(estimated, rel=0.1)
