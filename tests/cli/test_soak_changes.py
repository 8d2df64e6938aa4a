"""If another program changes a thread during a soak, the segment with the change is invalid, and so are those after it."""

import os
import struct
import time

import pytest
from harness import Running, Session, command, lacking, path_of
from test_interference import CHANGES, parent_of_groups
from test_program_soak import CYCLIC

pytestmark = [pytest.mark.alone, pytest.mark.slow]


def move(pid: int) -> None:
    (parent_of_groups("tasks") / "klat-test/tasks").write_text(str(pid))


@pytest.fixture
def group(root):
    group = parent_of_groups("tasks") / "klat-test"
    group.mkdir()
    yield
    time.sleep(0.1)
    group.rmdir()


ALL_CHANGES = [*CHANGES, (move, "cgroup")]


@pytest.mark.parametrize(("change", "name"), ALL_CHANGES, ids=[name for _, name in ALL_CHANGES])
def test_a_change_makes_the_rest_of_a_soak_invalid(change, name, tmp_path, group):
    line = ("timer", "--policy", "other", *CYCLIC, "--segment", "1", "--record", tmp_path)
    with Running(*line, "--soak", "4") as running:
        time.sleep(1.8)
        for process in running.children:
            for thread in os.listdir(f"/proc/{process}/task"):
                change(int(thread))
        running.end(limit=20)
    rows = Session(tmp_path).rows
    reason = f"the {name} of the waiter changed during the run"
    assert [reason in row["reason"] for row in rows] == [False, True, True, True]
    assert {row["status"] for row in rows[1:]} == {"invalid"}


def test_a_latency_that_others_request_later_disturbs_the_rest_of_a_soak(tmp_path, root, real_time):
    if not os.path.exists("/dev/cpu_dma_latency"):
        lacking("there is no /dev/cpu_dma_latency")
    with Running("timer", *CYCLIC, "--segment=1", "--soak", "4", "--record", tmp_path) as running:
        time.sleep(1.8)
        with open("/dev/cpu_dma_latency", "wb", buffering=0) as device:
            device.write(struct.pack("i", 0))
            running.end(limit=20)
    rows = Session(tmp_path).rows
    reason = "other programs changed their requests in /dev/cpu_dma_latency since the soak began"
    assert [reason in row["reason"] for row in rows] == [False, True, True, True]


def test_a_soak_is_judged_in_a_pid_namespace_without_its_own_proc(tmp_path, root, real_time):
    words = ("unshare", "--pid", "--fork", path_of("timer"), *CYCLIC)
    command([*words, "--soak", "2", "--record", tmp_path])
    (row,) = Session(tmp_path).rows
    assert row["status"] in ("ok", "disturbed"), row["reason"]
