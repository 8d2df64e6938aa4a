from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from written_sessions import PIPES, SOAK, SyntheticSession, answer, stepped

from klat.compare.dataset import read_datasets
from klat.compare.settings import Setting

FLUSH = "responders={};pages=1;operation=munmap"


def fill(writer: SyntheticSession, runs: int = 4) -> SyntheticSession:
    for run in range(1, runs + 1):
        writer.run({"round_trip": stepped(52_000 + 26 * run)}, run=run)
    return writer


def figures(out: str, metric: str, unit: str) -> list[str]:
    """The figures behind a metric and a unit in the text."""
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == [metric])
    line = next(line for line in lines[at : at + 2] if unit in line.split())
    return line.split()[line.split().index(unit) + 1 :]


def test_the_table_holds_the_published_and_the_robust_figures(writer, klat):
    fill(writer)
    status, out, err = klat("summary", writer.path)
    pool = sorted(x for run in range(1, 5) for x in stepped(52_000 + 26 * run))
    means = [sum(stepped(52_000 + 26 * run)) / 630 for run in range(1, 5)]
    expected = [np.mean(means), np.std(means, ddof=1), pool[1259], pool[2494], pool[-1]]
    assert (status, err) == (0, "")
    assert figures(out, "round_trip", "ticks") == [f"{round(x):,}" for x in expected]
    assert "4 runs of 630 samples, all ok" in out
    assert "floor 26 ticks (10 ns)" in out


def test_a_session_that_was_killed_says_how_many_of_its_runs_it_has(writer, klat):
    for run in range(1, 5):
        writer.run({"round_trip": stepped(52_000 + 26 * run)}, run=run, order=run)
    plan = ["order,benchmark,run,arguments", *(f'{i},pipes,{i},""' for i in range(1, 11))]
    (writer.path / "plan.csv").write_text("\n".join(plan) + "\n")
    assert "1 session in 1 boot; 4 of 10 planned runs recorded" in klat("summary", writer.path)[1]
    (writer.path / "plan.csv").write_text("\n".join(plan[:5]) + "\n")
    assert "planned" not in klat("summary", writer.path)[1]
    (writer.path / "plan.csv").write_text("no plan\n")
    assert klat("summary", writer.path)[0] == 0


def test_nanoseconds_have_no_digit_below_the_granularity(writer, klat):
    for _ in range(2):
        writer.run({"round_trip": stepped(52_016)})  # 20,006.2 ns, and the counter steps by 10
    _, out, _ = klat("summary", writer.path)
    average, _, median, p99, maximum = figures(out, "round_trip", "ns")
    assert (median, p99, maximum) == ("20,010", "20,110", "20,110")
    assert average == "20,006", "an average of many samples resolves more"


@pytest.mark.parametrize(("mode", "unit"), [("emulated", "ticks"), ("counted", "instructions")])
def test_no_time_is_shown_where_it_means_nothing(new_session, klat, mode, unit):
    writer = fill(new_session(mode=mode, unit=unit))
    _, out, _ = klat("summary", writer.path)
    assert figures(out, "round_trip", unit)
    assert not re.search(r"\bns\b", out)
    _, out, _ = klat("summary", writer.path, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["median"] and row["median_ns"] == "" and row["unit"] == unit


def test_the_text_fits_80_columns(new_session, klat):
    writer = new_session(cpu_model="A very long name of a processor " * 4)
    for run in range(3):
        writer.run({"send_to_read": stepped(10**7) + [10**9], "wakeup": [21] * 99}, run=run)
        writer.run(status="error", reason="a reason of many words, " * 9)
    for count in (0, 1, 64):
        for run in range(3):
            writer.run(
                {"initiator": stepped(15_000 + 10**6 * count)},
                benchmark="tlbflush",
                params=FLUSH.format(count),
            )
    _, out, _ = klat("summary", writer.path)
    assert max(map(len, out.splitlines())) <= 80


def test_disturbed_runs_count_and_invalid_ones_do_not(writer, klat):
    writer.run({"round_trip": stepped(1_000)})
    writer.run({"round_trip": stepped(3_000)}, status="disturbed", reason="30 ms stolen")
    writer.run({"round_trip": stepped(900_000)}, status="invalid", reason="reader moved")
    writer.run(status="error", reason="refused: denied; run as root")
    writer.run(status="skipped", reason="needs 2 CPUs")
    _, out, _ = klat("summary", writer.path)
    average, _, _, _, maximum = figures(out, "round_trip", "ticks")
    expected = (sum(stepped(1_000)) + sum(stepped(3_000))) / 1260
    assert average == f"{round(expected):,}"
    assert maximum == "3,260"
    for text in (
        "1 ok, 1 disturbed, 1 invalid, 1 error, 1 skipped",
        "1 disturbed: 30 ms stolen",
        "1 invalid: reader moved",
        "1 error: refused: denied; run as root",
        "1 skipped: needs 2 CPUs",
    ):
        assert text in out


def test_reasons_that_differ_in_numbers_are_counted_together():
    setting = Setting("pipes", {}, "same-llc")
    setting.reasons = [
        ("disturbed", "9 ms stolen on CPU 1"),
        ("disturbed", "100 ms stolen on CPU 1"),
        ("disturbed", "throttled"),
        ("invalid", "9 ms stolen on CPU 1"),
    ]
    assert setting.grouped_reasons() == [
        ("disturbed", "9 to 100 ms stolen on CPU 1", 2),
        ("disturbed", "throttled", 1),
        ("invalid", "9 ms stolen on CPU 1", 1),
    ]


def test_failures_before_placement_are_counted_with_the_runs_of_their_params(writer):
    fill(writer)
    writer.run(status="error", reason="no", placement="")
    (label,), _ = read_datasets([writer.path])
    (setting,) = label.settings
    assert dict(setting.statuses) == {"ok": 4, "error": 1}


def test_policies_are_never_pooled(writer):
    fill(writer)
    writer.run({"round_trip": stepped(9_000)}, policy="writer=other:0;reader=other:0")
    writer.run({"round_trip": stepped(9_000)}, policy="writer=fifo:19;reader=fifo:50")
    (label,), _ = read_datasets([writer.path])
    runs = {s.params["policy"]: s.usable_runs for s in label.settings}
    assert runs == {"fifo:50": 4, "fifo:50/fifo:19": 1, "other:0": 1}


def test_a_run_that_lost_its_policy_is_counted_with_those_that_kept_it(writer):
    fill(writer)
    lost = "writer=other:0;reader=fifo:50"
    writer.run({"round_trip": stepped(9_000)}, status="invalid", reason="no", policy=lost)
    writer.run(status="error", reason="no", placement="", policy="")
    (label,), _ = read_datasets([writer.path])
    assert [s.statuses.total() for s in label.settings] == [6]


def test_sessions_of_a_label_are_pooled_and_their_boots_counted(new_session, klat, tmp_path):
    fill(new_session("stock/1"))
    fill(new_session("stock/2", boot_id="another"))
    _, out, _ = klat("summary", tmp_path / "results" / "stock")
    assert "2 sessions in 2 boots" in out
    assert "8 runs of 630 samples" in out


def test_one_run_of_few_samples_has_no_p99(writer, klat):
    writer.run({"round_trip": stepped(5_200, n=60)})
    status, out, _ = klat("summary", writer.path)
    _, stdev, median, p99, maximum = figures(out, "round_trip", "ticks")
    assert (status, stdev, p99) == (0, "n/a", "n/a")
    assert median != "n/a" and maximum == "5,460"
    assert "1 run of 60 samples, ok" in out


def test_only_invalid_runs_give_counts_and_no_figures(writer, klat):
    for _ in range(3):
        writer.run({"round_trip": stepped(5_000)}, status="invalid", reason="reader moved")
    status, out, _ = klat("summary", writer.path)
    assert status == 0
    assert "3 runs of 630 samples, all invalid" in out
    assert "no run counts" in out
    assert "round_trip" not in out


def test_a_sweep_prints_its_shootdown_table_and_slope(writer, klat):
    for count in (0, 1, 3):
        for run in range(5):
            metrics = {"initiator": stepped(15_600 + 26_000 * count + 26 * run)}
            if count:
                metrics["interruption"] = stepped(4_000) * count
            place = "one-cpu" if count == 0 else "same-llc"
            writer.run(metrics, benchmark="tlbflush", params=FLUSH.format(count), placement=place)
    _, out, _ = klat("summary", writer.path)
    table = out[out.index("shootdown by responders: initiator") :]
    rows = [line.split() for line in table.splitlines()]
    assert ["1", "5", "41,652", "26,000", "16,020", "10,000"] in rows
    assert ["3", "5", "93,652", "78,000", "36,020", "30,000"] in rows
    assert "slope 26,000 ticks per responder, 95 % interval" in table
    assert "shootdown by responders: interruption" not in out
    (sweep,) = answer(klat, "summary", writer.path)["labels"][0]["shootdowns"]
    low, high = sweep["slope_interval"]
    assert sweep["slope"] == pytest.approx(26_000)
    assert 25_950 < low < 26_000 < high < 26_050


@pytest.mark.parametrize("boots", [1, 3])
def test_a_slope_is_no_more_exact_than_the_steps_of_the_counter(new_session, klat, boots):
    for boot in range(boots):
        writer = new_session(f"stock/{boot}", boot_id=f"boot-{boot}")
        for count in (0, 1):
            metrics = {"initiator": stepped(15_600 + 26 * count)}
            for _ in range(5):
                writer.run(metrics, benchmark="tlbflush", params=FLUSH.format(count))
    (sweep,) = answer(klat, "summary", writer.path.parent)["labels"][0]["shootdowns"]
    assert sweep["slope"] == pytest.approx(26)
    assert sweep["slope_interval"] == pytest.approx([0, 52], abs=1e-6)


def test_the_slope_of_several_boots_has_the_interval_of_their_slopes(new_session, klat):
    for boot, slope in enumerate((20_000, 26_000, 32_000)):
        writer = new_session(f"stock/{boot}", boot_id=f"boot-{boot}")
        for count in (0, 1, 2):
            for run in range(20):
                ticks = stepped(15_600 + slope * count + 26 * run)
                params = FLUSH.format(count)
                writer.run({"initiator": ticks}, benchmark="tlbflush", params=params)
    (sweep,) = answer(klat, "summary", writer.path.parent)["labels"][0]["shootdowns"]
    reach = 4.3027 * 6_000 / 3**0.5  # Student's t with 2 degrees of freedom
    assert sweep["slope"] == pytest.approx(26_000)
    assert sweep["slope_interval"] == pytest.approx([26_000 - reach, 26_000 + reach], rel=1e-4)


def test_a_sweep_on_two_choices_of_cpus_is_two(writer, klat):
    for count in (0, 1, 2):
        for place, cost in (("same-llc", 26_000), ("same-core", 52_000)):
            writer.run(
                {"initiator": stepped(15_600 + cost * count)},
                benchmark="tlbflush",
                params=FLUSH.format(count),
                placement=place if count else "one-cpu",
                cpus="initiator=1",
            )
    found = answer(klat, "summary", writer.path)["labels"][0]["shootdowns"]
    assert [sweep["slope"] for sweep in found] == pytest.approx([52_000, 26_000])
    assert [sweep["points"][0]["runs"] for sweep in found] == [2, 2]


def test_a_sweep_stays_one_where_its_cpus_follow_from_the_responders(writer, klat):
    for count in (1, 2, 3):
        metrics = {"initiator": stepped(15_600 * count), "interruption": stepped(4_000)}
        params = f"{FLUSH.format(count)};cpus={','.join(map(str, range(count + 1)))}"
        for _ in range(3):
            writer.run(metrics, benchmark="tlbflush", params=params)
    _, out, _ = klat("summary", writer.path)
    assert out.count("shootdown by responders: initiator") == 1
    assert "shootdown by responders: interruption" not in out
    assert "slope 15,600 ticks" in out


@pytest.mark.parametrize(
    ("counts", "status", "said"),
    [
        ((1, 2), "ok", "T(0) was not measured"),
        ((0, 1), "ok", "no interval: it needs at least two runs"),
        ((0, 1), "invalid", "needs at least two counts"),
    ],
)
def test_a_sweep_names_what_it_lacks(writer, klat, counts, status, said):
    for count, of in zip(counts, ("ok", status)):
        run = {"initiator": stepped(15_600 + count)}
        writer.run(run, benchmark="tlbflush", params=FLUSH.format(count), status=of)
    assert said in klat("summary", writer.path)[1]


def test_csv_and_json_agree_with_each_other(new_session, klat):
    writer = fill(new_session(), runs=8)
    writer.run({"round_trip": stepped(900)}, status="invalid", reason="a, b")
    _, out, _ = klat("summary", writer.path, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    document = answer(klat, "summary", writer.path)
    (setting,) = document["labels"][0]["settings"]
    (metric,) = setting["metrics"]
    for name in ("average", "stdev", "median", "p99", "p999", "max", "median_low", "max_ns"):
        assert row[name] == ("" if metric[name] is None else str(metric[name])), name
    assert row["invalid"] == "1" and setting["runs"]["invalid"] == 1
    assert setting["reasons"] == [{"status": "invalid", "reason": "a, b", "count": 1}]


def test_the_average_is_not_of_means_that_were_rounded_down(new_session, klat):
    writer = new_session()
    for run in (1, 2):
        writer.run({"round_trip": [1000, 1000, 1026]}, run=run)
    _, out, _ = klat("summary", writer.path, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["average"] == "1008.667"  # the recorded means are 1008.666


def test_the_medians_interval_is_given_within_one_boot_only(new_session, klat):
    def boot(name: str, **info: str) -> Path:
        writer = new_session(f"stock/{name}", label="stock", **info)
        for run in range(1, 13):
            writer.run({"round_trip": stepped(52_000 + 26 * (run * 5 % 12))}, run=run)
        return writer.path.parent

    def interval() -> str:
        _, out, _ = klat("summary", label, "--format", "csv")
        (row,) = csv.DictReader(io.StringIO(out))
        return row["median_low"]

    label = boot("1")
    assert interval()
    boot("2", boot_id="99999999-2222-3333-4444-555555555555")
    assert interval() == ""


def test_verify_names_a_row_that_its_samples_refute(writer, klat):
    fill(writer)
    status, _, err = klat("summary", writer.path, "--verify")
    assert status == 0 and "verified 4 rows" in err
    with writer.samples_file("pipes").open("r+b") as file:
        file.seek(8 * 700)
        file.write((10**6).to_bytes(8, "little"))
    status, _, err = klat("summary", writer.path, "--verify")
    assert status == 1
    assert "line 3 (pipes round_trip): mean is" in err and "line 2" not in err


def test_verify_fails_for_edited_rows(writer, klat):
    fill(writer)
    writer.runs_csv.write_text(writer.runs_csv.read_text().replace("same-llc", "one-cpu", 1))
    status, _, err = klat("summary", writer.path, "--verify")
    assert status == 1 and "1 damaged row" in err


def test_a_cut_samples_file_does_not_hide_other_benchmarks(writer, klat):
    fill(writer)
    writer.run({"handoff": stepped(8_000)}, benchmark="cv", params="")
    writer.samples_file("pipes").write_bytes(b"\x00" * 80)
    status, out, err = klat("summary", writer.path)
    assert status == 2
    assert "not verified: the samples of 4 rows" in err and "pipes.u64: holds 10 samples" in err
    assert figures(out, "round_trip", "ticks") == ["n/a"] * 5
    assert figures(out, "handoff", "ticks")[2] == "8,000"


def test_ignored_rows_are_named_on_stderr(writer, klat):
    fill(writer)
    with writer.runs_csv.open("ab") as out_file:
        out_file.write(b"\x00\xffnan,torn")
    status, out, err = klat("summary", writer.path)
    assert status == 0
    assert "torn last line" in err and "\x00" not in err
    assert "4 runs of 630 samples, all ok" in out


@pytest.mark.parametrize("label", ["", "a b", "x'\"$`\\", "%s%n", "\x1b[31m\n", "ø漢\udcff"])
def test_odd_labels_are_printed_harmlessly(new_session, klat, label):
    writer = fill(new_session(label=label))
    for form in ("text", "csv", "json"):
        status, out, _ = klat("summary", writer.path, "--format", form)
        assert status == 0
        assert "\x1b" not in out
        out.encode("utf-8")


def test_markdown_and_the_page_have_each_figure_of_the_text(writer, klat, tmp_path):
    pytest.importorskip("jinja2")
    fill(writer)
    writer.run(status="skipped", reason="needs 2|3 CPUs")
    page = tmp_path / "page.html"
    text = klat("summary", writer.path, "--html", page)[1]
    cells = re.findall(r"<span>(.*)</span>", page.read_text())
    assert cells[:6] == ["ticks", *figures(text, "round_trip", "ticks")]
    assert "1 skipped: needs 2|3 CPUs</p>" in page.read_text()
    lines = klat("summary", writer.path, "--format", "markdown")[1].splitlines()
    assert f"| round\\_trip | ticks | {' | '.join(figures(text, 'round_trip', 'ticks'))} |" in lines
    assert "- 1 skipped: needs 2\\|3 CPUs" in lines


# In steps of 26 ticks, which are 10 ns.
HELD = [26 * (1000 + i) for i in range(50_000)]


def test_tail_has_the_value_that_one_sample_in_10_100_and_so_on_exceeds(writer, klat):
    writer.run({"m": HELD[:25_000]}, run=1)
    writer.run({"m": HELD[25_000:]}, run=2)
    status, out, _ = klat("summary", "--tail", writer.path)
    lines = out.splitlines()
    (place,) = (i for i, line in enumerate(lines) if line.lstrip().startswith("tail ["))
    assert status == 0
    assert lines[place].split() == ["tail", "[ns]", "1/10", "1/100", "1/1,000", "1/10^4", "max"]
    assert lines[place + 2].split() == ["m", "459,990", "504,990", "509,490", "509,940", "509,990"]


def test_without_tail_only_a_soak_shows_its_tail(new_session, klat):
    for name, params in (("a", PIPES), ("b", SOAK)):
        session = new_session(f"{name}/1", label=name)
        session.run({"m": HELD}, params=params)
        assert ("tail [ns]" in klat("summary", session.path)[1]) == (params == SOAK)


def test_a_metric_with_fewer_samples_has_fewer_figures(writer, klat):
    writer.run({"many": HELD}, run=1)
    writer.run({"few": HELD[:500]}, run=2, benchmark="cv")
    writer.run({"none": HELD[:9]}, run=3, benchmark="timer")
    out = klat("summary", "--tail", writer.path)[1]
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert len(rows["many"]) == 5
    assert rows["few"] == ["14,490", "14,940", "14,990"]
    assert rows["none"] == ["10,080"]


def test_a_tail_that_is_too_wide_is_several_tables(writer, klat):
    long = "a_metric_with_a_name_of_thirty"
    writer.run({long: [2**52 + i for i in HELD]}, run=1)
    out = klat("summary", "--tail", writer.path)[1]
    headers = [line.split()[2:] for line in out.splitlines() if line.strip().startswith("tail [")]
    assert len(headers) > 1 and sum(headers, [])[-2:] == ["1/10^4", "max"]
    assert max(len(line) for line in out[out.index("tail [") :].splitlines()) <= 80


def test_the_tail_for_programs_has_shares_and_samples(writer, klat):
    writer.run({"m": HELD[:500]})
    document = answer(klat, "summary", writer.path)
    metric = document["labels"][0]["settings"][0]["metrics"][0]
    assert metric["tail"] == [[0.1, HELD[449]], [0.01, HELD[494]]]
