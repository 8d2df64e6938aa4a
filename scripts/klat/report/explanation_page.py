"""An explanation as an HTML page, with a table of the functions and call trees as icicle graphs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from klat.explain.explanation import Explanation, Side, calls_in_order, differences
from klat.report.document import Block
from klat.report import explanation as words
from klat.report.icicles import Picture, Shades, pictures
from klat.report.renderers import html, terminal

_SCRIPT = "explanation.js"
_MOST_CALLS = 4000


@dataclass(frozen=True)
class SidePart:
    side: Side
    picture: Picture

    @property
    def name(self) -> str:
        return self.picture.name


def explanation_page(
    environment: Any, explanation: Explanation, story: Iterable[Block] = ()
) -> str:
    """The page. `story` is what ran during the sample."""
    sides = explanation.sides
    two = len(sides) > 1
    differing = differences(sides[0], sides[-1])
    drawn = pictures([side.sample for side in sides], [side.label for side in sides])
    parts = [SidePart(side, picture) for side, picture in zip(sides, drawn)]
    script = environment.get_template(_SCRIPT).render()
    calls = calls_in_order(sides)
    return html.render(
        environment,
        "explanation.html",
        explanation=explanation,
        parts=parts,
        two=two,
        functions=differing,
        shades=Shades({function.name: function.difference for function in differing}),
        calls=list(islice(calls, _MOST_CALLS)),
        more_calls=sum(1 for _ in calls),
        story=[line for block in story for line in terminal.block_lines(block)],
        words=words,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
