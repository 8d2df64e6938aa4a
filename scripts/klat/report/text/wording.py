"""The words for a verdict and its figures, the same in every form of report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from klat.compare.comparison import Against, Cell, Comparison, OverMachines, Result, SideInfo
from klat.compare.comparison import Uncompared
from klat.report.text.parameters import HIDDEN, parameters
from klat.report.text.numbers import MISSING, boots, confidence, look_sentence, percent, plural
from klat.report.text.numbers import ratio_digits, reaches_margin, whole
from klat.record.session import NOT_MEASURABLE, printable
from klat.compare.dataset import Key
from klat.compare.observations import Within
from klat.compare.verdicts import TURNS, Judgement, Method, Rules, Settle, Verdict


# The figure is that of docs/validation.md.
FIXED_BEFOREHAND = (
    "Fix the number of boots or blocks before you measure. If you look after each boot from 4 to 20"
    " and stop at the first verdict, the chance of a false one is 17 % instead of 5 %."
)


def verdict(judgement: Judgement) -> str:
    """One word, or a few."""
    return judgement.verdict.value if judgement.verdict else ""


def estimand(result: Result) -> str:
    """Its name in a table."""
    return f"{result.estimand} pooled" if result.judgement.pooled else result.estimand


def unmeasurable(against: Against) -> list[str]:
    """A sentence for each metric that has no number in this mode."""
    return [
        f"{NOT_MEASURABLE} ({sides}): {printable(setting(key, keys(against)))}: {printable(key[3])}"
        for sides, key in against.unmeasurable
    ]


def uncompared(left: Uncompared, against: Against) -> str:
    """A line for a measurement in no cell."""
    metric = f": {left.key[3]}" if left.key[3] else ""
    what = f"{left.what}: {setting(left.key, keys(against))}{metric}"
    return f"{printable(what)} ({uncompared_reason(left)})"


def uncompared_reason(left: Uncompared) -> str:
    return printable(left.reason if left.neither else f"BASE: {left.reason}")


def setting(key: Key, among: Iterable[Key] = ()) -> str:
    """Benchmark, placement and parameters in one line. `among` are the keys of the same report."""
    benchmark, params, placement, _ = key
    others = {other[1] for other in among if other[0] == benchmark}
    shown = (f"{name}={value}" for name, value in parameters(benchmark, params, others).items())
    return " ".join(filter(None, [benchmark, placement, *shown]))


def identity(key: Key) -> tuple[str, str]:
    """Benchmark and metric, and placement and all parameters."""
    benchmark, params, placement, metric = key
    name = " ".join(f"{placement} {params.replace(';', ' ')}".split())
    return ".".join(filter(None, (benchmark, metric))), name


def keys(against: Against) -> list[Key]:
    """All that the report of BASE and one NEW names."""
    every = [cell.key for cell in against.cells]
    every += [key for _, key in against.unmeasurable]
    return every + [left.key for left in against.uncompared]


def names(cells: Sequence[Cell | OverMachines]) -> list[tuple[str, str]]:
    """For each cell, benchmark and metric; then placement, the params that differ between the
    benchmark's cells, and what is under test in some cells and not in all."""
    texts = []
    everywhere = (
        set(cells[0].under_test).intersection(*(c.under_test for c in cells)) if cells else set()
    )
    for cell in cells:
        params = [c.params.split(";") for c in cells if c.benchmark == cell.benchmark]
        common = set(params[0]).intersection(*params[1:])
        pairs = [pair for pair in cell.params.split(";") if pair not in common]
        tested = [what for what in cell.under_test if what not in everywhere]
        parts = ", ".join([" ".join([cell.placement, *pairs]), *tested])
        texts.append((f"{cell.benchmark} {cell.metric}", parts))
    return texts


def figure(value: float | None) -> str:
    """A time or a count; a small one with a decimal."""
    return f"{value:,.1f}" if value is not None and abs(value) < 100 else whole(value)


def quantity(value: float | None, unit: str) -> str:
    """The figure with its unit, where there is one."""
    return figure(value) + (f" {unit}" if value is not None else "")


def ratio(judgement: Judgement) -> tuple[str, str]:
    """Ratio and interval."""
    if judgement.ratio is None:
        return MISSING, ""
    if not judgement.interval:
        return f"{judgement.ratio:.3f}", "no interval"
    low, high = judgement.interval
    digits = ratio_digits(low, high)
    return f"{judgement.ratio:.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"


def p_value(p: float | None) -> str:
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def side(info: SideInfo) -> str:
    return (
        f"{info.label}: Linux {info.kernel}, preemption {info.model}; {how_measured(info)};"
        f" {boots_of(info)}, {info.run_noun}s: {info.runs}"
    )


def boots_of(info: SideInfo) -> str:
    sessions = "" if info.sessions == info.boots else f" in {plural(info.sessions, 'session')}"
    return boots(info.boots_of_metrics) + sessions


def how_measured(info: SideInfo) -> str:
    """The mode, the emulator if any, and the unit unless it is a time."""
    if info.mode == "counted":
        return f"instructions counted by {info.emulator or 'an emulator'}"
    unit = "" if info.unit == "ns" else f", unit {info.unit}"
    return f"mode {info.mode}{f' ({info.emulator})' if info.emulator else ''}{unit}"


def level(rules: Rules, family: int) -> str:
    """`alpha 5 %, by Holm over 12 tests`."""
    correction = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[rules.correction]
    tests = f", by {correction} over {plural(family, 'test')}" if family else ""
    return f"alpha {percent(rules.alpha)}{tests}"


def terms(comparison: Comparison) -> Iterator[str]:
    """The meaning of the figures, and the rules of the verdicts."""
    rules = comparison.options.rules
    counted = any(against.base.unit == "instructions" for against in comparison.against)
    yield (
        f"NEW/BASE above 1: NEW takes {'more instructions' if counted else 'longer'}. Intervals of {confidence(rules.alpha)} each; margin"
        f" {percent(rules.margin)}; {level(rules, comparison.family)}; p tests that the ratio is within the margin."
    )
    yield "A side's figure: the geometric mean over its boots or blocks, each with the same weight."
    if any(against.cells for against in comparison.against):
        yield HIDDEN
    if rules.look:
        yield look_sentence(rules.look, rules.alpha)
    elif any(r.judgement.settle for a in comparison.against for c in a.cells for r in c.results):
        yield FIXED_BEFOREHAND
    if any(over.judgement for over in comparison.over_machines):
        yield (
            "Over machines: each machine is one pair, and all have the same weight. The correction is over"
            " the tests of all machines and those over machines together. The exit status depends on the"
            " verdicts over machines, and on the verdict of each machine that these leave out."
        )
    if rules.correction == "bh":
        yield (
            "With bh, alpha bounds the share of false ones among the verdicts faster and slower, not"
            " the chance of any false one."
        )


def explanations(result: Result, against: Against, comparison: Comparison) -> Iterator[str]:
    """Sentences below a result: why it is not settled, and what would settle it."""
    j = result.judgement
    noun, run = j.noun, against.run_noun
    if j.verdict is Verdict.UNATTRIBUTABLE:
        yield j.reason
        if j.ratio is not None:
            what, within = f"these {noun}s", f"the {noun}s"
            if j.base.units == j.new.units == 1:
                # Settings, unlike kernels, are compared within one boot.
                shared = against.subject != "kernel"
                what = f"the two sides in this {noun}" if shared else f"these two {noun}s"
                within = "it" if shared else within
            how = {
                Method.RUNS: f"its interval is from the {run}s within {within}",
                Method.SAMPLES: f"its interval is from the samples of one {run} a side",
            }.get(j.method, f"it has no interval, because {_lone(j, noun, run)}")
            yield f"the ratio compares {what}, and {how}; it says nothing about other {noun}s"
        if against.subject == "kernel" and min(j.base.units, j.new.units) < 4:
            yield "a verdict on a kernel needs at least 4 boots a side; see klat plan"
    else:
        yield from in_doubt(j, comparison, "NEW", run)
    over = result.over_boots
    if over and over.method is Method.PAIRED:
        figures = "{} ({})".format(*ratio(over))
        yield (
            f"over {over.base.units} boots, one pair each: {figures}; this interval covers other boots"
            " too, and the verdict holds for the blocks of these boots"
        )
    if j.unpaired:
        yield f"{plural(j.unpaired, noun)} left out: incomplete, or without a partner on the other side"


def in_doubt(j: Judgement, comparison: Comparison, subject: str, run: str) -> Iterator[str]:
    """Why there is no verdict, what the interval shows beside the verdict, and what would settle it."""
    word = direction(j)
    if j.verdict is Verdict.SAME and word:
        yield f"{subject} is {word} beyond chance, but within the margin"
    if j.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_DELIVERED):
        yield j.reason
        if word and j.interval and reaches_margin(j.interval, comparison.options.rules.margin):
            yield f"{subject} is {word} beyond chance; the change may lie within the margin"
        if j.settle:
            yield settle(j.settle, j, run)


def direction(j: Judgement) -> str:
    """`longer` or `shorter` where the interval excludes 1; empty where it contains 1 or there are too
    few units for any claim."""
    if j.p is None or j.ratio is None or not j.interval or j.interval[0] <= 1 <= j.interval[1]:
        return ""
    return "longer" if j.ratio > 1 else "shorter"


def _lone(j: Judgement, noun: str, run: str) -> str:
    """Why runs give no interval."""
    if j.base.runs == j.new.runs == 1:
        return f"one {run} a side"
    for name, side in (("BASE", j.base), ("NEW", j.new)):
        if side.runs == 1:
            return f"{name} is one {run}"
    return f"one {run} in a {noun}"


def settle(needed: Settle, j: Judgement, run: str) -> str:
    """How many units or runs would settle the verdict, and as what; for blocks, as options of klat
    ab. `run` is the word for a run."""
    noun = j.noun
    chance = f"with a chance of {percent(needed.power)}, assuming these estimates are correct"
    units = f"{plural(needed.units or 0, noun)} a side (now {j.base.units} and {j.new.units})"
    runs = f"{plural(needed.runs or 0, run)} in each {noun}"
    if noun == "block":
        now = min(j.base.units, j.new.units)
        units = f"{plural(needed.units or 0, 'block')} (--blocks {needed.units}; now {now})"
        a_turn = math.ceil((needed.runs or 0) / TURNS)
        runs = f"{plural(a_turn, 'run')} in each turn (--runs-per-block {a_turn})"
    would = f"would be settled as {needed.verdict.value} by"
    if needed.units and needed.runs:
        return f"{would} {units}, or by {runs}, {chance}"
    if noun == "machine":
        units = f"{plural(needed.units or 0, 'machine')} (now {j.base.units})"
    if needed.units and (j.pooled or noun == "machine"):
        return f"{would} {units}, {chance}"
    if needed.units:
        return f"{would} {units}, {chance}; more {run}s in each {noun} alone would not settle it"
    if needed.runs:
        return f"{would} {runs}, {chance}"
    why = "the ratio is too close to the edge of the margin"
    if j.resolution:
        why = "the counter's steps are too coarse, or the ratio is too close to the edge of the margin"
    return f"no number of {noun}s up to 1,000 would settle it: {why}"


def method(j: Judgement, noun: str) -> str:
    """The method for ratio and interval over units; empty for another method."""
    if j.method not in (Method.WELCH, Method.PAIRED):
        return ""
    return f"{j.method.value.replace('unit', noun)}, {j.freedom:.1f} degrees of freedom"


def about_sides(against: Against) -> Iterator[tuple[str, str, str]]:
    """What a report says of each side: (name, of BASE, of NEW)."""
    base, new = against.base, against.new
    yield "kernel", base.kernel, new.kernel
    yield "preemption", base.model, new.model
    yield "CPU", base.cpu_model, new.cpu_model
    base_mode, new_mode = (how_measured(side).removeprefix("mode ") for side in (base, new))
    yield "mode", base_mode, new_mode
    yield "measured in", boots_of(base), boots_of(new)
    same = base.run_noun == new.run_noun
    yield f"{base.run_noun if same else 'run'}s", base.runs, new.runs


def all_ok(runs: str) -> bool:
    """Whether these counts of runs by status name no other status."""
    return not any(status in runs for status in ("disturbed", "invalid", "error", "skipped"))


def single_run(result: Result, run: str) -> str:
    """How well single runs resolve the estimand. Empty if that was not asked for."""
    if not (result.base_within or result.new_within):
        return ""
    base, new = within(result.base_within), within(result.new_within)
    return f"{result.estimand} of a single {run}, 95 %: BASE {base}; NEW {new}"


def within(bound: Within | None) -> str:
    """How well single runs of a side resolve the quantile."""
    if bound is None:
        return "no run supports an interval"
    return (
        f"{100 * (bound.low - 1):+.2f} to {100 * (bound.high - 1):+.2f} %,"
        f" {bound.effective:,.0f} effective of {plural(round(bound.samples), 'sample')}"
    )


def counted(verdicts: Counter[Verdict]) -> str:
    """`2 slower, 1 same`."""
    return ", ".join(f"{verdicts[v]:,} {v.value}" for v in Verdict if verdicts[v])


def conclusion(comparison: Comparison) -> str:
    """`2 slower, 1 same: regression`; `2 same, 1 inconclusive`, where the last count is the meaning."""
    counts, meaning = counted(comparison.verdicts) or "nothing compared", meaning_of(comparison)
    return counts if counts.endswith(f" {meaning}") else f"{counts}: {meaning}"


def meaning_of(comparison: Comparison) -> str:
    """The exit status in words."""
    of_limit = comparison.options.limit and _LIMIT_MEANINGS.get(comparison.status)
    return of_limit or MEANINGS[comparison.status]


_LIMIT_MEANINGS = {0: "within", 1: "exceeded", 3: "cannot tell"}
MEANINGS = {
    0: "no regression",
    1: "regression",
    3: "inconclusive",
    4: "not comparable",
    5: "not delivered",
}
