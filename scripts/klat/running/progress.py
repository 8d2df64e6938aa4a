"""Shows the progress of a session: a bar on a terminal, a line now and then elsewhere. Says why runs are not ok, and
what the programs wrote: each text once, with its count.

It never runs while a program measures: the runner calls it between two runs.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TextIO

from klat.base.grouping import grouped
from klat.report.text.columns import wrapped

_REDRAW_SECONDS = 0.1
_LINES = 20  # in a whole session, without a terminal
_LINE_SECONDS = 1.0  # between them at least
_ENOUGH_RUNS = 10  # before a time is estimated
_NARROWEST_BAR = 8
_REST_WIDTH = len("59 min 59 s left")
_NAME_WIDTH = len("semaphore")


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class TimeLeft:
    """Estimates the rest from the mean duration of each kind of run so far."""

    def __init__(self, remaining: Mapping[str, int]) -> None:
        self._remaining = dict(remaining)
        self._seconds = dict.fromkeys(remaining, 0.0)
        self._runs = dict.fromkeys(remaining, 0)
        self._all_seconds = 0.0
        self._all_runs = 0

    def ran(self, kind: str, seconds: float) -> None:
        self._remaining[kind] -= 1
        self._seconds[kind] += seconds
        self._runs[kind] += 1
        self._all_seconds += seconds
        self._all_runs += 1

    def seconds(self) -> float | None:
        """None until enough runs have ended."""
        if self._all_runs < _ENOUGH_RUNS and any(self._remaining.values()):
            return None
        overall = self._all_seconds / max(1, self._all_runs)
        return sum(
            left * (self._seconds[kind] / self._runs[kind] if self._runs[kind] else overall)
            for kind, left in self._remaining.items()
        )


class Progress:
    """Draws on `stream`. Call before() before each run. say() prints a line above the bar, and say_detail() does
    so only with `detail`. `done` has the runs so far. `part_seconds` is the time that a part of them takes, once
    it is known. The first line has `what`, the estimated time, and the text that `after` makes of this time.
    """

    def __init__(
        self,
        total: int,
        done: int,
        stream: TextIO,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        detail: bool = True,
        what: str = "",
        noun: str = "runs",
        after: Callable[[float], str] = lambda left: "",
    ) -> None:
        environment = os.environ if environment is None else environment
        self.total = total
        self.done = self._first = done
        self.part_seconds: float | None = None
        self._detail = detail
        self._what, self._noun, self._after = what, noun, after
        self._stream = stream
        self._clock = clock
        self._bar = stream.isatty() and environment.get("TERM") != "dumb"
        self._colour = self._bar and not environment.get("NO_COLOR")
        self._drawn_at = float("-inf")
        self._drawn = False
        self._announced = False
        self._line_after = done + self._step()
        self._begun = self._line_at = clock()

    def _step(self) -> int:
        return max(1, -(-(self.total - self._first) // _LINES))

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return columns or 80

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def before(self, done: int, benchmark: str, left: float | None) -> None:
        """A run of `benchmark` is next, after `done` runs; `left` seconds are to come."""
        self.done = done
        if left is not None and not self._announced:
            self._announced = True
            self.say(f"{self._what}about {duration(left)} to go{self._after(left)}")
        now = self._clock()
        is_begun = self._announced or not self._what  # the first line has the time
        if self._bar:
            if now - self._drawn_at >= _REDRAW_SECONDS:
                self._drawn_at = now
                self._draw(done, benchmark, left)
        elif done >= self._line_after and now - self._line_at >= _LINE_SECONDS and is_begun:
            self._line_at = now
            self._line_after = done + self._step()
            percent = 100 * done // self.total
            rest = "" if left is None else f", about {duration(left)} left"
            self._write(f"{done} of {self.total} {self._noun} ({percent} %){rest}\n")

    def _draw(self, done: int, benchmark: str, left: float | None) -> None:
        width = self._width() - 1  # the last column would wrap on some terminals
        percent = 100 * done // max(1, self.total)
        rest = "" if left is None else f"{duration(left)} left"
        # Fixed widths, or the bar would jump.
        count = f"{done:>{len(str(self.total))}}/{self.total}"
        text = f" {count}  {percent:3d} %  {rest:>{_REST_WIDTH}}  {benchmark:<{_NAME_WIDTH}}"
        room = width - len(text) - 2
        bar = ""
        if room >= _NARROWEST_BAR:
            full = room * done // max(1, self.total)
            colour, plain = ("\x1b[32m", "\x1b[0m") if self._colour else ("", "")
            bar = f"[{colour}{'#' * full}{plain}{'.' * (room - full)}]"
        self._write(f"\r{bar}{text[:width]}\x1b[K")
        self._drawn = True

    def left_after(self, done: float) -> float | None:
        """The seconds that are to come if further runs take as long as those so far; None without any."""
        so_far = done - self._first
        if so_far <= 0:
            return None
        return (self._clock() - self._begun) * (self.total - done) / so_far

    def say(self, line: str) -> None:
        self.clear()
        self._write(f"{line}\n")

    def say_detail(self, line: str) -> None:
        if self._detail:
            self.say(line)

    def clear(self) -> None:
        """Remove the bar, before other output."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False
            self._drawn_at = float("-inf")


_LINES_SHOWN = 8


def say_reasons(reasons: Counter[tuple[str, str, str]], say: Callable[[str], None]) -> None:
    """Say why runs are not ok, from their counts by (status, benchmark, reason)."""
    _say_counted(Counter({f"{s}: {name}: {why}": n for (s, name, why), n in reasons.items()}), say)


def say_messages(messages: Mapping[str, int], say: Callable[[str], None]) -> None:
    """Say the lines of the programs, "PROGRAM: TEXT". Programs with the same text share a line."""
    programs: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for line, count in messages.items():
        name = re.match("[a-z]+: ", line)
        program, text = (line[: name.end() - 2], line[name.end() :]) if name else ("", line)
        programs.setdefault(text, []).append(program)
        counts[text] += count
    lines = Counter[str]()
    for text, count in counts.items():
        names = ", ".join(name for name in programs[text] if name)
        lines[f"{names}: {text}" if names else text] = count
    _say_counted(lines, say)


def _say_counted(lines: Counter[str], say: Callable[[str], None]) -> None:
    """Say each line once with its count. Lines that differ only in numbers count as one."""
    groups = grouped(lines, lambda line: re.sub(r"[0-9]+(\.[0-9]+)?", "#", line))
    counts = {group[0]: sum(lines[line] for line in group) for group in groups.values()}
    several = {group[0] for group in groups.values() if len(group) > 1}
    most_frequent = sorted(counts, key=lambda line: -counts[line])
    for line in most_frequent[:_LINES_SHOWN]:
        like = " (and similar)" if line in several else ""
        text = f"{counts[line]} x {line}{like}"
        say("\n".join(wrapped(text, "  ", "      ")))
    if len(most_frequent) > _LINES_SHOWN:
        say(f"  and {len(most_frequent) - _LINES_SHOWN} other lines")
