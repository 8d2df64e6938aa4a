"""The temperature, from sensors as they are in /sys/class."""

import pytest
from made_tools import plant

from klat.machine.kernel_files import celsius, is_cool

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
