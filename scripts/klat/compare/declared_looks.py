"""The interim look that the sessions of a campaign have reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from klat.compare.dataset import Dataset
from klat.compare.verdicts import Rules
from klat.stats.interim_looks import Look

_SEVERAL = (
    "some sessions declare interim looks, but not all sessions declare the same looks of one campaign;"
    " alpha is for a comparison without looks; to use the looks, compare only sessions of one campaign"
)


def at_look(sides: Sequence[Dataset], rules: Rules) -> tuple[Rules, str]:
    """The rules at the look after the rounds that all sides have, and a caution or an empty text. If no
    session declares looks, the rules are unchanged."""
    pairings = [[source.pairing for source in side.sources] for side in sides]
    declared = {
        (p.experiment, p.looks) if p and p.looks else None for pairing in pairings for p in pairing
    }
    if declared <= {None}:
        return rules, ""
    if len(declared) > 1:
        return rules, _SEVERAL
    ((_, planned),) = filter(None, declared)
    rounds = set.intersection(*({p.pairs for p in pairing if p} for pairing in pairings))
    # Without a common round there is no pair, so no test uses this level.
    rules_now = rules_at(max(1, min(len(rounds), planned[-1])), planned, rules)
    caution = ""
    if rules_now.look and not rules_now.look.number:
        caution = (
            f"looks were planned after {_listed(planned)} rounds, but all sides have {len(rounds)} rounds;"
            f" alpha is the level of a look after {len(rounds)} rounds; it holds only if you did not use"
            " the results to decide when to compare"
        )
    return rules_now, caution


def rules_at(rounds: int, planned: tuple[int, ...], rules: Rules) -> Rules:
    """The rules of a look after `rounds` rounds. Looks are planned after the rounds `planned`."""
    look = Look(rounds, planned, rules.alpha)
    return replace(rules, alpha=look.level(), look=look)


def _listed(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
