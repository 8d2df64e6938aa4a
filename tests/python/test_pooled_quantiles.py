"""A quantile for which single runs are too short is that of all samples of a boot, and if boots are too
short, of a group of boots. Runs of unequal numbers of samples are treated in the same way."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_sessions import NewSession, PIPES, RT, answer, results_of, words

from klat.compare.dataset import read_dataset
from klat.compare.estimands import parse
from klat.compare.observations import Units, observe_sides
from klat.compare.runs import Runs
from klat.compare.verdicts import Observed, Rules, Unit, Verdict, judge
from klat.stats.descriptive import P50, P99, fewest, rank
from klat.stats.distribution import Distribution, between_logs, log_quantile_places

P999 = Fraction(999, 1000)


def log_p999(samples: Distribution) -> float:
    places, share = log_quantile_places(samples.n, P999)
    return between_logs(samples.take(np.array(places)), share)


def draw(boot: int, run: int, n: int, ratio: float) -> list[int]:
    """One sample of 200 is 8 to 12 times as long as the others."""
    rng = np.random.default_rng([boot, run, n])
    held = 52_000 * rng.uniform(0.98, 1.02, n)
    held[::200] *= rng.uniform(8, 12, len(held[::200])) * ratio
    return [int(x) for x in held]


@pytest.fixture
def boots(new_session: NewSession) -> Callable[..., Path]:
    def write(
        label: str, boots: int, runs: int, n: int = 1000, ratio: float = 1.0, **info: Any
    ) -> Path:
        drawn = [[draw(boot, run, n, ratio) for run in range(1, runs + 1)] for boot in range(boots)]
        return new_session.label(label, drawn, environment={}, **info)

    return write


def test_runs_of_a_boot_are_pooled_for_a_quantile_that_none_of_them_has(boots, klat):
    stock, rt = boots("stock", 4, 6), boots("rt", 4, 6, ratio=1.5, **RT)
    status, out, err = klat("compare", stock, rt, "--quantile", "p99.9")
    assert (status, err) == (1, "") and "round_trip, p99.9: slower" in out
    assert "p99.9 pooled" in out and "Welch over boots" in out
    assert "p99.9 of all samples of a boot together, because single runs" in words(out)
    document = answer(klat, "compare", stock, rt, "--quantile", "p99.9")
    first = document["against"][0]["cells"][0]["results"][0]
    assert first["judgement"]["ratio"] == pytest.approx(1.5, rel=0.05)
    assert (first["judgement"]["pooled"], first["judgement"]["base"]["units"]) == (True, 4)


def test_the_figure_of_a_boot_is_that_of_its_samples_together(boots):
    stock = boots("stock", 2, 6)
    (cell,) = read_dataset(stock).cells.values()
    (found,) = observe_sides([cell], parse("p99.9"), [Units()])
    for boot, unit in enumerate(found.units):
        held = np.sort(np.concatenate([draw(boot, run, 1000, 1.0) for run in range(1, 7)]))
        # n q + 1/2 is 5994.5: halfway between two samples.
        assert np.exp(unit.logs[0]) == pytest.approx(np.sqrt(held[5993] * held[5994]) / 2.6)


def test_runs_that_are_long_enough_are_not_pooled(boots, klat):
    stock, rt = boots("stock", 4, 2, n=5000), boots("rt", 4, 2, n=5000, ratio=1.5, **RT)
    out = klat("compare", stock, rt, "--quantile", "p99.9")[1]
    assert "pooled" not in out and "p99.9" in out


def test_one_run_that_is_too_short_pools_both_sides(boots):
    long, short = boots("long", 2, 2, n=5000), boots("short", 2, 6)
    cells = [cell for path in (long, short) for cell in read_dataset(path).cells.values()]
    sides = observe_sides(cells, parse("p99.9"), [Units(), Units()])
    why = "single runs are too short"
    assert [(side.pooled, side.runs) for side in sides] == [(why, 2), (why, 2)]


def test_boots_that_are_too_short_are_groups(boots, klat):
    stock, rt = boots("stock", 13, 2), boots("rt", 13, 2, ratio=1.5, **RT)
    status, out, _ = klat("compare", stock, rt, "--quantile", "p99.9")
    assert status == 1 and "Welch over boot groups" in out
    assert "single runs and boots are too short" in words(out)
    (cell,) = read_dataset(stock).cells.values()
    (found,) = observe_sides([cell], parse("p99.9"), [Units()])
    assert found.noun == "boot group" and [len(unit.name.split(" and ")) for unit in found.units] == [3, 3, 3, 4]  # fmt: skip


def test_groups_of_pairs_hold_the_same_pairs_on_both_sides(boots, klat):
    def facts(boot):
        return {"pairing": {"experiment": "e", "pair": str(boot)}}

    stock = boots("stock", 13, 4, facts=facts)
    rt = boots("rt", 13, 2, ratio=1.5, facts=facts, **RT)
    out = klat("compare", stock, rt, "--quantile", "p99.9")[1]
    assert "Student over pairs of boot groups, 3.0 degrees" in words(out)
    assert "left out" not in out


def test_too_few_samples_say_how_many_are_needed(boots, klat):
    stock, rt = boots("stock", 2, 2), boots("rt", 2, 2, **RT)
    status, out, _ = klat("compare", stock, rt, "--quantile", "p99.9")
    assert status == 3 and "this figure needs 5,000 samples, and BASE has 4,000" in words(out)


def test_history_has_a_point_for_each_boot_with_enough_samples(boots, klat):
    out = klat("history", boots("stock", 3, 5), "--quantile", "p99.9")[1]
    assert "the p99.9 of all samples of a boot, because single runs are too short" in words(out)
    out = klat("history", boots("rt", 3, 4), "--quantile", "p99.9")[1]
    assert "no boot has the 5,000 samples that p99.9 needs" in words(out)


def test_a_figure_without_a_test_needs_no_samples(boots, klat):
    stock, rt = boots("stock", 4, 6, n=300), boots("rt", 4, 6, n=300, **RT)
    assert "p99 pooled" in klat("compare", stock, rt)[1]
    for path in rt.glob("*/samples/*.u64"):
        path.unlink()
    status, out, _ = klat("compare", stock, rt)
    assert status == 0 and "pooled" not in out


def test_the_maximum_is_refused_and_the_limit_is_named(boots, klat):
    status, out, err = klat("compare", boots("stock", 1, 1), "x", "--quantile", "max")
    assert (status, out) == (2, "") and "max has no interval" in err and "--limit" in err


def test_the_pooled_figure_does_not_depend_on_the_number_of_samples():
    rng = np.random.default_rng(1)
    means = []
    for n, count in ((5000, 3000), (25_000, 1000)):
        tail = rng.exponential(size=(count, n // 20))  # the logarithms of the largest 5 %
        logs = []
        for held in tail:
            values = np.concatenate([np.ones(n - len(held)), np.exp(held) + 1])
            logs.append(log_p999(Distribution.of(values)))
        means.append(float(np.mean(logs)))
    # Of a twentieth, 1 in 50 is above.
    assert means == pytest.approx([np.log(51)] * 2, abs=0.035)


def of_a_long_tail(rng: np.random.Generator, n: int) -> Distribution:
    """The largest hundredth falls as 1/x."""
    longest = np.sort(10_000 / rng.uniform(size=n // 100)).astype(np.uint64)
    values, counts = np.unique(longest, return_counts=True)
    return Distribution(
        np.append(np.uint64(5_000), values), np.append(np.int64(n - n // 100), counts)
    )


def test_equal_kernels_with_unequal_numbers_of_runs_are_rarely_said_to_differ():
    rng = np.random.default_rng(1)
    false = 0
    for _ in range(400):
        base, new = (
            Observed(tuple(Unit(str(b), (log_p999(of_a_long_tail(rng, n)),)) for b in range(20)))
            for n in (5_000, 50_000)
        )
        (found,) = judge([(base, new)], Rules())
        false += found.verdict in (Verdict.FASTER, Verdict.SLOWER)
    # 5 % and three standard errors. By quantile(), 14 % are false.
    assert false <= 400 * (0.05 + 3 * 0.011)


def soak(
    new_session: NewSession,
    label: str,
    length: int,
    segments: int,
    rare: int,
    times: int,
    **info: Any,
) -> Path:
    """Eight boots. Each `rare`th sample is about so many times as long as the others."""
    boots = []
    for boot in range(8):
        drawn = np.random.default_rng(boot).uniform(51_000, 53_000, (segments, length))
        drawn.flat[rare - 1 :: rare] *= times
        boots.append([[int(x) for x in segment] for segment in drawn])
    run = {"params": f"{PIPES};soak={length}"}
    return new_session.label(label, boots, environment={}, run=run, **info)


def test_segments_of_another_length_make_no_difference(new_session, klat):
    """By segments, the mean of the short ones is 0.82 of the mean of the others, and their p99 is 0.83."""
    short = soak(new_session, "stock", 500, 20, rare=150, times=1000)
    long = soak(new_session, "rt", 5000, 2, rare=150, times=1000, **RT)
    for figure, why in (
        ("mean", ""),
        ("p99", ", some fewer than 25,000"),
        ("p90", ", some fewer than 2,500"),
    ):
        status, out, _ = klat("compare", short, long, "--quantile", figure)
        assert status == 0 and f"{figure} pooled" in out
        reason = f"because the runs have unequal numbers of samples{why} "
        assert f"pooled: {figure} of all samples of a boot together, {reason}" in words(out)


@pytest.mark.parametrize(("n", "pooled"), [(400, True), (500, False)])
def test_a_run_of_many_samples_has_its_own_median_whatever_the_length_of_others(
    new_session, klat, n, pooled
):
    """A kernel that is a sixth faster takes more samples in the same time."""
    slow = soak(new_session, "stock", n, 3, rare=150, times=1000)
    fast = soak(new_session, "rt", 7 * n // 6, 3, rare=150, times=1000, **RT)
    judgement = results_of(klat, slow, fast, "--quantile", "median")[0]["judgement"]
    assert (judgement["pooled"], judgement["base"]["runs"]) == (pooled, 8 if pooled else 24)


@pytest.mark.parametrize("q", [P50, P99])
@pytest.mark.parametrize("times", [1.2, 2, 10])
def test_equal_kernels_with_long_runs_of_unequal_length_are_rarely_said_to_differ(q, times):
    """Exponential samples. The share below the sample of rank k among n has a beta distribution."""
    rng = np.random.default_rng(2)
    false_verdicts = 0
    for _ in range(400):
        sides = []
        for n in (50 * fewest(q), round(50 * times * fewest(q))):
            k = rank(n, q)
            runs = np.log(-np.log1p(-rng.beta(k, n - k + 1, (20, 5))))
            logs = runs + rng.normal(0, 0.01, (20, 1)) + rng.normal(0, 0.01, (20, 5))
            sides.append(Observed(tuple(Unit(str(i), tuple(x)) for i, x in enumerate(logs))))
        (judgement,) = judge([(sides[0], sides[1])], Rules(margin=0))
        false_verdicts += judgement.verdict in (Verdict.FASTER, Verdict.SLOWER)
    # 7 % and three standard errors. With 100 samples instead of 500, 16 % of the verdicts on medians are false.
    assert false_verdicts <= 400 * (0.07 + 3 * 0.013)


def test_means_of_unequal_numbers_of_samples_are_no_change_of_the_kernel(new_session, klat):
    """No boot of the short side has one of the rare samples, and each boot of the long side has one."""
    short = soak(new_session, "stock", 500, 4, rare=20_000, times=10_000)
    long = soak(new_session, "rt", 5000, 4, rare=20_000, times=10_000, **RT)
    status, out, _ = klat("compare", short, long, "--quantile", "mean")
    assert status == 3 and "the means are of unequal numbers of samples" in words(out)


@pytest.mark.parametrize("figure", ["mean", "median", "p99"])
def test_a_side_without_a_run_that_counts_has_no_figure_to_compare(new_session, klat, figure):
    """The boots of the other side have unequal numbers of samples."""

    def label(name: str, ratio: float, **run: str) -> Path:
        boots = [[draw(boot, 1, 600 + 600 * (boot % 2), ratio)] for boot in range(4)]
        return new_session.label(name, boots, environment={}, run=run)

    stock = label("stock", 1.0)
    failed = label("rt", 1.1, status="invalid", reason="no wakeup")
    for name, sides in (("NEW", (stock, failed)), ("BASE", (failed, stock))):
        status, out, err = klat("compare", *sides, "--quantile", figure)
        assert (status, err) == (3, "")
        assert f"no run of {name} counts: 4 invalid (no wakeup)" in words(out)


def test_the_bias_of_means_between_two_boots_does_not_depend_on_the_number_of_sides(new_session):
    """The resolutions of two sides add. Between two boots of one side, the bias is twice the side's resolution."""

    def cell(name: str, *lengths: int) -> Runs:
        boots = [[draw(boot, 1, n, 1.0)] for boot, n in enumerate(lengths)]
        (runs,) = read_dataset(new_session.label(name, boots)).cells.values()
        return runs

    def resolutions(*cells: Runs) -> list[float]:
        sides = observe_sides(cells, parse("mean"), [Units() for _ in cells])
        return [side.resolution for side in sides]

    short, long = cell("short", 600, 600), cell("long", 6000, 6000)
    base, new = resolutions(short, long)
    assert base + new > 0.0001
    of_three = resolutions(short, long, cell("other", 6000, 6000))
    assert of_three[0] + of_three[1] == pytest.approx(base + new, rel=0.1)
    (alone,) = resolutions(cell("both", 600, 600, 6000, 6000))
    assert 2 * alone == pytest.approx(base + new, rel=0.1)
