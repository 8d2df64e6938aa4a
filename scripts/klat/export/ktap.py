"""Verdicts as KTAP, version 1 (Documentation/dev-tools/ktap.rst of the kernel)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from klat.compare.comparison import Comparison
from klat.export.cases import FAILED, SKIPPED, groups
from klat.record.session import printable


def write(comparison: Comparison, out: BinaryIO) -> None:
    out.write("".join(f"{line}\n" for line in _lines(comparison)).encode())


def _lines(comparison: Comparison) -> Iterator[str]:
    found = groups(comparison)
    every = [(group, case) for group in found for case in group.cases]
    yield "KTAP version 1"
    yield f"1..{len(every)}"
    headed = None
    for number, (group, case) in enumerate(every, start=1):
        if group is not headed:
            headed = group
            yield f"# {printable(group.title)}"
            for name, text in group.heading:
                yield f"# {printable(f'{name}: {text}')}"
        # Diagnostics of a test go before its result.
        for line in case.details:
            yield f"# {line}"
        prefix = f"{group.title}: " if len(found) > 1 else ""
        name = _unmarked(f"{prefix}{case.group} {case.name}")
        verdict = _unmarked(f"{case.verdict}: {case.reason}" if case.reason else case.verdict)
        if case.outcome == SKIPPED:
            yield f"ok {number} {name} # SKIP {verdict}"
        else:
            yield f"# {verdict}"
            yield f"{'not ok' if case.outcome == FAILED else 'ok'} {number} {name}"


def _unmarked(text: str) -> str:
    """Without the sign that begins a directive, for which KTAP has no escape."""
    return printable(text).replace("#", "\\x23")
