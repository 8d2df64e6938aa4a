"""`klat compare`: verdicts, their statistics and the exit status."""

import json
import re

import numpy as np
import pytest

from written_sessions import NewSession, RT, again, results_of, samples, words


# Only one test a metric.
MEDIAN = ("--quantile", "median")


@pytest.mark.parametrize(
    ("ratio", "status", "said"),
    [
        (1.0, 0, "round_trip, median: same"),
        (1.2, 1, "round_trip, median: slower"),
        (0.8, 0, "round_trip, median: faster"),
    ],
)
def test_the_verdict_decides_the_exit_status(side, klat, ratio, status, said):
    found = klat("compare", side("stock"), side("rt", ratio, **RT))
    assert (found[0], found[2]) == (status, "")
    assert said in found[1] and f"(status {status})" in found[1]


def test_an_inconclusive_verdict_says_what_would_settle_it(side, klat):
    status, out, _ = klat("compare", side("stock", noise=0.015, boots=4), side("rt", boots=4, noise=0.015, **RT))  # fmt: skip
    assert status == 3
    assert "round_trip, median: inconclusive" in out
    assert re.search(r"would be settled as \w+ by [\d,]+ boots a side \(now 4 and 4\)", words(out))


def test_a_change_that_may_lie_within_the_margin_is_inconclusive_with_its_direction(side, klat):
    status, out, _ = klat("compare", side("stock"), side("rt", 1.021, **RT), *MEDIAN)
    assert status == 3
    text = words(out)
    assert "NEW is longer beyond chance; the change may lie within the margin" in text
    assert "Fix the number of boots or blocks before you measure" in text


def test_p99_is_tested_where_the_samples_support_it(side, klat):
    for label, n in (("stock", 600), ("rt", 600), ("short", 499)):
        path = side(label)
        for boot in range(5):
            ticks = samples(9_000 + boot, n if boot == 4 else 600)
            again(path / str(boot)).run({"woken": ticks}, params="x=1")
    for label, expected in (("rt", ["median", "p99"]), ("short", ["median"])):
        args = (side.root / "stock", side.root / label, "--metric", "woken", "--format", "json")
        (cell,) = json.loads(klat("compare", *args)[1])["against"][0]["cells"]
        assert [r["estimand"] for r in cell["results"]] == ["median", "mean", "p90", "p99"]
        assert [r["estimand"] for r in cell["results"] if r["tested"]] == expected


def test_one_boot_a_side_cannot_be_attributed_to_the_kernel(side, klat):
    stock, rt = side("stock", boots=1), side("rt", 1.5, boots=1, **RT)
    status, out, _ = klat("compare", stock, rt)
    assert status == 3
    assert "cannot be attributed" in out
    assert "the ratio compares these two boots" in words(out)
    assert re.search(r"median .* 1\.\d+ +1\.\d+ to 1\.\d+$", out, re.MULTILINE)
    assert "slower" not in out and "faster" not in out


def test_two_sessions_of_one_boot_are_one_boot(side, klat):
    stock = side("stock", boots=4, boot_id="the-same")
    status, out, _ = klat("compare", stock, side("rt", 1.5, **RT))
    assert status == 3
    assert "1 boot in 4 sessions" in words(out)
    assert "BASE is one boot" in out


def test_identical_boots_are_judged_exactly(side, klat):
    counted = {"mode": "counted", "unit": "instructions"}
    stock = side("stock", noise=0, **counted)
    rt = side("rt", 1.1, noise=0, **counted, **RT)
    for path in (*stock.iterdir(), *rt.iterdir()):
        (path / "lab").mkdir()
        (path / "lab/machine.json").write_text('{"qemu": "7.2.22 (Debian 1:7.2)"}')
    status, out, _ = klat("compare", stock, rt)
    assert status == 1 and "slower" in out
    assert "instructions counted by QEMU 7.2.22" in words(out)
    assert "1.100 to 1.100" in out and re.search(r"^ +\[instructions\] +BASE", out, re.MULTILINE)
    assert klat("compare", stock, side("again", noise=0, **counted))[0] == 0


def alike(new_session: NewSession, **samples: list[int]) -> None:
    """Five boots of each label. All runs of a label have the same samples."""
    for label, values in samples.items():
        new_session.label(label, [[{"call": values}] * 3] * 5)


def test_a_difference_below_the_counters_granularity_is_not_claimed(side, klat, new_session):
    alike(new_session, stock=[338] * 100, rt=[364] * 100)
    status, out, _ = klat("compare", side.root / "stock", side.root / "rt")
    assert status == 3 and "granularity" in out and "--quantile mean" in out
    assert "would be settled" not in out and "no number of boots" in out


TAIL = [104] * 8 + [130] * 7


@pytest.mark.parametrize(
    ("stock", "rt", "status", "said"),
    [
        pytest.param([338] * 100, [364] * 100, 3, "granularity", id="all began at a step"),
        # They are one step longer because they began late in a step.
        pytest.param([338] * 70 + [364] * 30, [364] * 70 + [390] * 30, 1, "", id="began anywhere"),
        pytest.param([26] * 85 + TAIL, [26] * 85 + TAIL, 3, "granularity", id="a tail"),
        pytest.param(
            [0] * 999 + [26],
            [0] * 997 + [26] * 3,
            3,
            "the mean of a run is below the counter's step",
            id="nearly all are 0",
        ),
    ],
)
def test_a_mean_is_finer_than_a_step_only_if_its_samples_began_anywhere(
    stock, rt, status, said, side, klat, new_session
):
    alike(new_session, stock=stock, rt=rt)
    found, out, _ = klat("compare", side.root / "stock", side.root / "rt", "--quantile", "mean")
    assert found == status and said in words(out), out
    assert said or "granularity" not in out


def rounded(ticks: float) -> int:
    return 26 * round(ticks / 26)


@pytest.mark.parametrize(
    ("true", "odd"),
    [
        pytest.param((1002.0, 1024.0), {7: 60.0}, id="a run that strayed, and a true change"),
        pytest.param((999.0, 1003.0), dict.fromkeys(range(0, 60, 2), 400.0), id="two states"),
    ],
)
def test_runs_off_the_grid_do_not_make_the_counter_finer(side, klat, new_session, true, odd):
    for label, ticks in zip(("stock", "rt"), true):
        values = [rounded(ticks + odd.get(number, 0)) for number in range(60)]
        runs = [{"call": [value] * 100} for value in values]
        new_session.label(label, [runs[first : first + 6] for first in range(0, 60, 6)])
    status, out, _ = klat("compare", side.root / "stock", side.root / "rt", "--allow", "environment")  # fmt: skip
    assert status == 3 and "granularity" in out, out


def test_noise_larger_than_a_step_resolves_less_than_a_step(side, klat, new_session):
    draw = np.random.default_rng(1)
    for label, ticks in (("stock", 1000.0), ("rt", 1040.0)):
        values = [[rounded(ticks + draw.normal(0, 30)) for _ in range(12)] for _ in range(10)]
        new_session.label(label, [[{"call": [v] * 100} for v in boot] for boot in values])
    sides = side.root / "stock", side.root / "rt"
    judgement = results_of(klat, *sides, "--allow", "environment")[0]["judgement"]
    assert judgement["resolution"] == 0
    assert judgement["verdict"] == "slower" and judgement["ratio"] == pytest.approx(1.04, abs=0.01)


def test_the_margin_decides_what_is_the_same(side, klat):
    stock, rt = side("stock"), side("rt", 1.05, **RT)
    assert klat("compare", stock, rt)[0] == 1
    for margin in ("10%", "0.1"):
        status, out, _ = klat("compare", stock, rt, "--margin", margin)
        assert status == 0 and "margin 10 %" in out
        assert "longer beyond chance, but within the margin" in words(out)


def test_several_kernels_share_one_correction(side, klat):
    stock, rt, new = side("stock"), side("rt", 1.2, **RT), side("next", kernel_release="6.2")
    status, out, _ = klat("compare", stock, rt, new, *MEDIAN)
    assert status == 1 and "by Holm over 2 tests" in words(out)
    assert out.count("BASE  stock") == 2 and "1 same, 1 slower: regression" in out  # fmt: skip


def test_quantile_chooses_the_estimands_that_are_tested(side, klat):
    stock, rt = side("stock"), side("rt", 1.2, **RT)
    args = ("--quantile", "p99", "--quantile", "mean", "--quantile", "p95", "--format", "json")
    _, out, _ = klat("compare", stock, rt, *args)
    results = json.loads(out)["against"][0]["cells"][0]["results"]
    tested = [r["estimand"] for r in results if r["tested"]]
    assert tested == ["p99", "mean", "p95"]
    assert all(r["judgement"]["verdict"] == "slower" for r in results if r["tested"])
    values = {r["estimand"]: r["judgement"]["base"]["value"] for r in results}
    assert values["median"] <= values["p90"] <= values["p95"] <= values["p99"]
    assert all(r["judgement"]["verdict"] is None for r in results if not r["tested"])


def test_the_times_are_compared_where_counters_differ_in_frequency(side, klat):
    tsc = {"khz": 5_200_000.0, "quantum": 26}
    rt = side("rt", 2.0, tsc=tsc, **RT)
    status, out, _ = klat("compare", side("stock"), rt, "--allow", "counter")
    assert status == 0 and "round_trip, median: same" in out


def test_invalid_runs_are_counted_and_not_judged(side, klat, new_session):
    stock, rt = side("stock"), side("rt", **RT)
    spoiled = new_session("rt/spoiled", label="rt", boot_id="rt-boot-0", environment={}, **RT)
    spoiled.run({"round_trip": samples(900_000)}, status="invalid", reason="moved")
    status, out, _ = klat("compare", stock, rt)
    assert status == 0 and "runs of NEW: 20 ok, 1 invalid" in out


def test_a_run_of_zero_ticks_has_no_ratio(side, klat):
    status, out, _ = klat("compare", side("stock"), side("rt", 0.0, **RT))
    assert status == 3 and "is 0, so there is no ratio" in words(out)


def test_the_maximum_has_no_interval(side, klat):
    _, out, _ = klat("compare", side("stock"), side("rt", 1.5, **RT))
    (line,) = [
        line for line in out.splitlines() if line.split()[:1] == ["max"] and "of" not in line
    ]
    assert " to " not in line and "max of 12,000 and 12,000 samples" in out


def test_rows_suffice_where_samples_are_lost(side, klat):
    stock, rt = side("stock"), side("rt", 1.2, **RT)
    for path in rt.glob("*/samples/*.u64"):
        path.unlink()
    assert klat("compare", stock, rt)[0] == 1
    status, out, err = klat("compare", stock, rt, "--quantile", "p95")
    assert (status, out) == (2, "") and re.fullmatch(r"klat compare: .*pipes\.u64.*\n", err)


def test_a_side_measured_before_the_other_is_named_first(side, klat):
    for mode, unit, said in (("virtual", "ticks", True), ("counted", "instructions", False)):
        whats = {"mode": mode, "unit": unit}
        stock = side(f"stock-{mode}", **whats, created="2026-01-01T00:00:00Z")
        rt = side(f"rt-{mode}", **whats, created="2026-01-02T00:00:00Z", **RT)
        for sides, first in (((stock, rt), "BASE"), ((rt, stock), "NEW")):
            out = words(klat("compare", *sides)[1])
            note = f"note: all boots of {first} precede all of"
            assert (note in out) == said
            assert not said or out.index(note) < out.index("same") and "alternate" in out
    info = json.loads((stock / "0/session.json").read_text())
    (stock / "0/session.json").write_text(json.dumps(info | {"created": "2026-01-03T00:00:00Z"}))
    timed = side.root / "stock-virtual"
    info = json.loads((timed / "0/session.json").read_text()) | {"created": "2026-01-03T00:00:00Z"}
    (timed / "0/session.json").write_text(json.dumps(info))
    assert "precede" not in klat("compare", timed, side.root / "rt-virtual")[1]


def test_dates_of_a_clock_that_was_not_set_say_nothing_on_the_order(side, klat):
    stock = side("stock", created="1970-01-01T00:00:15Z")
    rt = side("rt", created="2026-01-02T00:00:00Z", **RT)
    status, out, _ = klat("compare", stock, rt)
    assert status == 0 and "precede" not in out
    assert "note: the clock was not set in some boots" in words(out)


def test_more_failures_on_one_side_than_by_chance_are_named_first(side, klat, new_session):
    stock, rt = side("stock"), side("rt", **RT)

    def spoil(label: str, boots: int, runs: int) -> str:
        for boot in range(boots):
            session = again(side.root / label / str(boot))
            session.start_ns += runs * 10**12
            for _ in range(runs):
                session.run({"round_trip": samples(9_000)}, status="invalid", reason="moved")
        return words(klat("compare", stock, rt)[1])

    assert "beyond chance; find out" not in spoil("rt", 1, 12)
    out = spoil("rt", 5, 2)
    note = "invalid or failed runs of pipes: 0 of 20 in BASE and 22 of 42 in NEW"
    assert note in out and out.index(note) < out.index("median")
    assert "beyond chance; find out" not in spoil("stock", 5, 2)


def test_a_side_of_which_most_runs_are_invalid_has_no_verdict(side, klat):
    """The few runs that count may not represent their side."""
    stock, rt = side("stock"), side("rt", **RT)
    limit = ("--limit", "1ms", "--share", "0.1")
    assert [klat("compare", stock, rt, *words)[0] for words in ((), limit)] == [0, 0]
    for boot in range(5):
        session = again(side.root / "rt" / str(boot))
        session.start_ns += 10**12
        for _ in range(12):
            session.run({"round_trip": samples(9_000_000)}, status="invalid", reason="moved")
    status, out, _ = klat("compare", stock, rt)
    assert status == 3
    reason = "60 of 80 in NEW, beyond chance, so the runs that count may not represent this side"
    assert ", median: cannot be attributed" in out and reason in words(out)
    assert "at least 4 boots" not in words(out)
    refused = "60 runs that do not count have samples above the limit, and only 20 runs count"
    for command in (("compare", stock, rt), ("summary", rt)):
        status, out, _ = klat(*command, *limit)
        assert status == 3 and "cannot tell" in out and refused in words(out)
    # A note on the limits, and why there is no ratio of the shares above it.
    out = klat("compare", stock, rt, "--limit", "20us")[1]
    assert words(out).count(reason) == 2


def test_a_sentence_that_many_results_have_is_printed_once_and_marked_at_each(side, klat, tmp_path):
    sides = side("stock", boots=4), side("rt", 1.2, boots=4, **RT)
    for number in range(16):
        for place, label in enumerate(("stock", "rt")):
            longer = place * (9_000 if number < 12 else 400 if number == 12 else 0)
            side.add(
                label, f"m{number}", 20_000 + longer, boots=4, order=9 + number, start_ns=number
            )
    page = tmp_path / "page.html"
    _, text, _ = klat("compare", *sides, *MEDIAN, "--html", page)
    _, markdown, _ = klat("compare", *sides, *MEDIAN, "--format", "markdown")
    reason = "17 tests need more than 4 and 4 boots; one test alone would be settled"
    assert f"note: [1] (13 results) {reason}" in words(text)
    assert len(re.findall(r"median: inconclusive \[1\]", text)) == 13
    assert markdown.count("**inconclusive** \\[1\\]") == 13
    for report in (text, markdown, page.read_text()):
        assert words(report).count(reason) == 1
    _, table, _ = klat("compare", *sides, *MEDIAN, "--format", "csv")
    assert table.count(reason) == 13


@pytest.mark.parametrize("boots", [2, 3])
def test_what_would_settle_a_verdict_counts_tests_that_have_too_few_boots_yet(side, klat, boots):
    paths = [side("stock", boots=boots), side("rt", 1.2, boots=boots, **RT)]
    for path, median in zip(paths, (9_000, 11_000)):
        for boot in range(boots):
            metrics = {f"m{number}": samples(median + boot) for number in range(9)}
            again(path / str(boot)).run(metrics, params="x=1")
    status, out, _ = klat("compare", *paths, *MEDIAN)
    # Ten tests: 2 / 4^4 is above 5 % / 10.
    assert status == 3 and "by 5 boots a side" in words(out) and "by 4 boots" not in words(out)
