"""Calls and returns are found from executed blocks, and no instruction is lost or counted twice."""

import random
from collections.abc import Sequence

import pytest

from klat.explain import explanation
from klat.explain.calls import CallTree, Node, totals
from klat.explain.symbols import FIRMWARE, Function, Symbols
from klat.explain.trace import Block, Executed, Idle, Item, Switched
from klat.explain.windows import Content

INTERRUPT, RETURN = "asm_sysvec_apic_timer_interrupt", "native_irq_return_iret"
THUNK = "__x86_indirect_its_thunk_rax"
NAMES = (
    "entry", "entry_label", "far", "middle", "leaf", "interrupt", "scheduler",
    INTERRUPT, "other", RETURN, THUNK, "el1h_64_irq", "el1h_64_irq_handler", "ret_to_kernel",
)  # fmt: skip
PLACES = {name: 0x1000 * number for number, name in enumerate(NAMES, start=1)}
PLACES["vector"] = 0x100000
PLACES["firmware"] = 0x200000
SYMBOLS = Symbols(
    [
        *(Function(name, "kernel", start) for name, start in PLACES.items() if name != FIRMWARE),
        Function(FIRMWARE, FIRMWARE, PLACES["firmware"]),
        Function("el1h_64_irq", "kernel", PLACES["vector"]),
    ]
)
SIZES = bytes([4, 4, 4, 4])
LENGTH = len(SIZES)


def at(name: str, offset: int = 0, first: int = 0) -> Executed:
    """A block of four instructions in 16 bytes, or the rest of such a block."""
    return Executed(Block(PLACES[name] + offset, SIZES), first, LENGTH - first)


def tree_of(*items: Item) -> CallTree:
    tree = CallTree(SYMBOLS)
    tree.add(items)
    return tree


def chains(root: Node) -> dict[str, tuple[int, int]]:
    """Own instructions and calls by chain of callers."""
    return {";".join(chain): (node.own, node.calls) for chain, node in root.walk()}


CALL = [at("far", 0x40), at("middle"), at("far", 0x50)]


def test_a_call_and_its_return():
    tree = tree_of(*CALL)
    assert chains(tree.root) == {"far": (8, 0), "far;middle": (4, 1)}
    assert (tree.path, tree.stack) == ([(2, "middle")], ("far",))


@pytest.mark.parametrize(
    ("first", "times", "own"),
    [(0, 1, {"entry": (1, 0), "entry_label": (3, 0)}), (2, 1, {"entry_label": (2, 0)}),
     (0, 3, {"entry": (3, 0), "entry_label": (9, 0)})],
)  # fmt: skip
def test_each_instruction_of_a_block_counts_for_its_own_label(first, times, own):
    block = Block(PLACES["entry_label"] - 4, SIZES)
    tree = tree_of(Executed(block, first, LENGTH - first, times))
    assert chains(tree.root) == own


def test_a_function_that_calls_itself_counts_once_with_its_callees():
    tree = tree_of(
        at("far", 0x40), at("middle"), at("middle", 0x40), at("leaf"), at("middle", 0x50)
    )
    again = tree_of(at("far", 0x40), at("middle"), at("far"), at("middle", 0x10), at("far", 0x50))
    assert chains(tree.root)["far;middle"] == (12, 1)
    assert chains(again.root) == {
        "far": (8, 0), "far;middle": (8, 1), "far;middle;far": (4, 1),
    }  # fmt: skip
    found = totals(again.root)
    assert (found.own["far"], found.with_callees["far"]) == (12, 20)


# A jump to another function ends with the return of the call before; a label within assembler code goes on in the
# same frame.
JUMPS = [
    ((at("middle"), at("leaf")), {"far;middle": (4, 1), "far;middle;leaf": (4, 1)}),
    ((at("entry"), at("entry_label", 0x20)), {"far;entry": (4, 1), "far;entry_label": (4, 0)}),
]


@pytest.mark.parametrize("jump, called", JUMPS)
def test_a_jump_stays_in_its_call(jump, called):
    tree = tree_of(at("far", 0x40), *jump, at("far", 0x50))
    assert tree.stack == ("far",) and chains(tree.root) == {"far": (8, 0), **called}


def test_an_interrupt_returns_to_where_it_came():
    tree = tree_of(*CALL[:2], at("interrupt"), at("leaf"), at("interrupt", 0x10), at("middle", 8))
    assert tree.stack == ("far", "middle")
    assert chains(tree.root) == {
        "far": (4, 0), "far;middle": (8, 1), "far;middle;interrupt": (8, 1),
        "far;middle;interrupt;leaf": (4, 1),
    }  # fmt: skip


def test_an_interrupt_before_the_first_instruction_of_a_function_is_no_caller_of_it():
    tree = tree_of(
        at("far", 0x40), at(INTERRUPT), at("leaf"), at(RETURN), at("middle"), at("far", 0x50)
    )
    found = chains(tree.root)
    assert (found["far"], found["far;middle"]) == ((8, 0), (4, 1))
    assert (found[f"far;{INTERRUPT}"], tree.stack) == ((4, 1), ("far",))


def test_an_interrupt_right_after_a_return_instruction_returns_to_the_caller():
    tree = tree_of(*CALL[:2], at(INTERRUPT), at(RETURN), at("far", 0x50))
    assert (chains(tree.root)["far"], tree.stack) == ((8, 0), ("far",))


def test_a_fault_in_the_first_instruction_of_a_function_is_no_call_of_it():
    tree = tree_of(*CALL[:2], at(INTERRUPT), at(RETURN), *CALL[1:])
    assert chains(tree.root)["far;middle"] == (8, 1)


# As on arm64: the entry of the vector table jumps to the function to which it belongs. The return has several
# blocks, and it belongs to another function.
VECTORED = [
    at("vector"), at("vector", 0x10), at("el1h_64_irq"), at("el1h_64_irq_handler"),
    at("el1h_64_irq", 0x10), at("ret_to_kernel"), at("ret_to_kernel", 0x20),
]  # fmt: skip


def test_an_interrupt_through_a_vector_table_returns_to_the_interrupted_function():
    tree = tree_of(*CALL[:2], *VECTORED, at("middle", 0x10))
    assert tree.stack == ("far", "middle")
    found = chains(tree.root)
    assert found["far;middle;el1h_64_irq"] == (16, 1)
    assert found["far;middle;el1h_64_irq;el1h_64_irq_handler"] == (4, 1)
    assert found["far;middle;el1h_64_irq;ret_to_kernel"] == (8, 1)


def test_an_interrupt_through_a_vector_table_before_a_functions_first_instruction():
    tree = tree_of(at("far", 0x40), *VECTORED, at("middle"), at("far", 0x50))
    found = chains(tree.root)
    assert (found["far"], found["far;middle"], tree.stack) == ((8, 0), (4, 1), ("far",))


def test_firmware_returns_to_the_function_that_called_it_or_that_it_interrupted():
    """Its code has one name, and is entered anywhere."""
    firmware = [at("firmware", 0x340), at("firmware", 0x10)]
    tree = tree_of(*CALL[:2], *firmware, at("middle", 0x10), at("far", 0x50))
    found = chains(tree.root)
    assert found == {"far": (8, 0), "far;middle": (8, 1), "far;middle;firmware": (8, 1)}
    assert tree.stack == ("far",)


def test_a_function_called_through_a_thunk_is_called_by_the_caller():
    tree = tree_of(at("far", 0x40), at(THUNK), at("middle"), at("far", 0x50))
    assert chains(tree.root)["far;middle"] == (4, 1)


def test_each_task_has_its_own_calls():
    tree = tree_of(
        Switched(1, "a"), at("far", 0x40), at("middle"), Switched(2, "b"),
        at("leaf"), at("scheduler"), Switched(1, "a"), at("middle", 0x10), at("far", 0x50),
    )  # fmt: skip
    assert (tree.stack, tree.task) == (("far",), 1)
    assert chains(tree.root)["leaf;scheduler"] == (4, 1)
    assert chains(tree.root)["far;middle"] == (8, 1)


def test_a_block_that_a_fault_broke_off_goes_on_in_its_function():
    tree = tree_of(at("far", 0x40), at("middle", first=3))
    assert chains(tree.root) == {"far": (5, 0)}


def test_uncounted_items_only_show_which_functions_are_active():
    tree = CallTree(SYMBOLS)
    tree.add(CALL[:2], counted=False)
    tree.add([at("middle", 0x10)])
    assert chains(tree.root) == {"far": (0, 0), "far;middle": (4, 0)}
    assert tree.path == []


def random_items(chance: random.Random, count: int) -> list[Item]:
    items: list[Item] = []
    for _ in range(count):
        draw = chance.random()
        if draw < 0.05:
            items.append(Switched(chance.randrange(4), "task"))
        elif draw < 0.08:
            items.append(Idle())
        else:
            name, offset = chance.choice(NAMES), chance.choice((0, 0, 0x10, 0x20, 0x100))
            item = at(name, offset, chance.choice((0, 0, 0, 1, 3)))
            times = chance.choice((1, 1, 1, 64))
            items.append(Executed(item.block, item.first, item.instructions, times))
    return items


def executed(items: Sequence[Item]) -> int:
    return sum(item.total for item in items if isinstance(item, Executed))


@pytest.mark.parametrize("seed", range(100))
def test_own_instructions_always_add_up_to_those_executed(seed):
    chance = random.Random(seed)
    before, items = random_items(chance, 50), random_items(chance, 400)
    sample = explanation.explain([Content(before, items, 7)], SYMBOLS, executed(items) + 7)
    assert sample.residual == 0
    assert sum(sample.functions.own.values()) == executed(items) == sample.tree.total
    for name, own in sample.functions.own.items():
        assert own <= sample.functions.with_callees[name] <= executed(items)


def test_what_no_function_accounts_for_is_the_residual():
    assert explanation.explain([Content([], CALL, 0)], SYMBOLS, 15).residual == 3
