"""Verdicts as KTAP, version 1 (Documentation/dev-tools/ktap.rst of the kernel)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from klat.compare.comparison import Comparison
from klat.export.cases import FAILED, SKIPPED, cases, heading, title
from klat.record.session import printable


def write(comparison: Comparison, out: BinaryIO) -> None:
    out.write("".join(f"{line}\n" for line in _lines(comparison)).encode())


def _lines(comparison: Comparison) -> Iterator[str]:
    several = len(comparison.against) > 1
    every = [
        (against, case) for against in comparison.against for case in cases(against, comparison)
    ]
    yield "KTAP version 1"
    yield f"1..{len(every)}"
    headed = None
    for number, (against, case) in enumerate(every, start=1):
        if against is not headed:
            headed = against
            yield f"# {printable(title(against))}"
            for name, text in heading(against, comparison):
                yield f"# {printable(f'{name}: {text}')}"
        # Diagnostics of a test go before its result.
        for line in case.details:
            yield f"# {line}"
        prefix = f"{title(against)}: " if several else ""
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
