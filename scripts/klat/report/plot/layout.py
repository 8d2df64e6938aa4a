"""The layout that all figures share: places in pixels."""

from __future__ import annotations

import textwrap

from klat.report.plot.gnuplot import GREY, Figure

EDGE, LEFT, RIGHT = 24, 84, 976
LINE = 20


def head(figure: Figure, title: str, subtitle: str) -> float:
    """Title and subtitle; where the next line goes."""
    figure.text(title, EDGE, 28, size=16)
    y = 54
    for text in textwrap.wrap(subtitle, 112, break_on_hyphens=False):
        figure.text(text, EDGE, y, colour=GREY)
        y += LINE
    return y + 4


def caption(figure: Figure, top: float, left: str, right: str = "") -> None:
    """The title of the panel's y axis, and a note. Horizontal, so that no tic can overlap it."""
    figure.text(left, EDGE, top - 20)
    if right:
        figure.text(right, RIGHT, top - 20, colour=GREY, align="right")
