"""What holds for NAME alone. tests/cli/test_program_*.py test what holds for every program."""

from __future__ import annotations

from harness import UNTRUSTED, run


def test_a_run_without_the_event_is_invalid() -> None:
    done = run("NAME", "--plant", "skip")
    assert done.status == UNTRUSTED, str(done)
