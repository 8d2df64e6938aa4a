"""What `make validate-real` promises, on synthetic sessions, and once for real."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import fakes
import made_tools
import numpy as np
import pytest
from written_sessions import NewSession

from klat.base.errors import KlatError
from klat.compare.dataset import Dataset, read_dataset
from validation.outcome import Found, Itself, Outcome, Plan, markdown
from validation.real import too_few
from validation.turns import Comparison, Experiment, Setting, Taker, cut
from klat.compare.verdicts import Rules

RULES = Rules()
HELPER = fakes.ROOT / "tests/validation/seccomp-delay.c"


def sides(writer: NewSession, blocks: int, ratio: float = 1.0) -> tuple[Dataset, Dataset]:
    """Two settings of one boot, two runs of two metrics a block, of 0.5 % noise by block and drift."""
    draw = np.random.default_rng(5)
    found = []
    for label, factor in (("a", 1.0), ("b", ratio)):
        pairs = [[2 * i + 1, 2 * i + 2, str(i + 1)] for i in range(blocks)]
        facts = {"pairing": {"experiment": "e", "pairs": pairs}}
        session = writer(label, label=label, facts=facts)
        for order in range(1, 2 * blocks + 1):
            drift = 1 + 0.1 * order / blocks
            metrics = {}
            for metric in ("one", "two"):
                centre = 50_000 * factor * drift * np.exp(draw.normal(0, 0.005))
                metrics[metric] = [int(centre) + 20 * (i - 10) for i in range(21)]
            session.run(metrics, order=order, run=order)
        found.append(read_dataset(session.path))
    return found[0], found[1]


def test_blocks_are_cut_into_comparisons_that_share_nothing(new_session):
    compared = list(cut(sides(new_session, 13), 4))
    assert len(compared) == 3
    seen = []
    for comparison in compared:
        assert len(comparison.cells) == 2
        for _, a, b in comparison.cells:
            assert list(a.units) == list(b.units) and len(a.units) == 4
            assert len(a.runs) == len(b.runs) == 8
        seen += [unit[1] for unit in comparison.cells[0][1].units]
    assert seen == [f"e {i}" for i in range(1, 13)]


def judged_itself(writer: NewSession, ratio: float = 1.0, blocks: int = 480) -> Itself:
    found = Itself()
    for comparison in cut(sides(writer, blocks, ratio), 6):
        found.add(comparison.named(RULES))
    return found


def test_a_kernel_against_itself_is_judged_as_taken_by_metric(new_session):
    found = judged_itself(new_session)
    assert found.suite.of == 80 and found.refuted(RULES.alpha) == []
    assert [m.name for m in found.metrics.values()] == ["pipes one", "pipes two"]
    for metric in found.metrics.values():
        assert metric.missed.of == 80


def test_a_setting_that_always_has_the_longer_runs_is_found(new_session):
    """New random labels for each block would hide the longer runs."""
    slightly = judged_itself(new_session, 1.01)
    assert not slightly.suite.hits, "within the margin"
    told = slightly.refuted(RULES.alpha)
    assert [why.partition(" itself: ")[0] for why in told] == ["pipes one against", "pipes two against"]  # fmt: skip
    (first, *_) = judged_itself(lambda p, **i: new_session(f"far/{p}", **i), 1.1).refuted(0.05)
    assert first == "a kernel against itself: false alarms of comparisons"


def found(comparison: Comparison, name: str, changes: bool = True) -> Found:
    return Found("1", name, "pipes", changes, comparison.judged(RULES))


def outcome(*delayed: Found, idle: tuple[Found, ...] = ()) -> Outcome:
    return Outcome(Plan(), "a machine", 60.0, Itself(), delayed, idle, ())


def test_the_smallest_change_found_is_that_from_which_on_all_are(new_session):
    by_ratio = {}
    for ratio in (1.0, 1.03, 1.1, 1.3):
        (compared,) = cut(sides(lambda p, **i: new_session(f"{ratio}/{p}", **i), 8, ratio), 8)
        by_ratio[ratio] = found(compared, str(ratio))
    smallest = outcome(*by_ratio.values()).smallest
    assert smallest is by_ratio[1.03]
    missed = replace(by_ratio[1.1], judged=by_ratio[1.0].judged + by_ratio[1.1].judged * 5)
    assert outcome(by_ratio[1.03], missed, by_ratio[1.3]).smallest is by_ratio[1.3]
    assert outcome(by_ratio[1.0]).smallest is None
    assert "| 1 | 1.3 | 2 |" in "\n".join(markdown(outcome(by_ratio[1.3]), "make"))


def test_a_wrong_direction_and_an_idle_state_that_does_not_matter_are_refuted(new_session):
    (faster,) = cut(sides(lambda p, **i: new_session(f"f/{p}", **i), 8, 0.9), 8)
    (alike,) = cut(sides(lambda p, **i: new_session(f"s/{p}", **i), 8), 8)
    assert outcome(found(faster, "n")).refuted == ["n: said faster"]
    assert outcome(found(alike, "n")).refuted == []
    assert outcome(idle=(found(alike, "held"),)).refuted == ["held, pipes: no change found"]
    assert outcome(idle=(found(alike, "held", False), found(faster, "held"))).refuted == []
    unjudged = outcome(idle=(Found("1", "held", "pipes"),))
    assert unjudged.refuted == ["held, pipes: no change found"]
    assert "| 1 | held | pipes | n/a | n/a | not judged" in "\n".join(markdown(unjudged, "make"))


def test_too_few_comparisons_are_noted(new_session):
    (alike,) = cut(sides(new_session, 8), 8)
    plan = replace(Plan(), itself=3, delayed=2)
    few = Itself({}, [False, False])
    told = too_few(plan, few, (found(alike, "n"),))
    assert ["after 2 of 3 comparisons with itself" in told[0], len(told)] == [True, 1]


def test_an_experiment_is_taken_by_klat_ab(tmp_path, monkeypatch):
    monkeypatch.setenv("KLAT_PROGRAMS", str(fakes.install(tmp_path / "programs")))
    monkeypatch.chdir(tmp_path)
    one = Setting("one", "env A=1")
    other = Setting("other", option="pipes.bytes=2")
    experiment = Experiment(one, other, ("pipes", "cv"), 2)
    taker = Taker(tmp_path / "out", 1, 0.0)
    compared, both = taker.comparisons(experiment, 2, 2)
    assert len(compared) == 2 and [side.name for side in both] == ["one", "other"]
    assert all(len(a.runs) == len(b.runs) == 8 for c in compared for _, a, b in c.cells)
    taker.done()
    assert not (tmp_path / "out").exists() and not taker.time_for(0)


def test_a_failed_experiment_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("KLAT_PROGRAMS", str(fakes.install(tmp_path / "programs")))
    failing = Experiment(Setting("a", "/no/such"), Setting("b"), ("pipes",), 1)
    with pytest.raises(KlatError, match="status 2: .*there is no command '/no/such'"):
        failing.take(1, 1, tmp_path / "out")


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("helper") / "seccomp-delay"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", built, HELPER], check=True)
    return built


def delayed(helper: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return made_tools.run(helper, *words)


@pytest.mark.parametrize(("count", "mode"), [("0", "0"), ("1", "2"), ("400", "2"), ("4095", "2")])
def test_the_helper_runs_a_command_under_a_filter(helper, count, mode):
    done = delayed(helper, count, "grep", "Seccomp:", "/proc/self/status")
    if "cannot install" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.stdout.split() == ["Seccomp:", mode], done.stderr


def test_the_helper_passes_exit_statuses_on(helper):
    assert delayed(helper, "5", "sh", "-c", "exit 3").returncode == 3
    assert delayed(helper, "5", "/no/such/command").returncode == 127
    assert delayed(helper, "5", "/").returncode == 126


@pytest.mark.parametrize("words", [(), ("5",), ("x", "true"), ("-1", "true"), ("4096", "true")])
def test_the_helper_refuses_a_wrong_number_of_instructions(helper, words):
    done = delayed(helper, *words)
    assert done.returncode == 2 and done.stderr


@pytest.mark.alone
def test_a_filter_costs_what_its_instructions_do(helper):
    """The kernel skips a filter whose answer it knows beforehand: this one it must not."""
    if shutil.which("dd") is None:
        pytest.skip("needs dd")
    times = {}
    for count in ("1", "4095"):
        before = os.times()
        copy = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=60000")
        assert delayed(helper, count, *copy).returncode == 0
        times[count] = sum(os.times()[2:4]) - sum(before[2:4])
    assert times["4095"] > 2 * times["1"], times


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="needs real-time priorities")
def test_the_quick_form_works():
    words = ("make", "-s", "validate-real", "VALIDATE=--quick --seed 3")
    done = made_tools.run(*words, cwd=fakes.ROOT, seconds=300)
    assert "| 1 instruction | 400 instructions | 1 |" in done.stdout, done.stderr
    # Its time can be over before the last of four comparisons.
    assert re.search(r"\| pipes round_trip \| [1-4] \|", done.stdout)
    assert "said faster" not in done.stderr and "Traceback" not in done.stderr
