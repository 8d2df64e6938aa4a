"""What the tests of sweeps and of figures share."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from written_sessions import Klat, SyntheticSession, stepped

from klat.compare import sweeps
from klat.compare.dataset import read_datasets
from klat.compare.sweeps import Sweep
from klat.report.plot import sweep_figures
from klat.report.plot.axis import common_axis
from klat.report.plot.gnuplot import Figure
from klat.report.plot.series import curve_names

needs_gnuplot = pytest.mark.skipif(not shutil.which("gnuplot"), reason="gnuplot is not installed")


@pytest.fixture
def nothing_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of this tree has no published figures."""
    monkeypatch.setattr(sweeps, "published", lambda benchmark: ())


def point(
    writer: SyntheticSession, params: str, *medians: int, metric: str = "item", **more: str
) -> None:
    """One run for each median."""
    for median in medians:
        writer.run({metric: stepped(median)}, benchmark="queue", params=params, **more)


def found(*paths: Path) -> list[Sweep]:
    labels, _ = read_datasets(paths)
    return sweeps.sweeps(labels, curve_names(labels))


def figures(*paths: Path) -> list[Figure]:
    labels, _ = read_datasets(paths)
    return sweep_figures.sweep_figures(labels, common_axis(labels))


def blocks(figure: Figure) -> list[np.ndarray]:
    """The data of a figure, block by block."""
    text = "\n".join(figure.commands)
    held = re.findall(r"^\$block\d+ << EOD\n(.*?)\nEOD$", text, re.M | re.S)
    return [np.array([[float(x) for x in row.split()] for row in b.splitlines()]) for b in held]


def summary(klat: Klat, *words: object) -> str:
    status, out, err = klat("summary", *words)
    assert (status, err) == (0, "")
    return out
