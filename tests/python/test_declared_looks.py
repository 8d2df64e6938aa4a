"""`klat compare` of sessions that declare the interim looks of a campaign."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from klat.stats.multiplicity import Look
from written_sessions import RT, SideWriter, answer, words, write_facts

LOOKS = [10, 20]
FIRST, LAST = (Look(units, (10, 20), 0.05).level() for units in LOOKS)


def declare(label: Path, looks: list[int] | None = LOOKS, experiment: str = "e") -> Path:
    """Each boot of the label is the session of a round."""
    more = {} if looks is None else {"looks": looks}
    for session in label.iterdir():
        pairing = {"experiment": experiment, "pair": session.name, **more}
        write_facts(session, {"pairing": pairing})
    return label


def campaign(side: SideWriter, boots: int, **new: Any) -> tuple[Path, Path]:
    return declare(side("stock", boots=boots)), declare(side("rt", boots=boots, **{**RT, **new}))


@pytest.mark.parametrize("boots, level", [(10, FIRST), (20, LAST)])
def test_a_look_has_its_level(side, klat, boots, level):
    sides = campaign(side, boots)
    rules = answer(klat, "compare", *sides)["options"]["rules"]
    assert rules["alpha"] == pytest.approx(level)
    assert rules["look"] == {"units": boots, "planned": LOOKS, "alpha": 0.05}
    status, out, _ = klat("compare", *sides)
    assert status == 0
    shown = f"This is look {boots // 10} of 2, after {boots} of 20 rounds: its level is"
    assert shown in words(out) and "all looks together err in at most 5 %" in words(out)
    assert "looks were planned" not in words(out)


def test_a_change_must_be_clearer_at_an_early_look(side, klat):
    """The same boots have a verdict if their number was fixed."""
    sides = campaign(side, 10, ratio=1.05, noise=0.025, seed=11)
    assert klat("compare", *sides)[0] == 3
    for path in sides:
        declare(path, None)
    status, out, _ = klat("compare", *sides)
    assert status == 1 and "all looks" not in out


@pytest.mark.parametrize("boots", [1, 14, 21])
def test_a_number_of_rounds_without_a_look_has_its_own_level(side, klat, boots):
    rules = answer(klat, "compare", *campaign(side, boots))["options"]["rules"]
    assert rules["alpha"] == pytest.approx(Look(min(boots, 20), (10, 20), 0.05).level())


def test_a_number_of_rounds_without_a_look_is_said(side, klat):
    out = words(klat("compare", *campaign(side, 14))[1])
    assert "looks were planned after 10 and 20 rounds, but all sides have 14 rounds;" in out
    assert "This is an unplanned look, after 14 of 20 rounds" in out


def test_a_side_that_lacks_a_round_has_not_reached_the_look(side, klat):
    stock, rt = campaign(side, 10)
    longer = declare(side("longer", boots=11))
    assert answer(klat, "compare", longer, rt)["options"]["rules"]["look"]["units"] == 10
    shutil.rmtree(rt / "9")
    assert "but all sides have 9 rounds" in words(klat("compare", stock, rt)[1])


@pytest.mark.parametrize("looks, experiment", [(None, "e"), ([16, 20], "e"), (LOOKS, "f")])
def test_looks_of_several_campaigns_are_no_looks(side, klat, looks, experiment):
    stock, rt = campaign(side, 10)
    declare(rt, looks, experiment)
    rules = answer(klat, "compare", stock, rt)["options"]["rules"]
    assert (rules["alpha"], rules["look"]) == (0.05, None)
    assert "not all sessions declare the same looks of one campaign" in words(
        klat("compare", stock, rt)[1]
    )


def test_a_limit_is_judged_at_the_level_of_the_look(side, klat):
    status, out, _ = klat("compare", *campaign(side, 10), "--limit", "1ms")
    assert "This is look 1 of 2" in words(out)
    assert "Verdicts: alpha 0.305 %" in words(out)


def test_looks_out_of_range_are_refused(side, klat):
    stock, rt = campaign(side, 10)
    declare(rt, [0, 20])
    status, _, err = klat("compare", stock, rt)
    assert "looks" in err
