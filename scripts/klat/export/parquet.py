"""Every sample of every usable run, as Apache Parquet: a row is a sample, as it was recorded.

`sample` is in `unit`, ticks or instructions; `ns` is null if these are not time. The metadata of the
schema holds session.json of each session as `klat:sessions`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from klat import __version__
from klat.base.errors import KlatError, installing
from klat.export.exported_runs import ExportedRuns, MetricRuns
from klat.record.samples import Samples
from klat.compare.sources import Run

# The rows of a row group: a size that suits readers and fits memory.
_ROWS = 1 << 20


def write(exported: ExportedRuns, out: BinaryIO) -> None:
    """KlatError where pyarrow is missing, or does not bear this numpy, or for a soak."""
    for series in exported.series:
        if any(run.row.soak for run in series.runs):
            raise KlatError(
                f"parquet holds a row for each sample, and {series.setting.benchmark}"
                f" {series.metric} of label {series.label.name} is a soak, whose samples are"
                " counted by value; export hgrm, or leave it out by --benchmark"
            )
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        cure = "which Debian does not package: make a venv, pip install pyarrow numpy scipy into it, and start klat by its python"
        if sys.prefix != sys.base_prefix:
            cure = installing("pyarrow")
        raise KlatError(f"parquet needs pyarrow ({error}); {cure}") from None

    schema = _schema(pyarrow, exported)
    with pyarrow.parquet.ParquetWriter(out, schema, compression="snappy") as writer:
        tables, rows = [], 0
        for series in exported.series:
            for table in _tables(pyarrow, schema, series):
                tables.append(table)
                rows += len(table)
                if rows >= _ROWS:
                    writer.write_table(pyarrow.concat_tables(tables))
                    tables, rows = [], 0
        if tables:
            writer.write_table(pyarrow.concat_tables(tables))


def _schema(pyarrow: Any, exported: ExportedRuns) -> Any:
    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    sessions = [session for label in exported.labels for session in label.sessions]
    return pyarrow.schema(
        [
            *((name, text) for name in ("label", "kernel", "session", "boot")),
            *((name, text) for name in ("benchmark", "params", "placement", "policy")),
            *((name, text) for name in ("metric", "status")),
            ("order", pyarrow.uint64()),
            ("run", pyarrow.uint64()),
            ("start_ns", pyarrow.uint64()),
            ("sample_index", pyarrow.uint64()),
            ("unit", text),
            ("sample", pyarrow.uint64()),
            ("ns", pyarrow.float64()),
        ],
        metadata={
            "klat:version": __version__,
            "klat:sessions": json.dumps([session.info for session in sessions], sort_keys=True),
        },
    )


def _tables(pyarrow: Any, schema: Any, series: MetricRuns) -> Iterator[Any]:
    for run in series.runs:
        first = 0
        for samples in run.parts():
            yield _table(pyarrow, schema, series, run, samples, first)
            first += len(samples)


def _table(
    pyarrow: Any, schema: Any, series: MetricRuns, run: Run, samples: Samples, first: int
) -> Any:
    """Samples of one run, from number `first` on. Text is as recorded, without invalid Unicode."""
    row, session = run.row, run.source.session
    n = len(samples)
    texts = {
        "label": session.label,
        "kernel": str(session.info.get("kernel_release") or "unknown"),
        "session": session.path.name,
        "boot": row.boot,
        "benchmark": row.benchmark,
        "params": row.params,
        "placement": row.placement,
        "policy": series.setting.params.get("policy", ""),
        "metric": row.metric,
        "status": row.status,
        "unit": row.unit,
    }
    numbers = {"order": row.order, "run": row.run, "start_ns": row.start_ns}
    zeros = pyarrow.array(np.zeros(n, dtype=np.int32))
    columns = {
        name: pyarrow.DictionaryArray.from_arrays(
            zeros, pyarrow.array([text.encode("utf-8", "backslashreplace").decode()])
        )
        for name, text in texts.items()
    }
    columns |= {name: np.full(n, value, dtype=np.uint64) for name, value in numbers.items()}
    columns["sample_index"] = np.arange(first, first + n, dtype=np.uint64)
    columns["sample"] = np.ascontiguousarray(samples)
    if session.khz:
        columns["ns"] = samples.astype(np.float64) * (1e6 / session.khz)
    else:
        columns["ns"] = pyarrow.nulls(n, pyarrow.float64())
    return pyarrow.table([columns[name] for name in schema.names], schema=schema)
