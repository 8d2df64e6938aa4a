"""Judges a limit on all cells of a comparison: on each side, and the difference of the sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from klat.compare.cell_tests import MatchedSides, without_figure
from klat.compare.comparison import Against, Cell, CellLimit
from klat.compare.limits import Limit, SamplesAbove, judged, samples_above
from klat.compare.matching import MatchedCell, SideUnits
from klat.compare.observations import Units
from klat.compare.runs import Runs
from klat.compare.verdicts import Rules, Verdict, too_few
from klat.stats.exceedance import Unit, p_by_counts, share_of
from klat.stats.means import mean, paired, student, variance, welch
from klat.stats.power import Design, MOST_UNITS, by_chance, power_of_change, smallest


def with_limits(
    matched: Sequence[MatchedSides], limit: Limit, rules: Rules
) -> tuple[tuple[Against, ...], int]:
    """The sides with the limit of each cell, and the number of tests. A BASE that is compared with several
    NEWs counts once."""
    above: dict[Runs, SamplesAbove] = {}
    shares: dict[MatchedCell, _Shares] = {}
    for sides in matched:
        for pair, cell in zip(sides.pairs, sides.against.cells):
            if cell.refused:
                continue
            for side in (pair.base, pair.new):
                if side.units and side not in above:
                    above[side] = samples_above(side, limit)
            shares[pair] = _shares(pair, above, sides.units, rules)
    p = [share.p for share in shares.values()]
    judgements, adjusted, family = judged(list(above.values()), limit, rules, p)
    side_limits = dict(zip(above, judgements))
    corrected = dict(zip(shares, adjusted))

    def with_limit(pair: MatchedCell, cell: Cell) -> Cell:
        if cell.refused:
            return cell
        base, new = side_limits.get(pair.base), side_limits.get(pair.new)
        verdict = new.verdict if new else without_figure(pair.base, pair.new)[0]
        share, p_adjusted = shares[pair], corrected[pair]
        difference, reason = _difference(share, p_adjusted, rules, family)
        of_cell = CellLimit(base, new, verdict, difference, share.p, p_adjusted, reason)
        return replace(cell, limit=of_cell)

    cells = (tuple(map(with_limit, sides.pairs, sides.against.cells)) for sides in matched)
    return tuple(replace(s.against, cells=of_side) for s, of_side in zip(matched, cells)), family


@dataclass(frozen=True)
class _Shares:
    """The shares of the units of both sides. `p` is that of the hypothesis that the sides have the same
    share; None if it is not tested, and then `reason` says why. It is the larger one of two: by the
    readings, and if rounding to the counter's step moved the sides as far apart as it can. `p_read` is
    the former, and `p_means` is p_equal_means() of the readings."""

    reason: str
    p: float | None = None
    p_read: float = 1.0
    p_means: float = 1.0
    base: Sequence[float] = ()
    new: Sequence[float] = ()
    noun: str = ""
    pairs: bool = False


def _shares(
    pair: MatchedCell, above: Mapping[Runs, SamplesAbove], units: SideUnits, rules: Rules
) -> _Shares:
    if not (pair.base.units and pair.new.units):
        return _Shares(without_figure(pair.base, pair.new)[1])
    base_above, new_above = above[pair.base], above[pair.new]
    if not (base_above.observed.above or new_above.observed.above):
        return _Shares("neither side has a sample above the limit")
    if obstacle := units.obstacle_of(pair.keys[0][0]):
        return _Shares(obstacle)
    in_pairs = bool(units.base.pairs)

    def units_counted(base_count: int, new_count: int) -> tuple[list[Unit], list[Unit]]:
        """The units of both sides by these counts; only complete pairs, if there are pairs."""
        by_name = _by_unit(pair.base, units.base, base_above, base_count)
        new_by_name = _by_unit(pair.new, units.new, new_above, new_count)
        if in_pairs:
            by_name = {name: unit for name, unit in by_name.items() if name in new_by_name}
            new_by_name = {name: new_by_name[name] for name in by_name}
        return list(by_name.values()), list(new_by_name.values())

    base, new = units_counted(_READ, _READ)
    noun = units.base.noun
    if why := too_few(len(base), len(new), in_pairs, noun, rules.alpha):
        return _Shares(why)
    base_shares, new_shares = _shares_of(base), _shares_of(new)
    p = p_read = p_equal(base, new, in_pairs)
    is_more = mean(new_shares) > mean(base_shares)
    nearest = units_counted(_MOST, _LEAST) if is_more else units_counted(_LEAST, _MOST)
    if nearest != (base, new):
        base_nearest, new_nearest = map(_shares_of, nearest)
        keeps_sign = is_more == (mean(new_nearest) > mean(base_nearest))
        p = max(p, p_equal(*nearest, in_pairs) if keeps_sign else 1.0)
    p_means = p_equal_means(base_shares, new_shares, in_pairs)
    return _Shares("", p, p_read, p_means, base_shares, new_shares, noun, in_pairs)


def _shares_of(units: Sequence[Unit]) -> list[float]:
    return list(map(share_of, units))


def _difference(
    shares: _Shares, adjusted: float | None, rules: Rules, family: int
) -> tuple[Verdict, str]:
    """The verdict, or why there is none."""
    if shares.p is None or adjusted is None:
        return Verdict.CANNOT_TELL, shares.reason
    if adjusted <= rules.alpha:
        more = mean(shares.new) > mean(shares.base)
        return (Verdict.MORE if more else Verdict.FEWER), ""
    if shares.p <= rules.alpha:
        why = f"they differ as a single test, but not after the correction for {family} tests"
        return Verdict.CANNOT_TELL, why
    if shares.p_read <= rules.alpha:
        return Verdict.CANNOT_TELL, "rounding to the counter's step can cause their difference"
    if shares.p_means <= rules.alpha:
        why = "the numbers of samples above the limit differ no more than by chance"
        return Verdict.CANNOT_TELL, why
    why = f"the shares of the {shares.noun}s differ no more than by chance"
    if units := _units_needed(shares, rules.strictest(family), rules.power):
        needed = f"{units:,} {shares.noun}s a side"
        why += f"; {needed} would show this difference, if the estimates are correct"
    return Verdict.CANNOT_TELL, why


def _units_needed(shares: _Shares, alpha: float, power: float) -> int | None:
    effect = mean(shares.new) - mean(shares.base)
    now = min(len(shares.base), len(shares.new))
    design = Design(now, variance(shares.base), variance(shares.new))
    if shares.pairs:
        changes = [new - base for base, new in zip(shares.base, shares.new)]
        design = Design(now, variance(changes), pairs=True)

    def likely(units: int) -> bool:
        return power_of_change(replace(design, units=units), effect, 0.0, alpha) >= power

    return smallest(likely, now + 1, MOST_UNITS)


def p_equal(base: Sequence[Unit], new: Sequence[Unit], pairs: bool) -> float:
    """The p value of the hypothesis that two sides have the same share: the larger one of p_equal_means()
    and p_by_counts(). At least two units on each side."""
    means = p_equal_means(_shares_of(base), _shares_of(new), pairs)
    return max(means, p_by_counts(base, new, pairs))


def p_equal_means(a: Sequence[float], b: Sequence[float], pairs: bool) -> float:
    """The p value of the hypothesis that the units of two sides, at least two on each, have the same
    mean share. For pairs, by Student's test. Else the larger p of Welch's and Student's tests: shares
    are skewed, so Welch's test alone errs too often if the sides have different numbers of units.
    """
    highest = max(*a, *b) or 1.0
    a, b = [x / highest for x in a], [x / highest for x in b]
    tests = [paired([y - x for x, y in zip(a, b)])] if pairs else [welch(a, b), student(a, b)]
    p = [test.p_changed(0.0) for test in tests if test]
    return max(*p, by_chance(a, b, pairs))


# Places in the counts of SamplesAbove.
_LEAST, _READ, _MOST = range(3)


def _by_unit(cell: Runs, units: Units, above: SamplesAbove, which: int) -> dict[str, Unit]:
    """The counts of each unit, by its pair if it has one. Copies of a boot do not count."""
    by_unit: dict[str, Unit] = {}
    for key, runs in units.of(cell).items():
        counted = [above.counts[run] for run in runs if run in above.counts]
        if counted:
            name = units.pairs.get(key) or ":".join(key)
            by_unit[name] = [(numbers[which], n) for numbers, n in counted]
    return by_unit
