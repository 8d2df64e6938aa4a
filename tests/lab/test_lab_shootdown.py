"""What is told of a shootdown, and when it counts as one that reached all."""

from pathlib import Path
from typing import Any

import pytest
from labs import experiment, write_session

from klat.commands import lab as command
from klat.lab import execution, shootdown
from klat.lab.qemu import GuestSize

RESPONDERS, ITERATIONS, EXPECTED = 3, 20, 25
ALL = {
    "responders_reached": RESPONDERS,
    "least_delivered": EXPECTED,
    "expected": EXPECTED,
    "least_interrupted": ITERATIONS,
}


def recorded(
    output: Path,
    status: str = "ok",
    reason: str = "",
    operation: str = "munmap",
    **evidence: int | None,
) -> Path:
    """Evidence of None is left out."""
    planned = experiment(
        mode="emulated", shape=GuestSize(RESPONDERS + 1), kernels=("debian:stock",)
    )
    session = write_session(output, planned, 1, cpus_online=RESPONDERS + 1)
    session.run(
        {"initiator": [], "interruption": []},
        benchmark="tlbflush",
        params=f"responders={RESPONDERS};iterations={ITERATIONS};operation={operation}",
        status=status,
        reason=reason,
        order=1,
        run=1,
        floor="",
        evidence=";".join(
            f"{name}={value}" for name, value in (ALL | evidence).items() if value is not None
        ),
    )
    return session.path


def test_a_shootdown_that_reached_all_is_told_so(tmp_path, capsys):
    assert shootdown.report(recorded(tmp_path))
    told = capsys.readouterr().out
    assert told.endswith(
        "4 CPUs\n  3 of 3 responders got each of 25 shootdowns: 20 timed, 5 not\n"
        "  (at least 25 by the TLB row; each responder saw at least 20 timed ones)\n"
    )
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("delivered", [EXPECTED, EXPECTED - 1])
def test_interrupts_that_no_program_can_see_are_counted_by_their_row(tmp_path, capsys, delivered):
    """As on arm64."""
    evidence: dict[str, Any] = {"least_delivered": delivered, "least_interrupted": None}
    every = shootdown.report(recorded(tmp_path, operation="membarrier", **evidence))
    assert every == (delivered == EXPECTED)
    got = "each" if every else "not each"
    assert capsys.readouterr().out.endswith(
        f"3 of 3 responders got {got} of 25 membarrier() interrupts: 20 timed, 5 not\n"
        f"  (at least {delivered} by the row of function calls, which also counts other calls)\n"
    )


def test_a_flush_without_an_interrupt_is_shown_by_proofs(tmp_path, capsys):
    """As on arm64. The program refutes a run in which a responder did not fault."""
    none: dict[str, Any] = dict.fromkeys(ALL) | {"expected": EXPECTED, "proofs": 2, "stale": 0}
    assert shootdown.report(recorded(tmp_path, **none))
    assert capsys.readouterr().out.endswith(
        "4 CPUs\n  3 of 3 responders fault when they access the pages\n"
        "  (after 2 of 25 shootdowns; the kernel counts no interrupts for them)\n"
    )


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"responders_reached": 2}, "2 of 3 responders got"),
        ({"least_delivered": EXPECTED - 1}, "5 not\n  (at least 24 by"),
        ({"least_interrupted": ITERATIONS - 1}, "not each of 25 shootdowns"),
        ({"least_interrupted": 0}, "each responder saw at least 0 timed ones"),
    ],
)
def test_a_shootdown_that_did_not_reach_all_is_told_so(tmp_path, capsys, evidence, message):
    assert not shootdown.report(recorded(tmp_path, **evidence))
    assert message in capsys.readouterr().out


@pytest.mark.parametrize("status", ["invalid", "error", "skipped"])
def test_a_run_that_is_not_to_be_trusted_shows_no_shootdown(tmp_path, capsys, status):
    assert not shootdown.report(recorded(tmp_path, status, "not delivered: 2 of 3"))
    assert f"{status}: not delivered: 2 of 3" in capsys.readouterr().out


def test_a_run_without_counts_shows_no_shootdown(tmp_path):
    assert not shootdown.report(recorded(tmp_path, expected=0))


@pytest.mark.parametrize(
    ("attempted", "evidence", "status"),
    [
        (0, {}, 0),
        (0, {"responders_reached": 2}, 1),
        (1, {}, 1),
        (2, {}, 2),
        (3, {}, 1),
        (4, {}, 1),
        (130, {}, 130),
        (143, {}, 143),
    ],
)
def test_the_status_is_0_1_2_or_a_signals(lab, monkeypatch, attempted, evidence, status):
    class Attempt:
        def __init__(self, *_: object, **__: object) -> None:
            self.recorded = [recorded(lab.results, **evidence)]

        def begin(self, *_: object) -> int:
            return attempted

    monkeypatch.setattr(execution, "Attempt", Attempt)
    monkeypatch.setenv("KLAT_PROGRAMS", lab.environment["KLAT_PROGRAMS"])
    assert run(["shootdown", "--cpus", "4"]) == status


def run(words: list[str]) -> int:
    """klat lab, in this process."""
    import argparse

    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["lab", *words])
    status: int = parsed.func(parsed)
    return status
