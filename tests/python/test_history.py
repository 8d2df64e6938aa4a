"""`klat history`: changes where there are some, none where there are none, and no word where
nothing can be told."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from written_sessions import Klat, NewSession
from scipy.stats import binom

from klat.stats.change_points import changes, drift, is_line, needed, needed_beside

Level = Callable[[int], float]


def around(middle: int) -> list[int]:
    return [middle + 13 * i for i in range(-50, 50)]


@pytest.fixture
def boots(new_session: NewSession, tmp_path: Path) -> Callable[..., Path]:
    """Boots of a label, a day apart, whose medians follow `level`; a kernel for every ten."""

    def write(level: Level, count: int = 24, label: str = "stock", noise: float = 0.004) -> Path:
        draw = np.random.default_rng(count)
        for boot in range(count):
            day = f"2024-{5 + boot // 28:02d}-{boot % 28 + 1:02d}T12:00:00Z"
            session = new_session(
                # Named against time, so that it is the date that orders them.
                f"{label}/{90 - boot}",
                label=label,
                boot_id=f"boot-{boot}",
                created=day,
                kernel_release=f"6.{boot // 10}.0-test",
            )
            for run in (1, 2, 3):
                centre = 52_000 * level(boot) * math.exp(draw.normal(0, noise))
                session.run({"round_trip": around(round(centre))}, run=run)
        return tmp_path / "results" / label

    return write


def klat_history(klat: Klat, *args: object) -> tuple[int, str, str]:
    status, out, err = klat("history", *args)
    assert all(len(line) <= 100 for line in out.splitlines())
    return status, out, err


def test_a_planted_shift_is_found_where_it_is():
    series = np.random.default_rng(1).normal(0, 1, 40) + 4 * (np.arange(40) >= 17)
    (found,) = changes(series.tolist(), 0.05, 1)
    assert (found.at, found.p) == (17, pytest.approx(0.001))


def test_several_shifts_are_found_up_and_down():
    at = np.arange(60)
    series = np.random.default_rng(2).normal(0, 1, 60) + 5 * (at >= 15) - 9 * (at >= 40)
    assert [change.at for change in changes(series.tolist(), 0.05, 1)] == [15, 40]


def test_where_nothing_changed_marks_are_as_rare_as_was_said():
    """Also with heavy tails: a permutation assumes no distribution."""
    draw, level, count = np.random.default_rng(3), 0.05, 300
    false = sum(bool(changes(draw.standard_t(2, 16).tolist(), level, i)) for i in range(count))
    assert false <= binom.ppf(0.9999, count, level)
    assert false >= binom.ppf(0.0001, count, level)  # nor so careful that it finds nothing
    drifts = [drift(draw.standard_t(2, 16).tolist()) for _ in range(count)]
    assert sum(d is not None and d.p <= level for d in drifts) <= binom.ppf(0.9999, count, level)


def test_too_few_values_show_no_change():
    for level in (0.05, 0.01, 0.001):
        n = needed(level)
        step = [0.0] * (n // 2) + [1.0] * (n - n // 2)
        assert 2 / math.comb(n, n // 2) <= level < 2 / math.comb(n - 1, (n - 1) // 2)
        assert changes(step[1:], level, 1) == []
    assert changes([1.0] * 30, 0.05, 1) == [] and drift([1.0] * 30) is None
    assert [change.at for change in changes([0, 0, 0, 0, 0.1, 1, 1, 1, 1, 1.1], 0.05, 1)] == [5]


def test_so_many_values_beside_a_change_are_needed_as_was_said():
    noise = np.random.default_rng(5).normal(0, 1e-3, 30)
    side = needed_beside(30, 0.001)
    assert 2 / math.comb(30, side) <= 0.001 < 2 / math.comb(30, side - 1)
    told = noise + (np.arange(30) >= 30 - side)
    assert [change.at for change in changes(told.tolist(), 0.001, 1)] == [30 - side]
    early = noise + (np.arange(30) >= 30 - side + 1)
    assert changes(early.tolist(), 0.001, 1) == []


def test_the_statistic_is_that_of_the_paper_term_by_term():
    from klat.stats.change_points import _statistics

    values = np.random.default_rng(4).normal(size=9)
    (found,) = _statistics(values[None, :])
    for place, m in enumerate(range(2, 8)):
        x, y = values[:m], values[m:]
        n = len(y)
        between = 2 / (m * n) * sum(abs(a - b) for a in x for b in y)
        left = sum(abs(x[i] - x[j]) for i in range(m) for j in range(i)) / math.comb(m, 2)
        right = sum(abs(y[i] - y[j]) for i in range(n) for j in range(i)) / math.comb(n, 2)
        assert found[place] == pytest.approx(m * n / (m + n) * (between - left - right))


def test_a_line_is_not_taken_for_steps():
    noise = np.random.default_rng(6).normal(0, 1, 40)
    assert is_line((noise + 0.5 * np.arange(40)).tolist(), [13, 27])
    assert not is_line((noise + 10 * (np.arange(40) >= 20)).tolist(), [20])


def test_a_change_is_shown_with_its_date_and_size(boots, klat):
    status, out, err = klat_history(klat, boots(lambda b: 1.08 if b >= 10 else 1.0))
    assert (status, err) == (0, "")
    assert re.search(r"^changed +\+[78]\.\d+ % +round_trip: pipes", out, re.MULTILINE)
    assert "at boot 11 of 24, 2024-05-11 12:00 (80): " in out
    assert "changed with it: Linux 6.0.0-test | 6.1.0-test" in out
    assert out.count("at boot ") == 1


def test_a_slow_drift_is_not_a_change_at_a_boot(boots, klat):
    status, out, _ = klat_history(klat, boots(lambda b: 1 + 0.003 * b))
    assert status == 0
    assert re.search(r"^drifts +\+[67](\.\d+)? % +round_trip", out, re.MULTILINE)
    assert "at boot " not in out and "% a boot" in out


def test_a_change_is_found_from_the_number_of_boots_that_it_needs(boots, klat):
    n = needed(0.05 / 2)
    for count, shape in ((n - 1, "boots: too few to find a change"), (n, "\nchanged ")):
        out = klat_history(klat, boots(lambda b: 1.0 + 0.2 * (b >= n // 2), count, f"b{count}"))[1]
        assert shape in out


def test_a_label_that_stays_has_no_change_found(boots, klat):
    status, out, _ = klat_history(klat, boots(lambda b: 1.0))
    assert status == 0 and "no change found" in out and "at boot " not in out


def test_too_few_boots_say_how_many_are_needed(boots, klat):
    status, out, _ = klat_history(klat, boots(lambda b: 1 + (b > 2), count=5))
    assert status == 3
    assert "5 boots: too few to find a change" in out and "needs 9 boots" in " ".join(out.split())
    assert "changed" not in out.split("A point is")[0]


def test_sessions_of_one_boot_are_one_point(new_session, tmp_path, klat):
    for number in range(20):
        session = new_session(f"stock/{number:02d}")
        session.run({"round_trip": [50_000 + 900 * number + i for i in range(100)]}, run=number + 1)
    status, out, _ = klat_history(klat, tmp_path / "results" / "stock")
    assert status == 3 and "1 boot: too few to find a change" in out


def test_the_same_input_and_seed_give_the_same_output(boots, klat, tmp_path):
    if not shutil.which("gnuplot"):
        pytest.skip("gnuplot is not installed")
    pytest.importorskip("jinja2")
    path = boots(lambda b: 1.04 if b >= 15 else 1.0)
    page, plots = tmp_path / "page.html", tmp_path / "plots"
    first = klat_history(klat, path, "--html", page, "-o", plots)
    text = page.read_text()
    assert klat_history(klat, path, "--html", page, "-o", plots) == first
    assert page.read_text() == text
    assert sorted(f.name for f in plots.iterdir()) == ["pipes-round_trip-history.png", "pipes-round_trip-history.svg"]  # fmt: skip
    assert "changed" in text and "at boot 16 of 24" in text and "default-src" in text
    assert "<b>Boot by boot</b>median in us; changed" in text
    assert not re.search(r"https?:|<script|url\(|@import", text)


@pytest.fixture
def coarse(new_session: NewSession) -> Callable[..., Path]:
    """Boots of a label on a counter of 1 MHz. Each has three runs of samples of one length, in us."""

    def write(*lengths: int) -> Path:
        counter = {"khz": 1_000.0, "method": "CLOCK_MONOTONIC_RAW", "quantum": 1}
        boots = [[[length] * 600] * 3 for length in lengths]
        created = lambda boot: f"2024-05-{boot + 1:02d}T12:00:00Z"
        return new_session.label("stock", boots, created=created, tsc=counter)

    return write


def test_a_change_that_rounding_alone_can_make_is_within_one_step(coarse, klat, tmp_path):
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    path = coarse(*[5] * 8, *[6] * 8)
    arguments = ("--html", page) if shutil.which("gnuplot") else ()
    status, out, _ = klat_history(klat, path, *arguments)
    assert status == 0
    assert re.search(r"^within one step +round_trip", out, re.MULTILINE)
    assert not re.search(r"^changed +[+-]", out, re.MULTILINE)
    assert "%" not in out.split("A point is")[0]
    said = " ".join(out.split())
    place = "at boot 9 of 16, 2024-05-09 12:00 (8)"
    assert f"{place}: 5,000 to 6,000 ns: rounding to the counter's step" in said
    assert "--quantile mean" in said
    if arguments:
        text = " ".join(page.read_text().split())
        assert "within one step" in text and "can cause this difference" in text
        assert ">changed" not in text


def test_changes_within_one_step_can_add_up_to_a_change(coarse, klat):
    out = klat_history(klat, coarse(*[5] * 8, *[6] * 8, *[7] * 8))[1]
    assert re.search(r"^changed +\+\d", out, re.MULTILINE)
    assert out.count("at boot ") == 2 and out.count("counter's step can cause") == 1


def test_a_change_of_two_steps_is_found_on_a_coarse_counter(coarse, klat):
    out = klat_history(klat, coarse(*[5] * 8, *[7] * 8))[1]
    assert re.search(r"^changed +\+40 %", out, re.MULTILINE)
    # 4.5 to 5.5 us became 6.5 to 7.5 us. As logs, both ends of a step are as far away as the lower.
    assert "+40 % (p 0.001); rounded to the counter's step it may be +17 % to +67.5 %" in " ".join(
        out.split()
    )


def test_a_drift_that_rounding_alone_can_make_is_within_one_step(coarse, klat):
    mixed = [5, 5, 5, 5, 5, 6, 6, 5, 6, 5, 5, 6, 6, 6, 5, 6, 6, 6, 6, 6]
    out = klat_history(klat, coarse(*mixed))[1]
    assert re.search(r"^within one step", out, re.MULTILINE) and "there is a drift" in out
    assert not re.search(r"^(changed|drifts) +[+-]", out, re.MULTILINE)


@pytest.fixture
def without_battery(new_session: NewSession) -> Callable[..., Path]:
    """Boots of a label on a board whose clock begins at 1970 in each boot. The last half is slower."""

    def write(count: int, campaigns: tuple[str, ...] = ()) -> Path:
        seconds = np.random.default_rng(1).permutation(np.arange(15, 15 + count))
        for boot in range(count):
            name = f"19700101T0000{seconds[boot]}Z-{boot}"
            created = f"1970-01-01T00:00:{seconds[boot]}Z"
            session = new_session(f"stock/{name}", boot_id=f"boot-{boot}", created=created)
            if campaigns:
                pairing = {"experiment": campaigns[boot % len(campaigns)], "pair": str(boot + 1)}
                session.write_facts({"schema": 1, "label": "stock", "pairing": pairing})
            centre = 52_000 + 26 * boot + 5_200 * (boot >= count / 2)
            session.run({"round_trip": around(centre)})
        return new_session.root / "stock"

    return write


def test_boots_without_a_date_have_no_order(without_battery, klat):
    status, out, err = klat_history(klat, without_battery(16))
    assert (status, out) == (2, "")
    assert "stock: the order of its boots is not known" in err and err.count("\n") == 1
    assert "1970-01-01T00:00:15Z" in err


def test_one_boot_needs_no_date(without_battery, klat):
    status, out, _ = klat_history(klat, without_battery(1))
    assert status == 3 and out.startswith("stock: 1 boot, no date; Linux")


def test_boots_of_a_campaign_are_in_the_order_of_their_rounds(without_battery, klat):
    status, out, _ = klat_history(klat, without_battery(16, ("c1",)))
    assert status == 0 and out.startswith("stock: 16 boots, no date; Linux")
    assert re.search(r"^changed +\+10\.\d %", out, re.MULTILINE)
    assert "at boot 9 of 16, no date " in out


def test_two_campaigns_without_dates_have_no_order(without_battery, klat):
    assert klat_history(klat, without_battery(16, ("c1", "c2")))[0] == 2
