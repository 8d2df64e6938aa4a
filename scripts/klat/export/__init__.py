"""What was measured, in the formats of other programs: one module a format.

A format of runs or samples has `write(exported, out)`, one of verdicts `write(comparison, out)`, one
of explanations `write(explanation, out)`. All write bytes. The same record always gives the same file.
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
VERDICTS = {
    "junit": "JUnit XML of the verdicts on NEW against BASE",
    "ktap": "KTAP of the same",
}
# The formats of `klat lab explain`, and the module that writes each.
EXPLANATIONS = {
    "json": "explained_json",
    "csv": "explained_csv",
    "folded": "explained_stacks",
}


def load(name: str) -> ModuleType:
    return import_module(f"klat.export.{name}")
