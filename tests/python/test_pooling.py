"""No command pools sessions that compare refuses within one side. All pool the others."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from written_sessions import CPU, Klat, NewSession, SyntheticSession, answer, words

from klat.compare.dataset import read_datasets
from klat.record.session import read_session
from klat.record.evidence import state_of


def samples(median: int, n: int = 100) -> list[int]:
    return [median + 26 * (i % 21 - 10) for i in range(n)]


@pytest.fixture
def boot(new_session: NewSession) -> Callable[..., SyntheticSession]:
    """`boot(3, {file: text}, {run.json}, key=…)`: the third boot of label stock, with two runs."""

    def write(
        number: int,
        files: dict[str, str] | None = None,
        facts: dict[str, Any] | None = None,
        row: dict[str, Any] | None = None,
        label: str = "stock",
        **info: Any,
    ) -> SyntheticSession:
        names = {"boot_id": f"{label}-{number}", "created": f"2024-05-{number:02d}T12:00:00Z"}
        files = {f"{CPU}/online": "0-1\n", **(files or {})}
        names |= {"label": label, **info}
        session = new_session(f"{label}/{number}", environment=files, facts=facts, **names)
        for run in (1, 2):
            session.run({"round_trip": samples(52_000 + 26 * run)}, run=run, order=run, **row or {})
        return session

    return write


Boot = Callable[..., SyntheticSession]


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    return tmp_path / "results/stock"


ALIKE: list[dict[str, Any]] = [
    {},
    {"facts": {"load": None}},
    {"files": {"proc/version": "another file\n"}},
]
# Refused by compare within a side.
REFUSED: list[dict[str, Any]] = [
    {"facts": {"load": "populate"}},
    {"facts": {"prefix": "setarch -R"}},
    {"facts": {"setup": "true"}},
    {"files": {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n"}},
    {"files": {f"{CPU}/smt/control": "off\n"}},
    {"kernel_release": "6.2.0-test"},
    {"kernel_version": "#2 SMP"},
    {"preemption": "full"},
    {"mode": "hardware"},
    {"cpus_online": 4},
    {"programs": {"pipes": "11" * 32}},
    {"row": {"cpus": "writer=0;reader=1"}},
    {"row": {"policy": "writer=fifo:50;reader=fifo:49"}},
]
# Another measurement, or another machine, which compare judges by itself.
OTHER: list[dict[str, Any]] = [
    {"machine_id": "another"},
    {"row": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;iterations=9"}},
    {"row": {"placement": "one-cpu"}},
]


def runs_of_figures(stock: Path) -> list[int]:
    labels, _ = read_datasets([stock])
    return sorted(len(m.runs) for x in labels for s in x.settings for m in s.measurements.values())


@pytest.mark.parametrize("second", ALIKE)
def test_sessions_that_compare_combines_are_one_figure(boot, stock, second):
    boot(1), boot(2, **second)
    assert runs_of_figures(stock) == [4]


@pytest.mark.parametrize("second", REFUSED + OTHER)
def test_sessions_that_compare_does_not_combine_are_separate_figures(boot, stock, klat, second):
    boots = boot(1), boot(2, **second)
    assert runs_of_figures(stock) == [2, 2]
    if second in REFUSED:
        other = boot(1, label="other"), boot(2, label="other")
        assert klat("compare", *(each[0].path.parent for each in (boots, other)))[0] == 4


def test_pools_are_of_all_their_boots_and_not_of_neighbours_only(boot, stock):
    """Sessions that alternate between two conditions are two pools."""
    for number in range(1, 7):
        boot(number, facts={"load": "populate"} if number % 2 else None)
    labels, _ = read_datasets([stock])
    assert [label.boots for label in labels] == [3, 3]


def test_the_summary_separates_the_pools_of_a_label(boot, stock, klat):
    boot(1, facts={"load": "populate"})
    boot(2)
    status, out, _ = klat("summary", stock)
    assert status == 0
    assert "apart     load: populate; other sessions of the label differ in this" in out
    assert "apart     load: none;" in out
    assert out.count("2 runs of 100 samples, all ok") == 2
    out = klat("summary", "--format", "csv", stock)[1]
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["conditions"] for row in rows] == ["load: populate", "load: none"]
    held = answer(klat, "summary", stock)["labels"]
    assert [label["conditions"] for label in held] == [{"load": "populate"}, {"load": "none"}]


def test_the_summary_names_the_load_of_a_label_that_has_one(boot, stock, klat):
    boot(1, facts={"load": "populate"})
    out = klat("summary", stock)[1]
    assert "under     load: populate" in out and "apart" not in out


def test_settings_on_different_cpus_name_them(boot, stock, klat):
    boot(1), boot(2, row={"cpus": "writer=0;reader=1"})
    out = klat("summary", stock)[1]
    assert "cpus=writer=1/reader=0" in out and "cpus=writer=0/reader=1" in out


def test_no_export_gives_two_pools_one_name(boot, stock, tmp_path, klat):
    boot(1, facts={"load": "populate"}), boot(2)
    status, out, err = klat("export", "--format", "gobench", stock)
    assert status == 0
    assert len({line.split()[0] for line in out.splitlines() if line[:9] == "Benchmark"}) == 2
    assert "its sessions are of 2 kinds" in err
    assert klat("export", "--format", "hgrm", stock, "-o", f"{tmp_path}/hgrm/")[0] == 0
    assert len({file.name for file in (tmp_path / "hgrm").iterdir()}) == 2
    status, out, _ = klat("export", "--format", "openmetrics", stock)
    assert status == 0
    for name in ("klat_boots{", "klat_label_info{"):
        lines = [line for line in out.splitlines() if line.startswith(name)]
        assert len(lines) == len(set(lines)) == 2
    status, _, err = klat("export", "--format", "pyperf", stock)
    assert status == 2
    assert "stock (load: populate) on Linux" in err


def woken(interrupts: int) -> str:
    return f"slept=100;wakeups=100;wake_interrupts={interrupts}"


@pytest.mark.parametrize(
    ("interrupts", "state"),
    [(0, "polling"), (10, "polling"), (11, "mixed"), (89, "mixed"), (90, "interrupt")],
)
def test_the_state_of_a_run_is_as_the_record_defines_it(boot, interrupts, state):
    session = boot(1, row={"evidence": woken(interrupts)})
    assert {state_of(row) for row in read_session(session.path).rows} == {f"woken={state}"}


def test_runs_woken_in_another_way_have_a_line_of_their_own(boot, stock, klat):
    session = boot(1, row={"evidence": woken(102)})
    session.run({"round_trip": samples(9_000)}, run=3, evidence=woken(0))
    session.run({"round_trip": samples(9_000)}, run=4, status="invalid", evidence="slept=9")
    lines = klat("summary", stock)[1].splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert re.search(r"woken=interrupt,.*\n  3 runs of 100 samples: 2 ok, 1 invalid", text)
    assert re.search(r"woken=polling,.*\n  1 run of 100 samples, ok", text)


def test_a_stray_run_of_another_state_does_not_rename_the_others(boot, stock):
    """Figures lay the same setting of several labels over each other, by its params."""
    session = boot(1, row={"evidence": woken(100)})
    for run in range(3, 20):
        session.run({"round_trip": samples(50_000)}, run=run, evidence=woken(100))
    session.run({"round_trip": samples(9_000)}, run=20, evidence=woken(0))
    (label,), _ = read_datasets([stock])
    assert [setting.params.get("woken") for setting in label.settings] == [None, "polling"]


def test_boots_are_those_in_which_the_metric_was_measured(boot, stock, klat):
    for number in (1, 2, 3, 4):
        session = boot(number)
        if number < 3:
            session.run({"handoff": samples(9_000)}, benchmark="cv", params="a=b")
    assert "2 boots: stock cv" in klat("export", "--format", "hgrm", "--benchmark", "cv", stock)[1]
    out = klat("export", "--format", "openmetrics", stock)[1]
    boots = re.findall(r'^klat_boots\{.*metric="(\w+)".*\} (\d+)', out, re.MULTILINE)
    assert boots == [("round_trip", "4"), ("handoff", "2")]
    rows = csv.DictReader(io.StringIO(klat("summary", "--format", "csv", stock)[1]))
    assert {row["metric"]: row["boots"] for row in rows} == {"round_trip": "4", "handoff": "2"}
    out = klat("summary", stock)[1]
    assert "2 runs of 100 samples, all ok, in 2 of 4 boots" in out and out.count(" of 4 boots") == 1


def lab_facts(number: int, created: str, experiment: str = "e1") -> dict[str, Any]:
    return {
        "created": created,
        "lab": {"experiment": {"identity": experiment}, "boot": number, "round": number},
    }


def test_boots_of_an_experiment_are_in_the_order_of_their_numbers(new_session, stock):
    """Every guest's clock is set to the same second, and the host may store boots out of order."""
    for directory, number, stored in (("c", 1, "30"), ("a", 2, "10"), ("b", 10, "20")):
        facts = lab_facts(number, f"2026-05-01T12:00:{stored}Z")
        session = new_session(
            f"stock/{directory}",
            facts=facts,
            boot_id=f"boot-{number}",
            created="2026-01-01T00:00:00Z",
        )
        for run in (1, 2, 3):
            session.run({"round_trip": samples(5_000)}, run=run)
    facts = lab_facts(7, "2026-05-01T11:00:00Z", "e0")
    earlier = new_session("stock/z", facts=facts, boot_id="earlier", created="2026-01-01T00:00:00Z")
    earlier.run({"round_trip": samples(5_000)}, run=1)
    (label,), _ = read_datasets([stock])
    (setting,) = label.settings
    boots = [run.row.boot for run in setting.measurements["round_trip"].sampled]
    assert boots == ["earlier", *["boot-1"] * 3, *["boot-2"] * 3, *["boot-10"] * 3]


def labels_woken(
    boot: Boot, base: Sequence[int], new: Sequence[int], ratio: float = 1.0
) -> tuple[str, str]:
    """Five boots of each label with a run for each of these numbers of interrupts per 100 wakeups;
    runs with none take a fifth of the time."""
    paths = []
    for label, interrupts, factor in (("stock", base, 1.0), ("rt", new, ratio)):
        for number in range(1, 6):
            session = boot(number, label=label, row={"evidence": woken(interrupts[0])})
            session.runs_csv.write_text(session.runs_csv.read_text().splitlines()[0] + "\n")
            for run, count in enumerate(interrupts, start=1):
                middle = factor * (50_000 + 30 * run + 70 * number) / (1 if count > 50 else 5)
                values = {"round_trip": samples(round(middle))}
                session.run(values, run=run, order=run, evidence=woken(count))
        paths.append(str(session.path.parent))
    return paths[0], paths[1]


def compared(klat: Klat, *paths: str) -> dict[str, Any]:
    (against,) = answer(klat, "compare", *paths)["against"]
    found: dict[str, Any] = against
    return found


def ways(against: dict[str, Any]) -> list[str]:
    return sorted(cell["params"].rpartition("woken=")[2] for cell in against["cells"])


def ratios(against: dict[str, Any]) -> list[float]:
    return [cell["results"][0]["judgement"]["ratio"] for cell in against["cells"]]


def test_states_of_both_sides_are_compared_each_with_its_own(boot, klat):
    paths = labels_woken(boot, [100, 100, 0, 0], [100, 100, 0, 0], 1.1)
    against = compared(klat, *paths)
    assert ratios(against) == pytest.approx([1.1, 1.1], abs=0.02)
    said = "by interrupt in 10, by polling in 10 of 20 runs in BASE, and by interrupt in 10,"
    assert said in " ".join(against["cautions"])
    assert ways(against) == ["interrupt", "polling"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_kernel_that_wakes_in_the_slow_way_more_often_is_slower(boot, klat, swapped):
    """Each way takes as long as before, so only all runs together show it."""
    paths = labels_woken(boot, [100, 0, 0, 0], [100, 100, 100, 0])
    paths = paths[::-1] if swapped else paths
    against = compared(klat, *paths)
    slower = 5 ** (-0.5 if swapped else 0.5)
    assert ways(against) == ["any", "interrupt", "polling"]
    assert ratios(against) == pytest.approx([1.0, 1.0, slower], rel=0.02)
    assert klat("compare", *paths)[0] == (0 if swapped else 1)


def test_a_mix_that_differs_by_chance_is_not_compared(boot, klat):
    """In one boot of NEW all sleepers polled; the other boots of both sides are alike."""
    base, new = labels_woken(boot, [100, 100, 0], [100, 100, 0])
    session = boot(6, label="rt", row={"evidence": woken(0)})
    for run in range(2, 4):
        session.run({"round_trip": samples(10_000)}, run=run, order=run, evidence=woken(0))
    against = compared(klat, base, new)
    assert ways(against) == ["interrupt", "polling"]
    assert "do not differ beyond chance" in " ".join(against["cautions"])


def test_a_few_runs_of_another_state_are_left_out_and_counted(boot, klat):
    paths = labels_woken(boot, [100] * 19 + [0], [100] * 20, 1.1)
    against = compared(klat, *paths)
    assert ratios(against) == pytest.approx([1.1], abs=0.01)
    assert "5 of 100 runs of BASE left out: sleepers were woken by polling" in " ".join(
        against["cautions"]
    )
    assert "woken" not in against["cells"][0]["params"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_state_that_one_side_alone_is_often_in_stays_open(boot, klat, swapped):
    """Else NEW could be five times slower in some of its boots and called the same."""
    paths = labels_woken(boot, [0, 0], [0, 0])
    session = boot(6, label="rt", row={"evidence": woken(100)})
    session.run({"round_trip": samples(50_000)}, run=2, order=2, evidence=woken(100))
    status, out, _ = klat("compare", *(paths[::-1] if swapped else paths))
    out = words(out)
    assert status == 3
    assert "same" in out and "woken=interrupt" in out
    assert f"sleepers were woken by interrupt in {'BASE' if swapped else 'NEW'} alone" in out


def test_sides_without_a_common_state_are_compared_with_a_note(boot, klat):
    """A kernel that polls while idle is faster because of it, and compare includes that gain."""
    against = compared(klat, *labels_woken(boot, [100, 100], [0, 0]))
    assert ratios(against) == pytest.approx([0.2], abs=0.01)
    said = "woken by interrupt in BASE and by polling in NEW"
    assert any(said in caution for caution in against["cautions"])


def test_a_block_with_another_state_in_a_turn_is_left_out(new_session, klat):
    """Of a block without one of its turns a drift does not cancel."""
    sides = {}
    for name in ("a", "b"):
        session = new_session(f"{name}/1", label=name)
        order = 0
        for block in range(8):
            for turn in range(2):
                for run in range(4):
                    order += 1
                    strays = name == "a" and block == 3 and turn == 0
                    value = 10_000 if strays else 50_000 + 30 * block + 26 * run
                    counts = woken(0 if strays else 100)
                    session.run({"round_trip": samples(value)}, order=order, run=order, evidence=counts)  # fmt: skip
        spans = [[8 * b + 1, 8 * b + 8, str(b)] for b in range(8)]
        turns = [[4 * t + 1, 4 * t + 4, t] for t in range(16)]
        facts = {"pairing": {"experiment": "e", "pairs": spans}, "turns": turns}
        session.write_facts(facts)
        sides[name] = str(session.path)
    against = compared(klat, sides["a"], sides["b"])
    assert ratios(against) == pytest.approx([1.0], abs=0.001)
    text = " ".join(against["cautions"])
    assert "8 of 64 runs of BASE left out: in another turn of their block" in text


def test_a_history_has_a_series_for_each_pool_whatever_the_kernel(boot, stock, klat):
    for number in range(1, 13):
        facts = {"load": "populate"} if number % 2 else None
        boot(number, facts=facts, kernel_release=f"6.{number}.0", kernel_version=f"#{number}")
    out = klat("history", stock)[1]
    assert "12 boots: too few to find a change. For 2 series" in out
    assert "load: populate" in out and "load: none" in out


def test_a_history_has_a_series_for_each_build_and_state(boot, stock, klat):
    for number in range(1, 5):
        boot(number, programs={"pipes": f"{number % 2}" * 64}, row={"evidence": woken(100)})
    boot(5, programs={"pipes": "0" * 64}, row={"evidence": woken(0)})
    out = klat("history", stock)[1]
    for said in ("program: 111111111111", "program: 000000000000", "woken: polling"):
        assert said in out
    assert "5 boots: too few to find a change. For 3 series" in out


def test_a_plan_is_not_made_from_boots_that_compare_would_not_pool(boot, stock, klat):
    for number in range(1, 5):
        boot(number, facts={"load": "populate"} if number == 4 else None)
    status, out, err = klat("plan", stock)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "2 kinds that compare does not pool (load: none | load: populate)" in err


def test_a_plan_counts_boots_by_metric_and_leaves_out_other_states(boot, stock, klat):
    for number in range(1, 5):
        session = boot(number, row={"evidence": woken(100)})
        if number < 3:
            for run in (1, 2):
                values = {"handoff": samples(9_000 + 26 * run)}
                session.run(values, run=run, benchmark="cv", params="a=b")
    session.run({"round_trip": samples(9_000)}, run=3, evidence=woken(0))
    out = words(klat("plan", stock)[1])
    assert "pilot stock: 2 to 4 boots, by metric;" in out
    assert "left out: 1 of 9 runs of pipes, which are of another kind (woken: polling)" in out


def test_a_history_over_kernels_that_bring_files_of_their_own_is_one_series(boot, stock, klat):
    """What one kernel has and another lacks is what a history is about."""
    polls = {"sys/module/haltpoll/parameters/guest_halt_poll_ns": "200000\n"}
    old = {f"{CPU}/cpuidle/current_governor_ro": "menu\n"}
    for number in range(1, 9):
        new = number % 4 > 1
        boot(number, files=polls if new else old, kernel_release=f"6.{12 if new else 1}.0")
    assert "8 boots: too few to find a change. For 1 series" in klat("history", stock)[1]
