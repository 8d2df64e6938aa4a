"""The progress that `klat run` shows."""

import io
import os
import pty
import re
import subprocess
import sys
import time

import fakes
import pytest
from fakes import is_running, wait_for, klat

from klat.running import progress


class Terminal(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def follow(stream: Terminal, step: float, **environment: str) -> None:
    """A session of 200 runs, `step` seconds each."""
    clock = Clock()
    shown = progress.Progress(200, 0, stream, environment, clock)
    left = progress.TimeLeft({"pipes": 100, "tlbflush": 100})
    for run in range(200):
        name = ("pipes", "tlbflush")[run % 2]
        shown.before(run, name, left.seconds())
        clock.now += step
        left.ran(name, step)
    shown.clear()


def test_the_bar_fits_80_columns_and_goes_away():
    stream = Terminal(True)
    follow(stream, 60, TERM="xterm", NO_COLOR="1")
    frames = re.split("[\r\n]", stream.getvalue().replace("\x1b[K", ""))
    assert max(map(len, frames)) <= 80
    assert any(
        re.fullmatch(r"\[#+\.+\] 100/200 +50 % +1 h 40 min left +pipes *", f) for f in frames
    )
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_bar_is_redrawn_ten_times_a_second_at_most():
    stream = Terminal(True)
    follow(stream, 0.001, TERM="xterm")
    assert stream.getvalue().count("/200 ") <= 4  # 0.2 s, and once more after the announcement


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({}, True)],
)
def test_no_color_is_honoured(environment, coloured):
    stream = Terminal(True)
    follow(stream, 1, **environment)
    assert bool(re.search(r"\x1b\[[0-9]+m", stream.getvalue())) == coloured


@pytest.mark.parametrize(("terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_without_a_terminal_there_are_plain_lines_now_and_then(terminal, term):
    stream = Terminal(terminal)
    follow(stream, 2, TERM=term)
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()
    assert lines[:3] == [
        "about 6 min 20 s to go",
        "10 of 200 runs (5 %), about 6 min 20 s left",
        "20 of 200 runs (10 %), about 6 min 0 s left",
    ]
    assert len(lines) == 20


def test_what_comes_is_the_first_line_with_its_time():
    stream = Terminal(False)
    times = iter(range(0, 100, 5))
    shown = progress.Progress(
        4, 0, stream, {}, lambda: next(times), what="2 kernels: ", noun="boots",
        after=lambda left: f", then {left / 2} s",
    )  # fmt: skip
    for done, left in ((1, None), (2, 75.0)):
        shown.before(done, "", left)
    first, second = stream.getvalue().splitlines()
    assert first == "2 kernels: about 1 min 15 s to go, then 37.5 s"
    assert second == "2 of 4 boots (50 %), about 1 min 15 s left"


def test_the_time_left_is_estimated_per_benchmark():
    left = progress.TimeLeft({"pipes": 10, "tlbflush": 20})
    for _ in range(10):
        left.ran("pipes", 1)
    for _ in range(10):
        left.ran("tlbflush", 30)
    assert left.seconds() == pytest.approx(300)


def test_nothing_is_drawn_while_a_program_runs(klat):
    """On a terminal, and with every redraw told apart from the run that follows it by time."""
    master, slave = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, fakes.KLAT, "run", "pipes", "--runs", "3", "--option", "pipes.ms=400"],
        cwd=klat.directory,
        env=klat.environment({"TERM": "xterm"}),
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    during = b""
    for order in range(1, 4):
        wait_for(lambda order=order: len(klat.starts()) >= order, "a run")  # type: ignore[misc]
        pid = int(klat.starts()[-1][2])
        os.read(master, 65536)  # what was drawn before the run
        os.set_blocking(master, False)
        while is_running(pid):
            try:
                drawn = os.read(master, 65536)
            except BlockingIOError:
                drawn = b""
            if is_running(pid):
                during += drawn
            time.sleep(0.01)
        os.set_blocking(master, True)
    assert during == b""
    started.wait(fakes.PATIENCE)
    os.close(master)


def test_several_experiments_share_a_progress_and_its_time():
    clock, stream = Clock(), Terminal(False)
    shown = progress.Progress(100, 20, stream, {}, clock, detail=False)
    clock.now += 30
    assert shown.left_after(20) is None
    assert shown.left_after(30) == pytest.approx(30 / 10 * 70)
    shown.say_detail("one boot")
    shown.say("a failure")
    assert stream.getvalue() == "a failure\n"
