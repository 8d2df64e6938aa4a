"""What can become of a boot that gives no record to believe, each by a class with a name of its own."""

from __future__ import annotations

from klat.base.errors import KlatError
from klat.record.session import printable

_LONGEST = 1000  # characters that a guest can put into a message


class BootFailure(KlatError):
    """`kind` is a word for run.json; `console` the last lines that the guest wrote. The message may
    contain text from the guest."""

    kind = "failed"

    def __init__(self, message: str, console: tuple[str, ...] = ()) -> None:
        super().__init__(printable(message[:_LONGEST]), status=1)
        self.console = console


class EmulatorFailed(BootFailure):
    """QEMU did not start, or ended by itself."""

    kind = "emulator"


class NotBooted(BootFailure):
    """The kernel never came to run the first program, or died."""

    kind = "boot"


class ModuleMissing(BootFailure):
    """A module that the measurement needs is not there, or the kernel refused it."""

    kind = "module"


class ProgramsFailed(BootFailure):
    """The guest gave up, as its programs failed."""

    kind = "programs"


class ResultsIncomplete(BootFailure):
    """The guest ended, and what it left is not whole."""

    kind = "results"


class TimeLimit(BootFailure):
    """The guest was still at work."""

    kind = "time-limit"
