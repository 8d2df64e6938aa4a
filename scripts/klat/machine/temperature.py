"""How warm the machine is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_CLASSES = Path("/sys/class")
# The kernel's drivers of the sensors in x86 CPUs, and a common one from outside the kernel.
_CPU_DRIVERS = frozenset({"coretemp", "k10temp", "zenpower"})


def celsius(classes: Path = _CLASSES) -> float | None:
    """The temperature of the hottest CPU sensor, or else of the hottest thermal zone. None without a sensor.

    AMD's CPUs are in no thermal zone. A zone of the firmware can have a constant temperature."""
    hottest = _hottest(
        file
        for sensors in classes.glob("hwmon/hwmon*")
        if _text(sensors / "name") in _CPU_DRIVERS
        for file in sensors.glob("temp*_input")
    )
    return hottest if hottest is not None else _hottest(classes.glob("thermal/thermal_zone*/temp"))


def _hottest(files: Iterable[Path]) -> float | None:
    """In the files are thousandths of a degree. A sensor without a value is left out."""
    found = []
    for file in files:
        try:
            found.append(int(_text(file)) / 1000)
        except ValueError:
            continue
    return max(found, default=None)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
