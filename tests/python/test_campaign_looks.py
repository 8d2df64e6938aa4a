"""Campaigns with interim looks: the plan, the end at a look, and how often a verdict at a look is false."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from klat.base.errors import KlatError, SessionError
from klat.campaign import boot_sessions, looks
from klat.campaign.campaign_file import ENDED, Campaign, read_campaign, write_campaign
from klat.campaign.engine import Engine, entry_copies
from klat.campaign.looks import planned_looks
from klat.stats.power import by_arrangement
from klat.stats.multiplicity import Look
from test_campaign_engine import Rig, at_home, drive, planned
from validation import campaign_looks
from validation.campaign_looks import KINDS, campaigns, level
from klat.compare.verdicts import Rules
from written_sessions import RT, SideWriter


@pytest.mark.parametrize(
    "rounds, count, expected",
    [
        (20, 1, (20,)),
        (20, 2, (10, 20)),
        (42, 3, (14, 28, 42)),
        (200, 4, (50, 100, 150, 200)),
        # The first third has too few rounds for a verdict at its level.
        (20, 3, (10, 16, 20)),
        # The last round is not the end of a block.
        (21, 3, (10, 16, 21)),
        (4, 1, (4,)),
    ],
)
def test_looks_are_after_blocks_at_about_equal_shares(rounds, count, expected):
    assert planned_looks(rounds, count) == expected


@pytest.mark.parametrize("rounds", [1, 2, 5, 10, 11, 18, 21, 30])
def test_every_look_has_enough_rounds_for_a_verdict(rounds):
    for count in range(2, rounds):
        try:
            rounds_of_looks = planned_looks(rounds, count)
        except KlatError as error:
            assert ("too few" if count == 2 else "allow at most") in str(error)
            break
        assert len(rounds_of_looks) == count and rounds_of_looks[-1] == rounds
        assert all(a < b for a, b in zip(rounds_of_looks, rounds_of_looks[1:]))
        assert not any(look % 2 for look in rounds_of_looks[:-1])
        for units in rounds_of_looks[:-1]:
            enough = by_arrangement(units, units, pairs=True)
            assert enough <= Look(units, rounds_of_looks, 0.05).level()
    else:
        assert rounds < 3


def begun(
    rig: Rig, is_settled: Callable[[Campaign], bool], said: list[str], is_check: bool = False
) -> Engine:
    campaign = replace(planned(rig.path), rounds=6, looks=(2, 4, 6), is_check=is_check)
    write_campaign(rig.path, campaign)
    rig.install(entry_copies(rig, campaign))
    return Engine(rig.path, rig, rig, said.append, is_settled)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "campaign.json")


def test_a_campaign_ends_at_the_look_that_settles_every_metric(rig):
    seen: list[int] = []
    said: list[str] = []

    def is_settled(campaign: Campaign) -> bool:
        seen.append(len(rig.measured))
        return campaign.looked_after == 4

    campaign = drive(rig, begun(rig, is_settled, said))
    assert seen == [4, 8] and len(rig.measured) == 8
    assert campaign.is_complete and campaign.is_settled and campaign.looked_after == 4
    assert at_home(rig) and not rig.copies and not rig.unit and rig.notified == 1
    assert "look after 2 rounds: not every metric is settled" in said
    assert "look after 4 rounds: every metric is settled" in said


def test_a_campaign_that_is_never_settled_has_all_its_boots(rig):
    """klat does not look at the end, where it could save no boots."""
    seen: list[int] = []
    campaign = drive(rig, begun(rig, lambda now: bool(seen.append(now.looked_after)), []))
    assert seen == [2, 4] and len(rig.measured) == 12
    assert campaign.is_complete and not campaign.is_settled


@pytest.mark.parametrize("error", [KlatError("no runs"), ValueError("no runs")])
def test_a_look_that_fails_does_not_end_the_campaign(rig, error):
    said: list[str] = []

    def fail(campaign: Campaign) -> bool:
        raise error

    campaign = drive(rig, begun(rig, fail, said))
    assert campaign.is_complete and len(rig.measured) == 12
    assert "look after 2 rounds: no runs" in said


def test_a_look_that_never_ends_is_not_repeated(rig):
    """For example because the kernel killed klat: out of memory."""

    def die(campaign: Campaign) -> bool:
        if campaign.looked_after == 2:
            raise KeyboardInterrupt
        return True

    work = begun(rig, die, [])
    with pytest.raises(KeyboardInterrupt):
        drive(rig, work)
    rig.power_on()
    campaign = drive(rig, work)
    assert campaign.looked_after == 4 and len(rig.measured) == 8 and campaign.is_complete


def test_a_check_has_no_look(rig):
    campaign = drive(rig, begun(rig, lambda now: True, [], is_check=True))
    assert campaign.phase == ENDED and not campaign.looked_after and len(rig.measured) == 2


def test_a_file_of_an_earlier_version_has_no_looks(rig):
    begun(rig, lambda now: True, [])
    facts = json.loads(rig.path.read_text())
    for name in ("looks", "looked_after", "is_settled"):
        del facts[name]
    rig.path.write_text(json.dumps(facts))
    assert read_campaign(rig.path).looks == ()


def declared(side: SideWriter, looks_of: list[int], **rt: Any) -> Campaign:
    """A campaign at its first look, with sessions from `side`."""
    for label, facts in (("stock", {}), ("rt", {**RT, **rt})):
        path = side(label, boots=10, **facts)
        for session in path.iterdir():
            pairing = {"experiment": "c0ffee", "pair": session.name, "looks": looks_of}
            (session / "run.json").write_text(json.dumps({"pairing": pairing}))
    campaign = replace(planned(side.root / "campaign.json"), rounds=20, looks=(10, 20))
    return replace(campaign, looked_after=10)


@pytest.mark.parametrize(
    "rt, settled",
    [({"ratio": 1.1}, True), ({}, True), ({"ratio": 1.02}, False), ({"noise": 0.05}, False)],
)
def test_the_verdicts_of_klat_compare_settle_a_metric(side, rt, settled):
    assert looks.is_settled(declared(side, [10, 20], **rt)) is settled


def test_sessions_of_another_plan_settle_nothing(side):
    with pytest.raises(KlatError, match="do not hold exactly the rounds of this look"):
        looks.is_settled(replace(declared(side, [8, 20]), looked_after=8))


def test_every_setting_and_load_must_be_settled(side):
    campaign = declared(side, [10, 20])
    third = replace(campaign.settings[1], label="third")
    with pytest.raises(SessionError, match="third"):
        looks.is_settled(replace(campaign, settings=(*campaign.settings, third)))
    with pytest.raises(SessionError, match="stock-fork"):
        looks.is_settled(replace(campaign, loads=("fork", "none")))


def test_the_level_is_kept_in_simulated_campaigns():
    simulated = level(KINDS[0], (20, 2), repetitions=20, seed=3)
    assert not simulated.refuted(0.05)
    assert simulated.changed.of == 160 and simulated.changed.hits > 0 and simulated.same.hits > 0


def test_looks_at_the_full_level_are_refuted(monkeypatch):
    monkeypatch.setattr(campaign_looks, "rules_at", lambda rounds, planned, rules: rules)
    simulated = campaigns(20, 6, KINDS[0], 0.01, 0.0, 1, Rules(margin=0.0), repetitions=400, seed=3)
    assert simulated.changed.surely[0] > 0.05


def test_a_clear_change_saves_half_of_the_boots():
    change = math.log(1.05)
    simulated = campaigns(20, 2, KINDS[0], 0.005, change, 10, Rules(), repetitions=20, seed=3)
    assert simulated.boots == 0.5 and simulated.settled.value == 1


def test_each_session_declares_the_looks(tmp_path, monkeypatch):
    written: list[dict[str, Any]] = []
    monkeypatch.setattr(boot_sessions.recording, "write", lambda *all: written.append(all[-1]))
    campaign = replace(planned(tmp_path / "campaign.json"), rounds=20)
    boot = campaign.boots()[2]
    for variant in (campaign, replace(campaign, looks=(10, 20))):
        boot_sessions._begin(variant, boot, "none")
    declared = [more["pairing"] for more in written]
    assert declared[0] == {"experiment": "c0ffee", "pair": "2"}
    assert declared[1] == {**declared[0], "looks": [10, 20]}


@pytest.mark.parametrize("ratio, boots", [(1.1, 20), (1.02, 40)])
def test_a_campaign_compares_its_own_sessions(rig, side, ratio, boots):
    """Of the planned looks, the sessions on disk reach the first."""
    campaign = replace(declared(side, [10, 20], ratio=ratio), looked_after=0)
    write_campaign(rig.path, campaign)
    rig.install(entry_copies(rig, campaign))
    ended = drive(rig, Engine(rig.path, rig, rig, lambda line: None))
    assert len(rig.measured) == boots and ended.is_complete
    assert ended.is_settled is (boots == 20)
