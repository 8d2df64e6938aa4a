"""The words for machines and for verdicts over machines, for all forms of the report."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from klat.compare.comparison import Against, Comparison, LeftOutMachine, OverMachines, Result
from klat.record.session import printable
from klat.report.text import wording
from klat.report.text.numbers import percent, ratio_digits


def machine_names(comparison: Comparison) -> dict[str, str]:
    """A short name for each machine id: its first 8 characters, or more if names would be equal."""
    ids = {against.machine for against in comparison.against}
    ids |= {left.machine for left in comparison.left_out_machines}
    length = 8
    while len({machine[:length] for machine in ids}) < len(ids):
        length += 1
    return {machine: printable(machine[:length]) for machine in ids}


def left_out_machine(left: LeftOutMachine, names: Mapping[str, str]) -> str:
    """`machine 6d61a2b4 (only in BASE)`."""
    what = f"machine {names[left.machine]}" if left.machine else "sessions"
    return f"{what} ({printable(left.reason)})"


def over_machines_explanations(
    over: OverMachines, comparison: Comparison, explained: Collection[str] = ()
) -> Iterator[str]:
    """Sentences below a verdict over machines. `explained` are the machines with a verdict of their own in
    the report, which says why they are left out."""
    if over.reason:
        yield printable(over.reason)
    if over.judgement:
        yield from wording.in_doubt(over.judgement, comparison, "on average NEW", "run")
    if over.spread is not None and over.next_machine:
        yield _between_machines(over.spread, over.next_machine)
    for left in over.left_out:
        if left.machine not in explained:
            yield f"left out: {left_out_machine(left, machine_names(comparison))}"


def _between_machines(spread: float, next_machine: tuple[float, float]) -> str:
    low, high = next_machine
    if high - low < 1e-9:
        return "the ratio is the same on all machines"
    noted = "the variation within machines explains all variation between machines"
    if spread:
        share = percent(math.expm1(spread))
        noted = f"between machines the ratio varies by {share} (standard deviation)"
    digits = ratio_digits(low, high)
    reach = f"between {low:.{digits}f} and {high:.{digits}f}"
    return f"{noted}; the expected ratio of one more machine, measured alike, is {reach}"


def results_of(group: Sequence[Against], found: OverMachines) -> Iterator[tuple[Against, Result]]:
    """The results of the machines that have the figure of `found`."""
    for against in group:
        for cell in against.cells:
            if (cell.key, cell.under_test) != (found.key, found.under_test):
                continue
            for result in cell.results:
                if result.tested and result.estimand == found.estimand:
                    yield against, result
