"""What the tests of the Python package share."""

import sys
from pathlib import Path
from typing import Any

import pytest
from written_sessions import NewSession, SideWriter, SyntheticSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))


@pytest.fixture
def new_session(tmp_path: Path) -> NewSession:
    return NewSession(tmp_path / "results")


@pytest.fixture
def writer(new_session: NewSession) -> SyntheticSession:
    """A session of label stock."""
    return new_session()


@pytest.fixture
def side(new_session: NewSession) -> SideWriter:
    return SideWriter(new_session)


@pytest.fixture
def klat(capsys: pytest.CaptureFixture[str]) -> Any:
    """`klat("compare", base, new)` runs a command in this process: its status, stdout and stderr."""
    from klat.cli import main

    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run
