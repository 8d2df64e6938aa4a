"""What holds for semaphore alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import statistics
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import UNTRUSTED, Running, Session, json_of, measured, run, try_again_unless
from harness import with_tries, works

pytestmark = pytest.mark.alone

PRIMITIVES = ("posix", "sysv", "futex", "cond", "eventfd", "pipe")
ONE_CPU = ("--cpus", "1,1")
SHORT = ("--consumer-burn", "2000", "--idle", "5000")
# The shorter a run, the less often the hypervisor stops the consumer's CPU in it.
FEW = ("--iterations", "100")


def counts(*options: str) -> dict[str, int]:
    return dict(json_of(works("semaphore", *options, "--json"))["evidence"]["counts"])


def metrics(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {metric["name"]: metric for metric in result["metrics"]}


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_the_consumer_sleeps_once_for_each_item(primitive, two_cpus, real_time):
    result = json_of(measured("semaphore", "--primitive", primitive, *FEW, "--json"))
    assert 900 <= result["evidence"]["counts"]["sleeps_per_1000_items"] <= 1010
    assert {"wake", "item", "bare"} == set(metrics(result))


def test_a_late_consumer_sleeps_for_each_item(two_cpus, real_time):
    """Its wakeup and its work take longer than the producer's work."""
    measured("semaphore", "--idle", "20000", *FEW)


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_one_cpu_is_preempted_for_each_item(primitive, real_time):
    result = json_of(measured("semaphore", "--primitive", primitive, *ONE_CPU, "--json"))
    (producer,) = [w for w in result["evidence"]["workers"] if w["role"] == "producer"]
    assert producer["involuntary"] >= 450
    assert result["evidence"]["counts"]["reschedules_per_1000_items"] < 500


@with_tries
def test_a_consumer_that_spins_for_longer_than_it_idles_never_sleeps(two_cpus, real_time):
    options = ("--sleeps", "any", "--spin-before-sleep", "20000000")
    result = json_of(works("semaphore", *options, "--json"))
    assert "wake" not in metrics(result), "two counters cannot tell how long that took"
    slept = result["evidence"]["counts"]["sleeps_per_1000_items"]
    spinning = result["evidence"]["counts"]["cpu_net_ticks"]
    idle = 50000 * result["tsc_khz"] / 1e6
    # The CPU time that it spends on looking is what it has of idle time.
    right = slept < 50 and 0.5 * idle < spinning < 1.4 * idle
    try_again_unless(right, str(result["evidence"]))


@with_tries
def test_a_consumer_that_need_not_sleep_is_another_event(two_cpus, real_time):
    done = run("semaphore", "--spin-before-sleep", "20000000", "--json")
    found = (
        done.status == UNTRUSTED
        and "the consumer was woken before it slept" in json_of(done)["reason"]
    )
    try_again_unless(found, done)


@with_tries
def test_a_spin_shorter_than_the_idle_time_is_paid_for_in_cpu_time(two_cpus, real_time):
    """An injected cost that is recovered: half of the idle time spun away before each sleep."""
    idle = ("--idle", "400000", "--iterations", "200")
    without, spun = (
        [counts(*idle, "--spin-before-sleep", spin)["cpu_net_ticks"] for _ in range(3)]
        for spin in ("0", "200000")
    )
    khz = json_of(works("semaphore", "--json"))["tsc_khz"]
    more = (statistics.median(spun) - statistics.median(without)) * 1e6 / khz
    try_again_unless(160000 < more < 240000, f"{more} ns instead of 200000")


def test_net_is_the_difference_of_the_means(tmp_path):
    done = works("semaphore", *ONE_CPU, *SHORT, "--json", "--record", tmp_path)
    found = metrics(json_of(done))
    net = json_of(done)["evidence"]["counts"]["net_ticks"]
    assert net == pytest.approx(found["item"]["mean"] - found["bare"]["mean"], abs=2)
    rows = {row["metric"]: row for row in Session(tmp_path).rows}
    assert rows["item"]["n"] == rows["bare"]["n"] == "500"
    assert f"net_ticks={net};" in rows["item"]["evidence"]


def middle(samples: list[int]) -> float:
    """The mean of the middle half: finer than a step of the counter, which is 26 ticks in some guests."""
    quarter = len(samples) // 4
    return statistics.fmean(sorted(samples)[quarter:-quarter])


@pytest.mark.parametrize("cpus", [(), ONE_CPU], ids=["two CPUs", "one CPU"])
@with_tries
def test_semaphores_that_do_nothing_cost_nothing(cpus, two_cpus, real_time, tmp_path):
    """Both halves do the same work, stamps and shared stores included."""
    options = ("--plant", "free", "--consumer-burn", "0", "--idle", "1", "--iterations", "5000")
    works("semaphore", *options, *cpus, "--sleeps", "any", "--record", tmp_path)
    session = Session(tmp_path)
    rows = {row["metric"]: row for row in session.rows}
    item, bare = (middle(session.samples(rows[metric])) for metric in ("item", "bare"))
    # On one CPU the consumer has taken all items before the first is made.
    wrong = bare < item if cpus else abs(item - bare) > int(rows["item"]["floor"]) / 4
    try_again_unless(not wrong, f"{item} with, {bare} without")


@with_tries
def test_both_sides_work_as_long_as_they_are_told():
    """On one CPU, without semaphores, an item is the work of both."""
    options = ("--consumer-burn", "30000", "--idle", "40000", *ONE_CPU, "--json")
    bare = metrics(json_of(works("semaphore", *options)))["bare"]["min_ns"]
    try_again_unless(90000 < bare < 110000, f"{bare} ns instead of 100000")


def test_stretches_are_as_long_as_asked_and_never_longer_than_a_real_time_thread_may_run():
    assert counts(*ONE_CPU, *SHORT, "--items", "7")["stretch"] == 7
    long = ("--consumer-burn", "0", "--idle", "10000000", "--iterations", "8", "--warmup", "0")
    assert counts(*ONE_CPU, *long, "--items", "1000")["stretch"] <= 4


@pytest.mark.parametrize("items, iterations, warmup", [(1, 20, 0), (7, 20, 3), (100, 20, 7)])
def test_any_length_of_stretch_ends(items, iterations, warmup, two_cpus):
    words = ("--items", items, "--iterations", iterations, "--warmup", warmup, "--sleeps", "any")
    for cpus in ((), ONE_CPU):
        found = metrics(json_of(works("semaphore", *map(str, words), *cpus, *SHORT, "--json")))
        assert found["item"]["n"] == found["bare"]["n"] == iterations


@pytest.mark.parametrize("hog", ["idle", "nice19"])
def test_a_hog_runs_and_ends_with_the_run(hog, two_cpus, real_time):
    assert counts("--hog", hog)["hog_ms"] > 0
    with Running("semaphore", "--hog", hog) as running:
        pids = running.children
        running.process.terminate()
        running.end()
        assert harness.gone(pids) == set()


def test_system_v_semaphores_are_not_left_behind(root):
    def sets() -> list[str]:
        return Path("/proc/sysvipc/sem").read_text().splitlines()

    before = sets()
    works("semaphore", "--primitive", "sysv", *ONE_CPU)
    with Running("semaphore", "--primitive", "sysv", *ONE_CPU) as running:
        running.process.kill()
        running.process.wait(timeout=60)
        assert harness.gone(running.children) == set()
    assert sets() == before
