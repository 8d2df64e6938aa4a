"""An instruction that starts again after a page fault counts once. No other instruction is removed."""

from pathlib import Path

import pytest
from made_traces import BEGIN, END, NOT_KEPT_HALTED, MadeTrace, idle, part, switch, whole

from klat.explain import restarts
from klat.explain.symbols import Function, Symbols

KERNEL = 0xFFFFFFFF81000000
PLACES = {
    "user": 0x401000,
    "asm_exc_page_fault": KERNEL,
    "asm_sysvec_apic_timer_interrupt": KERNEL + 0x1000,
    "handler": KERNEL + 0x2000,
    "native_irq_return_iret": KERNEL + 0x3000,
    "el0t_64_sync": KERNEL + 0x4000,
    "el1h_64_irq": KERNEL + 0x5000,
    "do_mem_abort": KERNEL + 0x6000,
    "ret_to_user": KERNEL + 0x7000,
    "ret_to_kernel": KERNEL + 0x8000,
}
SYMBOLS = Symbols(Function(name, "kernel", start) for name, start in PLACES.items())


class Blocks:
    """The numbers of the blocks of a made trace."""

    def __init__(self, made: MadeTrace) -> None:
        user = PLACES["user"]
        self.user = made.block(user, 4)
        self.user_last = made.block(user + 3, 1)  # the last instruction of `user`
        self.user_second = made.block(user + 1, 3)
        self.user_next = made.block(user + 4, 2)
        self.fault = made.block(PLACES["asm_exc_page_fault"], 2)
        self.interrupt = made.block(PLACES["asm_sysvec_apic_timer_interrupt"], 2)
        self.handler = made.block(PLACES["handler"], 2)
        self.iret = made.block(PLACES["native_irq_return_iret"], 1)
        # As on arm64.
        self.sync = made.block(PLACES["el0t_64_sync"], 2)
        self.irq = made.block(PLACES["el1h_64_irq"], 2)
        self.abort = made.block(PLACES["do_mem_abort"], 2)
        self.to_user = [made.block(PLACES["ret_to_user"] + offset, 2) for offset in (0, 8)]
        self.to_kernel = made.block(PLACES["ret_to_kernel"], 2)


def words_of(*blocks: int) -> list[int]:
    return [word for block in blocks for word in whole(block)]


@pytest.fixture
def made() -> MadeTrace:
    return MadeTrace()


@pytest.fixture
def b(made: MadeTrace) -> Blocks:
    return Blocks(made)


def counted(made: MadeTrace, place: Path, *words: int) -> list[int]:
    """The words of a path after counted_once(). `words` are those before."""
    made.path(*words)
    trace = restarts.counted_once(made.read(place), SYMBOLS)
    (number,) = trace.numbers
    return trace.words(number).tolist()


def handled(b: Blocks) -> list[int]:
    """A page fault until its handler returns."""
    return words_of(b.fault, b.handler, b.iret)


def test_a_fault_within_a_block(made, b, tmp_path):
    after = [*handled(b), *whole(b.user_second)]
    assert counted(made, tmp_path, *part(b.user, 0, 2), *after) == [*part(b.user, 0, 1), *after]


def test_a_fault_at_the_first_instruction(made, b, tmp_path):
    after = [*handled(b), *whole(b.user_second)]
    assert counted(made, tmp_path, *part(b.user_second, 0, 1), *after) == after


@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_a_fault_at_the_end_of_a_block(made, b, tmp_path, earlier):
    after = [*handled(b), *whole(b.user_last, 9)]
    kept = [*(whole(b.user, earlier) if earlier else ()), *part(b.user, 0, 3)]
    assert counted(made, tmp_path, *whole(b.user, earlier + 1), *after) == [*kept, *after]


def test_two_faults_of_one_instruction(made, b, tmp_path):
    again = [*handled(b), *whole(b.user_last), *handled(b), *whole(b.user_last)]
    once = [*handled(b), *handled(b), *whole(b.user_last)]
    found = counted(made, tmp_path, *whole(b.user), *again)
    assert found == [*part(b.user, 0, 3), *once]


def test_a_jump_to_a_missing_page_does_not_start_again(made, b, tmp_path):
    # Later, an interrupt returns to the jump.
    interrupted = words_of(b.interrupt, b.iret, b.user_last)
    words = [*whole(b.user), *handled(b), *whole(b.user_next), *interrupted]
    assert counted(made, tmp_path, *words) == words


@pytest.mark.parametrize("before_return", [True, False])
def test_an_interrupt_between_the_fault_and_the_restart(made, b, tmp_path, before_return):
    interrupted = [b.interrupt, b.iret]
    if before_return:
        after = words_of(b.fault, *interrupted, b.handler, b.iret, b.user_last)
    else:
        after = words_of(b.fault, b.handler, b.iret, *interrupted, b.user_last)
    assert counted(made, tmp_path, *whole(b.user), *after) == [*part(b.user, 0, 3), *after]


def test_a_return_of_another_task_decides_nothing(made, b, tmp_path):
    faulted = [*switch(16, "one"), *whole(b.user), *words_of(b.fault, b.handler)]
    other = [*switch(32, "two"), *words_of(b.iret, b.user_last)]
    jumped = [*switch(16, "one"), *words_of(b.iret, b.user_next)]
    assert counted(made, tmp_path, *faulted, *other, *jumped) == [*faulted, *other, *jumped]


@pytest.mark.parametrize("before", [(), switch(16, "one"), idle()])
def test_a_fault_without_a_previous_instruction(made, b, tmp_path, before):
    words = [*before, *handled(b), *whole(b.user_last)]
    assert counted(made, tmp_path, *words) == words


def test_a_path_that_ends_before_the_handler_returns_stays(made, b, tmp_path):
    words = [*whole(b.user), *words_of(b.fault, b.handler)]
    assert counted(made, tmp_path, *words) == words


def test_stamps_count_the_instructions_of_their_paths(made, b, tmp_path):
    fault = made.path(*whole(b.user), *handled(b), *whole(b.user_last))
    other = made.path(*whole(b.user))
    made.stamp(BEGIN, 0, 50)
    made.stamp(END, fault, 10, times=3)
    made.stamp(BEGIN, other, 4)
    made.stamp(END, NOT_KEPT_HALTED, 60)
    stamps = restarts.counted_once(made.read(tmp_path), SYMBOLS).stamps
    assert stamps[:, 2].tolist() == [50, 9, 4, 60]


def aborted(b: Blocks, *within: int) -> list[int]:
    """A page fault on arm64 until its handler returns. It has the entry of a system call."""
    return words_of(b.sync, b.handler, *within, b.abort, *b.to_user)


def test_a_page_fault_with_the_entry_of_a_system_call(made, b, tmp_path):
    after = [*aborted(b), *whole(b.user_second)]
    assert counted(made, tmp_path, *part(b.user, 0, 2), *after) == [*part(b.user, 0, 1), *after]


@pytest.mark.parametrize("interrupted", [False, True])
def test_such_a_page_fault_at_the_end_of_a_block(made, b, tmp_path, interrupted):
    """An interrupt can come after the entry."""
    after = [*aborted(b, *([b.irq, b.to_kernel] if interrupted else ())), *whole(b.user_last)]
    assert counted(made, tmp_path, *whole(b.user), *after) == [*part(b.user, 0, 3), *after]


@pytest.mark.parametrize("again", ["user_last", "user_next"])
def test_a_system_call_is_no_page_fault(made, b, tmp_path, again):
    """The kernel can restart a system call. Its instruction then counts twice."""
    called = words_of(b.user, b.sync, b.handler, *b.to_user, getattr(b, again))
    later = [*part(b.user, 0, 2), *aborted(b), *whole(b.user_second)]
    removed = [*part(b.user, 0, 1), *aborted(b), *whole(b.user_second)]
    assert counted(made, tmp_path, *called, *later) == [*called, *removed]
