"""Sessions recorded under a metric's old name."""

import pytest
from written_sessions import SideWriter

from klat.record.session import read_session

SAMPLES = [26_000 + 26 * (i % 40) for i in range(600)]
NETWORK = "low-priority=19;remote={}"


@pytest.mark.parametrize(
    ("benchmark", "remote", "placement", "name"),
    [
        ("network", "no", "same-llc", "interrupt_to_read"),
        ("network", "no", "one-cpu", "timer_to_read"),
        ("network", "yes", "one-cpu", "interrupt_to_read"),
        ("pipes", "no", "one-cpu", "wakeup"),
    ],
)
def test_a_row_has_the_present_name_of_its_event(writer, benchmark, remote, placement, name):
    writer.run(
        {"wakeup": SAMPLES}, benchmark=benchmark, params=NETWORK.format(remote), placement=placement
    )
    session = read_session(writer.path)
    assert [row.metric for row in session.rows] == [name] and not session.problems


@pytest.mark.parametrize(
    ("benchmark", "params", "present"),
    [
        ("syscall", "bytes=30;caller=thread", "bytes=30;descriptors=10;caller=thread"),
        (
            "syscall",
            "bytes=30;descriptors=500;caller=thread",
            "bytes=30;descriptors=500;caller=thread",
        ),
        ("syscall", "caller=thread", "caller=thread"),
        ("switch", "by=yield;iterations=9", "by=yield;pairs=1;iterations=9"),
    ],
)
def test_a_row_without_an_option_has_the_value_at_which_it_ran(writer, benchmark, params, present):
    writer.run({"call": SAMPLES}, benchmark=benchmark, params=params)
    assert [row.params for row in read_session(writer.path).rows] == [present]


def network_side(side: SideWriter, label: str, metric: str) -> str:
    side(label)
    run = {"benchmark": "network", "params": NETWORK.format("no"), "placement": "one-cpu"}
    return str(side.add(label, metric, 50_000, run=9, order=9, **run))


def test_the_old_name_and_the_new_one_of_an_event_are_compared(side, klat):
    old, new = (network_side(side, *each) for each in (("a", "wakeup"), ("b", "timer_to_read")))
    status, out, _ = klat("compare", old, new, "--metric", "timer_to_read")
    assert status in (0, 3) and "median of network timer_to_read one-cpu" in out


@pytest.mark.parametrize("command", ["compare", "history", "plan", "summary", "export"])
@pytest.mark.parametrize("asked", ["network.timer_to_read", "pipes.timer_to_read"])
def test_a_metric_of_one_program_only(side, klat, command, asked):
    paths = [network_side(side, label, "timer_to_read") for label in ("a", "b")]
    words = {"export": ["--format=gobench"]}.get(command, [])
    taken = paths if command == "compare" else paths[:1]
    status, out, err = klat(command, *words, *taken, "--metric", asked)
    assert ("there is no metric 'pipes.timer_to_read'" in err) == asked.startswith("pipes")
    assert (status == 2) == asked.startswith("pipes")
    assert ("imer_to_read" in out) == asked.startswith("network") and "round_trip" not in out


@pytest.mark.parametrize(
    "command", [("compare", "--metric"), ("history", "--metric"), ("plan", "--metric"),
                ("export", "--format=gobench", "--metric")],
)  # fmt: skip
def test_a_command_answers_an_old_name_with_the_present_one(side, klat, command):
    paths = [network_side(side, "a", "wakeup")]
    if command[0] == "compare":
        paths.append(network_side(side, "b", "wakeup"))
    status, out, err = klat(*command, "wakeup", *paths)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "which is now named 'interrupt_to_read', or 'timer_to_read' on one CPU" in err


@pytest.mark.parametrize(
    "command",
    [
        ("explain", "network", "--above", "1ms", "--metric", "wakeup"),
        ("lab", "explain", "results", "--metric", "network.wakeup"),
    ],
)
def test_a_command_on_one_program_answers_an_old_name_too(klat, command):
    status, out, err = klat(*command)
    assert (status, out) == (2, "") and "now named 'interrupt_to_read'" in err
