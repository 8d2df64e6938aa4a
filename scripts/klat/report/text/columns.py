"""Text in columns: for a terminal of 80, and the cells of CSV."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from klat.record.session import printable

WIDTH = 80

Table = list[list[str]]

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|us|ms|s|min|h)\b)")


def wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most 80 columns, with no break between a number and its unit. The later ones begin with `rest`, or are indented as the first."""
    lines = textwrap.wrap(
        # textwrap does not break a line at this space.
        _BEFORE_UNIT.sub("\u00a0", printable(text)),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def params_text(params: dict[str, str]) -> str:
    return printable(" ".join(f"{name}={value}" for name, value in params.items()))


def column_widths(table: Table) -> list[int]:
    return [max(len(row[i]) for row in table) for i in range(len(table[0]))]


def aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """The cells in one line. Two spaces between them, or one if the line would be too long."""
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    return gap.join(map(str.ljust, row, widths)).rstrip()


_FORMULA = re.compile(r"[=+@-]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for csv.DictWriter, with cell_text() applied to its text. Numbers stay unchanged."""
    return {name: cell_text(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def cell_text(cell: str) -> str:
    """Printable text, with an apostrophe in front if a spreadsheet would take it for a formula."""
    shown = printable(cell)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown
