"""What a user is told in one line instead of a traceback."""

from __future__ import annotations


class KlatError(Exception):
    """Something that stops a command. The message is one sentence that says what to mend.

    `status` is the exit status that the command ends with: 2, usage or input and output, unless
    said.
    """

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status
