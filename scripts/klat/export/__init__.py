"""What was measured, in the formats of other programs.

Each format of runs is a module with `write(exported, out)`. `explained` has those of `klat lab explain`. Verdicts are a
Document, which klat.report.renderers.cases writes. All write bytes. The same record always gives the same file.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# What each format holds. Formats of runs hold only usable runs. Formats of verdicts hold the verdicts of
# `klat compare`.
RUNS = {
    "gobench": "Go benchmark text, a line per run; for benchstat -col label",
    "googlebench": "Google Benchmark JSON, an entry per run; for its compare.py",
    "pyperf": "pyperf JSON, a value per run",
    "hgrm": "HdrHistogram percentile distribution of all samples",
    "parquet": "every sample with its run; needs pyarrow",
    "openmetrics": "OpenMetrics text, a summary per metric",
}
VERDICTS = {"junit": "JUnit XML of the verdicts on NEW against BASE", "ktap": "KTAP of the same"}
EXPLANATIONS = ("json", "csv", "folded")


def load(name: str) -> ModuleType:
    """The module of a format of runs."""
    return import_module(f"klat.export.{name}")
