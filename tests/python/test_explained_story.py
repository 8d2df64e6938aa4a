"""What a sample's story says is true of the trace."""

from klat.explain import story
from klat.explain.story import Holdup
from klat.explain.symbols import Function, Symbols
from klat.explain.trace import Block, Executed, Idle, Item, Switched
from klat.explain.windows import Content

NAMES = (
    "free_pages", "free_one", "cond_resched", "asm_sysvec_apic_timer_interrupt", "softirq",
    "asm_common_interrupt", "try_to_wake_up", "ttwu_do_activate", "main",
)  # fmt: skip
PLACES = {name: 0x1000 * number for number, name in enumerate(NAMES, start=1)}
SYMBOLS = Symbols(Function(name, "kernel", start) for name, start in PLACES.items())
TIMER, OTHER = NAMES[3], NAMES[5]
LOAD, WAITER, THREAD = Switched(1, "load"), Switched(2, "timer"), Switched(3, "ktimers/0")
SIZES = bytes([4, 4, 4, 4])
LENGTH = len(SIZES)


def at(name: str, offset: int = 0, times: int = 1) -> Executed:
    return Executed(Block(PLACES[name] + offset, SIZES), 0, LENGTH, times)


def wakes(name: str) -> list[Item]:
    return [at("try_to_wake_up"), at("ttwu_do_activate"), at("try_to_wake_up", 16), at(name, 16)]


def interrupt(name: str, *body: Item) -> list[Item]:
    return [at(name), *body, at(name, 32), at("free_pages", 0x100)]


def holdups(*windows: list[Item], from_deadline: bool = False) -> list[Holdup]:
    return story.holdups(story.tell(SYMBOLS, [Content([], i, 0) for i in windows]), from_deadline)


def started() -> list[Item]:
    return [LOAD, at("free_pages", 0x40)]


END: list[Item] = [at("cond_resched"), WAITER, at("main", 0x40)]


def test_a_task_that_runs_on_after_a_wakeup_holds_the_sample_up():
    items = started() + interrupt(TIMER, *wakes(TIMER)) + [at("free_pages", 0x200, 50), *END]
    assert holdups(items) == [Holdup(52 * LENGTH, "load", "a wakeup", "cond_resched", "free_pages")]


def test_interrupts_in_a_holdup_do_not_end_it_and_do_not_count():
    items = started() + interrupt(TIMER, *wakes(TIMER)) + [at("free_pages", 0x200, 50)]
    items += interrupt(OTHER, at("softirq", 0, 1000)) + [at("free_pages", 0x200, 30), *END]
    found = holdups(items)
    assert [(each.instructions, each.within) for each in found] == [(83 * LENGTH, "free_pages")]


def test_a_call_that_wakes_nobody_starts_no_holdup():
    tried = interrupt(TIMER, at("try_to_wake_up"), at(TIMER, 16))
    assert holdups(started() + tried + [at("free_pages", 0x200, 50), *END]) == []


def test_the_thread_that_was_woken_holds_nothing_up():
    items = started() + interrupt(TIMER, *wakes(TIMER))[:-1]
    items += [THREAD, at("softirq", 0, 100), WAITER, at("main", 0x40)]
    assert holdups(items) == []


def test_a_thread_of_the_same_program_holds_nothing_up():
    items = [Switched(1, "timer"), *started()[1:], *interrupt(TIMER, *wakes(TIMER))]
    assert holdups([*items, at("free_pages", 0x200, 50), *END]) == []


def test_a_wakeup_in_one_window_does_not_count_in_the_next():
    first = started() + interrupt(TIMER, *wakes(TIMER))
    assert holdups(first, [at("free_pages", 0x200, 50), *END]) == []


def test_the_longest_comes_first():
    items = started() + interrupt(TIMER, *wakes(TIMER)) + [at("free_pages", 0x200, 50), *END]
    items = [LOAD, at("free_pages", 0x40, 3), *items[2:]]
    found = holdups(items, from_deadline=True)
    assert [(each.instructions, each.since) for each in found] == [
        (52 * LENGTH, "a wakeup"), (3 * LENGTH, "the deadline"),
    ]  # fmt: skip
    assert found[1].until == TIMER


def test_a_deadline_in_an_interrupt_or_without_one_holds_nothing_up():
    inside = [LOAD, at(OTHER, 16), at("free_pages", 0x40)]
    assert holdups(inside, from_deadline=True) == []
    assert holdups([LOAD, at("free_pages", 0x40, 5), *END], from_deadline=True) == []


def test_nested_interrupts_and_their_softirqs_are_told_apart():
    inner = [at(OTHER), at("softirq"), at(OTHER, 16)]
    items = started() + interrupt(TIMER, *inner, at(TIMER, 16), at("softirq"))
    found = story.tell(SYMBOLS, [Content([], items, 0)])
    assert [each.interrupt for each in found] == ["", TIMER, OTHER, TIMER, ""]
    assert sum(each.instructions for each in found) == sum(
        item.total for item in items if isinstance(item, Executed)
    )


def test_the_idle_task_that_runs_on_until_the_interrupt_holds_nothing_up():
    """A kernel that halts with interrupts masked."""
    items = [Idle(), at("free_pages", 0x40), *interrupt(TIMER), *END]
    assert holdups(items, from_deadline=True) == []
    assert holdups(items[1:], from_deadline=True) != []
