"""How much the true effects of several groups vary. The effect of each group is an estimate with an error.

The model is random effects: the true effect of a group is drawn from a population. Each group has the same
weight. Then the error of the mean is that of Hartung and Knapp (Statistics in Medicine 20, 2001) with equal
weights. This equals the error of Student's t over the groups, so klat.stats.means computes it.

Weights from the estimated errors would be more precise. But an error that is estimated from few units is
often too small. The level is then not kept (docs/validation.md, Machines; Roever, Knapp and Friede, BMC
Medical Research Methodology 15, 2015). Student's t keeps a two-sided level of 8 % or less for any errors of
the groups (Bakirov and Szekely, J. Mathematical Sciences 139, 2006; Ibragimov and Mueller, J. Business &
Economic Statistics 28, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from klat.stats.hierarchy import mean, variance


def between_variance(effects: Sequence[float], errors: Sequence[float]) -> float:
    """The variance of the true effects, from at least two estimates with their standard errors: Hedges and
    Olkin, Statistical Methods for Meta-Analysis (1985), chapter 9. It is unbiased, so it can be negative.
    The errors then explain the whole variation of the estimates."""
    return variance(effects) - mean([error**2 for error in errors])


def next_effect(effects: Sequence[float], confidence: float) -> tuple[float, float]:
    """The interval in which the estimate of one more group is expected: Student's prediction interval (Hahn
    and Meeker, Statistical Intervals, 1991, chapter 4). It needs at least two effects, and assumes that the
    errors of all groups are alike. It covers the true effect of that group at least as often."""
    from scipy.special import stdtrit

    n = len(effects)
    quantile = float(stdtrit(n - 1, (1 + confidence) / 2))
    reach = quantile * math.sqrt(variance(effects) * (1 + 1 / n))
    return mean(effects) - reach, mean(effects) + reach
