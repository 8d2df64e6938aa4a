"""What ran during one sample, as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from klat.explain import story
from klat.explain.explanation import Explanation, Side
from klat.explain.story import Holdup, Stretch
from klat.report.text.columns import wrapped

_FUNCTIONS = 3
_STRETCHES = 20
_HELD = 3
_A_TASK = "a task"


def lines(explanation: Explanation) -> Iterator[str]:
    for side in explanation.sides:
        yield ""
        if len(explanation.sides) > 1:
            yield f"{side.label}"
        yield from _side(side, explanation.from_deadline)


def _side(side: Side, from_deadline: bool) -> Iterator[str]:
    found = story.tell(side.symbols, side.sample.contents)
    room = len(f"{side.sample.ticks:,}")
    held = story.holdups(found, from_deadline)
    if held:
        yield "held up, longest first:"
        for holdup in held[:_HELD]:
            yield from _counted(holdup.instructions, _holdup(holdup), room)
    if len(held) > _HELD:
        count = sum(holdup.instructions for holdup in held[_HELD:])
        yield from _counted(count, f"{len(held) - _HELD} more", room)
    yield "what ran, in order:"
    for stretch in found[:_STRETCHES]:
        yield from _counted(stretch.instructions, _stretch(stretch), room)
    left = found[_STRETCHES:]
    if left:
        count = sum(stretch.instructions for stretch in left)
        yield from _counted(count, f"{len(left)} further stretches", room)
    if side.sample.idle:
        yield from _counted(side.sample.idle, "idle time, skipped", room)


def _counted(count: int, text: str, room: int) -> list[str]:
    return wrapped(text, "  " + f"{count:,}".rjust(room) + "  ", " " * (room + 6))


def _holdup(holdup: Holdup) -> str:
    until = f" until {holdup.until}" if holdup.until else ""
    within = f", in {holdup.within}" if holdup.within else ""
    return f"{holdup.name or _A_TASK} ran on after {holdup.since}{until}{within}"


def _stretch(stretch: Stretch) -> str:
    if stretch.interrupt:
        what = f"{stretch.interrupt} in {stretch.name or _A_TASK}"
    else:
        what = stretch.name or _A_TASK
    notes = []
    if stretch.wakes:
        notes.append(f"wakes {stretch.wakes} task{'s' * (stretch.wakes > 1)}")
    notes += [
        f"{name} {100 * own / stretch.instructions:.0f} %"
        for name, own in stretch.functions.most_common(_FUNCTIONS)
    ]
    return f"{what}: {', '.join(notes)}"
