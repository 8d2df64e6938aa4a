"""What ran during one sample, as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klat.explain import story
from klat.explain.explanation import Explanation, Side
from klat.explain.story import Stretch
from klat.report.text.columns import wrapped

_FUNCTIONS = 3
_STRETCHES = 20
_HELD = 3
_IDLE_TASK = "swapper/"


def lines(explanation: Explanation) -> Iterator[str]:
    for side in explanation.sides:
        yield ""
        if len(explanation.sides) > 1:
            yield f"{side.label}"
        yield from _side(side, explanation.from_deadline)


def _side(side: Side, from_deadline: bool) -> Iterator[str]:
    found = story.tell(side.symbols, side.sample.contents)
    room = len(f"{side.sample.ticks:,}")
    held = [(s, why) for s, why in zip(found, _reasons(found, from_deadline)) if why]
    if held:
        yield "held up, longest first:"
        held.sort(key=lambda each: -each[0].instructions)
        for stretch, why in held[:_HELD]:
            yield from _counted(stretch.instructions, f"{_task(stretch)} {why}", room)
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


def _reasons(found: Sequence[Stretch], from_deadline: bool) -> list[str]:
    """By stretch: why it held the sample up, or ""."""
    reasons = [""] * len(found)
    first = found[0] if found else None
    if from_deadline and first and not first.interrupt and not first.idle and len(found) > 1:
        reasons[0] = f"had interrupts off at the deadline{_place(first)}"
    woken = False
    for number, stretch in enumerate(found[:-1]):
        after = found[number + 1]
        switches = after.task != stretch.task
        # Another thread of the same program is part of the event, and the idle task switches at once.
        other = stretch.name != found[-1].name and not stretch.name.startswith(_IDLE_TASK)
        if woken and not stretch.interrupt and other and switches:
            until = f" until {stretch.until}" if stretch.until else ""
            reasons[number] = f"was not preempted after the wakeup{until}{_place(stretch)}"
        woken = (woken and not switches) or stretch.wakes > 0
    return reasons


def _place(stretch: Stretch) -> str:
    return f", in {stretch.within[-1]}" if stretch.within else ""


def _task(stretch: Stretch) -> str:
    return stretch.name or "a task"


def _stretch(stretch: Stretch) -> str:
    if stretch.interrupt:
        what = f"{stretch.interrupt} in {_task(stretch)}"
    else:
        what = _task(stretch)
    notes = []
    if stretch.wakes:
        notes.append(f"wakes {stretch.wakes} task{'s' * (stretch.wakes > 1)}")
    notes += [
        f"{name} {100 * own / stretch.instructions:.0f} %"
        for name, own in stretch.functions.most_common(_FUNCTIONS)
    ]
    return f"{what}: {', '.join(notes)}"
