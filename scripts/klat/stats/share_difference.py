"""Whether two sides differ in the share of samples above a limit, by the counts of these samples."""

from __future__ import annotations

from collections.abc import Sequence

from klat.stats.hierarchy import mean

Counts = tuple[int, int]  # of a run: samples above the limit, and all
Unit = Sequence[Counts]  # the runs of a boot or block


def share_of(unit: Unit) -> float:
    above, n = _total(unit)
    return above / n


def p_by_counts(base: Sequence[Unit], new: Sequence[Unit], pairs: bool) -> float:
    """The p value of the hypothesis that both sides have the same share. Given the number of samples
    above the limit on both sides together, the number on one side is binomial (Przyborowski and
    Wilenski, Biometrika 31, 1940). 1 if no sample is above, or if the shares of all samples and the
    means of the units' shares differ in opposite directions.

    A test of the units' means does not replace it: a side with few samples often has none above the
    limit, and then seems not to vary.
    """
    from scipy.special import betainc

    sides = [base, new]
    if mean([share_of(unit) for unit in base]) > mean([share_of(unit) for unit in new]):
        sides.reverse()
    (fewer, n), (more, m) = (_total([_total(unit) for unit in side]) for side in sides)
    # The variance of a count divided by its mean: at least that of independent samples.
    effect = max(1 - (fewer + more) / (n + m), _dispersion(sides, pairs))
    if not more or effect <= 0:
        return 1.0
    return min(1.0, 2 * float(betainc(more / effect, fewer / effect + 1, m / (n + m))))


def _total(unit: Unit) -> Counts:
    return sum(above for above, _ in unit), sum(n for _, n in unit)


def _dispersion(sides: Sequence[Sequence[Unit]], pairs: bool) -> float:
    """Pearson's index of dispersion of the counts of the runs in a unit. If every unit has one run: of
    the units of a side, but not of pairs, whose units vary together."""
    groups = [unit for side in sides for unit in side if len(unit) > 1]
    if not groups and not pairs:
        groups = [[_total(unit) for unit in side] for side in sides]
    squares, degrees = 0.0, 0
    for group in groups:
        above, every = _total(group)
        if above:
            expected = [above * n / every for _, n in group]
            squares += sum((x - mu) ** 2 / mu for (x, _), mu in zip(group, expected))
            degrees += len(group) - 1
    return squares / degrees if degrees else 0.0
