"""The types of cores, the nodes and the temperature that doctor names, on made-up machines. test_topology.c has the same rules
for the programs."""

from pathlib import Path

import pytest
from made_tools import plant, write
from written_sessions import CPU

from klat.machine.kernel_files import celsius, core_types, cpu_list, cpus_of_unknown_nodes, is_cool
from klat.machine.kernel_files import online_and_allowed, ranges

CAPACITY, RANKING, PART = (
    f"{CPU}/cpu{{}}/{file}"
    for file in ("cpu_capacity", "acpi_cppc/highest_perf", "regs/identification/midr_el1")
)
LAST_LEVEL = f"{CPU}/cpu{{}}/cache/index3/shared_cpu_list"
SHARED = f"{CPU}/cpu{{}}/cache/index2/shared_cpu_list"


def plant_cpus(root: Path, files: dict[str, str]) -> None:
    """`{}` of a name is each CPU of the text before the colon, if there is one."""
    for name, text in files.items():
        for part in text.split():
            cpus, _, value = part.rpartition(":")
            for cpu in cpu_list(cpus) or ("",):
                write(root / name.format(cpu), f"{value}\n")


def intel(**cpus: str) -> dict[str, str]:
    return {f"sys/devices/cpu_{kind}/cpus": text for kind, text in cpus.items()}


@pytest.mark.parametrize(
    ("files", "types"),
    [
        ({}, ""),
        (intel(core="0-7"), ""),
        (intel(core="0-3", atom="4-6"), "core 0-3, atom 4-6, unknown 7"),
        (
            intel(core="0-1", atom="2-7") | {LAST_LEVEL: "0-5:0-5", SHARED: "2-5:2-5 6-7:6-7"},
            "core 0-1, atom 2-5, lowpower 6-7",
        ),
        (intel(core="0-1", atom="2-7", lowpower="6-7"), "core 0-1, atom 2-5, lowpower 6-7"),
        ({CAPACITY: "0-3:530 4-5:1024 6-7:1010"}, "big 4-7, little 0-3"),
        ({CAPACITY: "0-7:1024", RANKING: "0-3:250 4-7:100"}, ""),
        ({CAPACITY: "0-6:1024 7:-1"}, ""),
        ({CAPACITY: "0-6:1024 7:99999999999"}, ""),
        ({CAPACITY: "0-3:250 4-6:800 7:1024"}, "big 7, middle 4-6, little 0-3"),
        (
            {CAPACITY: "7:1024 5-6:880 2-4:700 0-1:3"},
            "big 7, middle-1 5-6, middle-2 2-4, little 0-1",
        ),
        ({PART: "0-3:0x611f0220 4-7:0x611f0230"}, "big 4-7, little 0-3"),
        ({PART: "0-3:0x410fd0b0 4-7:0x414fd0b1"}, ""),
        ({RANKING: "3:236 1:231 0:226 7:221 2:211 6:206 5:196 4:186"}, ""),
        ({RANKING: "0:208 1:203 2:198 3:193 4-7:132"}, "big 0-3, little 4-7"),
    ],
)
def test_types_are_the_fastest_first(tmp_path, files, types):
    plant_cpus(tmp_path, files)
    found = core_types(tmp_path, range(8))
    assert ", ".join(f"{name} {ranges(cpus)}" for name, cpus in found.items()) == types


@pytest.mark.parametrize(
    ("files", "unknown"),
    [
        ({}, ()),
        ({"sys/devices/system/node/online": "0"}, (0, 1, 2, 3)),
        ({"sys/devices/system/node/node1/cpulist": "2-3", f"{CPU}/cpu0/node0/cpumap": "1"}, (1,)),
    ],
)
def test_a_node_that_sysfs_does_not_show_is_unknown(tmp_path, files, unknown):
    plant_cpus(tmp_path, files)
    assert cpus_of_unknown_nodes(tmp_path, range(4)) == unknown


@pytest.mark.parametrize(
    ("online", "allowed", "cpus"),
    [("0-3", "1", ((0, 1, 2, 3), (1,))), ("0", "1-2", ((1, 2), (1, 2)))]
    + [("0-1", "", ((0, 1), (0, 1)))],
)
def test_an_online_file_without_an_allowed_cpu_is_not_of_this_machine(
    tmp_path, online, allowed, cpus
):
    plant_cpus(tmp_path, {f"{CPU}/online": online})
    write(tmp_path / "proc/self/status", f"Cpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n")
    assert online_and_allowed(tmp_path) == cpus


INTEL = {
    "thermal/thermal_zone0/type": "acpitz",
    "thermal/thermal_zone0/temp": "27800",
    "hwmon/hwmon0/name": "nvme",
    "hwmon/hwmon0/temp1_input": "71850",
    "hwmon/hwmon1/name": "coretemp",
    "hwmon/hwmon1/temp1_input": "44000",
    "hwmon/hwmon1/temp2_input": "46000",
    "hwmon/hwmon1/temp2_max": "100000",
}
AMD = {
    "thermal/thermal_zone0/type": "acpitz",
    "thermal/thermal_zone0/temp": "84000",  # constant, from the firmware
    "hwmon/hwmon2/name": "k10temp",
    "hwmon/hwmon2/temp1_input": "38125",
}
BOARD = {
    "thermal/thermal_zone0/type": "cpu-thermal",
    "thermal/thermal_zone0/temp": "51000",
    "thermal/thermal_zone1/type": "gpu-thermal",
    "thermal/thermal_zone1/temp": "49500",
    "hwmon/hwmon0/name": "cpu_thermal",
    "hwmon/hwmon0/temp1_input": "51000",
}
SENSOR_OFF = {
    "thermal/thermal_zone0/type": "soc",
    "thermal/thermal_zone0/temp": "",
    "thermal/thermal_zone1/type": "soc",
    "thermal/thermal_zone1/temp": "-5000",
}


@pytest.mark.parametrize(
    ("sensors", "expected"),
    [
        pytest.param(INTEL, {"coretemp": 46.0}, id="Intel"),
        pytest.param(AMD, {"k10temp": 38.125}, id="AMD"),
        pytest.param(BOARD, {"cpu-thermal": 51.0, "gpu-thermal": 49.5}, id="board"),
        pytest.param(SENSOR_OFF, {"soc": -5.0}, id="a-zone-without-value"),
        pytest.param({}, {}, id="no-sensor"),
    ],
)
def test_the_hottest_cpu_sensor_counts(sensors, expected, tmp_path):
    assert celsius(plant(tmp_path, {k: f"{text}\n" for k, text in sensors.items()})) == expected


@pytest.mark.parametrize(
    ("now", "cool"),
    [
        ({"coretemp": 45.0}, True),
        ({"coretemp": 45.1}, False),
        # The other kernel has another driver for the CPU's sensor.
        ({"zenpower": 55.0}, True),
        ({"zenpower": 55.1}, False),
        # The other kernel has no driver for the CPU's sensor.
        ({"acpitz": 84.0}, True),
        ({}, True),
    ],
)
def test_each_sensor_is_compared_with_its_first_value(now, cool):
    boots: list[dict[str, float]] = [
        {},
        {"coretemp": 40.0},
        {"zenpower": 50.0},
        {"coretemp": 43.0, "zenpower": 53.0},
    ]
    assert is_cool(now, boots, 5.0) == cool
    assert is_cool(now, [], 5.0)
