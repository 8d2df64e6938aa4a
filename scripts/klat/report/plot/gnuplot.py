"""Writes figures with gnuplot: each as SVG and as PNG."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from klat.base import files
from klat.base.errors import KlatError
from klat.record.session import printable
from klat.stats.descriptive import Values

_SECONDS = 600
CURE = "on Debian and Ubuntu: apt install gnuplot-nox"  # if gnuplot is missing

# Okabe and Ito's palette, which stays apart for every common kind of colour blindness.
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
INDIGO, BROWN = "#332288", "#884422"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INDIGO, BROWN)
# Dashes distinguish the curves without colours.
DASHES = ("1", "(18,5)", "(5,4)", "(16,4,4,4)", "(2,3)", "(16,3,2,3,2,3)", "(9,3)", "(9,3,2,3)")
GREY, PALE, INK = "#767676", "#DDDDDD", "#222222"
# Places that all figures share, in pixels.
EDGE, LEFT, RIGHT = 24, 84, 976
LINE = 20


@dataclass(frozen=True)
class _Terminal:
    """How gnuplot writes one kind of file. The two scales make both kinds look the same: cairo
    takes sizes in points of 4/3 pixels where SVG takes pixels, and draws its symbols smaller."""

    name: str
    font: str
    text: float
    points: float


# An SVG is shown where the fonts of this machine are not, so it asks for any sans-serif.
_TERMINALS = {
    "svg": _Terminal("svg", "sans-serif", 1.333, 0.75),
    "png": _Terminal("pngcairo", "DejaVu Sans", 1.0, 1.0),
}
KINDS = tuple(_TERMINALS)


# Of points, in the order of COLOURS.
SHAPES = (7, 5, 9, 13, 11, 15, 6, 4)


def point_size(count: int) -> float:
    """The size for so many points in a row."""
    return 0.8 if count <= 60 else 0.45 if count <= 300 else 0.25


def faint(colour: str) -> str:
    """The style of the points of single runs, behind their mean."""
    return points(7, 0.35, f"#B0{colour[1:]}")


def points(shape: int, size: float, colour: str) -> str:
    return f"pointtype {shape} pointsize {size:g}*P linecolor rgb '{colour}'"


@dataclass
class Figure:
    """One drawing, placed in pixels from the top left corner. `name` is the file's, without
    extension."""

    name: str
    width: int = 1000
    height: int = 700
    font: float = 11
    commands: list[str] = field(default_factory=list)
    curves: list[str] = field(default_factory=list)  # of the next panel
    _blocks: int = 0

    def add(self, *commands: str) -> None:
        self.commands += commands

    def data(self, *columns: Values) -> str:
        """Define a block of data; its name for `plot`. A NaN interrupts a line."""
        self._blocks += 1
        name = f"$block{self._blocks}"
        rows = zip(*(column.tolist() for column in columns))
        lines = (" ".join(_number(value) for value in row) for row in rows)
        self.add(f"{name} << EOD", *lines, "EOD")
        return name

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 11,
        colour: str = INK,
        align: str = "left",
    ) -> None:
        """Text whose middle is at y."""
        self.add(
            f"set label {quoted(text)} at {_screen(x, y)} {align} font FONT.',{size:g}'"
            f" textcolor rgb '{colour}'"
        )

    def swatch(self, x: float, y: float, style: str) -> None:
        """A short piece of a curve, for a legend."""
        self.add(f"set arrow from {_screen(x, y)} to {_screen(x + 28, y)} nohead {style}")

    def mark(self, x: float, y: float, style: str) -> None:
        """A point of a curve, for a legend."""
        self.add(f"set label '' at {_screen(x, y)} point {style}")

    def head(self, title: str, subtitle: str) -> float:
        """Title and subtitle; where the next line goes."""
        self.text(title, EDGE, 28, size=16)
        y = 54
        for text in textwrap.wrap(subtitle, 112, break_on_hyphens=False):
            self.text(text, EDGE, y, colour=GREY)
            y += LINE
        return y + 4

    def caption(self, top: float, left: str, right: str = "") -> None:
        """The title of the panel's y axis, and a note. Horizontal, so that no tic can overlap it."""
        self.text(left, EDGE, top - 20)
        if right:
            self.text(right, RIGHT, top - 20, colour=GREY, align="right")

    def curve(self, kind: str, style: str, block: str, using: str = "1:2") -> None:
        """A curve of the next panel, in one of gnuplot's kinds, of these columns of a block."""
        self.curves.append(f"{block} using {using} with {kind} {style}")

    def points(self, x: Values, y: Values, style: str) -> None:
        self.curve("points", style, self.data(x, y))

    def lines(self, x: Values, y: Values, style: str) -> None:
        self.curve("lines", style, self.data(x, y))

    def segments(
        self, x: Values, low: Values, high: Values, style: str, across: bool = False
    ) -> None:
        """Lines from low to high at each x; at each y where they lie across."""
        using = "2:1:($3-$2):(0)" if across else "1:2:(0):($3-$2)"
        self.curve("vectors nohead", style, self.data(x, low, high), using)

    def upright(self, x: float, style: str) -> None:
        """A line across the next panel at x."""
        place = f"first {x:.10g}"
        self.add(f"set arrow from {place}, graph 0 to {place}, graph 1 nohead {style}")

    def level(self, y: float, style: str) -> None:
        """A line across the next panel at y."""
        place = f"first {y:.10g}"
        self.add(f"set arrow from graph 0, {place} to graph 1, {place} nohead {style}")

    def axis(
        self, name: str, low: float, high: float, places: str, logarithmic: bool = False
    ) -> None:
        """The x or y axis of the next panel, with tics at these places."""
        if logarithmic:
            self.add(f"set logscale {name}")
        self.add(f"set {name}range [{low:.10g}:{high:.10g}]", f"set {name}tics {places}")

    def panel(self, left: float, right: float, top: float, bottom: float) -> None:
        """Draw the curves into a rectangle. Commands and curves added before are drawn with it, and
        then forgotten."""
        self.add(
            f"set lmargin at screen {left:g}/W",
            f"set rmargin at screen {right:g}/W",
            f"set tmargin at screen 1-{top:g}/H",
            f"set bmargin at screen 1-{bottom:g}/H",
            "plot " + ", \\\n  ".join(self.curves),
            *_FORGET,
        )
        self.curves.clear()


_FORGET = (
    "unset label",
    "unset arrow",
    "unset object",
    "unset logscale",
    "set autoscale",
    "set xtics autofreq",
    "set ytics autofreq",
    "unset xlabel",
    "unset ylabel",
)

# What every panel looks like.
_STYLE = (
    "set border 3 linecolor rgb '#767676'",
    "set tics nomirror out scale 0.6 textcolor rgb '#222222'",
    f"set grid xtics ytics linetype 1 linewidth 0.6 linecolor rgb '{PALE}'",
    "set format y '%g'",
    "unset key",
)


def _screen(x: float, y: float) -> str:
    return f"screen {x:g}/W, screen 1-{y:g}/H"


def line(colour: str, width: float = 2, dash: str = "1") -> str:
    return f"linewidth {width:g} dashtype {dash} linecolor rgb '{colour}'"


def _number(value: float) -> str:
    return "NaN" if np.isnan(value) else f"{value:.10g}"


def quoted(text: str) -> str:
    """A gnuplot string that holds the text as it is."""
    return "'" + printable(text).replace("'", "''") + "'"


def tics(places: Iterable[tuple[float, str]]) -> str:
    """`('1' 1, '10' 10)`, for set xtics and set ytics."""
    return "(" + ", ".join(f"{quoted(text)} {place:.10g}" for place, text in places) + ")"


def draw(figures: Sequence[Figure], directory: Path) -> None:
    """Write every figure into the directory, which is made if missing. KlatError if that or gnuplot
    fails."""
    require()
    with files.explained("make the directory", directory):
        files.make_directories(directory)
    for name, drawing in _drawn(figures, KINDS).items():
        with files.output(directory / name, streams=False) as out:
            out.write(drawing)


def _drawn(
    figures: Sequence[Figure], kinds: Sequence[str], background: str = "#FFFFFF"
) -> dict[str, bytes]:
    """Every figure as each kind of file, by file name. KlatError if gnuplot fails."""
    program = require()
    with files.private_directory() as directory:
        # One process per kind of file, in parallel, because drawing takes most of the time.
        with ExitStack() as stack:
            scripts = [stack.enter_context(_script(figures, kind, background)) for kind in kinds]
            jobs = [_start(program, script, directory) for script in scripts]
            complaints = [_finish(job) for job in jobs]
        for complaint in filter(None, complaints):
            raise KlatError(f"gnuplot could not draw: {complaint}")
        names = [f"{figure.name}.{kind}" for figure in figures for kind in kinds]
        return {name: _content(directory, name) for name in names}


def _content(directory: int, name: str) -> bytes:
    content = b""
    with suppress(FileNotFoundError):
        with open(files.open_regular(directory, name, os.O_RDONLY), "rb") as file:
            content = file.read()
    if not content:  # gnuplot exits 0 also when the disk is full
        raise KlatError(f"gnuplot wrote nothing for {name}; is {tempfile.gettempdir()} full?")
    return content


def is_installed() -> bool:
    return shutil.which("gnuplot") is not None


def require() -> str:
    """The path of gnuplot. KlatError without it."""
    program = shutil.which("gnuplot")
    if not program:
        raise KlatError(
            f"needs gnuplot, which is not on the PATH (tables and pages need none); {CURE}"
        )
    return program


def inline(figures: Sequence[Figure]) -> list[str]:
    """Every figure as an SVG for a page: without background, prolog, identifiers and `MARKS`, which
    the page must contain once. Colours are #RRGGBB, so that the page can replace them."""
    drawn = _drawn(figures, ("svg",), background="")
    return [_bare(drawn[f"{figure.name}.svg"].decode("utf-8")) for figure in figures]


# gnuplot's filled circle and square, which are all that pages use.
CIRCLE, SQUARE = 7, 5
MARKS = (
    "<circle id='gpPt6' r='1' fill='currentColor'/>"
    "<rect id='gpPt4' x='-1' y='-1' width='2' height='2' fill='currentColor'/>"
)
_RGB = re.compile(r"(['\"])rgb\( *(\d+), *(\d+), *(\d+)\)\1")


def _bare(svg: str) -> str:
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\A<svg[^>]*?viewBox=("[^"]*")[^>]*>', r"<svg viewBox=\1>", body, flags=re.S)
    for gone in (r"<title>.*?</title>", r"<desc>.*?</desc>", r"<defs>.*?</defs>"):
        body = re.sub(gone, "", body, flags=re.S)
    body = re.sub(r" id=\"[^\"]*\"", "", body).replace("xlink:href", "href")
    body = _RGB.sub(lambda m: '"#{:02X}{:02X}{:02X}"'.format(*map(int, m.group(2, 3, 4))), body)
    # Empty groups, and the blanks between the others.
    body = re.sub(r"<g[^>]*>\s*</g>", "", body)
    return re.sub(r"\s*\n\s*", "\n", body).strip()


def _script(figures: Sequence[Figure], kind: str, background: str) -> IO[str]:
    lines: list[str] = []
    terminal = _TERMINALS[kind]
    for figure in figures:
        lines += ["reset", "set encoding utf8", f"W = {figure.width}.0", f"H = {figure.height}.0"]
        lines.append(
            f"set terminal {terminal.name} size {figure.width},{figure.height} noenhanced"
            f" font '{terminal.font},{figure.font:g}' fontscale {terminal.text}"
            + (f" background '{background}'" if background else "")
        )
        lines += [f"FONT = '{terminal.font}'", f"P = {terminal.points}"]
        lines += [f"set output {quoted(f'{figure.name}.{kind}')}", "set multiplot", *_STYLE]
        lines += figure.commands
        lines += ["unset multiplot", "unset output"]
    file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace")
    file.write("\n".join(lines) + "\n")
    file.seek(0)
    return file


def _start(program: str, script: IO[str], directory: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        # Without the user's start-up files, which could change the figures.
        [program, "-d", "-"],
        stdin=script,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=f"/proc/self/fd/{directory}",
        text=True,
        errors="backslashreplace",
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )


def _finish(process: subprocess.Popen[str]) -> str:
    """The first complaint; empty when there was none."""
    try:
        _, errors = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"took more than {_SECONDS} seconds"
    if process.returncode == 0 and not errors:
        return ""
    said = [line.strip() for line in errors.splitlines() if line.strip(" ^")]
    complaint = next((line for line in said if "line " in line), said[0] if said else "")
    return complaint or f"it ended with status {process.returncode}"
