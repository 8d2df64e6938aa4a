"""Judges a limit on every metric of some labels, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from klat.base.errors import KlatError
from klat.compare.comparison import INCONCLUSIVE, NO_REGRESSION, REGRESSION
from klat.compare.dataset import Dataset
from klat.compare.limits import Limit, SideLimit, check, judged, open_limit
from klat.compare.settings import counted
from klat.compare.verdicts import Rules, Verdict


@dataclass(frozen=True)
class LabelLimits:
    """The limit of each measurement with a run that counts, by id(measurement). `family` is the number of
    tests that the correction is for."""

    limit: Limit
    rules: Rules
    family: int
    found: dict[int, SideLimit]

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(found.verdict for found in self.found.values())

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
    opened = [open_limit(each.runs, limit, each.unusable) for each in measured]
    found, _ = judged(opened, limit, rules)
    family = sum(each.p is not None for each in found)
    return LabelLimits(limit, rules, family, dict(zip(map(id, measured), found)))
