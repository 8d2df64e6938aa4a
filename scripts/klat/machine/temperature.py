"""How warm the machine is."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from pathlib import Path

from klat.machine.kernel_files import text as _text

_CLASSES = Path("/sys/class")
# The kernel's drivers of the sensors in x86 CPUs, and a common one from outside the kernel.
_CPU_DRIVERS = frozenset({"coretemp", "k10temp", "zenpower"})


def celsius(classes: Path = _CLASSES) -> dict[str, float]:
    """The hottest temperature by driver of the CPU's sensors. Without such a driver: by kind of thermal
    zone. Empty without a sensor.

    AMD's CPUs are in no thermal zone. A zone of the firmware can have a constant temperature."""
    drivers = [(path, _text(path / "name")) for path in classes.glob("hwmon/hwmon*")]
    found = _hottest(
        (name, file)
        for path, name in drivers
        if name in _CPU_DRIVERS
        for file in path.glob("temp*_input")
    )
    zones = classes.glob("thermal/thermal_zone*")
    return found or _hottest((_text(zone / "type"), zone / "temp") for zone in zones)


def is_cool(now: Mapping[str, float], boots: Iterable[dict[str, float]], warmer: float) -> bool:
    """Whether no sensor is more than `warmer` degrees warmer than in the first of `boots` that has it."""
    first = ChainMap(*boots)
    return all(now[name] <= first[name] + warmer for name in now.keys() & first.keys())


def _hottest(files: Iterable[tuple[str, Path]]) -> dict[str, float]:
    """In the files are thousandths of a degree. A sensor without a value is left out."""
    found: dict[str, float] = {}
    for name, file in files:
        try:
            degrees = int(_text(file)) / 1000
        except ValueError:
            continue
        found[name] = max(degrees, found.get(name, degrees))
    return found
