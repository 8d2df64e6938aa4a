"""Effects of several groups, each estimated with an error of its own: the spread of the groups.

The model is that of random effects: the true effect of a group is drawn from a population. Each group
has the same weight. The error of the mean is then Hartung and Knapp's (Statistics in Medicine 20, 2001)
with equal weights, which is that of Student's t over the groups, so klat.stats.means computes it.

Weights from the estimated errors would be more precise, but an error that was estimated from few units is
too often too small: then the level is not kept (docs/validation.md, Machines; Roever, Knapp and Friede,
BMC Medical Research Methodology 15, 2015). Student's t keeps a two-sided level up to 8 % whatever the
errors of the groups are (Bakirov and Szekely, J. Mathematical Sciences 139, 2006; Ibragimov and Mueller, J.
Business & Economic Statistics 28, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from klat.stats.hierarchy import mean, variance


def between_variance(effects: Sequence[float], errors: Sequence[float]) -> float:
    """The variance of the true effects, from at least two estimates with their standard errors: Hedges and
    Olkin, Statistical Methods for Meta-Analysis (1985), chapter 9. It is unbiased, so it can be negative:
    the errors then explain the whole spread."""
    return variance(effects) - mean([error**2 for error in errors])


def next_effect(effects: Sequence[float], confidence: float) -> tuple[float, float]:
    """Where the estimate of one more group is expected, if it has an error like the others: Student's
    prediction interval (Hahn and Meeker, Statistical Intervals, 1991, chapter 4). At least two effects.
    The true effect of that group is in it at least as often."""
    from scipy.special import stdtrit

    n = len(effects)
    quantile = float(stdtrit(n - 1, (1 + confidence) / 2))
    reach = quantile * math.sqrt(variance(effects) * (1 + 1 / n))
    return mean(effects) - reach, mean(effects) + reach
