from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from made_tools import plant

from klat.record.environment import ABSENT, Difference, differences, recorded_differences


def write(root: Path, **files: str | bytes) -> Path:
    return plant(root, {name.replace("__", "/"): content for name, content in files.items()})


def test_the_environment_differs_by_value_and_by_presence(tmp_path):
    a = write(tmp_path / "a", proc__sys__vm__swappiness="60\n", sys__kernel__realtime="1\n")
    b = write(tmp_path / "b", proc__sys__vm__swappiness="10\n")
    assert differences(a, b) == [
        Difference("proc/sys/vm/swappiness", "60", "10"),
        Difference("sys/kernel/realtime", "1", ABSENT),
    ]
    assert differences(a, a) == []


def test_counters_are_no_differences(tmp_path):
    a = write(tmp_path / "a", proc__interrupts="1", proc__loadavg="1", proc__stat="1")
    b = write(tmp_path / "b", proc__interrupts="2", proc__loadavg="2", proc__stat="2")
    assert differences(a, b) == []


def test_the_command_line_differs_by_option(tmp_path):
    a = write(tmp_path / "a", proc__cmdline="BOOT_IMAGE=/a quiet isolcpus=1\n")
    b = write(tmp_path / "b", proc__cmdline="BOOT_IMAGE=/b isolcpus=2 quiet nohz_full=1\n")
    assert differences(a, b) == [
        Difference("proc/cmdline isolcpus", "1", "2"),
        Difference("proc/cmdline nohz_full", ABSENT, "1"),
    ]


def test_of_long_lists_only_the_different_words_are_shown(tmp_path):
    flags = " ".join(f"flag{number}" for number in range(40))
    a = write(tmp_path / "a", proc__cpuinfo=f"flags : {flags} rdtscp\n")
    b = write(tmp_path / "b", proc__cpuinfo=f"flags : fred {flags} \n")
    assert differences(a, b) == [Difference("proc/cpuinfo flags", "rdtscp", "fred")]
    c = write(tmp_path / "c", proc__cpuinfo=f"flags : {flags} \n")
    assert differences(a, c) == [Difference("proc/cpuinfo flags", "rdtscp", "nothing more")]


def test_a_setting_of_every_cpu_is_listed_once(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    for cpu in range(8):
        for root, governor in ((a, "powersave"), (b, "performance")):
            name = f"sys__devices__system__cpu__cpu{cpu}__cpufreq__scaling_governor"
            write(root, **{name: governor})
    (found,) = differences(a, b)
    assert found.name == "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    assert (found.a, found.b) == ("powersave", "performance")


def test_kernel_configurations_are_compared_in_either_form(tmp_path):
    lines = ["CONFIG_HZ=250", *(f"CONFIG_A{i}=y" for i in range(20))]
    a = plant(tmp_path / "a", {"boot/config-6.1.0": "\n".join(lines)})
    packed = gzip.compress(b"CONFIG_HZ=1000\nCONFIG_PREEMPT_RT=y\n# CONFIG_A1 is not set\n")
    b = plant(tmp_path / "b", {"proc/config.gz": packed})
    found = differences(a, b)
    assert found[0] == Difference("kernel configuration HZ", "250", "1000")
    assert found[1] == Difference("kernel configuration PREEMPT_RT", ABSENT, "y")
    assert len(found) == 9 and "14 more" in found[-1].name


@pytest.mark.parametrize("content", [b"\xff\x00\x1b[31m", b"x" * 10_000])
def test_odd_files_are_shown_short_and_printable(tmp_path, content):
    a = write(tmp_path / "a", proc__sys__kernel__watchdog=content)
    (a / "proc" / "config.gz").write_bytes(content)
    (a / "loop").symlink_to(a)
    (found,) = [d for d in differences(a, tmp_path / "missing") if "watchdog" in d.name]
    assert found.b == ABSENT
    assert len(found.a) <= 60 and found.a.isprintable()


def test_a_gzip_bomb_is_not_unpacked_whole(tmp_path):
    bomb = gzip.compress(b"CONFIG_A=y\n" * 2_000_000)
    assert len(differences(plant(tmp_path / "a", {"proc/config.gz": bomb}), tmp_path / "b")) <= 1


def test_another_machine_or_build_is_a_difference(new_session):
    a = new_session("stock/1")
    b = new_session("rt/1", label="rt", machine_id=None, programs={"pipes": "11" * 32, "cv": ""})
    assert [d.name for d in recorded_differences(a.info, b.info)] == ["machine_id", "program pipes"]
