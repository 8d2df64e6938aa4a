"""Names of functions, from a guest's kallsyms."""

from pathlib import Path

import pytest

from klat.base.errors import KlatError
from klat.explain import isa, symbols
from klat.explain.symbols import Function, Symbols
from klat.lab.architectures import ARM64, RISCV64

ROOT = Path(__file__).resolve().parents[2]
KALLSYMS = """\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t try_to_wake_up.part.0
ffffffff81000200 W weak_function
ffffffff81000300 D jiffies
ffffffffc0001000 t tun_get_user.isra.0\t[tun]
ffffffffc0001100 t tun_get_user.isra.0.cold [tun]
"""


def test_functions_of_the_kernel_and_of_its_modules():
    assert symbols.of_kernel(KALLSYMS, {}) == [
        Function("_stext", "kernel", 0xFFFFFFFF81000000),
        Function("startup_64", "kernel", 0xFFFFFFFF81000000),
        Function("try_to_wake_up", "kernel", 0xFFFFFFFF81000100),
        Function("weak_function", "kernel", 0xFFFFFFFF81000200),
        Function("tun_get_user", "tun", 0xFFFFFFFFC0001000),
        Function("tun_get_user", "tun", 0xFFFFFFFFC0001100),
    ]


@pytest.mark.parametrize("text", ["", "0000000000000000 T _stext\n0000000000000000 t schedule\n"])
def test_hidden_addresses_are_refused(text):
    with pytest.raises(KlatError, match=r"no addresses .*kptr_restrict"):
        symbols.of_kernel(text, {})


def test_a_line_that_is_no_symbol_is_refused():
    with pytest.raises(KlatError, match="kallsyms is damaged"):
        symbols.of_kernel("ffffffff81000000 T _stext\nffffffff8100\n", {})


def test_one_line_in_a_thousand_may_be_no_symbol():
    lines = [f"{0xffffffff81000000 + n:x} T f{n}" for n in range(999)]
    text = "\n".join([*lines, "(null) T odd", ""])
    assert len(symbols.of_kernel(text, {})) == 999
    with pytest.raises(
        KlatError, match=r"damaged in 2 of 1,001 lines, the first: '\(null\) T odd'"
    ):
        symbols.of_kernel(text + "ffffffff8100\n", {})


def test_each_entry_of_a_vector_table_belongs_to_its_function():
    """And mapping symbols are no functions."""
    text = """\
ffff800008010800 T vectors
ffff800008010880 t $x
ffff80000801121c t el1h_64_sync
ffff800008011284 t el1h_64_irq
ffff800000c7f000 t $x\t[virtio_blk]
ffff800000c7f004 t $d.3\t[virtio_blk]
"""
    names = Symbols(symbols.of_kernel(text, isa.of_machine(ARM64.elf_machine).vectors))
    vectors = 0xFFFF800008010800
    found = [names.at(vectors + offset).name for offset in (0, 0x200, 0x280, 0x2FC, 0x400, 0x780)]
    assert found == [
        *("el1t_64_sync", "el1h_64_sync", "el1h_64_irq", "el1h_64_irq"),
        *("el0t_64_sync", "el0t_32_error"),
    ]
    assert names.at(0xFFFF800008011284).name == "el1h_64_irq"
    assert names.at(0xFFFF800000C7F010).name == "?"


@pytest.mark.parametrize(
    "name, folded",
    [
        ("schedule", "schedule"),
        ("f.isra.0", "f"),
        ("f.part.0", "f"),
        ("f.cold", "f"),
        ("f.constprop.0", "f"),
        ("f.constprop.0.isra.0.cold", "f"),
        ("f.llvm.12345", "f"),
        ("f.island", "f.island"),
        ("__SCT__tp_func_read.partial", "__SCT__tp_func_read.partial"),
    ],
)
def test_parts_of_a_function_have_its_name(name, folded):
    assert symbols.folded(name) == folded


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("mark", ["_stext_start", "__entry_text_end", "__irqentry_text_begin"])
def test_a_function_has_its_own_name_and_not_that_of_a_mark(order, mark):
    both = [Function(mark, "kernel", 16), Function("schedule", "kernel", 16)]
    assert Symbols(both[::order]).at(20).name == "schedule"


def test_an_address_belongs_to_the_function_before_it():
    held = Symbols([Function("b", "kernel", 32), Function("a", "kernel", 16)])
    assert [held.at(address).name for address in (0, 15, 16, 31, 32, 99)] == list("??aabb")
    assert (held.has("a"), held.has("c")) == (True, False)


def test_a_label_is_next_to_its_function():
    held = [Function(name, "kernel", 16 * n) for n, name in enumerate("abcd", start=1)]
    names = Symbols(held)
    assert [names.next_to(held[0], other) for other in held] == [False, True, True, False]


def test_code_above_a_static_program_is_the_vdso_and_on_riscv64_the_firmware():
    program = symbols.of_program(ROOT / "build/static/pipes/pipes")
    firmware = isa.of_machine(RISCV64.elf_machine).firmware
    names = Symbols([*program, *symbols.of_firmware(firmware)])
    (main,) = [each for each in program if each.name == "main"]
    assert names.at(main.start).name == "main"
    places = (0x20000000, 0x80000000, 0x801FFFFE, 0x80200000, 0x7FFFF7FC1000)
    found = [names.at(place).name for place in places]
    assert found == ["[vdso]", "firmware", "firmware", "[vdso]", "[vdso]"]
    assert symbols.of_firmware(isa.of_machine(ARM64.elf_machine).firmware) == []


def test_labels_of_an_assembler_are_no_functions():
    text = "ffffffff80a00000 T do_irq\nffffffff80a00010 t .L1^B2\nffffffff80a00020 t $xrv64i2p1\n"
    held = Symbols(symbols.of_kernel(text, {}))
    assert held.at(0xFFFFFFFF80A00024).name == "do_irq"
