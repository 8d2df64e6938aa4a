"""What users read: errors in one line, without a traceback, exit statuses, and names of files."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable


class KlatError(Exception):
    """An error that stops a command. The message is one sentence and says what to do. `status` is the
    exit status of the command; 2 stands for usage, input and output."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class SessionError(Exception):
    """A session, or a path given as one, that cannot be read. The message is one sentence."""


def installing(*modules: str) -> str:
    """The command that installs these Python modules for klat."""
    if sys.prefix != sys.base_prefix:
        # uv makes environments without pip.
        has_pip = importlib.util.find_spec("pip")
        python = sys.executable
        pip = f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"
        return f"{pip} {' '.join(modules)}"
    return f"apt install {' '.join(f'python3-{name}' for name in modules)} (Debian, Ubuntu)"


def printable(text: str) -> str:
    """The text with escapes for characters that could disturb a terminal or a table."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def too_many_damaged(damaged: int, lines: int) -> bool:
    """Whether so many lines are damaged that a reader must refuse all of them."""
    return damaged * 1000 > lines


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`, did you mean 'pipes'?`, or an empty text if no known word is similar. The user types words of
    this kind with the prefix."""
    import difflib

    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f", did you mean {prefix + close[0]!r}?" if close else ""


# What the programs return for each enum klat_status. USAGE also stands for input, output and a full disk.
MEASURED, FAILED, USAGE, INVALID, SKIPPED = range(5)
KILLED = 128  # a status above this means that a signal ended the process
_BY_SEVERITY = (SKIPPED, MEASURED, INVALID, USAGE, FAILED)


def ends_all(status: int) -> bool:
    """Whether further programs would end in the same way: after a signal, or on a full disk."""
    return status == USAGE or status > KILLED


def worst(statuses: Iterable[int]) -> int:
    """The most severe status. SKIPPED if everything was skipped. A status that klat does not know counts as
    FAILED, unless it is that of a signal."""
    ranked = [s if s in _BY_SEVERITY or s > KILLED else FAILED for s in statuses]
    return max(ranked, key=lambda s: (s > KILLED, _BY_SEVERITY.index(s) if s <= KILLED else 0))


_LONGEST = 200  # a name has at most 255 bytes; this leaves room for a suffix


def unique_file_name(text: str, taken: set[str], suffix: str = "") -> str:
    """The text as the name of a file, with a number before `suffix` if the name is taken. Adds the name
    to `taken`."""
    base = re.sub(r"[^A-Za-z0-9_.+=-]+", "_", text).lstrip(".-")[:_LONGEST] or "plot"
    name, number = f"{base}{suffix}", 2
    while name in taken:
        name, number = f"{base}-{number}{suffix}", number + 1
    taken.add(name)
    return name
