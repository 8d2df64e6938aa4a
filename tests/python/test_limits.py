"""compare and summary with --limit: the share of samples above a limit."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import made_tools
import pytest
from written_sessions import NewSession, RT, SOAK, again, answer, words

ROOT = Path(__file__).resolve().parents[2]
ONE_MHZ = {"khz": 1000.0, "quantum": 1}
COUNTED = {"mode": "counted", "unit": "instructions"}


@pytest.fixture
def limited(new_session: NewSession) -> Callable[..., Path]:
    """Makes a label whose boots have `above` samples of 200 us among those of 20 us."""

    def write(
        label: str, above: list[list[int]], n: int = 1_000, again: bool = False, **info: object
    ) -> Path:
        draw = np.random.default_rng(len(label))

        def samples(count: int) -> list[int]:
            short = [int(52_000 + 500 * x) for x in draw.exponential(size=n - count)]
            return short + [520_000] * count

        def copies() -> Iterator[Iterable[list[int]]]:
            nonlocal draw
            for runs in above:
                draw = np.random.default_rng(1) if again else draw
                yield map(samples, runs)

        start = {"start_ns": 1_700_000_000_000_000_000} if again else {}
        return new_session.label(label, copies(), environment={}, **start, **info)

    return write


def clean(boots: int = 4, runs: int = 4) -> list[list[int]]:
    return [[0] * runs for _ in range(boots)]


def row(out: str, name: str) -> list[str]:
    """The figures of a side or metric."""
    verdict = "(within|exceeded|cannot tell)$"
    (line,) = [x for x in out.splitlines() if re.match(rf" +{name} +[0-9].* {verdict}", x)]
    return line.split()[1:]


def test_a_side_without_samples_above_is_within(limited, klat):
    stock = limited("stock", [[40, 50, 45, 45]] * 4)
    rt = limited("rt", clean(), **RT)
    status, out, err = klat("compare", stock, rt, "--limit", "100us")
    assert (status, err) == (0, "")
    assert row(out, "BASE")[:3] == ["16,000", "720", "0.045"] and row(out, "BASE")[-1] == "exceeded"
    assert row(out, "NEW")[:3] == ["16,000", "0", "0"] and row(out, "NEW")[-1] == "within"
    assert "NEW has fewer samples above the limit than BASE" in out
    assert out.endswith("1 within (status 0)\n")
    # The limit is a gate on NEW.
    status, out, _ = klat("compare", rt, stock, "--limit", "100us")
    assert status == 1 and "NEW has more samples" in out
    assert out.endswith("1 exceeded (status 1)\n")


def test_few_samples_cannot_tell_and_say_how_many_would(limited, klat):
    stock, rt = limited("stock", clean(4, 1)), limited("rt", clean(4, 1), **RT)
    status, out, _ = klat("compare", stock, rt, "--limit", "100us", "--share", "1e-4")
    assert status == 3 and "1 cannot tell (status 3)" in out
    boots = int(re.search(r"\(([\d,]+) boots[^)]*\) would show a share below 0\.0001", words(out))[1])  # type: ignore[index]
    more = limited("more", clean(boots, 1))
    status, out, _ = klat("summary", more, "--limit", "100us", "--share", "1e-4")
    assert status == 0 and row(out, "round_trip")[-1] == "within"


def test_with_a_share_of_0_one_sample_exceeds(limited, klat):
    one = limited("one", [[0, 0, 0, 1], *clean(3)])
    assert klat("summary", one, "--limit", "100us", "--share", "0")[0] == 1
    none = limited("none", clean())
    status, out, _ = klat("summary", none, "--limit", "100us", "--share", "0")
    assert status == 3 and "no number of samples shows that none" in words(out)


def test_samples_above_in_one_boot_widen_the_bounds(limited, klat):
    spread = limited("spread", [[5, 5, 5, 5]] * 4)
    burst = limited("burst", [[20, 20, 20, 20], *clean(3)])
    _, even, _ = klat("summary", spread, "--limit", "100us")
    _, uneven, _ = klat("summary", burst, "--limit", "100us")
    high = [float(row(out, "round_trip")[5]) for out in (even, uneven)]
    assert high[1] > 2 * high[0] and "samples cluster" in uneven
    assert row(even, "round_trip")[-1] == "exceeded"
    assert row(uneven, "round_trip")[-2:] == ["cannot", "tell"]


def test_one_boot_is_named(limited, klat):
    stock, rt = limited("stock", clean(1, 20)), limited("rt", [[9] * 20], **RT)
    status, out, _ = klat("compare", stock, rt, "--limit", "100us")
    assert status == 1 and "one boot: the verdict is about this boot" in words(out)
    assert "one boot a side can differ by chance alone" in words(out)


def test_one_run_shows_how_its_samples_cluster(limited, klat):
    """The samples above the limit are the last of the run."""
    _, out, _ = klat("summary", limited("one", [[100]], n=10_000), "--limit", "100us")
    assert "samples cluster" in out and float(row(out, "round_trip")[5]) > 0.03


def test_a_short_last_segment_leaves_the_soak_its_precision(writer, klat):
    """As with --for 61s --segment 60s."""
    for run, (n, long) in enumerate(((60_000, 30), (1_000, 1)), 1):
        samples = [52_000 + i % 999 for i in range(n - long)] + [520_000] * long
        writer.run({"round_trip": samples}, params=SOAK, run=run, order=run)
    asked = ["summary", writer.path, "--limit", "100us"]
    status, out, _ = klat(*asked)
    assert status == 0 and "one full segment does not show how samples cluster" in words(out)
    (metric,) = answer(klat, *asked)["labels"][0]["settings"][0]["metrics"]
    assert metric["limit"]["p"] < 1e-4


def test_a_short_boot_is_part_of_its_neighbour(new_session, klat):
    """The runs of both boots are cut into parts, as the run of one boot is."""

    def label(name: str, *lengths: int) -> Path:
        boots = [
            [[52_000 + (i + n) % 999 for i in range(n)] + [520_000] * (n // 1_000 or 1)]
            for n in lengths
        ]
        return new_session.label(name, boots, environment={})

    for lengths, which in (
        ((9_000, 500), "one boot with most of the samples: "),
        ((9_000, 8_000), ""),
    ):
        out = klat("summary", label(f"of{lengths[1]}", *lengths), "--limit", "100us")[1]
        said = f"{which}the verdict is about this boot"
        assert (said in words(out)) == bool(which)
    assert "samples cluster" in klat("summary", label("both", 9_000, 500), "--limit", "100us")[1]


def test_a_soak_is_judged_by_its_segments(writer, klat):
    for run in range(1, 101):
        long = run % 2
        samples = [52_000] * 500 + [78_000] * (500 - long) + [300_000] * long
        writer.run({"round_trip": samples}, params=SOAK, run=run, order=run)
    asked = ["summary", writer.path, "--format", "json", "--limit", "100us", "--share"]
    for share, status, verdict in (("1e-3", 0, "within"), ("1e-4", 1, "exceeded")):
        found, out, _ = klat(*asked, share)
        (metric,) = json.loads(out)["labels"][0]["settings"][0]["metrics"]
        limit = metric["limit"]
        assert found == status and (limit["above"], limit["verdict"]) == (50, verdict)
        assert (limit["boots"], limit["runs"], limit["noun"]) == (1, 100, "segment")


def test_boots_that_repeat_each_other_count_once(limited, klat):
    """Boots of one seed in counted mode repeat each other."""
    same = limited("same", clean(), again=True, **COUNTED)
    _, out, _ = klat("summary", same, "--limit", "100000")
    assert row(out, "round_trip")[0] == "4,000"
    assert "left out: 3 boots with the same samples as another boot" in words(out)


def test_a_metric_without_figures_has_no_table(limited, klat):
    sides = limited("stock", clean()), limited("rt", clean(), **RT)
    for path in (session for side in sides for session in side.iterdir()):
        again(path).run({"gone": [1] * 600}, status="invalid", reason="moved", order=9, run=9)
    _, out, _ = klat("compare", *sides, "--limit", "100us")
    at = out.index("gone: inconclusive")
    assert out[at:].splitlines()[1].startswith("    NEW against BASE: cannot tell: no run of BASE")


def test_every_format_has_the_same_figures(limited, klat):
    stock, rt = limited("stock", [[40, 50, 45, 45]] * 4), limited("rt", clean(), **RT)
    asked = ["compare", stock, rt, "--limit", "100us", "--format"]
    status, out, _ = klat(*asked, "json")
    document = json.loads(out)
    (cell,) = document["against"][0]["cells"]
    assert status == document["status"] == 0 and document["verdicts"] == {"within": 1}
    assert cell["limit"]["base"]["above"] == 720 and cell["limit"]["difference"] == "fewer"
    (line,) = csv.DictReader(io.StringIO(klat(*asked, "csv")[1]))
    assert (line["verdict"], line["base_samples_above"], line["new_samples_above"]) == (
        "within",
        "720",
        "0",
    )
    assert float(line["new_share_high"]) == cell["limit"]["new"]["high"]
    assert "**within** |" in klat(*asked, "markdown")[1]
    for sides, result in (((stock, rt), "ok 1"), ((rt, stock), "not ok 1")):
        words = ("--limit", "100us", "--format", "ktap")
        assert f"\n{result} pipes.round_trip" in klat("export", *sides, *words)[1]
    asked = ["summary", rt, "--limit", "100us", "--format"]
    (metric,) = json.loads(klat(*asked, "json")[1])["labels"][0]["settings"][0]["metrics"]
    assert metric["limit"]["verdict"] == "within" and metric["limit"]["samples"] == 16_000
    (line,) = csv.DictReader(io.StringIO(klat(*asked, "csv")[1]))
    assert (line["above"], line["verdict"]) == ("0", "within")


def test_a_metric_of_a_summary_is_judged_without_the_others(new_session, klat):
    session = new_session("two")
    for number in range(1, 9):
        values = {"late": [520_000] * 500, "early": [52_000 + i for i in range(500)]}
        session.run(values, run=number, order=number)
    judged = ("summary", session.path, "--limit", "100us")
    assert klat(*judged)[0] == 1
    status, out, _ = klat(*judged, "--metric", "early")
    assert status == 0 and "late" not in out
    assert klat(*judged, "--metric", "late")[0] == 1
    status, _, err = klat(*judged, "--metric", "lates")
    assert status == 2 and "no metric 'lates'; there are late, early" in err


def test_a_limit_that_does_not_fit_is_one_line(limited, klat):
    timed, counted = limited("timed", clean()), limited("counted", clean(), **COUNTED)
    emulated = limited("emulated", clean(), mode="emulated")
    for path, limit, said in (
        (timed, "100000", "give a unit"),
        (timed, "fast", "must be a time"),
        (timed, "0us", "must be above 0"),
        (timed, "-1us", "expected one argument"),
        (timed, "10ns", "must be above the floor of pipes, 26 ticks (10 ns)"),
        (
            counted,
            "100us",
            "are in instructions, not in time; give a number of instructions without",
        ),
        (counted, "26", "must be above the floor of pipes, 26 instructions"),
        (emulated, "100us", "ticks mean nothing"),
        (emulated, "100", "ticks mean nothing"),
    ):
        status, out, err = klat("summary", path, "--limit", limit)
        assert (status, out, err.count("\n")) == (2, "", 1) and said in err, (limit, err)
    for share in ("1", "-1", "x", "nan", "100%"):
        status, out, err = klat("summary", timed, "--limit", "100us", "--share", share)
        assert (status, out, err.count("\n")) == (2, "", 1), share
    other = limited("other", clean())
    for words_ in (["--share", "0.1"], ["--limit", "1ms", "--quantile", "p90"]):
        status, out, err = klat("compare", timed, other, *words_)
        assert (status, out, err.count("\n")) == (2, "", 1), words_


def test_a_limit_on_lost_samples_names_their_file(limited, klat):
    side = limited("stock", clean())
    (side / "0/samples/pipes.u64").unlink()
    status, out, err = klat("summary", side, "--limit", "100us")
    assert status == 2 and out == "" and "pipes.u64" in err


def test_what_a_user_types_works_on_the_recorded_session():
    words = ("summary", "results/reference", "--limit", "1ms", "--share", "10%")
    done = made_tools.run(ROOT / "klat", *words, cwd=ROOT, seconds=120)
    assert done.stderr == "" and "limit 1ms" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    status = int(re.search(r"\(status (\d)\)\n$", done.stdout)[1])  # type: ignore[index]
    assert done.returncode == status


def test_blocks_of_one_boot_are_paired(new_session, tmp_path, klat):
    """klat ab: both settings share the boot, and a block is a pair."""
    for label, above in (("a", 1), ("b", 30)):
        pairs = [[4 * i + 1, 4 * i + 4, str(i)] for i in range(8)]
        turns = [[order, order, order] for order in range(1, 33)]
        facts = {"pairing": {"experiment": "e", "pairs": pairs}, "turns": turns}
        counts = [above + order % 3 for order in range(1, 33)]
        boot = [[52_000] * (500 - count) + [520_000] * count for count in counts]
        new_session.label(label, [boot], boot_id="shared", environment={}, facts=facts)
    sides = tmp_path / "results/a", tmp_path / "results/b"
    status, out, _ = klat("compare", *sides, "--limit", "100us", "--share", "0.2")
    assert status == 0 and "NEW has more samples above the limit than BASE" in out


@pytest.mark.parametrize(
    ("ticks", "verdict", "status"),
    [(1, "cannot tell", 3), (2, "cannot tell", 3), (3, "exceeded", 1), (0, "within", 0)],
)
def test_a_sample_may_be_a_step_longer_or_shorter_than_its_reading(
    new_session, tmp_path, klat, ticks, verdict, status
):
    """A counter of 1 MHz, which rounds 1.9 us to 1 us, and a limit of 1.5 us."""
    for label, value in (("base", 1), ("new", ticks)):
        new_session.label(label, [[[value] * 500] * 4] * 5, run={"floor": 0}, tsc=ONE_MHZ)
    found, out, _ = klat(
        "compare", tmp_path / "results/base", tmp_path / "results/new", "--limit", "1500ns"
    )
    assert found == status and row(out, "NEW")[-1] == verdict.split()[-1], out
    assert row(out, "BASE")[-1] == "tell" and "NEW has more" not in out
    if ticks == 2:
        assert "rounding to the counter's step can cause their difference" in words(out)
    assert "10,000 samples are within one step of the counter of the limit" in words(out)


def test_equal_sides_do_not_differ_and_say_what_would(limited, klat):
    a = limited("a", [[3, 1], [2, 4], [0, 1], [5, 2], [1, 1]])
    b = limited("bb", [[2, 4], [1, 1], [6, 2], [1, 3], [2, 5]], **RT)
    _, out, _ = klat("compare", a, b, "--limit", "100us")
    assert "NEW against BASE: cannot tell: the shares of the boots differ no more" in words(out)
    assert re.search(r"\d+ boots a side would show this difference", words(out))


def test_several_sides_share_one_correction(limited, klat):
    sides = [limited(name, [[40, 50]] * 4) for name in ("a", "bb", "ccc")]
    document = answer(klat, "compare", *sides, "--limit", "100us")
    # BASE is one test, and each NEW and each difference is one.
    assert document["family"] == 5
    first, second = (against["cells"][0]["limit"] for against in document["against"])
    assert first["base"] == second["base"]


def test_runs_that_do_not_count_are_named(limited, klat):
    stock, rt = limited("stock", clean()), limited("rt", clean(), **RT)
    again(rt / "0").run({"round_trip": [900_000] * 9}, status="invalid", reason="moved")
    status, out, _ = klat("compare", stock, rt, "--limit", "100us")
    assert status == 0 and "runs of NEW: 16 ok, 1 invalid" in out


def test_summary_says_that_runs_left_out_are_above(limited, klat):
    path = limited("rt", clean())
    broken = again(path / "0")
    for longest in (900_000, 100):
        broken.run({"round_trip": [longest]}, run=9, status="invalid", reason="moved")
    _, out, _ = klat("summary", path, "--limit", "100us")
    assert "left out: 1 run with samples above the limit" in words(out)


@pytest.mark.parametrize(
    ("metrics", "status", "name"),
    [({"lateness": [900]}, "invalid", "timer.lateness"), (None, "error", "timer")],
)
def test_a_metric_of_which_no_run_counts_is_not_within(limited, klat, metrics, status, name):
    path = limited("rt", clean())
    timer = {"benchmark": "timer", "params": "method=signal", "status": status, "reason": "moved"}
    again(path / "0").run(metrics, run=9, **timer)
    ended, out, _ = klat("summary", path, "--limit", "100us")
    assert ended == 3 and f"1 within, 1 without a run that counts ({name})" in words(out)
    ended, out, _ = klat("summary", path, "--limit", "100us", "--metric", "pipes.round_trip")
    assert ended == 0 and "timer" not in out
    ended, out, _ = klat("summary", path, "--limit", "100us", "--format", "json")
    assert json.loads(out)["status"] == ended == 3


def test_an_unplaced_failed_run_counts_with_its_program(limited, klat):
    path = limited("rt", clean())
    session = again(path / "0")
    session.run({"round_trip": [20_000] * 1_000}, run=8, placement="same-core")
    for placement, name in (("", ""), ("smt", ", 1 without a run that counts (pipes)")):
        killed = {"placement": placement, "status": "error", "reason": "killed"}
        session.run(None, run=9, cpus="", policy="", **killed)
        _, out, _ = klat("summary", path, "--limit", "100us")
        assert f"cannot tell{name}" in words(out) and "1 error: killed" in out
        assert ("without a run" in out) == bool(name)


def test_periods_without_a_sample_are_named(limited, klat):
    path = limited("rt", clean())
    late = again(path / "0")
    for missed in (7, 4_000):
        late.run({"round_trip": [900_000]}, run=9, evidence=f"missed={missed}")
    _, out, _ = klat("summary", path, "--limit", "100us")
    assert "round_trip: 4,007 periods without a sample" in words(out)


def test_an_asked_share_is_told_once(limited, klat):
    _, out, _ = klat("summary", limited("rt", clean()), "--limit", "100us", "--share", "1e-6")
    assert words(out).count("share below 1e-06") == 1


def test_a_limit_judges_all_runs_however_the_sleeper_was_woken(limited, klat):
    """The few runs woken in another way hold the samples above the limit."""
    stock, rt = limited("stock", clean(4, 12)), limited("rt", clean(4, 12), **RT)
    for path, counts in ((stock, (500, 500, 500)), (rt, (500, 500, 0))):
        for boot in range(4):
            session = again(path / str(boot))
            for number, interrupts in enumerate(counts, 20):
                above = 500 if interrupts == 0 else 0
                session.run(
                    {"round_trip": [52_000] * (1_000 - above) + [520_000] * above},
                    run=number,
                    evidence=f"wakeups=500;wake_interrupts={interrupts}",
                )
    status, out, _ = klat("compare", stock, rt, "--limit", "100us")
    assert status == 1 and row(out, "NEW")[:2] == ["60,000", "2,000"]
    assert "left out" not in out
