"""Trends of recorded kernels, and their pages."""

from pathlib import Path

from written_sessions import SideWriter

from klat.compare.comparison import Options
from klat.compare.dataset import read_dataset
from klat.compare.estimands import MEDIAN
from klat.compare.trend import Trend, trend
from klat.explain.explanation import KeptSample
from klat.report import trend as report
from klat.report.plot.trend_figures import metric_figures
from klat.report.renderers import html
from klat.report.trend import Change


def follow(*paths: Path, chains: list[list[int]] | None = None, **failures: str) -> Trend:
    sides = [read_dataset(path) for path in paths]
    options = Options(tested=(MEDIAN,))
    return trend(sides, chains or [list(range(len(sides)))], options, failures)


def three_kernels(side: SideWriter) -> Trend:
    """6.18 is a fifth slower than 6.12, and has a metric of its own."""
    releases = {"lab-6.1": 1.0, "lab-6.12": 1.0, "lab-6.18": 1.2}
    paths = [
        side(label, ratio, kernel_release=label.removeprefix("lab-"))
        for label, ratio in releases.items()
    ]
    side.add("lab-6.18", "woken", 9_000, params="x=1")
    return follow(*paths)


def explained(three: Trend, windows: int = 1) -> list[Change]:
    ((metric, step),) = three.jumps
    base = KeptSample(100, windows, 5, ((1, "schedule", 60, 1), (2, "gone", 35, 2)))
    chains = ((1, "come", 30, 1), (2, "schedule", 90, 1), (2, "come", 6, 1))
    change = Change(metric, step, base, KeptSample(130, windows, 4, chains))
    assert change.functions[0] == ("come", 36 / windows)
    assert sum(count for _, count in change.functions) == change.difference == 30 / windows
    return [change]


def page(result: Trend, changes: list[Change]) -> str:
    drawn = [*metric_figures(result, report.names(result.series), report.short_labels(result))]
    return html.page_of(html.templates(), report.document(result, changes, figures=drawn))
