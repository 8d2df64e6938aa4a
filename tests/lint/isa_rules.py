"""Checks that only lib/arch depends on the instruction set: no assembly, intrinsics, CPUID, MSR or port elsewhere.

Usage: isa_rules.py FILE...
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ISA = re.compile(
    r"\b(?:__)?asm(?:__)?\b"
    r"|\w*intrin\.h|\bcpuid\.h|\bsys/(?:io|perm)\.h|\basm/"
    r"|\b__builtin_ia32_|\b_mm_|\b__rdtscp?\b|\brdtscp?\b|\b__(?:get_)?cpuid"
    r"|/msr\b|\bMSR_|\b(?:in|out)[bwl]\("
    r"|\b__(?:x86_64|i386|aarch64|arm|riscv|powerpc64|s390x)__\b"
)
# A barrier for the compiler alone: no instruction in it.
BARRIER = re.compile(r'\b__asm__ volatile\("" ?:')


def violations(files: list[Path]) -> Iterator[str]:
    for path in files:
        if "lib/arch/" in path.as_posix():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = ISA.search(BARRIER.sub("", line))
            if found:
                yield f"{path}:{number}: {found[0]} depends on the ISA and belongs in lib/arch"


def main(words: list[str]) -> int:
    found = list(violations([Path(word) for word in words]))
    print(*found, sep="\n", file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
