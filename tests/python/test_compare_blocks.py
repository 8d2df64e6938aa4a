"""`klat compare` of two settings that share boots: blocks, pairs and turns."""

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from written_sessions import COLUMNS, CPU, NewSession, RT, SideWriter, again, answer, results_of
from written_sessions import samples, words, write_facts


# Only one test a metric.
MEDIAN = ("--quantile", "median")


def test_two_settings_in_one_boot_without_blocks_cannot_be_attributed(side, klat):
    stock, rt = side("stock", boots=1, prefix="x"), side("rt", 1.5, boots=1, prefix="x")
    status, out, _ = klat("compare", stock, rt)
    assert status == 3 and "in one boot and declare no blocks" in words(out)
    shown = (
        "the ratio compares the two sides in this boot, and its interval is from the runs within it"
    )
    assert shown in words(out) and "two boots" not in words(out)


def test_sides_that_share_some_boots_are_inconclusive(side, klat):
    stock, rt = side("stock", boots=3, prefix="x"), side("rt", 1.5, boots=4, prefix="x")
    status, out, _ = klat("compare", stock, rt)
    assert status == 3 and "some boots are on both sides" in words(out)


def test_shared_boots_are_pairs_if_the_order_alternates(side, klat):
    stock = side("stock", boots=6, prefix="x", seed=1, noise=0.004)
    rt = side("rt", 1.05, boots=6, prefix="x", seed=2, noise=0.004, begun=[-9, 9] * 3)
    status, out, _ = klat("compare", stock, rt)
    assert status == 1
    assert "Student over pairs" in out and "each of which is a pair" in words(out)
    late = side("late", 1.05, boots=6, prefix="x", seed=2, noise=0.004, begun=[9] * 5 + [-9])
    status, out, _ = klat("compare", stock, late)
    assert status == 3 and "BASE first in 5 of 6: a drift would be taken" in words(out)


def blocks(experiment: str, count: int = 6) -> dict[str, Any]:
    """Runs 1 and 2 were in the first block, 3 and 4 in the second, and so on."""
    pairs = [[2 * i + 1, 2 * i + 2, f"block {i}"] for i in range(count)]
    return {"pairing": {"experiment": experiment, "pairs": pairs}}


def test_blocks_are_the_unit_of_two_settings_in_one_boot(side, klat):
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x", "facts": blocks("e")}
    idle = {f"{CPU}/cpuidle/current_governor": "menu"}
    idle |= {"sys/kernel/sched_ext/state": "enabled", "sys/kernel/sched_ext/root/ops": "lavd"}
    a, b = side("a", **shared), side("b", 1.1, environment=idle, **shared)
    status, out, _ = klat("compare", a, b)
    assert status == 1 and "slower" in out
    assert "Student over pairs of blocks, 5.0 degrees of freedom" in words(out)
    assert "current_governor: absent | menu" in words(out) and "scheduler lavd" in words(out)
    other = side("c", 1.1, **{**shared, "facts": blocks("another")})
    assert klat("compare", a, other)[0] == 3


def test_a_setting_may_take_cpus_offline(side, klat):
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x", "facts": blocks("e")}
    control = f"{CPU}/smt/control"
    a = side("a", environment={control: "on"}, cpus_online=4, **shared)
    b = side("b", environment={control: "off"}, cpus_online=2, **shared)
    status, out, _ = klat("compare", a, b)
    assert status == 0 and "not comparable" not in out
    assert "cpus_online: 4 | 2" in out and "smt/control: on | off" in words(out)


def test_what_would_settle_blocks_is_given_in_options_of_ab(side, klat):
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x", "facts": blocks("e")}
    sides = side("a", noise=0.03, **shared), side("b", 1.04, noise=0.03, **shared)
    document = answer(klat, "compare", *sides)
    settle = document["against"][0]["cells"][0]["results"][0]["judgement"]["settle"]
    out = words(klat("compare", *sides)[1])
    assert settle["units"] and settle["runs"]
    assert f"by {settle['units']:,} blocks (--blocks {settle['units']}; now 6)" in out
    turn = (settle["runs"] + 1) // 2
    assert f"by {turn:,} runs in each turn (--runs-per-block {turn})" in out


def second_experiment(side: Path, **more: Any) -> None:
    """The same samples in later runs."""
    shutil.copytree(side / "0", side / "1")
    write_facts(side / "1", blocks("f") | more)
    session = again(side / "1")
    rows = list(csv.DictReader(session.runs_csv.open()))
    later = [session.row(**row | {"start_ns": int(row["start_ns"]) + 10**12}) for row in rows]
    session.runs_csv.write_text("".join([",".join(COLUMNS) + "\n", *later]))


def test_blocks_of_several_experiments_in_one_boot_are_pairs_each(side, klat):
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x"}
    a = side("a", facts=blocks("e"), **shared)
    b = side("b", 1.1, facts=blocks("e") | {"prefix": "setarch -R"}, **shared)
    second_experiment(a)
    second_experiment(b, prefix="setarch -R")
    status, out, _ = klat("compare", a, b)
    assert status == 1 and "Student over pairs of blocks, 11.0 degrees" in words(out)
    write_facts(b / "1", blocks("f") | {"prefix": "nice"})
    status, out, _ = klat("compare", a, b)
    assert status == 4 and "prefix is none in BASE and setarch -R | nice in NEW" in words(out)


def test_blocks_of_several_boots_are_judged_together(side, klat):
    sides = [side(label, ratio, boots=6, runs=12, prefix="x") for label, ratio in (("a", 1), ("b", 1.1))]  # fmt: skip
    for path in sides:
        for boot in range(6):
            facts = blocks(f"experiment {boot}") | {"prefix": path.name}
            write_facts(path / str(boot), facts)
    status, out, _ = klat("compare", *sides)
    text = words(out)
    assert status == 1 and "Student over pairs of blocks, 35.0 degrees" in text
    assert re.search(r"over 6 boots, one pair each: 1\.1\d* \(1\.\d+ to 1\.\d+\)", text)


@pytest.mark.parametrize("ratio", [1.0, 1.1])
def test_more_boots_of_blocks_show_no_less_than_one(side, klat, ratio):
    said = []
    for boots in (1, 4):
        sides = [
            side(f"{label}{boots}", r, boots=boots, runs=12, prefix="x", noise=0.001)
            for label, r in (("a", 1.0), ("b", ratio))
        ]
        for path in sides:
            for boot in range(boots):
                write_facts(path / str(boot), blocks(f"e{boot}"))
        said.append(klat("compare", *sides)[0])
    assert said == ([0, 0] if ratio == 1 else [1, 1])


def took_turns(
    side: SideWriter,
    writer: NewSession,
    boots: int,
    blocks_of_boot: int,
    counts: Callable[[str, int, int], bool],
) -> tuple[Path, Path]:
    """A B B A in every block, each turn 2 % longer than the one before it and nothing else, so that a
    and b are alike; `counts` of label, block and turn of the label says which runs are valid."""
    draw = np.random.default_rng(1)
    for boot in range(boots):
        sides = {
            name: writer(f"{name}/{boot}", label=name, boot_id=f"boot-{boot}", environment={})
            for name in "ab"
        }
        facts: dict[str, dict[str, Any]] = {name: {"turns": [], "pairs": []} for name in "ab"}
        for block in range(blocks_of_boot):
            for place, name in enumerate("abba"):
                turn = place // 2
                order = 2 * block + turn + 1
                centre = 50_000 * 1.02**place * np.exp(draw.normal(0, 0.002))
                status = "ok" if counts(name, block, turn) else "invalid"
                sides[name].run(
                    {"round_trip": samples(centre)}, order=order, run=order, status=status
                )
                facts[name]["turns"].append([order, order, 4 * block + place])
            for name in "ab":
                facts[name]["pairs"].append([2 * block + 1, 2 * block + 2, str(block + 1)])
        for name, session in sides.items():
            pairing = {"experiment": f"e{boot}", "pairs": facts[name]["pairs"]}
            session.write_facts({"turns": facts[name]["turns"], "pairing": pairing})
    return side.root / "a", side.root / "b"


@pytest.mark.parametrize("boots", [1, 6])
def test_without_a_complete_block_a_drift_is_no_difference(side, klat, new_session, boots):
    half = took_turns(side, new_session, boots, 8, lambda name, _, turn: (name, turn) != ("a", 1))
    status, out, _ = klat("compare", *half)
    assert status == 3 and "slower" not in out and "complete" in out, out


def test_only_complete_blocks_count(side, klat, new_session):
    sides = took_turns(side, new_session, 6, 4, lambda name, block, turn: block > 0 or turn == 0 or name == "b")  # fmt: skip
    (result,) = (r for r in results_of(klat, *sides, *MEDIAN) if r["tested"])
    assert result["judgement"]["verdict"] == "same"
    assert result["judgement"]["ratio"] == pytest.approx(1, abs=0.003)


def test_incomplete_blocks_are_counted_as_left_out(side, klat, new_session):
    sides = took_turns(side, new_session, 1, 12, lambda name, block, turn: block < 4 or turn == 0)
    _, out, _ = klat("compare", *sides, "--margin", "0.05%")
    assert "8 blocks left out" in words(out) and "now 4" in words(out)


def test_a_block_that_ends_within_a_turn_is_incomplete(side, klat):
    facts = blocks("e") | {"turns": [[2 * i + 1, 2 * i + 2, i] for i in range(6)]}
    shared: dict[str, Any] = {"boots": 1, "prefix": "x", "facts": facts}
    a, b = side("a", runs=12, **shared), side("b", 1.001, runs=11, **shared)
    _, out, _ = klat("compare", a, b, "--margin", "0.05%")
    assert "1 block left out: incomplete" in words(out) and "note: 5 pairs of blocks" in words(out)


def test_sides_that_took_turns_with_others_are_inconclusive(side, klat):
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x"}
    a, b = side("a", facts=blocks("e"), **shared), side("b", 1.1, facts=blocks("e"), **shared)
    second_experiment(a)
    status, out, _ = klat("compare", a, b)
    assert status == 3 and "the sides took turns in different experiments" in words(out)
    assert klat("compare", a / "0", b)[0] == 1


def test_declared_pairs_of_boots_are_pairs(side, klat):
    stock, rt = side("stock", boots=6), side("rt", 1.1, boots=6, **RT)
    for label in ("stock", "rt"):
        for boot in range(6):
            facts = {"pairing": {"experiment": "e", "pair": boot}}
            write_facts(side.root / label / str(boot), facts)
    status, out, _ = klat("compare", stock, rt)
    assert status == 1 and "Student over pairs of boots, 5.0 degrees" in words(out)
