"""The ways in which a boot can fail to give a valid record."""

from __future__ import annotations

from klat.base.errors import KlatError
from klat.record.session import printable

_LONGEST = 1000  # characters that a guest can put into a message


class BootFailure(KlatError):
    """`kind` is a word for run.json. `console` holds the last lines of the guest's console. The message may
    hold text of the guest."""

    kind = "failed"

    def __init__(self, message: str, console: tuple[str, ...] = ()) -> None:
        super().__init__(printable(message[:_LONGEST]), status=1)
        self.console = console


class EmulatorFailed(BootFailure):
    """QEMU did not start, or ended by itself."""

    kind = "emulator"


class NotBooted(BootFailure):
    """The kernel did not reach the first program, or died."""

    kind = "boot"


class ModuleMissing(BootFailure):
    """A module is missing, or the kernel refused it."""

    kind = "module"


class ProgramsFailed(BootFailure):
    """The guest ended early because its programs failed."""

    kind = "programs"


class ResultsIncomplete(BootFailure):
    """The guest ended, and its results are incomplete."""

    kind = "results"


class TimeLimit(BootFailure):
    """The guest did not end in time."""

    kind = "time-limit"
