"""`klat plan`."""

import itertools
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_sessions import NewSession, SOAK, again, answer, words

from klat.compare.verdicts import Observed, Rules, Unit, Verdict, judge


def pilot(
    writer: NewSession,
    boots: int = 6,
    runs: int = 8,
    boot: float = 0.01,
    run: float = 0.02,
    row: Mapping[str, Any] | None = None,
    **info: Any,
) -> Path:
    draw = np.random.default_rng(3)
    shifted = [draw.normal(0, [boot, *[run] * runs]) for _ in range(boots)]
    middles = [[round(100_000 * math.exp(shift + x)) for x in rest] for shift, *rest in shifted]
    samples = [[[middle] * 20 for middle in runs_of_boot] for runs_of_boot in middles]
    return writer.label("stock", samples, run=row, **info)


def constant(writer: NewSession, ticks: int, label: str = "stock", boots: int = 4) -> Path:
    """Boots of three runs whose samples are all alike."""
    return writer.label(label, [[[ticks] * 20] * 3] * boots)


def seen(change: float, alpha: float, error: float, units: int, pairs: bool) -> float:
    """How often compare says slower, of units of a side (pairs: of differences) with that deviation."""
    rules = Rules(alpha=alpha)
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        base = draw.normal(0, 0 if pairs else error, units)
        new = math.log1p(change) + draw.normal(0, error, units)
        a, b = (
            Observed(tuple(Unit(str(i), (x,), str(i) * pairs) for i, x in enumerate(side)))
            for side in (base, new)
        )
        hits += judge([(a, b)], rules)[0].verdict is Verdict.SLOWER
    return hits / 400


# 0.9 is asked for; of what is found 400 times, three standard errors are 0.045.
ENOUGH = 0.9 - 0.045


def settings(*changes: float) -> list[Any]:
    """Values for `parametrize`: `make test` tries one, `make test-slow` the others."""
    first, *others = itertools.product(changes, [0.05, 0.0125, 0.005])
    return [first, *(pytest.param(*each, marks=pytest.mark.slow) for each in others)]


def test_dear_boots_get_more_runs_and_cheap_ones_fewer(new_session, klat):
    path = pilot(new_session)
    cheap = answer(klat, "plan", path, "--boot-seconds", "0.01")["effort"]
    dear = answer(klat, "plan", path, "--boot-seconds", "600")["effort"]
    assert cheap["runs"] < dear["runs"] and cheap["boots"] > dear["boots"]


def test_a_few_boots_are_planned_with_caution(new_session, klat):
    path = pilot(new_session, boots=3)
    status, out, _ = klat("plan", path)
    assert status == 0
    assert "cautious" in out and "3 boots show the variation between boots only roughly" in out
    plan = answer(klat, "plan", path)
    assert plan["cautious"]["boots"] > plan["effort"]["boots"]


def test_one_boot_shows_no_variation_between_boots(new_session, klat):
    status, out, _ = klat("plan", pilot(new_session, boots=1))
    assert status == 3
    assert "does not show the variation between boots" in words(out)
    assert re.search(r"if the variation between boots is 0\.5 %: \d+ boots of \d+ runs", out)
    assert max(map(len, out.splitlines())) <= 100


def test_the_time_of_a_run_is_from_its_start_to_the_next(new_session, klat):
    assert answer(klat, "plan", pilot(new_session))["round_seconds"] == pytest.approx(0.03)


def test_in_counted_mode_the_time_of_a_run_is_the_hosts(new_session, klat):
    path = pilot(new_session, mode="counted", unit="instructions")
    status, out, _ = klat("plan", path)
    assert status == 0 and "the time of a run is not recorded" in words(out)
    assert re.search(r"[0-9]+ boots of [0-9]+ runs? for each kernel$", out, re.MULTILINE)
    plan = answer(klat, "plan", path)
    assert plan["round_seconds"] is None and plan["effort"]["seconds"] is None
    for session in path.iterdir():
        (session / "lab").mkdir()
        # The guest's clock says 0.03 s a run, and 0.23 s for all.
        times = {"seconds": 33.0, "seconds_until_ready": 10.0}
        (session / "lab/machine.json").write_text(json.dumps(times))
    plan = answer(klat, "plan", path)
    assert plan["round_seconds"] == pytest.approx(3.0)
    effort = plan["effort"]
    assert effort["seconds"] == pytest.approx(effort["boots"] * (10 + 3 * effort["runs"]))


def test_boots_of_one_run_count_all_variation_as_the_boots(new_session, klat):
    plan = answer(klat, "plan", pilot(new_session, runs=1))
    assert plan["effort"]["runs"] == 1
    assert any("boots of one run" in note for note in plan["cannot_know"])


def test_a_change_below_the_noise_has_no_plan(new_session, klat):
    status, out, _ = klat("plan", pilot(new_session, boot=0.5), "--change", "2.1%")
    assert status == 3 and "no number of boots up to 1,000 is enough" in out


def test_a_change_below_the_counters_steps_is_not_promised(new_session, klat):
    # Of 1000 ticks a step of 26 hides up to 1.3 % on either side.
    path = constant(new_session, 1000)
    for change in ("3%", "4.6%"):
        status, out, _ = klat("plan", path, "--change", change)
        assert status == 3
        assert "hide a change of up to 2.7 %" in words(out)
        assert "is enough" in out
        assert "--quantile mean" in words(out) and "--batch" in out
    plan = answer(klat, "plan", path, "--change", "5%")
    assert plan["effort"]["boots"] == 4 and plan["same"] is None
    assert plan["metrics"][0]["resolution"] == pytest.approx(2 * -math.log1p(-0.013))


def test_a_metric_too_coarse_to_plan_does_not_stop_the_others(new_session, klat):
    draw = np.random.default_rng(5)
    middles = np.round(100_000 * np.exp(draw.normal(0, 0.01, (4, 3)))).astype(int)
    boots = [[{"round_trip": [m] * 20, "wakeup": [1000] * 20} for m in boot] for boot in middles]
    status, out, _ = klat("plan", new_session.label("stock", boots), "--change", "4%")
    assert status == 0 and "Holm over 2 tests" in words(out)
    assert re.search(r"wakeup, median .* too coarse$", out, re.MULTILINE)
    assert "in 1 of 2 figures with" in words(out)


def unknown(out: str, noun: str) -> str:
    """What is told where how many it takes is not known."""
    found = re.search(rf"the number of {noun}s is not known: (.*?)\n\n", out, re.DOTALL)
    assert found and "is enough" not in out and "of each" not in out
    assert max(map(len, out.splitlines())) <= 100
    return " ".join(found[1].split())


def test_a_pilot_without_the_figure_has_no_plan(new_session, klat):
    path = pilot(new_session, boots=1, runs=1)
    status, out, _ = klat("plan", path)
    assert status == 3 and unknown(out, "boot").startswith("one run;")
    status, out, _ = klat("plan", path, "--quantile", "p99")
    assert status == 3 and unknown(out, "boot") == "no run has its p99"
    status, out, _ = klat("plan", constant(new_session, 0, "zero"))
    assert status == 3 and unknown(out, "boot") == "the median of a run is 0"


def test_the_change_is_twice_the_margin_unless_given(new_session, klat):
    path = pilot(new_session)
    assert answer(klat, "plan", path)["target"]["change"] == 0.04
    assert answer(klat, "plan", path, "--margin", "1%")["target"]["change"] == 0.02
    none = answer(klat, "plan", path, "--margin", "0")
    assert none["target"]["change"] == 0.02 and none["same"] is None


@pytest.mark.parametrize("runs_boot", [(0.01, 0.02), (0.003, 0.01)])
def test_the_boots_for_exit_status_0_show_that_nothing_has_changed(new_session, klat, runs_boot):
    boot, run = runs_boot
    plan = answer(klat, "plan", pilot(new_session, boot=boot, run=run))
    (metric,) = plan["metrics"]
    same = plan["same"]
    error = math.sqrt(metric["boot"] + metric["run"] / same["runs"])
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        a, b = (
            Observed(tuple(Unit(str(i), (x,)) for i, x in enumerate(draw.normal(0, error, same["boots"]))))
            for _ in range(2)
        )  # fmt: skip
        hits += judge([(a, b)], Rules())[0].verdict is Verdict.SAME
    assert ENOUGH <= hits / 400 <= 0.99


def test_a_pilot_without_a_run_that_counts_is_one_line(new_session, klat, tmp_path):
    spoiled = pilot(new_session, boots=1, row={"status": "invalid", "reason": "moved"})
    for path, why in ((spoiled, "no run counts"), (tmp_path / "missing", "no such directory")):
        status, out, err = klat("plan", path)
        assert (status, out) == (2, "") and why in err and err.count("\n") == 1


@pytest.mark.parametrize("pairs", [False, True], ids=["boots", "blocks"])
def test_the_number_of_runs_allows_for_those_that_do_not_count(new_session, klat, pairs):
    path = taken_in_turns(new_session)[0] if pairs else pilot(new_session)
    options = (path, *(() if pairs else ("--boot-seconds", "0.001")))
    before = answer(klat, "plan", *options)["effort"]
    for session in map(again, [path] if pairs else path.iterdir()):
        runs = len((session.path / "runs.csv").read_text().splitlines()) - 1
        for number in range(runs + 1, 3 * runs + 1):
            start = session.start_ns + 10**11 + 30_000_000 * number  # as long as the others
            failed = number % 2 == 0
            row = {"status": "error" if failed else "invalid", "reason": "moved", "start_ns": start}
            metrics = {} if failed else {"round_trip": [1] * 20}
            session.run(metrics, order=number, run=number, **row)
    effort = answer(klat, "plan", *options)["effort"]
    assert effort["runs"] % 3 == 0 and effort["seconds"] > before["seconds"]
    count, total = (64, 96) if pairs else (96, 144)
    assert f"{count} of {total} runs of pipes did not count; the plan adds" in words(
        klat("plan", path)[1]
    )


def taken_in_turns(
    writer: NewSession,
    blocks: int = 8,
    block: float = 0.01,
    run: float = 0.02,
    at: int = 100_000,
    name: str = "1",
) -> list[Path]:
    """As klat ab writes them: ABBA, two runs a turn, 30 ms a run and 100 ms before a turn."""
    draw = np.random.default_rng(4)
    both = [writer(f"{label}/{name}", label=label, boot_id="boot") for label in "ab"]
    clock = 1_800_000_000_000_000_000
    orders = [0, 0]
    for _ in range(blocks):
        shift = [0.0, draw.normal(0, block)]
        for side in (0, 1, 1, 0):
            clock += 100_000_000
            for _ in range(2):
                orders[side] += 1
                value = round(at * math.exp(shift[side] + draw.normal(0, run)))
                both[side].run({"round_trip": [value] * 20}, order=orders[side], run=orders[side], start_ns=clock)  # fmt: skip
                clock += 30_000_000
    pairs = [[4 * i + 1, 4 * i + 4, str(i + 1)] for i in range(blocks)]
    for number, session in enumerate(both):
        facts = dict.fromkeys(("seed", "pause_ms", "time_limit_s", "runner"), 1) | {
            "schema": 1, "label": "ab"[number], "boot_id": "boot", "plan_sha256": "", "load": None, "resumed": [],
            "first": number == 0, "partner": f"../../{'ba'[number]}/{name}", "turns": [[1, 2, 1]],
            "pairing": {"experiment": "e", "pairs": pairs},
        }  # fmt: skip
        session.write_facts(facts)
    return [session.path for session in both]


@pytest.mark.parametrize("pairs", [False, True], ids=["boots", "blocks"])
@pytest.mark.parametrize("change, alpha", settings(0.04, 0.025, 0.06))
def test_the_planned_number_has_the_power_asked_for(new_session, klat, alpha, change, pairs):
    path = taken_in_turns(new_session)[0] if pairs else pilot(new_session)
    plan = answer(klat, "plan", path, "--change", f"{change:g}", "--alpha", f"{alpha:g}")
    (metric,) = plan["metrics"]
    effort, unit = plan["effort"], "block" if pairs else "boot"
    error = math.sqrt(metric[unit] + metric["run"] / ((1 + pairs) * effort["runs"]))
    power = seen(change, alpha, error, effort[f"{unit}s"], pairs)
    assert ENOUGH <= power <= 0.99


def test_blocks_are_planned_from_either_session_with_the_time_of_turns(new_session, klat):
    a, b = taken_in_turns(new_session)
    plan = answer(klat, "plan", a, "--change", "3%", "--power", "0.8")
    assert plan == answer(klat, "plan", b, "--change", "3%", "--power", "0.8")
    (metric,) = plan["metrics"]
    assert metric["blocks"] == 8 and metric["runs"] == 64
    assert metric["run"] == pytest.approx(2 * 0.02**2, rel=0.5)
    assert (metric["run_seconds"], plan["turn_seconds"]) == pytest.approx((0.03, 0.1))
    effort = plan["effort"]
    assert effort["seconds"] == pytest.approx(4 * effort["blocks"] * (0.1 + 0.03 * effort["runs"]))
    assert plan["cautious"]["seconds"] >= effort["seconds"]


def test_planned_blocks_are_given_in_options_of_ab(new_session, klat):
    a, _ = taken_in_turns(new_session)
    status, out, err = klat("plan", a)
    assert (status, err) == (0, "")
    assert re.search(
        r"[0-9]+ blocks of [0-9]+ runs? a turn, .*--blocks [0-9]+ --runs-per-block", out
    )
    assert "pilot a and b in turns: 8 blocks" in out
    assert max(map(len, out.splitlines())) <= 100


def test_blocks_cannot_be_planned_from_one_of_the_two_or_with_the_time_of_a_boot(new_session, klat):
    a, b = taken_in_turns(new_session)
    status, out, err = klat("plan", a, "--boot-seconds", "9")
    assert (status, out, err.count("\n")) == (2, "", 1) and "took turns in one boot" in err
    status, out, err = klat("plan", a, "--metric", "nothing")
    assert (status, out, err.count("\n")) == (2, "", 1) and "there are round_trip" in err
    (b / "run.json").unlink()
    status, out, err = klat("plan", a)
    assert (status, out, err.count("\n")) == (2, "", 1) and "took turns with" in err


def test_blocks_that_differ_by_less_than_a_step_promise_nothing_below_it(new_session, klat):
    a, _ = taken_in_turns(new_session, block=0.0, run=0.0, at=1000)
    status, out, _ = klat("plan", a, "--change", "4%")
    assert status == 3 and "hide a change of up to 2.7 %" in words(out)
    assert max(map(len, out.splitlines())) <= 100
    assert answer(klat, "plan", a, "--change", "5%")["effort"]["blocks"] == 6


def test_blocks_without_the_figure_have_no_plan(new_session, klat):
    one, _ = taken_in_turns(new_session, blocks=1)
    status, out, _ = klat("plan", one)
    assert status == 3 and "in turns: 1 block;" in out
    assert unknown(out, "block").startswith("one block is complete;")
    for blocks, roughly in ((4, True), (5, False)):
        path, _ = taken_in_turns(new_session, blocks=blocks, name=f"b{blocks}")
        assert ("few blocks show" in klat("plan", path)[1]) == roughly
    three, _ = taken_in_turns(new_session, blocks=3, name="2")
    status, out, _ = klat("plan", three, "--quantile", "p99")
    assert status == 3 and "in turns: 3 blocks;" in out
    assert unknown(out, "block") == "no run has its p99"


def test_of_several_sessions_that_took_turns_one_has_to_be_named(new_session, klat):
    for name in "12":
        a, _ = taken_in_turns(new_session, name=name)
    status, out, err = klat("plan", a.parent)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "2 of its 2 sessions took turns" in err and str(a) in err
    assert klat("plan", a)[0] == 0


def test_a_metric_of_one_setting_is_named_as_left_out(new_session, klat):
    a, b = taken_in_turns(new_session)
    again(b).run({"wakeup": [500] * 20}, benchmark="cv", order=99, run=1)
    status, out, _ = klat("plan", a)
    assert status == 0
    assert re.search(r"left out: cv .*: wakeup of b, for which", words(out))
    assert "left out" not in klat("plan", a, "--metric", "round_trip")[1]


def test_a_soak_is_planned_in_segments(new_session, klat):
    path = pilot(new_session, run=0.05, row={"params": SOAK, "elapsed_ns": 60 * 10**9})
    slow = ("--boot-seconds", 600)
    _, out, _ = klat("plan", path, *slow)
    said = words(out)
    assert "one segment took 60 s" in said and "klat summary --limit" in said
    assert not re.search(r"\bruns?\b", said)
    effort = answer(klat, "plan", path, *slow)["effort"]
    soak = (
        f"{effort['boots']} boots with a soak of {effort['runs']} min ({effort['runs']} segments)"
    )
    assert effort["runs"] > 1 and soak in said


def test_programs_that_soak_together_take_the_time_of_one(new_session, klat):
    for boot in range(4):
        session = new_session(f"stock/{boot}", boot_id=f"boot-{boot}")
        for run in range(1, 4):
            for cpu in (0, 1):
                params = f"{SOAK};together=2;cpus={cpu}"
                held = [1000 + run + boot] * 20
                session.run({"m": held}, params=params, run=run, elapsed_ns=60 * 10**9)
    assert answer(klat, "plan", session.path.parent)["round_seconds"] == 60


def test_a_soak_beside_runs_is_left_out(new_session, klat):
    path = pilot(new_session)
    alone = answer(klat, "plan", path)
    for boot in range(6):
        again(path / str(boot)).run({"m": [5000 + boot] * 20}, params=SOAK, elapsed_ns=10**12)
    beside = answer(klat, "plan", path)
    assert beside["effort"] == alone["effort"]
    assert "left out: the soak of pipes; to plan it, name its session" in beside["cannot_know"]
