"""Errors that are shown to the user in one line, without a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class KlatError(Exception):
    """Something that stops a command. The message is one sentence that says what to mend. `status` is the
    exit status of the command; 2 stands for usage, input and output."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class SessionError(Exception):
    """A session, or a path given as one, that cannot be read. The message is one sentence."""


def printable(text: str) -> str:
    """The text with escapes for characters that could disturb a terminal or a table."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'pipes'?`, or nothing where no known word is near."""
    import difflib

    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
