"""`klat compare`, on sessions written from docs/record.md alone."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_sessions import SessionWriter, SyntheticSession

from klat.cli import main

RT = {"kernel_release": "6.1.0-rt", "preemption": "rt"}


def samples(median: float, n: int = 600) -> list[int]:
    """Around the median on both sides, one sample of a hundred four times as long."""
    body = [max(0, round(median) + 7 * ((i * 8) % 21 - 10)) for i in range(n)]
    return [4 * x if i % 100 == 99 else x for i, x in enumerate(body)]


class Lab:
    """Makes the boots of a label."""

    def __init__(self, writer: SessionWriter, root: Path) -> None:
        self._writer = writer
        self.root = root / "results"

    def __call__(
        self,
        label: str,
        ratio: float = 1.0,
        boots: int = 5,
        runs: int = 4,
        seed: int | None = None,
        noise: float = 0.002,
        environment: dict[str, str] | None = None,
        facts: dict[str, Any] | None = None,
        run: dict[str, Any] | None = None,
        prefix: str = "",
        begun: Sequence[int] = (),
        **info: Any,
    ) -> Path:
        draw = np.random.default_rng(sum(map(ord, label)) if seed is None else seed)
        for boot in range(boots):
            boot_id = info.get("boot_id") or f"{prefix or label}-boot-{boot}"
            session = self._writer(
                f"{label}/{boot}", **{"label": label, **info, "boot_id": boot_id}
            )
            session.start_ns += begun[boot] if begun else 0
            self.environment(session, environment or {})
            if facts:
                (session.path / "run.json").write_text(json.dumps(facts))
            shift = draw.normal(0, noise)
            for number in range(1, runs + 1):
                centre = 52_000 * ratio * np.exp(shift + draw.normal(0, noise))
                session.run(
                    {"round_trip": samples(centre)}, run=number, order=number, **(run or {})
                )
        return self.root / label

    def environment(self, session: SyntheticSession, files: dict[str, str]) -> None:
        kept = {"sys/devices/system/cpu/cpuidle/current_driver": "none", **files}
        for name, text in kept.items():
            path = session.path / "environment" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def again(path: Path) -> SyntheticSession:
    """A session that is there already, to add runs to."""
    session = SyntheticSession.__new__(SyntheticSession)
    session.path, session.start_ns = path, 1_800_000_000_000_000_000
    session.info = json.loads((path / "session.json").read_text())
    return session


@pytest.fixture
def lab(session_writer: SessionWriter, tmp_path: Path) -> Lab:
    return Lab(session_writer, tmp_path)


Told = tuple[int, str, str]


def klat_compare(capsys: pytest.CaptureFixture[str], *args: object) -> Told:
    status = main(["compare", *map(str, args)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


# Only one test a metric.
MEDIAN = ("--quantile", "median")


def words(text: str) -> str:
    return " ".join(text.split())


# Verdicts and statuses


@pytest.mark.parametrize(
    ("ratio", "status", "said"),
    [
        (1.0, 0, "round_trip, median: same"),
        (1.2, 1, "round_trip, median: slower"),
        (0.8, 0, "round_trip, median: faster"),
    ],
)
def test_the_verdict_and_the_status_follow_the_kernel(
    lab: Lab, capsys: pytest.CaptureFixture[str], ratio: float, status: int, said: str
) -> None:
    found = klat_compare(capsys, lab("stock"), lab("rt", ratio, **RT))
    assert (found[0], found[2]) == (status, "")
    assert said in found[1] and f"(status {status})" in found[1]


def test_too_few_boots_for_the_noise_are_inconclusive_with_what_would_settle_it(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = klat_compare(capsys, lab("stock", noise=0.03, boots=4), lab("rt", boots=4, noise=0.03, **RT))  # fmt: skip
    assert status == 3
    assert "round_trip, median: inconclusive" in out
    assert re.search(r"would be settled as \w+ by [\d,]+ boots a side \(now 4 and 4\)", words(out))


def test_too_few_boots_for_a_claim_say_how_many_it_takes(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = klat_compare(capsys, lab("stock", boots=3), lab("rt", 1.5, boots=3, **RT))
    assert status == 3 and "slower beyond" not in out
    assert "3 and 3 boots can differ by chance alone at alpha 0.05: 4 boots a side are needed" in words(out)  # fmt: skip
    assert "would be settled as slower by 4 boots a side" in words(out)


def test_a_change_beyond_chance_and_not_surely_beyond_the_margin_is_told_with_its_direction(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = klat_compare(capsys, lab("stock"), lab("rt", 1.021, **RT), *MEDIAN)
    assert status == 3
    text = words(out)
    assert "NEW is longer by more than chance, perhaps within the margin" in text
    assert "Fix the number of boots or blocks before you measure" in text


def test_p99_is_tested_beside_the_median_where_the_samples_support_it(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for label, n in (("stock", 600), ("rt", 600), ("short", 499)):
        side = lab(label)
        for boot in range(5):
            ticks = samples(9_000 + boot, n if boot == 4 else 600)
            again(side / str(boot)).run({"woken": ticks}, params="x=1")
    for label, expected in (("rt", ["median", "p99"]), ("short", ["median"])):
        args = (lab.root / "stock", lab.root / label, "--metric", "woken", "--format", "json")
        (cell,) = json.loads(klat_compare(capsys, *args)[1])["against"][0]["cells"]
        assert [r["estimand"] for r in cell["results"]] == ["median", "mean", "p90", "p99"]
        assert [r["estimand"] for r in cell["results"] if r["tested"]] == expected


def test_one_boot_a_side_shows_the_difference_of_the_boots_and_blames_no_kernel(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock", boots=1), lab("rt", 1.5, boots=1, **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3
    assert "cannot be attributed" in out
    assert "the ratio shown compares these two boots" in words(out)
    assert re.search(r"median .* 1\.\d+ +1\.\d+ to 1\.\d+$", out, re.MULTILINE)
    assert "slower" not in out and "faster" not in out


def test_two_sessions_of_one_boot_are_one_boot(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = lab("stock", boots=4, boot_id="the-same")
    status, out, _ = klat_compare(capsys, stock, lab("rt", 1.5, **RT))
    assert status == 3
    assert "1 boot in 4 sessions" in words(out)
    assert "BASE is one boot" in out


def test_one_run_only_has_an_interval_from_its_samples(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    one: dict[str, Any] = {"boots": 1, "runs": 1, "noise": 0}
    stock, rt = lab("stock", **one), lab("rt", 1.5, **one, **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3 and "samples of one run a side" in words(out)
    document = json.loads(klat_compare(capsys, stock, rt, "--format", "json")[1])
    median = document["against"][0]["cells"][0]["results"][0]["judgement"]
    assert median["interval"][0] < 1.5 < median["interval"][1]


def test_a_header_names_the_emulator_of_a_labs_sessions(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {"mode": "counted", "unit": "instructions"}
    paths = lab("stock", **counted), lab("rt", **counted, **RT)
    for path in paths:
        for session in path.iterdir():
            (session / "lab").mkdir()
            (session / "lab/machine.json").write_text('{"qemu": "7.2.22 (Debian 1:7.2)"}')
    out = words(klat_compare(capsys, *paths)[1])
    assert "preemption rt; instructions counted by QEMU 7.2.22; 5 boots, runs: 20 ok" in out


def test_identical_boots_are_judged_exactly(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    counted = {"mode": "counted", "unit": "instructions"}
    stock = lab("stock", noise=0, **counted)
    rt = lab("rt", 1.1, noise=0, **counted, **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 1 and "slower" in out
    assert "1.100 to 1.100" in out and re.search(r"^ +\[instructions\] +BASE", out, re.MULTILINE)
    assert klat_compare(capsys, stock, lab("again", noise=0, **counted))[0] == 0


def test_a_difference_below_the_counters_granularity_is_not_claimed(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    for label, ticks in (("stock", 338), ("rt", 364)):
        for boot in range(5):
            session = session_writer(f"{label}/{boot}", label=label, boot_id=f"{label}{boot}")
            for run in range(1, 4):
                session.run({"call": [ticks] * 100}, run=run)
    status, out, _ = klat_compare(capsys, lab.root / "stock", lab.root / "rt")
    assert status == 3 and "granularity" in out and "--quantile mean" in out
    assert "would be settled" not in out and "no number of boots" in out


def rounded(ticks: float) -> int:
    return 26 * round(ticks / 26)


@pytest.mark.parametrize(
    ("true", "odd"),
    [
        pytest.param((999.0, 1003.0), {7: 60.0}, id="a run that strayed"),
        pytest.param((1002.0, 1024.0), {7: 60.0}, id="a run that strayed, and a true change"),
        pytest.param((999.0, 1003.0), dict.fromkeys(range(0, 60, 2), 400.0), id="two states"),
    ],
)
def test_what_strays_does_not_make_the_counter_finer(
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
    session_writer: SessionWriter,
    true: tuple[float, float],
    odd: dict[int, float],
) -> None:
    for label, ticks in zip(("stock", "rt"), true):
        for boot in range(10):
            session = session_writer(f"{label}/{boot}", label=label, boot_id=f"{label}{boot}")
            for run in range(6):
                value = rounded(ticks + odd.get(boot * 6 + run, 0))
                session.run({"call": [value] * 100}, run=run + 1)
    status, out, _ = klat_compare(capsys, lab.root / "stock", lab.root / "rt", "--allow", "environment")  # fmt: skip
    assert status == 3 and "granularity" in out, out


def test_noise_of_a_step_and_more_resolves_less_than_a_step(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    draw = np.random.default_rng(1)
    for label, ticks in (("stock", 1000.0), ("rt", 1040.0)):
        for boot in range(10):
            session = session_writer(f"{label}/{boot}", label=label, boot_id=f"{label}{boot}")
            for run in range(12):
                value = rounded(ticks + draw.normal(0, 30))
                session.run({"call": [value] * 100}, run=run + 1)
    sides = lab.root / "stock", lab.root / "rt"
    _, out, _ = klat_compare(capsys, *sides, "--allow", "environment", "--format", "json")
    judgement = json.loads(out)["against"][0]["cells"][0]["results"][0]["judgement"]
    assert judgement["resolution"] == 0
    assert judgement["verdict"] == "slower" and judgement["ratio"] == pytest.approx(1.04, abs=0.01)


def test_the_margin_decides_what_is_the_same(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock, rt = lab("stock"), lab("rt", 1.05, **RT)
    assert klat_compare(capsys, stock, rt)[0] == 1
    for margin in ("10%", "0.1"):
        status, out, _ = klat_compare(capsys, stock, rt, "--margin", margin)
        assert status == 0 and "margin 10 %" in out
        assert "longer by more than chance, but within the margin" in words(out)


def test_several_kernels_are_each_held_against_the_first_under_one_correction(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt, new = lab("stock"), lab("rt", 1.2, **RT), lab("next", kernel_release="6.2")
    status, out, _ = klat_compare(capsys, stock, rt, new, *MEDIAN)
    assert status == 1 and "by Holm over 2 tests" in words(out)
    assert out.count("BASE  stock") == 2 and "1 same, 1 slower: regression" in out  # fmt: skip


def test_verdicts_on_other_estimands_are_asked_for(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", 1.2, **RT)
    args = ("--quantile", "p99", "--quantile", "mean", "--quantile", "p95", "--format", "json")
    _, out, _ = klat_compare(capsys, stock, rt, *args)
    results = json.loads(out)["against"][0]["cells"][0]["results"]
    tested = [r["estimand"] for r in results if r["tested"]]
    assert tested == ["p99", "mean", "p95"]
    assert all(r["judgement"]["verdict"] == "slower" for r in results if r["tested"])
    values = {r["estimand"]: r["judgement"]["base"]["value"] for r in results}
    assert values["median"] <= values["p90"] <= values["p95"] <= values["p99"]
    assert all(r["judgement"]["verdict"] is None for r in results if not r["tested"])


def test_the_times_are_compared_where_counters_differ_in_frequency(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    tsc = {"khz": 5_200_000.0, "quantum": 26}
    status, out, _ = klat_compare(capsys, lab("stock"), lab("rt", 2.0, tsc=tsc, **RT))
    assert status == 0 and "round_trip, median: same" in out


def test_invalid_runs_are_in_no_verdict_and_counted(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    spoiled = session_writer("rt/spoiled", label="rt", boot_id="rt-boot-0", **RT)
    lab.environment(spoiled, {})
    spoiled.run({"round_trip": samples(900_000)}, status="invalid", reason="moved")
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 0 and "runs of NEW: 20 ok, 1 invalid" in out


def test_only_invalid_runs_leave_it_open_and_say_why(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", run={"status": "invalid", "reason": "moved"}, **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3
    assert "no run of NEW counts: 20 invalid (moved)" in words(out)


def test_a_run_of_zero_ticks_has_no_ratio(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = klat_compare(capsys, lab("stock"), lab("rt", 0.0, **RT))
    assert status == 3 and "is 0, of which there is no ratio" in words(out)


def test_exceedances_are_counted_and_the_maximum_has_no_interval(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", 1.5, **RT)
    _, out, _ = klat_compare(capsys, stock, rt, "--threshold", "100us")
    text = words(out)
    assert "above 100,000 ns, BASE: 0 of 12,000 samples (0), in 0 of 20 runs (0 to 16.8 %)" in text
    assert "above 100,000 ns, NEW: 120 of 12,000 samples (0.01), in 20 of 20 runs (83.2 to 100 %)" in text  # fmt: skip
    (line,) = [
        line for line in out.splitlines() if line.split()[:1] == ["max"] and "of" not in line
    ]
    assert " to " not in line and "max of 12,000 and 12,000 samples" in out


def test_rows_suffice_where_samples_are_lost(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock, rt = lab("stock"), lab("rt", 1.2, **RT)
    for path in rt.glob("*/samples/*.u64"):
        path.unlink()
    assert klat_compare(capsys, stock, rt)[0] == 1
    status, out, err = klat_compare(capsys, stock, rt, "--quantile", "p95")
    assert (status, out) == (2, "") and re.fullmatch(r"klat compare: .*pipes\.u64.*\n", err)


def test_boots_of_one_kernel_before_all_of_the_other_are_said_in_the_first_lines(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode, unit, said in (("virtual", "ticks", True), ("counted", "instructions", False)):
        whats = {"mode": mode, "unit": unit}
        stock = lab(f"stock-{mode}", **whats, created="2026-01-01T00:00:00Z")
        rt = lab(f"rt-{mode}", **whats, created="2026-01-02T00:00:00Z", **RT)
        for sides, first in (((stock, rt), "BASE"), ((rt, stock), "NEW")):
            out = words(klat_compare(capsys, *sides)[1])
            note = f"note: all boots of {first} precede all of"
            assert (note in out) == said
            assert not said or out.index(note) < out.index("same") and "alternate" in out
    info = json.loads((stock / "0/session.json").read_text())
    (stock / "0/session.json").write_text(json.dumps(info | {"created": "2026-01-03T00:00:00Z"}))
    timed = lab.root / "stock-virtual"
    info = json.loads((timed / "0/session.json").read_text()) | {"created": "2026-01-03T00:00:00Z"}
    (timed / "0/session.json").write_text(json.dumps(info))
    assert "precede" not in klat_compare(capsys, timed, lab.root / "rt-virtual")[1]


def test_more_unusable_runs_on_one_side_are_said_in_the_first_lines(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)

    def spoil(label: str, boots: int, runs: int) -> str:
        for boot in range(boots):
            session = again(lab.root / label / str(boot))
            session.start_ns += runs * 10**12
            for _ in range(runs):
                session.run({"round_trip": samples(9_000)}, status="invalid", reason="moved")
        return words(klat_compare(capsys, stock, rt)[1])

    assert "more than chance; find out" not in spoil("rt", 1, 12)
    out = spoil("rt", 5, 2)
    note = "invalid or failed runs of pipes: 0 of 20 in BASE and 22 of 42 in NEW"
    assert note in out and out.index(note) < out.index("median")
    assert "more than chance; find out" not in spoil("stock", 5, 2)


# Refusal

CPU = "sys/devices/system/cpu"
SET_AS_USUAL = {
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/vulnerabilities/mds": "Mitigation: Clear CPU buffers",
}
UNLIKE: list[tuple[str, dict[str, Any]]] = [
    ("machine", {"machine_id": "other"}),
    ("cpu", {"cpu_model": "Other CPU"}),
    ("architecture", {"architecture": "aarch64"}),
    ("cpus-online", {"cpus_online": 80}),
    ("mode", {"mode": "hardware"}),
    ("program", {"programs": {"pipes": "11" * 32}}),
    ("load", {"facts": {"load": "stress-ng"}}),
    ("policy", {"run": {"policy": "writer=other:0;reader=other:0"}}),
    ("cpus", {"run": {"cpus": "writer=3;reader=2"}}),
    ("dma-latency", {"run": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;dma-latency=0"}}),
    ("guest-halt-poll", {"run": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;guest-halt-poll=0"}}),
    ("iterations", {"run": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;iterations=9"}}),
    ("idle-driver", {"environment": {f"{CPU}/cpuidle/current_driver": "haltpoll"}, "kernel_release": "6.1.0-test"}),
    ("cmdline.idle", {"environment": {"proc/cmdline": "quiet idle=poll"}}),
    ("governor", {"environment": {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"}}),
    ("vulnerability.mds", {"environment": {f"{CPU}/vulnerabilities/mds": "Not affected"}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "change"), UNLIKE, ids=[f"{k}-{i}" for i, (k, _) in enumerate(UNLIKE)]
)
def test_a_condition_that_differs_is_refused_by_name_until_it_is_allowed(
    lab: Lab, capsys: pytest.CaptureFixture[str], key: str, change: dict[str, Any]
) -> None:
    stock = lab("stock", environment=SET_AS_USUAL)
    environment = SET_AS_USUAL | change.get("environment", {})
    rt = lab("rt", 1.2, **{**RT, **change, "environment": environment})
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4
    assert "not comparable" in out and f"{key}: " in out and f"--allow {key}" in words(out)
    assert "slower" not in out
    status, out, _ = klat_compare(capsys, stock, rt, "--allow", key)
    assert status == 1
    assert f"allowed, though it differs: {key}: " in words(out)


def test_a_sweep_over_a_condition_is_paired_value_by_value(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    for label, medians in (("stock", (9_000, 5_000)), ("rt", (9_000, 6_000))):
        for boot in range(5):
            for latency, median in zip((100, 0), medians):
                params = f"x=1;dma-latency={latency}"
                ticks = samples(median + boot)
                again(lab.root / label / str(boot)).run({"woken": ticks}, params=params, start_ns=latency)  # fmt: skip
    status, out, _ = klat_compare(capsys, stock, rt, "--metric", "woken", *MEDIAN)
    assert status == 1 and "1 same, 1 slower" in out
    assert re.search(r"slower[^=]*woken same-llc dma-latency=0 ", words(out))
    # Of the params, what tells the lines apart and no more.
    named = re.findall(r" to [\d.]+ pipes (woken same-llc \S+)", words(out))
    assert named == ["woken same-llc dma-latency=0", "woken same-llc dma-latency=100"]


def test_what_one_allow_takes_leaves_the_others_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = lab("stock", environment=SET_AS_USUAL)
    off = {f"{CPU}/vulnerabilities/mds": "Not affected", "proc/cmdline": "mitigations=off"}
    rt = lab("rt", environment=SET_AS_USUAL | off, **RT)
    status, out, _ = klat_compare(capsys, stock, rt, "--allow", "vulnerability.mds")
    said = "cmdline.mitigations: proc/cmdline mitigations is absent in BASE and off in NEW"
    assert status == 4 and said in words(out)
    both = ["--allow", "vulnerability.mds", "--allow", "cmdline.mitigations"]
    assert klat_compare(capsys, stock, rt, *both)[0] == 0


def test_words_that_an_experiment_gave_one_kernel_are_under_test(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    def given(append: str, experiment: str = "e") -> dict[str, Any]:
        return {"facts": {"under_test": {"experiment": experiment, "append": append}}}

    file = f"{CPU}/vulnerabilities/mds"
    off = {"environment": {"proc/cmdline": "quiet mitigations=off", file: "Vulnerable"}}
    usual = {"proc/cmdline": "quiet", file: "Mitigation: a"}
    stock = lab("stock", environment=usual, **given(""))
    status, out, _ = klat_compare(capsys, stock, lab("nomit", **off, **given("mitigations=off")))
    assert status == 0 and "nothing in BASE and mitigations=off in NEW" in words(out)
    assert "proc/cmdline mitigations: absent | off" in out and "the same kernel" not in out
    for number, (label, change) in enumerate(
        (("other", given("mitigations=off", "f")), ("undeclared", given("nokaslr")))
    ):
        status, out, _ = klat_compare(capsys, stock, lab(label, **off, **change))
        assert status == 4 and "--allow cmdline.mitigations" in words(out), number
    rt = lab("nomit-rt", **off, **given("mitigations=off"), **RT)
    _, out, _ = klat_compare(capsys, stock, rt)
    assert "preemption model and command line changed together" in words(out)
    elsewhere = lab("elsewhere", **off, **given("mitigations=off"), machine_id="other")
    assert klat_compare(capsys, stock, elsewhere)[0] == 4


TOGETHER = "version and preemption model changed together"


@pytest.mark.parametrize(
    ("release", "preemption", "together"),
    [
        ("6.12.117+deb13-rt-amd64", "rt", True),
        ("6.12.117+deb13-amd64", "voluntary", False),
        ("6.1.0-56-rt-amd64", "rt", False),
        ("6.1.0-55-rt-amd64", "rt", True),
        ("6.12.117+deb13-rt-amd64", "unknown", False),
    ],
)
def test_version_and_preemption_changed_together_is_said_first(
    lab: Lab, capsys: pytest.CaptureFixture[str], release: str, preemption: str, together: bool
) -> None:
    stock = lab("stock", kernel_release="6.1.0-56-amd64")
    rt = lab("rt", kernel_release=release, preemption=preemption)
    for sides in ((stock, rt), (rt, stock)):
        _, out, _ = klat_compare(capsys, *sides)
        assert (TOGETHER in words("".join(out.splitlines(keepends=True)[:8]))) == together, out


def test_the_unit_cannot_be_allowed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock = lab("stock")
    rt = lab("rt", mode="counted", unit="instructions", **RT)
    status, out, _ = klat_compare(capsys, stock, rt, "--allow", "mode")
    assert status == 4 and "unit is ns in BASE and instructions in NEW" in out
    status, _, err = klat_compare(capsys, stock, rt, "--allow", "unit")
    assert status == 2 and "--allow unit" in err


def test_times_are_not_divided_by_the_ticks_of_an_emulator(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    emulated = lab("rt", mode="emulated", **RT)
    status, out, _ = klat_compare(capsys, lab("stock"), emulated, "--allow", "mode")
    assert status == 4 and "unit is ns in BASE and ticks in NEW" in out


@pytest.mark.parametrize("shares", [(1, 3), (2, 2)])
def test_what_varies_within_the_sides_is_refused_though_both_have_it(
    lab: Lab, capsys: pytest.CaptureFixture[str], shares: tuple[int, int]
) -> None:
    for label, share in zip(("stock", "rt"), shares):
        lab(label, runs=1)
        for boot in range(5):
            for run in range(4):
                policy = "other:0" if run < share else "fifo:50"
                ticks = samples(60_000 if run < share else 50_000)
                again(lab.root / label / str(boot)).run(
                    {"mixed": ticks}, benchmark="cv", params="", policy=policy, start_ns=run
                )
    sides = lab.root / "stock", lab.root / "rt"
    status, out, _ = klat_compare(capsys, *sides, "--metric", "mixed")
    assert status == 4 and "the boots of a side differ in the policy obtained" in words(out)
    assert "fifo:50 | other:0" in words(out)


def test_one_session_without_its_environment_spares_no_other(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    governor = f"{CPU}/cpu0/cpufreq/scaling_governor"
    stock = lab("stock", environment={governor: "performance"})
    rt = lab("rt", environment={governor: "powersave"}, **RT)
    shutil.rmtree(stock / "0" / "environment")
    status, out, _ = klat_compare(capsys, stock, rt, "--allow", "environment")
    assert status == 4 and "performance in BASE and powersave in NEW" in words(out)


def test_a_unit_clash_within_a_label_is_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    odd = session_writer(
        "rt/odd", label="rt", boot_id="x", mode="counted", unit="instructions", **RT
    )
    odd.run({"round_trip": samples(9)})
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4 and "unit: " in out


def test_two_kernels_under_one_label_are_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    odd = session_writer("rt/odd", label="rt", boot_id="x", kernel_release="6.9", preemption="rt")
    lab.environment(odd, {})
    odd.run({"round_trip": samples(52_000)})
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4
    assert "the boots of rt differ in kernel_release: 6.1.0-rt | 6.9" in words(out)


def test_times_of_an_emulator_are_refused(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock, rt = lab("stock", mode="emulated"), lab("rt", mode="emulated", **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4 and "no valid times" in words(out)


def test_an_environment_that_was_not_captured_is_said(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock", environment={f"{CPU}/smt/control": "off"}), lab("rt", **RT)
    for path in rt.glob("*/environment"):
        shutil.rmtree(path)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4
    assert "environment: the environment is captured in BASE and absent in NEW" in words(out)
    status, out, _ = klat_compare(capsys, stock, rt, "--allow", "environment")
    assert status == 0 and "the environment of NEW was not captured" in words(out)


def test_the_kernel_itself_is_listed_and_not_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = lab("stock", environment={"boot/config-6.1.0": "CONFIG_HZ=250\n"})
    rt = lab("rt", environment={"boot/config-6.1.0-rt": "CONFIG_HZ=1000\n"}, **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 0 and "kernel configuration HZ: 250 | 1000" in out


def test_a_policy_that_differs_spares_the_other_benchmarks(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", run={"policy": "other"}, **RT)
    for label in ("stock", "rt"):
        for boot in range(5):
            session = again(lab.root / label / str(boot))
            session.run({"handoff": samples(9_000 + boot)}, benchmark="cv", params="")
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4
    assert "handoff, median: same" in out and "round_trip: not comparable" in out


# Shared boots


def test_one_shared_boot_without_blocks_tells_nothing(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock", boots=1, prefix="x"), lab("rt", 1.5, boots=1, prefix="x")
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3 and "in one boot and declare no blocks" in words(out)
    shown = "the ratio shown compares the two sides in this boot, interval from the runs within it"
    assert shown in words(out) and "two boots" not in words(out)


def test_a_reason_that_all_figures_share_is_given_once_and_above_them(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock", boots=1, prefix="x"), lab("rt", 1.5, boots=1, prefix="x")
    _, out, _ = klat_compare(capsys, stock, rt, "--quantile", "median", "--quantile", "p90")
    above, _, below = words(out).partition("median of ")
    assert below.count("cannot be attributed") == 4  # p90 of the overview, 2 of the cell, tally
    assert "in one boot and declare no blocks" in above and "compare settings by klat ab" in above
    assert "declare no blocks" not in below and "other boots" not in below
    assert "over 0 tests" not in out


def test_a_boot_on_both_sides_among_others_is_no_independent_side(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock", boots=3, prefix="x"), lab("rt", 1.5, boots=4, prefix="x")
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3 and "some boots are on both sides" in words(out)


def test_boots_shared_by_both_sides_are_pairs_where_the_order_changed(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = lab("stock", boots=6, prefix="x", seed=1, noise=0.004)
    rt = lab("rt", 1.05, boots=6, prefix="x", seed=2, noise=0.004, begun=[-9, 9] * 3)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 1
    assert "Student over pairs" in out and "each of which is a pair" in words(out)
    late = lab("late", 1.05, boots=6, prefix="x", seed=2, noise=0.004, begun=[9] * 5 + [-9])
    status, out, _ = klat_compare(capsys, stock, late)
    assert status == 3 and "BASE first in 5 of 6: a drift would be taken" in words(out)


def blocks(experiment: str, count: int = 6) -> dict[str, Any]:
    """Runs 1 and 2 were in the first block, 3 and 4 in the second, and so on."""
    pairs = [[2 * i + 1, 2 * i + 2, f"block {i}"] for i in range(count)]
    return {"pairing": {"experiment": experiment, "pairs": pairs}}


def test_declared_blocks_of_one_boot_tell_of_the_setting(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x", "facts": blocks("e")}
    idle = {f"{CPU}/cpuidle/current_governor": "menu"}
    a, b = lab("a", **shared), lab("b", 1.1, environment=idle, **shared)
    status, out, _ = klat_compare(capsys, a, b)
    assert status == 1 and "slower" in out
    assert "Student over pairs of blocks, 5.0 degrees of freedom" in words(out)
    assert "current_governor: absent | menu" in words(out)
    other = lab("c", 1.1, **{**shared, "facts": blocks("another")})
    assert klat_compare(capsys, a, other)[0] == 3


def test_a_setting_may_take_cpus_offline(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x", "facts": blocks("e")}
    control = f"{CPU}/smt/control"
    a = lab("a", environment={control: "on"}, cpus_online=4, **shared)
    b = lab("b", environment={control: "off"}, cpus_online=2, **shared)
    status, out, _ = klat_compare(capsys, a, b)
    assert status == 0 and "not comparable" not in out
    assert "cpus_online: 4 | 2" in out and "smt/control: on | off" in words(out)


def test_what_would_settle_blocks_is_told_in_the_words_of_ab(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x", "facts": blocks("e")}
    sides = lab("a", noise=0.05, **shared), lab("b", 1.06, noise=0.05, **shared)
    document = json.loads(klat_compare(capsys, *sides, "--format", "json")[1])
    settle = document["against"][0]["cells"][0]["results"][0]["judgement"]["settle"]
    out = words(klat_compare(capsys, *sides)[1])
    assert settle["units"] and settle["runs"]
    assert f"by {settle['units']:,} blocks (--blocks {settle['units']}; now 6)" in out
    turn = (settle["runs"] + 1) // 2
    assert f"by {turn:,} runs in each turn (--runs-per-block {turn})" in out


def test_one_run_on_one_side_is_said_to_be_on_that_side(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = lab("stock", boots=1, runs=3), lab("rt", boots=1, runs=1, **RT)
    out = words(klat_compare(capsys, *sides)[1])
    assert "NEW is one run, so no interval" in out and "one run a side" not in out


def second_experiment(side: Path, **more: Any) -> None:
    shutil.copytree(side / "0", side / "1")
    (side / "1" / "run.json").write_text(json.dumps(blocks("f") | more))


def test_blocks_of_several_experiments_in_one_boot_are_pairs_each(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x"}
    a = lab("a", facts=blocks("e"), **shared)
    b = lab("b", 1.1, facts=blocks("e") | {"prefix": "setarch -R"}, **shared)
    second_experiment(a)
    second_experiment(b, prefix="setarch -R")
    status, out, _ = klat_compare(capsys, a, b)
    assert status == 1 and "Student over pairs of blocks, 11.0 degrees" in words(out)
    second = b / "1" / "run.json"
    second.write_text(json.dumps(blocks("f") | {"prefix": "nice"}))
    status, out, _ = klat_compare(capsys, a, b)
    assert status == 4 and "prefix is none in BASE and setarch -R | nice in NEW" in words(out)


def test_blocks_of_several_boots_are_judged_and_the_boots_stand_beside_them(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [lab(label, ratio, boots=6, runs=12, prefix="x") for label, ratio in (("a", 1), ("b", 1.1))]  # fmt: skip
    for side in sides:
        for boot in range(6):
            facts = blocks(f"experiment {boot}") | {"prefix": side.name}
            (side / str(boot) / "run.json").write_text(json.dumps(facts))
    status, out, _ = klat_compare(capsys, *sides)
    text = words(out)
    assert status == 1 and "Student over pairs of blocks, 35.0 degrees" in text
    assert re.search(r"over 6 boots, each one pair: 1\.1\d* \(1\.\d+ to 1\.\d+\)", text)


@pytest.mark.parametrize("ratio", [1.0, 1.1])
def test_more_boots_of_blocks_do_not_show_less_than_one(
    lab: Lab, capsys: pytest.CaptureFixture[str], ratio: float
) -> None:
    said = []
    for boots in (1, 4):
        sides = [
            lab(f"{label}{boots}", r, boots=boots, runs=12, prefix="x", noise=0.001)
            for label, r in (("a", 1.0), ("b", ratio))
        ]
        for side in sides:
            for boot in range(boots):
                (side / str(boot) / "run.json").write_text(json.dumps(blocks(f"e{boot}")))
        said.append(klat_compare(capsys, *sides)[0])
    assert said == ([0, 0] if ratio == 1 else [1, 1])


def test_half_a_block_is_no_pair(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    turns = [[i, i, i] for i in range(1, 15)]
    facts = blocks("e", 7) | {"turns": turns}
    shared: dict[str, Any] = {"boots": 1, "prefix": "x", "facts": facts}
    a, b = lab("a", runs=14, **shared), lab("b", 1.1, runs=13, **shared)
    status, out, _ = klat_compare(capsys, a, b)
    assert status == 1 and "Student over pairs of blocks, 5.0 degrees" in words(out)
    assert "1 block left out: incomplete" in words(out)


def took_turns(
    lab: Lab,
    writer: SessionWriter,
    boots: int,
    blocks_of_boot: int,
    counts: Callable[[str, int, int], bool],
) -> tuple[Path, Path]:
    """A B B A in every block, each turn 2 % longer than the one before it and nothing else, so that a
    and b are alike; `counts` of label, block and turn of the label says which runs are valid."""
    draw = np.random.default_rng(1)
    for boot in range(boots):
        sides = {
            name: writer(f"{name}/{boot}", label=name, boot_id=f"boot-{boot}") for name in "ab"
        }
        facts: dict[str, dict[str, Any]] = {name: {"turns": [], "pairs": []} for name in "ab"}
        for name, session in sides.items():
            lab.environment(session, {})
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
            told = {"turns": facts[name]["turns"], "pairing": pairing}
            (session.path / "run.json").write_text(json.dumps(told))
    return lab.root / "a", lab.root / "b"


@pytest.mark.parametrize("boots", [1, 6])
def test_where_no_block_is_whole_a_drift_is_no_difference(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter, boots: int
) -> None:
    half = took_turns(lab, session_writer, boots, 8, lambda name, _, turn: (name, turn) != ("a", 1))
    status, out, _ = klat_compare(capsys, *half)
    assert status == 3 and "slower" not in out and "complete" in out, out


def test_of_blocks_in_several_boots_the_whole_ones_count(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    sides = took_turns(lab, session_writer, 6, 4, lambda name, block, turn: block > 0 or turn == 0 or name == "b")  # fmt: skip
    _, out, _ = klat_compare(capsys, *sides, "--format", "json", *MEDIAN)
    (result,) = (r for r in json.loads(out)["against"][0]["cells"][0]["results"] if r["tested"])
    assert result["judgement"]["verdict"] == "same"
    assert result["judgement"]["ratio"] == pytest.approx(1, abs=0.003)


def test_blocks_left_out_are_not_counted_as_blocks_that_are_there(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter
) -> None:
    sides = took_turns(lab, session_writer, 1, 12, lambda name, block, turn: block < 4 or turn == 0)
    _, out, _ = klat_compare(capsys, *sides, "--margin", "0.05%")
    assert "8 blocks left out" in words(out) and "now 4" in words(out)


def test_what_both_failed_at_in_one_placement_is_not_told_by_another(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    for side in (stock, rt):
        for boot in range(5):
            again(side / str(boot)).run(status="error", reason="crashed", placement="cross-llc")
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3 and "crashed" in out and "cross-llc" in out


def test_turns_with_different_partners_are_said_to_be_that(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    shared: dict[str, Any] = {"boots": 1, "runs": 12, "prefix": "x"}
    a, b = lab("a", facts=blocks("e"), **shared), lab("b", 1.1, facts=blocks("e"), **shared)
    second_experiment(a)
    status, out, _ = klat_compare(capsys, a, b)
    assert status == 3 and "the sides took turns in different experiments" in words(out)
    assert klat_compare(capsys, a / "0", b)[0] == 1


def test_boots_taken_in_declared_turns_are_pairs(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock", boots=6), lab("rt", 1.1, boots=6, **RT)
    for label in ("stock", "rt"):
        for boot in range(6):
            facts = {"pairing": {"experiment": "e", "pair": boot}}
            (lab.root / label / str(boot) / "run.json").write_text(json.dumps(facts))
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 1 and "Student over pairs of boots, 5.0 degrees" in words(out)


# Reports


def big(lab: Lab) -> tuple[Path, Path]:
    return lab("stock"), lab("rt", 1.2, environment={"proc/cmdline": "log_buf_len=1 " * 20}, **RT)


def test_the_text_fits_into_100_columns_and_has_no_colour_in_a_file(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = klat_compare(capsys, *big(lab))
    assert max(map(len, out.splitlines())) <= 100
    assert "\033" not in out


def test_a_terminal_gets_colour_unless_it_is_not_wanted(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = big(lab)
    plain = klat_compare(capsys, *sides)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = klat_compare(capsys, *sides)[1]
    assert "\033[1;31mslower\033[0m" in coloured
    assert re.sub(r"\033\[[0-9;]*m", "", coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert klat_compare(capsys, *sides)[1] == plain


@pytest.mark.parametrize("form", ["text", "json", "csv", "markdown"])
def test_the_same_input_gives_the_same_bytes(
    lab: Lab, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    sides = big(lab)
    first = klat_compare(capsys, *sides, "--format", form)
    assert first == klat_compare(capsys, *sides, "--format", form)
    assert first[1] and first[0] == 1


def test_json_holds_the_verdict_and_all_it_rests_on(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = klat_compare(capsys, *big(lab), "--format", "json")
    document = json.loads(out)
    assert document["status"] == 1 and document["verdicts"] == {"slower": 2}
    (against,) = document["against"]
    (cell,) = against["cells"]
    median = cell["results"][0]["judgement"]
    assert median["verdict"] == "slower"
    assert median["interval"][0] < median["ratio"] < median["interval"][1]
    assert median["base"]["run"]["own"] is not None
    assert against["base"]["label"] == "stock" and cell["base_worst"]["samples"] == 12_000


def test_csv_has_a_line_for_each_estimand(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = klat_compare(capsys, *big(lab), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["estimand"] for row in rows] == ["median", "mean", "p90", "p99"]
    assert rows[0]["verdict"] == "slower"
    assert float(rows[0]["low"]) < float(rows[0]["ratio"]) < float(rows[0]["high"])
    assert rows[1]["verdict"] == ""
    refused = lab("other", machine_id="x", **RT)
    _, out, _ = klat_compare(capsys, lab.root / "stock", refused, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["verdict"] == "not comparable" and "machine" in row["reason"]


def test_markdown_tables_stay_tables_whatever_the_names_hold(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"params": "text=a|b*c<script>"}
    stock, rt = lab("stock", run=run), lab("rt", 1.2, run=run, **RT)
    _, out, _ = klat_compare(capsys, stock, rt, "--format", "markdown")
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert "**slower**" in out and "<script>" not in out


def test_lists_and_paragraphs_are_apart_in_markdown(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock = lab("stock", environment={f"{CPU}/cpuidle/current_governor": "menu"})
    rt = lab("rt", run={"params": "x=2"}, **RT)
    lines = klat_compare(capsys, stock, rt, "--format", "markdown")[1].splitlines()
    at = lines.index("BASE and NEW differ in:")
    assert lines[at - 1] == lines[at + 1] == "" and lines[at - 2].startswith("- only in NEW")
    paragraphs = [i for i, line in enumerate(lines) if line and line[0] not in "-|#"]
    assert not any(lines[i - 1].startswith("- ") for i in paragraphs)


def test_a_metric_that_new_lacks_takes_one_line_of_the_overview_with_its_reason(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab("rt", **RT), lab("stock")
    quantiles = ("--quantile", "median", "--quantile", "p90")
    out = klat_compare(capsys, with_cv(lab, "stock"), lab.root / "rt", *quantiles)[1]
    overview = words(out.partition("\ncv same-llc")[0])
    assert overview.count("cv handoff") == 1
    assert "cv handoff same-llc: only in BASE: not measured in NEW" in overview


def test_what_only_one_side_has_is_listed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock, rt = lab("stock", run={"params": "x=1"}), lab("rt", run={"params": "x=2"}, **RT)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 4 and "have no benchmark, params, placement and metric in common" in out
    assert "only in BASE: not measured in NEW" in out
    assert "only in NEW: pipes same-llc x=2: round_trip (BASE: not measured)" in out


# What a side has no figure of

CV = {"benchmark": "cv", "params": ""}
NOT_RUN = {"placement": "", "cpus": "", "policy": ""}
NEEDS_2 = "needs 2 CPUs and may use 1"


def with_cv(lab: Lab, label: str, figures: bool = True, **run: Any) -> Path:
    """The boots that `label` has, with a run of cv each: with figures, or none of any metric."""
    for boot in range(5):
        metrics = {"handoff": samples(9_000 + boot)} if figures else None
        again(lab.root / label / str(boot)).run(metrics, **(CV | run))
    return lab.root / label


def without_cv(lab: Lab, label: str, status: str, reason: str) -> Path:
    return with_cv(lab, label, figures=False, status=status, reason=reason, **NOT_RUN)


FORMS = ["text", "json", "csv", "markdown", "html", "junit", "ktap"]


def told_in(
    form: str, capsys: pytest.CaptureFixture[str], sides: list[Path], file: Path
) -> tuple[int, str]:
    """The status and the report in that form."""
    if form in ("junit", "ktap"):
        assert main(["export", "--format", form, "-o", str(file), *map(str, sides)]) == 0
        capsys.readouterr()
        return klat_compare(capsys, *sides)[0], file.read_text()
    if form == "html":
        pytest.importorskip("jinja2")
        if not shutil.which("gnuplot"):
            pytest.skip("gnuplot is not installed")
        return klat_compare(capsys, *sides, "--html", file)[0], file.read_text()
    return klat_compare(capsys, *sides, "--format", form)[:2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("status", "reason"), [("skipped", NEEDS_2), ("error", "no such device"), ("", "")]
)
def test_what_new_has_no_figure_of_is_not_shown_and_says_why(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, status: str, reason: str
) -> None:  # fmt: skip
    lab("stock"), lab("rt", **RT)
    sides = [with_cv(lab, "stock"), lab.root / "rt"]
    said = "only in BASE: not measured in NEW"
    if status:
        without_cv(lab, "rt", status, reason)
        said = f"no run of NEW counts: 5 {status} ({reason})"
    found, text = told_in(form, capsys, sides, tmp_path / "file")
    assert found == 3
    assert said in words(text).replace("\\", "") and "handoff" in text


def test_all_that_new_tried_and_failed_at_is_not_shown(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", runs=0, **RT)
    for boot in range(5):
        again(rt / str(boot)).run(status="error", reason="no such device", **NOT_RUN)
    status, out, _ = klat_compare(capsys, stock, rt)
    assert status == 3 and "no run of NEW counts: 5 error (no such device)" in words(out)


def test_a_metric_that_was_not_asked_for_leaves_nothing_open(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab("stock"), lab("rt", **RT)
    sides = with_cv(lab, "stock"), without_cv(lab, "rt", "error", "no such device")
    assert klat_compare(capsys, *sides)[0] == 3
    status, out, _ = klat_compare(capsys, *sides, "--metric", "round_trip")
    assert status == 0 and "cv" not in out
    assert klat_compare(capsys, *sides, "--metric", "handoff")[0] == 3


def test_a_regression_is_one_whatever_else_was_not_measured(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab("stock"), lab("rt", 1.2, **RT)
    status, out, _ = klat_compare(capsys, with_cv(lab, "stock"), lab.root / "rt", *MEDIAN)
    assert status == 1 and "1 slower, 1 inconclusive" in out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("tried", "expected", "said"),
    [
        ("", 0, "BASE: not measured"),
        ("skipped", 0, f"BASE: 5 skipped ({NEEDS_2})"),
        ("error", 3, f"no run of BASE counts: 5 error ({NEEDS_2})"),
    ],
)
def test_what_only_new_has_is_told_and_open_only_where_base_failed_at_it(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, tried: str,
    expected: int, said: str,
) -> None:  # fmt: skip
    lab("stock"), lab("rt", **RT)
    if tried:
        without_cv(lab, "stock", tried, NEEDS_2)
    sides = [lab.root / "stock", with_cv(lab, "rt")]
    found, text = told_in(form, capsys, sides, tmp_path / "file")
    text = words(text)
    assert found == expected and "handoff" in text
    if form != "json" or expected:
        assert said in text
    else:
        (left,) = json.loads(text)["against"][0]["uncompared"]
        assert left["key"][3] == "handoff" and left["reason"] == said.removeprefix("BASE: ")


@pytest.mark.parametrize(("status", "expected"), [("skipped", 0), ("error", 3)])
@pytest.mark.parametrize("form", FORMS)
def test_what_neither_has_a_figure_of_is_told(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str, status: str,
    expected: int,
) -> None:  # fmt: skip
    lab("stock"), lab("rt", **RT)
    sides = [without_cv(lab, name, status, NEEDS_2) for name in ("stock", "rt")]
    found, text = told_in(form, capsys, sides, tmp_path / "file")
    assert found == expected
    assert f"BASE: 5 {status} ({NEEDS_2}); NEW: 5 {status} ({NEEDS_2})" in words(text)
    asked = klat_compare(capsys, *sides, "--metric", "round_trip")
    assert asked[0] == 0 and "not measured" not in asked[1]


STARVED = "no signal in 5 s"


def undelivered(lab: Lab, label: str, **run: Any) -> Path:
    told = {"status": "skipped", "reason": f"not delivered: {STARVED}"} | run
    return without_cv(lab, label, **told)


@pytest.mark.parametrize("form", FORMS)
def test_what_new_did_not_deliver_is_a_result(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    lab("stock"), lab("rt", **RT)
    sides = [with_cv(lab, "stock"), undelivered(lab, "rt")]
    found, text = told_in(form, capsys, sides, tmp_path / "file")
    assert found == 5
    assert f"not delivered by NEW: {STARVED}" in words(text).replace("\\", "")
    assert "inconclusive" not in text.replace("the data does not tell", "") or form == "html"


def test_what_is_not_delivered_gives_way_to_all_else_in_the_status(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for label, change, expected in (
        ("slow", {"ratio": 1.2}, 1),
        ("short", {"boots": 1}, 3),
        ("other", {"machine_id": "x"}, 4),
    ):
        lab(f"stock-{label}"), lab(label, **RT, **change)
        for boot in range(5):
            again(lab.root / f"stock-{label}" / str(boot)).run({"h": samples(9_000)}, **CV)
        for path in (lab.root / label).iterdir():
            again(path).run(status="skipped", reason="not delivered: x", **(CV | NOT_RUN))
        sides = lab.root / f"stock-{label}", lab.root / label
        assert klat_compare(capsys, *sides)[0] == expected, label


def test_what_base_did_not_deliver_leaves_nothing_open(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab("stock"), lab("rt", **RT)
    sides = [undelivered(lab, "stock"), with_cv(lab, "rt")]
    status, out, _ = klat_compare(capsys, *sides)
    assert status == 0 and f"not delivered by BASE: {STARVED}" in words(out)
    assert "2 same, 1 not delivered" in out


def test_what_neither_delivered_leaves_nothing_open(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab("stock"), lab("rt", **RT)
    status, out, _ = klat_compare(capsys, undelivered(lab, "stock"), undelivered(lab, "rt"))
    told = words(out)
    assert status == 0 and all(
        f"{side}: 5 skipped (not delivered: {STARVED})" in told for side in ("BASE", "NEW")
    )


@pytest.mark.parametrize("other", [{"reason": "a thread moved"}, {"status": "invalid"}])
def test_runs_that_failed_otherwise_too_are_no_result(
    lab: Lab, capsys: pytest.CaptureFixture[str], other: dict[str, str]
) -> None:
    lab("stock"), lab("rt", **RT)
    undelivered(lab, "rt")
    sides = with_cv(lab, "stock"), undelivered(lab, "rt", **other)
    assert klat_compare(capsys, *sides)[0] == 3


# Placement


def test_another_placement_is_refused_by_name_until_it_is_allowed(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = {"placement": "one-cpu", "cpus": "writer=1;reader=1"}
    stock, rt = lab("stock"), lab("rt", 1.2, run=moved, **RT)
    with_cv(lab, "stock"), with_cv(lab, "rt")
    status, out, _ = klat_compare(capsys, stock, rt)
    said = "placement: the placement is same-llc (writer=1;reader=0) in BASE and one-cpu (writer=1;reader=1) in NEW"  # fmt: skip
    assert status == 4 and said in words(out) and "--allow placement\n" in out
    assert "handoff, median: same" in out
    status, out, _ = klat_compare(capsys, stock, rt, "--allow", "placement")
    assert status == 1 and f"allowed, though it differs: {said}" in words(out)


def test_where_both_have_both_placements_each_is_compared_with_its_like(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = lab("stock"), lab("rt", **RT)
    for label in ("stock", "rt"):
        for boot in range(5):
            session = again(lab.root / label / str(boot))
            session.run({"round_trip": samples(20_000 + boot)}, placement="one-cpu", cpus="writer=1;reader=1")  # fmt: skip
    status, out, _ = klat_compare(capsys, *sides, *MEDIAN)
    assert status == 0 and "2 same" in out and "placement:" not in out


def test_a_placement_that_new_lacks_is_not_shown(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = lab("stock"), lab("rt", **RT)
    for boot in range(5):
        again(lab.root / "stock" / str(boot)).run(
            {"round_trip": samples(20_000 + boot)}, placement="one-cpu"
        )
    again(lab.root / "rt/0").run(status="error", reason="elsewhere", placement="same-llc")
    status, out, _ = klat_compare(capsys, *sides, *MEDIAN)
    assert status == 3 and "1 same, 1 inconclusive" in out
    assert "only in BASE: not measured in NEW" in out and "elsewhere" not in out
    again(lab.root / "rt/0").run(
        status="error", reason="right here", placement="one-cpu", start_ns=1
    )
    assert "no run of NEW counts: 1 error (right here)" in klat_compare(capsys, *sides)[1]


# Bad input


def test_bad_input_is_one_sentence_and_status_2(
    lab: Lab, capsys: pytest.CaptureFixture[str], session_writer: SessionWriter, tmp_path: Path
) -> None:
    stock = lab("stock")
    lab("two/a"), lab("two/b")
    newer = session_writer("newer/1")
    newer.info["schema"] = 2
    newer.write_info()
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, said in (
        (tmp_path / "missing", "no such directory"),
        (empty, "holds no session"),
        (session_writer("bare/1").path, "nothing to show or compare"),
        (newer.path, "use a newer klat"),
        (lab.root / "two", "holds 2 labels, two/a, two/b"),
        (stock / "0" / "runs.csv", "is a file"),
    ):
        for sides in ((stock, path), (path, stock)):
            status, out, err = klat_compare(capsys, *sides)
            assert (status, out) == (2, "")
            assert re.fullmatch(r"klat compare: [^\n]+\n", err) and said in err


@pytest.mark.parametrize(
    "args",
    [
        ["--margin", "1"],
        ["--margin", "nan"],
        ["--alpha", "1"],
        ["--quantile", "p100"],
        ["--quantile", "max"],
        ["--metric", "speed"],
        ["--threshold", "fast"],
        ["--allow", "everything"],
        ["--correction", "none"],
    ],
)
def test_usage_errors_are_one_line(
    lab: Lab, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    status, out, err = klat_compare(capsys, lab("stock", boots=2), lab("rt", boots=2), *args)
    assert (status, out) == (2, "") and err.count("\n") == 1


def test_a_session_is_not_held_against_itself(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock = lab("stock")
    status, out, err = klat_compare(capsys, stock, stock / "0")
    assert (status, out) == (2, "") and re.fullmatch(r"klat compare: .*is on both sides\n", err)


def test_a_time_is_no_threshold_of_instructions(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {"mode": "counted", "unit": "instructions"}
    sides = lab("stock", **counted), lab("rt", **counted, **RT)
    status, _, err = klat_compare(capsys, *sides, "--threshold", "50us")
    assert status == 2 and "is in instructions; give a bare number" in err
    status, out, _ = klat_compare(capsys, *sides, "--threshold", "100000")
    assert status == 0 and "above 100,000 instructions" in out


def test_torn_and_spoiled_rows_are_left_out_and_told(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    runs = rt / "0" / "runs.csv"
    lines = runs.read_text().splitlines(keepends=True)
    lines[1] = re.sub(r",ok,", ",nan,", lines[1])
    runs.write_text("".join(lines)[:-30])
    status, out, err = klat_compare(capsys, stock, rt)
    assert status == 0 and "18 ok" in out
    assert "checksum" in err and "torn last line" in err


def test_a_metric_can_be_chosen(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    for label in ("stock", "rt"):
        for boot in range(5):
            again(lab.root / label / str(boot)).run(
                {"one_way": samples(9_000 + boot)}, params="x=1"
            )
    assert "over 2 tests;" in words(klat_compare(capsys, stock, rt, *MEDIAN)[1])
    _, out, _ = klat_compare(capsys, stock, rt, "--metric", "one_way", *MEDIAN)
    assert "over 1 test;" in words(out) and "round_trip" not in out


@pytest.mark.parametrize("runs", [1, 4])
def test_a_long_run_is_read_piece_by_piece_with_the_same_outcome(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    asked = [lab("stock", boots=3, runs=runs), lab("rt", 1.1, boots=3, runs=runs, **RT)]
    asked += ["--quantile", "p98.5", "--within-runs", "--threshold", "60us"]
    whole = klat_compare(capsys, *asked)
    for module in ("record.samples", "compare.sources"):
        monkeypatch.setattr(f"klat.{module}.PART", 64)
    assert klat_compare(capsys, *asked) == whole
    assert "p98.5 of a single run" in whole[1] and "above 60,000 ns" in whole[1]


def test_single_runs_are_told_of_where_asked(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    stock, rt = lab("stock"), lab("rt", **RT)
    assert "of a single run" not in klat_compare(capsys, stock, rt)[1]
    _, out, _ = klat_compare(capsys, stock, rt, "--within-runs")
    told = r"median of a single run, 95 %: BASE -0\.\d+ to \+0\.\d+ %, \d+ effective of 600 samples"
    assert re.search(told, words(out))
