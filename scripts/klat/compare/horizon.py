"""How far a tail is extrapolated: a number of samples, or a time for which a program runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from klat.compare.settings import Measurement, Setting
from klat.compare.sources import Run

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18})"
_NUMBER = rf"{_WHOLE}(?:\.[0-9]{{1,9}})?(?:e\+?[0-9]{{1,2}})?"
_PATTERN = re.compile(rf"({_NUMBER})({'|'.join(_SECONDS)})?", re.ASCII | re.IGNORECASE)
LARGEST = 1e18  # samples


@dataclass(frozen=True)
class Horizon:
    """`text` is what was asked for. One of `samples` and `seconds` is None."""

    text: str
    samples: float | None
    seconds: float | None

    @staticmethod
    def parse(text: str) -> Horizon:
        """ValueError with a sentence if the text is neither a time nor a number of samples."""
        found = _PATTERN.fullmatch(text)
        if not found:
            raise ValueError(
                "must be a time, for example 8h, 30min or 2d, or a number of samples, for example 1e9"
            )
        number, unit = float(found[1].replace(",", "")), found[2]
        if unit:
            number *= _SECONDS[unit.lower()]
        if not 0 < number <= LARGEST:
            raise ValueError(f"must be more than 0 and at most {LARGEST:g}")
        if unit is None and number != int(number):
            raise ValueError(
                "must be a whole number of samples, or a time with its unit, for example 8h"
            )
        return Horizon(text, None, number) if unit else Horizon(text, number, None)

    def of(self, setting: Setting, measurement: Measurement) -> float | None:
        """The horizon in samples of this metric. None if it is a time and the metric has no fixed rate."""
        if self.samples is not None:
            return self.samples
        rate = samples_per_second(setting, measurement.runs)
        return None if rate is None or self.seconds is None else self.seconds * rate


def samples_per_second(setting: Setting, runs: Sequence[Run]) -> float | None:
    """The rate of a periodic timer or of a soak, from the time that the runs took without their warm-up.
    None for other programs, because they measure as fast as they can, and if the mode measures no time.
    """
    if any(run.source.session.khz is None for run in runs):
        return None
    if setting.params.get("mode") != "periodic" and "soak" not in setting.params:
        return None
    samples = sum(run.row.n or 0 for run in runs)
    seconds = sum(_seconds(run) for run in runs)
    return samples / seconds if seconds > 0 else None


def _seconds(run: Run) -> float:
    options = run.row.options()
    elapsed = (run.row.elapsed_ns or 0) / 1e9
    if run.row.soak:
        return elapsed
    iterations, warmup = (_count(options.get(name, "")) for name in ("iterations", "warmup"))
    return elapsed * iterations / (iterations + warmup) if iterations else elapsed


def _count(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,18}", text, re.ASCII) else 0
