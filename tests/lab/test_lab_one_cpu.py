"""What a kernel of Debian's, PREEMPT_RT, measures on the one CPU of counted mode, where nobody says how."""

import pytest
from test_lab_boots import SHORT, lab_run, session_of

from klat.record.profiles import PROFILES
from klat.record.session import Row, read_session

pytestmark = pytest.mark.slow

FAMILY = (
    "pipes",
    "cv",
    "network",
    "tlbflush",
    "semaphore",
    "signal",
    "inherit",
    "messages",
    "transport",
    "eventloop",
    "wakeup",
)
METHODS = ("signal", "signal-below", "nanosleep")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    where = tmp_path_factory.mktemp("lab")
    words = ("--kernel", "debian:rt", *SHORT, "--output", where, "timer", *FAMILY)
    lab_run(*words, "--sweep", f"timer.method={','.join(METHODS)}", cwd=where)
    return list(read_session(session_of(where, "lab-rt")).rows)


@pytest.mark.parametrize("program", FAMILY)
def test_a_program_runs_on_the_one_cpu_by_itself(rows, program):
    own = [row for row in rows if row.benchmark == program]
    assert {row.placement for row in own} == {"one-cpu"}
    assert {row.status for row in own} <= {"ok", "disturbed"}
    assert any(row.n for row in own), "no figure"


def of_method(rows: list[Row], method: str) -> list[Row]:
    return [row for row in rows if f"method={method};" in row.params]


def test_a_signal_that_a_spinner_does_not_get_is_a_result(rows):
    (row,) = of_method(rows, "signal")
    assert row.status == "skipped"
    assert row.reason.startswith("not delivered: SIGALRM")


@pytest.mark.parametrize("method, policy", [("signal-below", "other:0"), ("nanosleep", "fifo:98")])
def test_what_the_kernel_does_deliver_is_measured(rows, method, policy):
    own = of_method(rows, method)
    assert {(row.status, row.policy) for row in own} == {("ok", f"waiter={policy}")}
    assert all(row.n == 100 for row in own)


def test_a_profile_measures_all_that_one_cpu_can(tmp_path):
    words = ("--kernel", "debian:rt", *SHORT, "--load", "none", "--output", tmp_path)
    lab_run(*words, "--profile", "rt", cwd=tmp_path)
    rows = read_session(session_of(tmp_path, "lab-rt")).rows
    assert {row.benchmark for row in rows} == {*PROFILES["rt"].benchmarks} - {"tlbflush"}
    assert {row.status for row in rows} <= {"ok", "disturbed"} and all(row.n for row in rows)
    (timer,) = [row for row in rows if row.benchmark == "timer"]
    assert "mode=periodic;period=1000" in timer.params and "dma-latency=0" in timer.params
