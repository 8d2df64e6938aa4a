"""Errors that are shown to the user in one line, without a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class KlatError(Exception):
    """An error that stops a command. The message is one sentence and says what to do. `status` is the
    exit status of the command; 2 stands for usage, input and output."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class SessionError(Exception):
    """A session, or a path given as one, that cannot be read. The message is one sentence."""


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
