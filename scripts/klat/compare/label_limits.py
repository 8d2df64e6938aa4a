"""Judges a limit on every metric of some labels, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from klat.base.errors import KlatError
from klat.compare.comparison import INCONCLUSIVE, NO_REGRESSION, REGRESSION
from klat.compare.dataset import Dataset
from klat.compare.limits import Limit, SideLimit, check, judged, samples_above
from klat.compare.settings import Measurement, Setting, counted
from klat.compare.verdicts import Rules, Verdict


@dataclass(frozen=True)
class LabelLimits:
    """The limit of each measurement with a run that counts. `family` is the number of tests that the correction
    is for."""

    limit: Limit
    rules: Rules
    family: int
    sides: dict[Measurement, SideLimit]

    def of_setting(self, setting: Setting) -> list[tuple[Measurement, SideLimit]]:
        measured = setting.measurements.values()
        return [(m, self.sides[m]) for m in measured if m in self.sides]

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(side.verdict for side in self.sides.values())

    @property
    def status(self) -> int:
        """The exit status: 1 if any verdict is exceeded, else 3 if any is cannot tell, else 0."""
        if self.verdicts[Verdict.EXCEEDED]:
            return REGRESSION
        return INCONCLUSIVE if self.verdicts[Verdict.CANNOT_TELL] else NO_REGRESSION


def label_limits(labels: Sequence[Dataset], limit: Limit, rules: Rules) -> LabelLimits:
    """KlatError if a label has no samples in the limit's unit, or no run counts. SessionError if
    samples are missing."""
    for label in labels:
        check(limit, label)
    measured = [measurement for label in labels for _, measurement in counted(label.settings)]
    if not measured:
        raise KlatError(f"--limit {limit.text}: no run counts, so there is no share to judge")
    above = [samples_above(m.runs, limit, m.unusable) for m in measured]
    sides, _ = judged(above, limit, rules)
    family = sum(side.p is not None for side in sides)
    return LabelLimits(limit, rules, family, dict(zip(measured, sides)))
