"""The cells of CSV output, which a spreadsheet may open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from klat.record.session import printable

_FORMULA = re.compile(r"[=+@-]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for csv.DictWriter, with text() applied to its text. Numbers stay unchanged."""
    return {name: text(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def text(cell: str) -> str:
    """Printable text, with an apostrophe in front if a spreadsheet would take it for a formula."""
    shown = printable(cell)
    return f"'{shown}" if _FORMULA.match(shown) and not _NUMBER.fullmatch(shown) else shown
