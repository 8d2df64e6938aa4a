"""What the tests of the Python package share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from written_sessions import SessionWriter, SyntheticSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))


@pytest.fixture
def session_writer(tmp_path: Path) -> SessionWriter:
    """`session_writer("stock/1", label="stock", …)` makes a SyntheticSession below
    tmp_path/results."""

    def write(name: str = "stock/1", **info: Any) -> SyntheticSession:
        return SyntheticSession(tmp_path / "results" / name, **info)

    return write
