"""An explanation as an HTML page, with call trees as icicle graphs and a table of the functions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from klat.explain.explanation import calls_in_order
from klat.explain.explanation import Explanation, FunctionDifference, Side, differences
from klat.base.errors import printable
from klat.report.document import Block
from klat.report.html import page
from klat.report.html.icicle import Box, Icicle, Shades, icicles
from klat.report import explanation as words
from klat.report.renderers import terminal

_SCRIPT = "explanation.js"
_MOST_CALLS = 4000


@dataclass(frozen=True)
class SidePart:
    name: str  # BASE, NEW, or empty
    side: Side
    icicle: Icicle


def explanation_page(
    environment: Any, explanation: Explanation, story: Iterable[Block] = ()
) -> str:
    """The page. `story` is what ran during the sample."""
    sides = explanation.sides
    two = len(sides) > 1
    differing = differences(sides[0], sides[-1])
    by_name = {function.name: function for function in differing} if two else {}
    parts = [
        SidePart(*values)
        for values in zip(("BASE", "NEW") if two else ("",), sides, icicles(sides))
    ]
    script = environment.get_template(_SCRIPT).render()
    calls = calls_in_order(sides)
    return page.render(
        environment,
        "explanation.html",
        explanation=explanation,
        parts=parts,
        two=two,
        functions=differing,
        scale=max(1, *(part.icicle.boxes[0].here.with_callees for part in parts)),
        shades=Shades(differing),
        tip=lambda part, box: _tip(part, box, by_name, two),
        calls=list(islice(calls, _MOST_CALLS)),
        more_calls=sum(1 for _ in calls),
        story=[line for block in story for line in terminal.block_lines(block)],
        words=words,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _tip(part: SidePart, box: Box, by_name: Mapping[str, FunctionDifference], two: bool) -> str:
    here, other = box.here, box.other
    lines = [
        printable(box.name),
        f"own {here.own:,}, with callees {here.with_callees:,}, calls {here.calls:,}",
    ]
    if two:
        sign = 1 if part.name == "NEW" else -1
        count, with_callees, calls = (
            sign * (a - b)
            for a, b in zip(
                (here.own, here.with_callees, here.calls),
                (other.own, other.with_callees, other.calls),
            )
        )
        lines.append(f"NEW-BASE: own {count:+,}, with callees {with_callees:+,}, calls {calls:+,}")
    function = by_name.get(box.name)
    if function:
        base, new = function.own
        lines.append(
            f"own from all callers: BASE {base:,}, NEW {new:,}, NEW-BASE {function.difference:+,}"
        )
    if box.folded:
        lines.append(f"{box.folded} of its callees {'is' if box.folded == 1 else 'are'} not drawn")
    return "\n".join(lines)
