from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from conftest import SessionWriter, SyntheticSession

from klat.cli import main
from klat.comparison import Figures, compare, obstacles, ratio
from klat.environment import ABSENT, Difference, differences, recorded_differences


def samples(median: int, n: int = 630) -> list[int]:
    return [median + 26 * ((i * 8) % 21 - 10) for i in range(n)]


def fill(writer: SyntheticSession, median: int = 52_000, runs: int = 3) -> SyntheticSession:
    for run in range(1, runs + 1):
        writer.run({"round_trip": samples(median)}, run=run)
    return writer


def klat_compare(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    status = main(["compare", *map(str, args)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def row(out: str, name: str) -> list[str]:
    return next(line.split()[1:] for line in out.splitlines() if line.split()[:1] == [name])


def test_both_sides_stand_beside_each_other_with_their_ratios(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a = fill(session_writer("stock/1"), 52_000)
    b = fill(session_writer("rt/1", label="rt", preemption="rt"), 65_000)
    status, out, err = klat_compare(capsys, a.path, b.path)
    assert (status, err) == (0, "")
    assert row(out, "median") == ["52,000", "20,000", "65,000", "25,000", "1.250"]
    assert row(out, "average") == ["52,000", "20,000", "65,000", "25,000", "1.250"]
    assert row(out, "p99") == ["52,260", "20,100", "65,260", "25,100"]
    assert "A ticks" in out and "B ns" in out
    assert max(map(len, out.splitlines())) <= 80


def test_ratios_are_of_times_where_the_counters_differ_in_frequency(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a = fill(session_writer("stock/1"), 52_000)
    tsc = dict(a.info["tsc"], khz=5_200_000)
    b = fill(session_writer("rt/1", label="rt", tsc=tsc), 52_000)
    _, out, _ = klat_compare(capsys, a.path, b.path)
    assert row(out, "median") == ["52,000", "20,000", "52,000", "10,000", "0.500"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mode": "emulated"}, ["mode is virtual in A and emulated in B"]),
        (
            {"mode": "counted", "unit": "instructions"},
            ["unit is ticks in A and instructions in B", "mode is virtual in A and counted in B"],
        ),
    ],
)
def test_what_is_not_comparable_is_refused_with_each_difference_named(
    session_writer: SessionWriter,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    named: list[str],
) -> None:
    a = fill(session_writer("stock/1"))
    b = fill(session_writer("rt/1", label="rt", **change))
    status, out, err = klat_compare(capsys, a.path, b.path)
    assert (status, out) == (4, "")
    assert err.count("\n") == len(named)
    assert all(text in err for text in named)


def test_it_says_that_it_gives_no_verdict(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = fill(session_writer("stock/1")), fill(session_writer("rt/1", label="rt"))
    _, out, _ = klat_compare(capsys, a.path, b.path)
    assert "no verdict" in out
    assert not re.search(r"faster|slower|significant|regression", out)


@pytest.mark.parametrize(
    ("boots", "said"),
    [((1, 1), "A and B have one boot each"), ((2, 1), "B has one boot"), ((2, 2), None)],
)
def test_one_boot_is_said_to_confuse_kernel_and_boot(
    session_writer: SessionWriter,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    boots: tuple[int, int],
    said: str | None,
) -> None:
    for label, count in zip(("stock", "rt"), boots):
        for boot in range(count):
            fill(session_writer(f"{label}/{boot}", label=label, boot_id=f"{label}{boot}"))
    _, out, _ = klat_compare(capsys, *(tmp_path / "results" / name for name in ("stock", "rt")))
    text = " ".join(out.split())
    assert ("cannot be told from that of the boot" in text) is (said is not None)
    assert said is None or said in text


def test_what_only_one_side_has_is_listed_and_never_paired(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = fill(session_writer("stock/1")), fill(session_writer("rt/1", label="rt"))
    a.run({"handoff": samples(9_000)}, benchmark="cv", params="primitive=cond;warmup=5")
    b.run({"handoff": samples(9_000)}, benchmark="cv", params="primitive=futex")
    b.run({"round_trip": samples(9_000)}, placement="one-cpu")
    _, out, _ = klat_compare(capsys, a.path, b.path)
    assert "only in A: cv handoff same-llc primitive=cond warmup=5" in out
    assert "only in B: cv handoff same-llc primitive=futex" in out
    assert "only in B: pipes round_trip one-cpu" in out
    assert out.count("  round_trip\n") == 1


def test_nothing_in_common_is_said(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a = fill(session_writer("stock/1"))
    b = session_writer("rt/1", label="rt")
    b.run({"handoff": samples(9_000)}, benchmark="cv", params="")
    status, out, _ = klat_compare(capsys, a.path, b.path)
    assert status == 0 and "no benchmark, params and placement in common" in out


def test_invalid_runs_are_counted_and_in_no_ratio(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = fill(session_writer("stock/1")), fill(session_writer("rt/1", label="rt"))
    b.run({"round_trip": samples(900_000)}, status="invalid", reason="moved")
    _, out, _ = klat_compare(capsys, a.path, b.path)
    assert "B: 4 runs: 3 ok, 1 invalid" in out
    assert row(out, "average")[-1] == "1.000"


def test_several_kernels_behind_one_path_are_refused_by_name(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    a = fill(session_writer("stock/1"))
    fill(session_writer("rt/1", label="rt"))
    status, out, err = klat_compare(capsys, tmp_path / "results", a.path)
    assert (status, out) == (2, "")
    assert "holds 2 kernels under test, rt" in err and "stock" in err


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_side_that_cannot_be_read_is_one_line(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    a = fill(session_writer("stock/1"))
    b = session_writer("rt/1").path if kind == "empty" else tmp_path / "missing"
    status, out, err = klat_compare(capsys, a.path, b)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"klat compare: .+\n", err)


def test_a_cut_samples_file_is_status_2_and_spares_the_rest(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = fill(session_writer("stock/1")), fill(session_writer("rt/1", label="rt"))
    for writer in (a, b):
        writer.run({"handoff": samples(9_000)}, benchmark="cv", params="")
    b.samples_file("pipes").write_bytes(b"")
    status, out, err = klat_compare(capsys, a.path, b.path)
    assert status == 2
    assert "pipes.u64: holds 0 samples" in err
    assert "handoff" in out and "only in A: pipes" in out


def test_a_ratio_needs_two_values() -> None:
    assert ratio(2.0, 5.0) == 2.5
    assert ratio(None, 5.0) is None and ratio(5.0, None) is None
    assert ratio(0.0, 5.0) is None
    few = Figures(1, 10.0, None, None, None, 12.0)
    key = ("pipes", "", "one-cpu", "round_trip")
    (pair,) = compare({key: few}, {key: few}).pairs
    assert (pair.ratio_of_medians, pair.ratio_of_averages) == (None, 1.0)


def test_equal_sides_have_no_obstacle() -> None:
    info = {"unit": "ticks", "mode": "virtual"}
    assert obstacles(info, dict(info)) == []


# The environment


def write(root: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def test_the_environment_differs_by_value_and_by_presence(tmp_path: Path) -> None:
    a = write(tmp_path / "a", proc__sys__vm__swappiness="60\n", sys__kernel__realtime="1\n")
    b = write(tmp_path / "b", proc__sys__vm__swappiness="10\n")
    assert differences(a, b) == [
        Difference("proc/sys/vm/swappiness", "60", "10"),
        Difference("sys/kernel/realtime", "1", ABSENT),
    ]
    assert differences(a, a) == []


def test_counters_are_no_differences(tmp_path: Path) -> None:
    a = write(tmp_path / "a", proc__interrupts="1", proc__loadavg="1", proc__stat="1")
    b = write(tmp_path / "b", proc__interrupts="2", proc__loadavg="2", proc__stat="2")
    assert differences(a, b) == []


def test_the_command_line_differs_by_option(tmp_path: Path) -> None:
    a = write(tmp_path / "a", proc__cmdline="BOOT_IMAGE=/a quiet isolcpus=1\n")
    b = write(tmp_path / "b", proc__cmdline="BOOT_IMAGE=/b isolcpus=2 quiet nohz_full=1\n")
    assert differences(a, b) == [
        Difference("proc/cmdline isolcpus", "1", "2"),
        Difference("proc/cmdline nohz_full", ABSENT, "1"),
    ]


def test_a_setting_of_every_cpu_is_told_once(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for cpu in range(8):
        for root, governor in ((a, "powersave"), (b, "performance")):
            name = f"sys__devices__system__cpu__cpu{cpu}__cpufreq__scaling_governor"
            write(root, **{name: governor})
    (found,) = differences(a, b)
    assert found.name == "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    assert (found.a, found.b) == ("powersave", "performance")


def test_kernel_configurations_are_compared_in_either_form(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    (a / "boot").mkdir(parents=True)
    lines = ["CONFIG_HZ=250", *(f"CONFIG_A{i}=y" for i in range(20))]
    (a / "boot" / "config-6.1.0").write_text("\n".join(lines))
    b = write(tmp_path / "b")
    (b / "proc").mkdir(parents=True)
    packed = gzip.compress(b"CONFIG_HZ=1000\nCONFIG_PREEMPT_RT=y\n# CONFIG_A1 is not set\n")
    (b / "proc" / "config.gz").write_bytes(packed)
    found = differences(a, b)
    assert found[0] == Difference("kernel configuration HZ", "250", "1000")
    assert found[1] == Difference("kernel configuration PREEMPT_RT", ABSENT, "y")
    assert len(found) == 9 and "14 more" in found[-1].name


@pytest.mark.parametrize("content", [b"\xff\x00\x1b[31m", b"x" * 10_000])
def test_odd_files_are_told_shortly_and_harmlessly(tmp_path: Path, content: bytes) -> None:
    a = write(tmp_path / "a", proc__sys__kernel__watchdog=content)
    (a / "proc" / "config.gz").write_bytes(content)
    (a / "loop").symlink_to(a)
    (found,) = [d for d in differences(a, tmp_path / "missing") if "watchdog" in d.name]
    assert found.b == ABSENT
    assert len(found.a) <= 60 and found.a.isprintable()


def test_a_gzip_bomb_is_not_unpacked_whole(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    (a / "proc").mkdir(parents=True)
    (a / "proc" / "config.gz").write_bytes(gzip.compress(b"CONFIG_A=y\n" * 2_000_000))
    assert len(differences(a, b)) <= 1


def test_another_machine_or_build_is_said(
    session_writer: SessionWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    a = fill(session_writer("stock/1"))
    b = fill(
        session_writer("rt/1", label="rt", machine_id=None, programs={"pipes": "11" * 32, "cv": ""})
    )
    assert [d.name for d in recorded_differences(a.info, b.info)] == ["machine_id", "program pipes"]
    _, out, _ = klat_compare(capsys, a.path, b.path)
    assert "machine_id: 6d61 | absent" in out
