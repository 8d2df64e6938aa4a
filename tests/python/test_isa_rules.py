"""`make lint` reports what depends on the ISA outside lib/arch."""

from pathlib import Path

import pytest
from lint.isa_rules import violations

TREE = Path(__file__).parents[2]


def test_the_tree_has_no_violation():
    sources = [path for path in TREE.glob("*/**/*.[ch]") if TREE / "build" not in path.parents]
    assert sources and not list(violations(sources))


@pytest.mark.parametrize(
    "line",
    [
        '__asm__ volatile("pause");',
        'register long fourth __asm__("r10");',
        "#include <x86intrin.h>",
        "uint64_t now = __rdtsc();",
        "__cpuid(1, a, b, c, d);",
        'open("/dev/cpu/0/msr", O_RDONLY);',
        "#ifdef __x86_64__",
    ],
)
def test_each_planted_violation_is_reported(line, tmp_path):
    for folder in ("pipes", "lib/arch/x86_64"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "planted.c").write_text(f"\n{line}\n")
    (found,) = violations(list(tmp_path.rglob("*.c")))
    assert "pipes/planted.c:2:" in found


def test_a_barrier_for_the_compiler_is_not_reported(tmp_path):
    source = tmp_path / "barrier.c"
    source.write_text('__asm__ volatile("" : "+r"(seed));\n')
    assert not list(violations([source]))
