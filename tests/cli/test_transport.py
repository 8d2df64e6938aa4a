"""What holds for transport alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import contextlib
import itertools
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import UNTRUSTED, Session, assert_one_line, combined, command, injected, json_of
from harness import path_of, run, try_again_unless, until, with_tries, works

pytestmark = pytest.mark.usefixtures("two_cpus")

INTERNET = ["tcp", "udp", "multicast"]
LOCAL = ["thread-pointer", "shm-zero-copy", "shm-copy", "pipe", "unix", *INTERNET]
# Between the blocks, chunks and buffers that messages are cut into.
ODD_SIZES = [100, 32, 33, 47, 4099, 16385, 65537, 1000003]


def result(*options: str) -> dict[str, Any]:
    return json_of(works("transport", *options, "--json"))


def counts(*options: str) -> dict[str, int]:
    found = result(*options)["evidence"]["counts"]
    assert isinstance(found, dict)
    return found


def p50(metric: str, *options: str) -> float:
    return {m["name"]: float(m["p50"]) for m in result(*options)["metrics"]}[metric]


def slept(*options: str) -> list[int]:
    return [worker["voluntary"] for worker in result(*options)["evidence"]["workers"]]


SIDES = combined(LOCAL, ODD_SIZES, ["spin", "block"], ["process", "thread"])


@pytest.mark.parametrize("transport, size, wait, peer", SIDES)
def test_every_byte_that_is_sent_arrives(transport, size, wait, peer):
    peer = "thread" if transport == "thread-pointer" else peer
    words = ("--transport", transport, "--wait", wait, "--peer", peer, "--bytes", str(size))
    found = counts(*words, "--touch", "write", "--iterations", "20", "--warmup", "2")
    messages = 2 * found["observed"]
    assert (found["sent"], found["received"], found["damaged"]) == (messages, messages, 0)
    assert found["bytes_sent"] == found["bytes_received"] == messages * size


@pytest.mark.parametrize("transport, touch", combined(LOCAL, ["none", "read", "write"]))
def test_a_damaged_message_is_caught(transport, touch):
    options = ("--transport", transport, "--touch", touch, "--bytes", "5000")

    def attempt() -> str:
        done = run("transport", *options, "--plant", "corrupt", "--json")
        if done.status == UNTRUSTED and "damaged" in json_of(done)["reason"]:
            return ""
        return str(done)

    until(attempt)


@pytest.mark.alone
@pytest.mark.parametrize("transport", LOCAL)
@with_tries
def test_spinners_never_sleep_and_blockers_do_for_every_message(transport):
    # If the call that wakes the other side is slow, a short reply can arrive before its receiver sleeps.
    words = ("--transport", transport, "--touch", "write", "--bytes", "16384")
    spun = slept(*words, "--wait", "spin")
    blocked = slept(*words, "--wait", "block")
    try_again_unless(max(spun) <= 5 and min(blocked) >= 495, f"{spun} {blocked}")


@pytest.mark.alone
@with_tries
def test_the_size_of_what_nobody_touches_does_not_matter():
    zero_copy = ("--transport", "shm-zero-copy", "--iterations", "100", "--bytes")
    small, large = p50("half", *zero_copy, "100"), p50("half", *zero_copy, "10000000")
    read = p50("half", *zero_copy, "10000000", "--touch", "read")
    # The copy of 10 MB takes thousands of times as long as the hand-off.
    try_again_unless(large < 4 * small and read > 20 * large, f"{small} {large} {read}")


def test_half_is_half(tmp_path):
    works("transport", "--record", tmp_path)
    session = Session(tmp_path)
    rows = {row["metric"]: session.samples(row) for row in session.rows}
    assert [sample // 2 for sample in rows["round_trip"]] == rows["half"]


def test_large_messages_are_fewer_unless_a_number_is_given():
    options = ("--transport", "unix", "--bytes", "2000000")
    assert result(*options)["metrics"][0]["n"] == 50
    assert result(*options, "--iterations", "70")["metrics"][0]["n"] == 70
    found = counts(*options, "--iterations", "500", "--warmup", "1")
    assert found["received"] == 2 * found["observed"] > 1000


@pytest.mark.alone
@with_tries
def test_response_counts_from_when_a_message_was_due(tmp_path):
    """An answer with a spin takes longer than an interval, so that the message after it leaves late."""
    session = harness.next_session(tmp_path)
    options = ("--rate", "6000", "--inject", "200000", "--iterations", "1000")
    works("transport", *options, "--record", session.path, "--quiet")
    rows = {row["metric"]: session.samples(row) for row in session.rows}
    waited = [a - b for a, b in zip(rows["response"], rows["round_trip"])]
    per_us = session.info["tsc"]["khz"] / 1e3
    behind = [injected(i - 1) for i in range(len(waited))]
    late = statistics.median(itertools.compress(waited, behind)) / per_us
    # Nor after two messages: the delay of the first is caught up during the second.
    others = [not injected(i - 1) and not injected(i - 2) for i in range(len(waited))]
    rest = statistics.median(itertools.compress(waited, others)) / per_us
    # 200 us less the interval of 166.7.
    try_again_unless(late > 25 and rest < 25, f"{late:.1f} us late, the others {rest:.1f}")


def test_a_rate_that_is_not_kept_is_said():
    done = run("transport", "--rate", "1000000", "--inject", "20000", "--json")
    assert done.status == UNTRUSTED, str(done)
    assert "--rate was not kept" in json_of(done)["reason"]


@pytest.mark.alone
@with_tries
def test_a_rate_that_is_kept_is_believed():
    done = works("transport", "--rate", "1000", "--iterations", "200", "--json")
    try_again_unless("not kept" not in json_of(done)["reason"], done)


def test_a_limit_that_allows_no_timer_is_a_skip():
    words = ["prlimit", "--sigpending=0", path_of("transport"), "--transport", "udp"]
    done = command([*words, "--wait", "block"])
    assert_one_line(done, "transport", harness.SKIPPED)
    assert "ulimit -i" in done.err


@pytest.mark.parametrize(
    "transport", [pytest.param("tcp", marks=pytest.mark.slow), "udp", "multicast"]
)
@with_tries
def test_a_side_that_waits_long_for_a_message_slept_once_for_it(transport):
    """Whatever else wakes it meanwhile."""
    options = ("--transport", transport, "--wait", "block", "--rate", "5")
    done = works("transport", *options, "--iterations", "8", "--warmup", "1", "--json")
    evidence = json_of(done)["evidence"]
    slept = [worker["voluntary"] for worker in evidence["workers"]]
    each = evidence["counts"]["observed"]
    try_again_unless(all(abs(count - each) <= 1 for count in slept), f"slept {slept}")


@pytest.mark.slow
@pytest.mark.alone
def test_a_side_that_sleeps_repairs_about_as_often_as_one_that_spins():
    """What is lost is the same in both: the first silence may last two beats, each other one."""
    options = ("--transport", "multicast", "--drop-every", "3", "--iterations", "30")
    means = {
        wait: result(*options, "--warmup", "0", "--wait", wait)["metrics"][0]["mean_ns"]
        for wait in ("spin", "block")
    }
    assert means["block"] < 1.6 * means["spin"]


@pytest.mark.alone
def test_a_unix_socket_may_wake_a_sleeper_for_space(two_cpus):
    def attempt() -> str:
        words = ("--transport", "unix", "--wait", "block", "--rate", "1000", "--json")
        result = json_of(run("transport", *words))
        is_judged = result["status"] in ("ok", "disturbed")
        return "" if is_judged and "slept" not in result["reason"] else str(result)

    until(attempt, tries=3)


@pytest.mark.alone
@with_tries
def test_rests_do_not_lower_a_rate():
    options = ("--transport", "unix", "--wait", "block", "--rate", "100")
    done = works("transport", *options, "--iterations", "100", "--warmup", "0", "--json")
    seconds = json_of(done)["elapsed_ns"] / 1e9
    try_again_unless(0.95 < seconds < 1.06, f"{seconds} s")


def test_a_peer_that_vanishes_ends_the_run():
    for transport in ("shm-copy", "unix", "udp"):
        options = ("--transport", transport, "--bytes", "1000000", "--wait", "block")
        with harness.Running("transport", *options) as running:
            (measured,) = harness.children(running.process.pid)
            assert len(peers := harness.children(measured)) == 2
            os.kill(max(peers), 9)
            assert_one_line(running.end(), "transport", harness.FAILED)
            assert not harness.gone(running.children)


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["spin", "block"])
@pytest.mark.parametrize("transport", ["thread-pointer", "shm-zero-copy", "shm-copy"])
def test_the_ring_is_clean_under_thread_sanitizer(transport, wait):
    """Between threads, which is where the sanitizer sees both sides; with blocks read and written."""
    for size in ("100", "3000000"):
        words = [
            *("setarch", platform.machine(), "--addr-no-randomize"),
            *(path_of("transport", "tsan"), "--transport", transport, "--peer", "thread"),
            *("--wait", wait, "--touch", "write", "--bytes", size),
            *("--iterations", "100" if size == "100" else "10", "--warmup", "5"),
        ]
        done = command(words, env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}, limit=60)
        assert done.status in (harness.MEASURED, UNTRUSTED), str(done)
        assert "Sanitizer" not in done.err, str(done)


# Datagrams that are lost, overtaken, or come twice


@pytest.mark.parametrize("transport", ["udp", "multicast"])
def test_a_caller_that_blocks_signals_makes_no_loss_last_for_ever(transport):
    """A sleeping receiver is woken by one, to look whether anything was lost."""
    options = ("--transport", transport, "--wait", "block", "--drop-every", "20")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        done = harness.works("transport", *options, "--iterations", "100", "--json")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert done.seconds < 10
    counted = json_of(done)["evidence"]["counts"]
    assert counted["received"] == 2 * counted["observed"]


@pytest.mark.parametrize("wait", ["spin", "block"])
def test_udp_over_a_slow_network_takes_as_long_as_that_does(wait, root):
    """100,000 bytes, in 69 packets with headers of 42, at 10 Mb/s: 83 ms each way, where a message and
    its answer are expected within 30."""
    slow = "ip link set lo up && tc qdisc add dev lo root tbf rate 10mbit burst 10kb latency 2s"
    options = f"--transport udp --bytes 100000 --datagram 1472 --wait {wait} --iterations 10"
    program = f"{path_of('transport')} {options} --warmup 1 --json"
    done = command(["unshare", "--net", "sh", "-c", f"{slow} || exit 77; exec {program}"])
    if done.status == 77:
        harness.lacking(done.err.strip())
    found = json_of(done)
    counted, round_trip = found["evidence"]["counts"], found["metrics"][0]
    both_ways = 2 * counted["observed"]
    assert (counted["sent"], counted["received"], counted["damaged"]) == (both_ways, both_ways, 0)
    assert 0.150 < round_trip["p50_ns"] / 1e9 < 0.250
    # Only before an answer has come, and where the machine had other work.
    assert counted["lost"] <= 10, str(done)


@pytest.mark.alone
@pytest.mark.parametrize("wait", ["spin", "block"])
@with_tries
def test_a_message_that_udp_loses_is_counted_and_sent_again(wait, tmp_path):
    """The time from the first attempt is in its sample, so each loss adds a long one."""
    options = ("--transport", "udp", "--wait", wait, "--drop-every", "40", "--touch", "write")
    session = harness.next_session(tmp_path)
    found = result(*options, "--record", str(session.path))
    counted = found["evidence"]["counts"]
    again = 20 * session.info["tsc"]["khz"]
    late = [sample for sample in session.samples(session.rows[0]) if sample >= again]
    assert counted["dropped"] >= 10 and found["status"] != "ok"
    # Both sides wake at the same beat after a loss, and then need not sleep for the next try.
    assert "lost" in found["reason"] or "before it slept" in found["reason"]
    assert (counted["received"], counted["damaged"]) == (2 * counted["observed"], 0)
    # A message may be lost more than once. Other work makes samples late, too.
    right = counted["lost"] / 2 <= len(late) <= counted["lost"]
    # Each of one datagram: a loss for each that was left out, unless one was only late.
    right &= counted["lost"] == counted["dropped"]
    try_again_unless(right, f"{len(late)} late samples, {counted}")


SPOILED = [
    ("--drop-every", "30"),
    ("--reorder-every", "4"),
    ("--duplicate-every", "4"),
    ("--drop-every", "30", "--reorder-every", "4", "--duplicate-every", "4"),
]


DATAGRAMS = [("100",), ("3000", "--datagram", "272"), ("16000",)]


@pytest.mark.parametrize("size, spoiled, wait", combined(DATAGRAMS, SPOILED, ["spin", "block"]))
def test_what_udp_delivers_is_the_whole_message_in_its_place(size, spoiled, wait):
    """Parts of an abandoned attempt arrive among the parts of the next one, whose first part comes second."""
    words = ("--transport", "udp", "--wait", wait, "--bytes", *size, *spoiled, "--touch", "write")
    counted = counts(*words, "--iterations", "60", "--warmup", "2")
    messages = 2 * counted["observed"]
    assert (counted["sent"], counted["received"], counted["damaged"]) == (messages, messages, 0)
    assert all(counted[each] for each in ("dropped", "reordered", "duplicated") if each in counted)
    assert counted["repaired"] == counted["resent"] == 0
    if "reordered" in counted:
        assert counted["outdated"] > 0, "or none was overtaken by its message's next attempt"
    if "duplicated" in counted:
        assert counted["repeated"] + counted["outdated"] > 0


# The whole message, a hole in the middle, the last part, a request for it.
DROPPED = [
    ("--drop-every", "7"),
    ("--bytes", "300000", "--datagram", "1472", "--drop-every", "50"),
    ("--bytes", "3000", "--datagram", "1016", "--drop-every", "4"),
    ("--bytes", "3000", "--datagram", "272", "--drop-every", "9", "--reorder-every", "4"),
]


@pytest.mark.parametrize("peer, shape", combined(["thread", "process", "netns"], DROPPED))
def test_multicast_repairs_what_is_dropped(peer, shape):
    options = ("--transport", "multicast", "--peer", peer, "--touch", "write", *shape)
    options = (*options, "--iterations", "20", "--warmup", "2")

    def attempt(wait: str) -> str:
        counted = counts(*options, "--wait", wait)
        assert counted["dropped"] > 0 and counted["repaired"] > 0, counted
        messages = 2 * counted["observed"]
        assert (counted["sent"], counted["received"], counted["damaged"]) == (messages, messages, 0)
        assert counted["bytes_received"] == counted["bytes_sent"]
        assert counted["resent"] >= counted["repaired"]
        # Every part that was left out came by a repair, once; and no other, unless a buffer was full.
        return "" if counted["repaired"] == counted["dropped_parts"] else str(counted)

    for wait in ("spin", "block"):
        until(lambda: attempt(wait))


@pytest.mark.alone
@with_tries
def test_nothing_is_repaired_where_nothing_is_lost():
    found = counts("--transport", "multicast", "--bytes", "200000", "--datagram", "1472")
    assert "dropped" not in found
    wrong = [found[each] for each in ("lost", "repaired", "resent", "repeated", "outdated")]
    try_again_unless(not any(wrong), found)


# Networks


@pytest.mark.parametrize("transport", INTERNET)
def test_a_private_network_carries_messages_and_leaves_nothing(transport, root):
    def network() -> str:
        return command(["ip", "-o", "link"]).out + command(["ip", "netns", "list"]).out

    before = network()
    found = counts("--transport", transport, "--peer", "netns", "--bytes", "100000")
    assert found["received"] == 2 * found["observed"]
    with harness.Running("transport", "--transport", transport, "--peer", "netns"):
        during = network()
    assert before == during == network()


def test_an_ordinary_user_has_a_private_network_or_a_reason(published, as_nobody):
    words = [published / "transport", "--transport", "tcp", "--peer", "netns", "--quiet"]
    done = command([*as_nobody, *words], cwd="/")
    assert done.status in (harness.MEASURED, UNTRUSTED, harness.SKIPPED), str(done)
    if done.status == harness.SKIPPED:
        assert "namespace" in done.err


def test_an_interface_without_multicast_is_a_skip(root):
    script = 'ip link set lo up && ip tuntap add dev t0 mode tun && ip addr add 10.9.0.1/24 dev t0 \
        && ip link set t0 multicast off up && exec "$@"'
    words = ["unshare", "--net", "sh", "-c", script, "sh", path_of("transport")]
    options = ["--transport", "multicast", "--interface"]
    done = command([*words, *options, "t0"])
    if done.status == harness.FAILED and "tun" in done.err:
        harness.lacking("this test needs a tun device")
    assert_one_line(done, "transport", harness.SKIPPED)
    assert "t0 does no multicast" in done.err
    done = command([*words, *options, "none"])
    assert_one_line(done, "transport", harness.FAILED)
    assert "'none'" in done.err


@pytest.mark.parametrize("transport", ["tcp", "multicast"])
def test_a_machine_whose_loopback_is_down_is_a_skip(transport, root):
    words = ["unshare", "--net", path_of("transport"), "--transport", transport]
    done = command(words)
    assert_one_line(done, "transport", harness.SKIPPED)
    assert "no network interface that is up" in done.err and "127.0.0.1" in done.err


# Two machines: two programs, each of which knows only the other's address


@pytest.fixture
def port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def listening(port: int, *options: str) -> subprocess.Popen[bytes]:
    words = [path_of("transport"), "--listen", str(port), "--cpus", "0", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def connected(port: int) -> socket.socket:
    """To a program that begins to listen."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.02)


def done_of(process: subprocess.Popen[bytes]) -> harness.Done:
    out, err = process.communicate(timeout=30)
    return harness.Done(["--listen"], process.returncode, out.decode(), err.decode(), 0)


@pytest.mark.parametrize("transport, wait", combined(INTERNET, ["spin", "block"]))
def test_two_programs_measure_between_them(transport, wait, port):
    options = ("--transport", transport, "--wait", wait, "--touch", "write", "--bytes", "100000")
    with listening(port, *options, "--json") as process:
        words = ("--connect", f"127.0.0.1:{port}", "--cpus", "1", *options)
        here = works("transport", *words, "--json")
        assert_both_measured(done_of(process), here)


def assert_both_measured(listener: harness.Done, connector: harness.Done) -> None:
    for done, metrics in ((listener, ["turnaround"]), (connector, ["round_trip", "half"])):
        assert done.status in (harness.MEASURED, UNTRUSTED), str(done)
        side = json_of(done)
        assert [metric["name"] for metric in side["metrics"]] == metrics
        assert "peer=remote" in side["parameters"]
        found = side["evidence"]["counts"]
        messages = found["observed"]
        assert (found["sent"], found["received"], found["damaged"]) == (messages, messages, 0)
        assert found["bytes_received"] == found["bytes_sent"]


@pytest.fixture
def two_networks(root: None) -> Iterator[list[list[str]]]:
    """Words that put a command into each of two network namespaces, which a virtual cable joins."""
    hold = ["unshare", "--net", "sh", "-c", "echo && exec sleep 1000"]
    with contextlib.ExitStack() as stack:
        holders = []
        for _ in range(2):
            holder = stack.enter_context(subprocess.Popen(hold, stdout=subprocess.PIPE))
            stack.callback(holder.kill)
            if not holder.stdout or not holder.stdout.readline():
                harness.lacking("no network namespace can be made here")
            holders.append(holder.pid)
        enter = [["nsenter", f"--net=/proc/{pid}/ns/net"] for pid in holders]
        peer = ["peer", "name", "cable", "netns", str(holders[1])]
        script = ["ip", "link", "add", "cable", "type", "veth", *peer]
        assert command([*enter[0], *script]).status == 0
        for number, words in enumerate(enter, start=1):
            for script in (
                f"address add 10.168.79.{number}/24 dev cable",
                "link set lo up",
                "link set cable up",
            ):
                assert command([*words, "ip", *script.split()]).status == 0
        yield enter


def started(enter: list[str], cpu: str, *options: str) -> subprocess.Popen[bytes]:
    words = [*enter, str(path_of("transport")), "--cpus", cpu, *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


TO_LISTENER = ("--connect", "10.168.79.1:7718")


@pytest.mark.parametrize("transport, wait", combined(INTERNET, ["block", "spin"]))
def test_messages_cross_a_network_once_and_whole_whatever_it_drops(transport, wait, two_networks):
    options = ["--transport", transport, "--wait", wait, "--bytes", "20000", "--touch", "write"]
    options += [] if transport == "tcp" else ["--drop-every", "20"]
    options += ["--iterations", "60", "--json"]
    with started(two_networks[0], "0", "--listen", "7718", *options) as listener:
        with started(two_networks[1], "1", *TO_LISTENER, *options) as connector:
            sides = done_of(listener), done_of(connector)
    assert_both_measured(*sides)
    if transport != "tcp":
        assert all(json_of(done)["evidence"]["counts"]["dropped"] > 0 for done in sides)


@pytest.mark.parametrize("transport", INTERNET)
def test_a_machine_that_loses_its_network_is_given_up_after_the_time_given(transport, two_networks):
    options = ["--transport", transport, "--wait", "block", "--iterations", "1000000"]
    options += ["--wait-for", "1"]
    with started(two_networks[0], "0", "--listen", "7718", *options) as listener:
        with started(two_networks[1], "1", *TO_LISTENER, *options) as connector:
            time.sleep(0.7)
            assert listener.poll() is None and connector.poll() is None
            assert command([*two_networks[1], "ip", "link", "set", "cable", "down"]).status == 0
            sides = done_of(listener), done_of(connector)
    for done in sides:
        assert_one_line(done, "transport", harness.FAILED)
    assert re.search(r"\b1 s\b", sides[0].err), str(sides[0])


@pytest.mark.parametrize(
    ("option", "one", "other"), [("bytes", "100", "200"), ("wait", "spin", "block")]
)
def test_both_programs_refuse_to_measure_different_things(port, option, one, other):
    with listening(port, "--transport", "tcp", f"--{option}", other) as process:
        words = ("--connect", f"127.0.0.1:{port}", "--transport", "tcp", f"--{option}", one)
        assert_one_line(run("transport", *words), "transport", harness.FAILED)
        done = done_of(process)
    assert_one_line(done, "transport", harness.FAILED)
    told = done.err.split("measures something else: ")[1].split(", not ")
    assert len({re.findall(rf"\b{option}=(\w+)", text)[0] for text in told}) == 2


def test_a_port_in_use_is_said():
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        number = str(taken.getsockname()[1])
        done = run("transport", "--listen", number, "--transport", "tcp")
    assert_one_line(done, "transport", harness.FAILED)
    assert f"port {number}" in done.err and "in use" in done.err


def test_nobody_there_is_said_after_the_time_given(port):
    limit = ("--transport", "tcp", "--wait-for", "1")
    for words in (("--listen", str(port)), ("--connect", f"127.0.0.1:{port}")):
        done = run("transport", *words, *limit)
        assert_one_line(done, "transport", harness.FAILED)
        assert str(port) in done.err and 0.9 < done.seconds < 10


def test_a_stranger_at_the_port_is_no_peer(port):
    with listening(port, "--transport", "udp", "--wait-for", "2") as process:
        with connected(port) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + 300 * b"x")
            assert_one_line(done_of(process), "transport", harness.FAILED)


@contextlib.contextmanager
def two_at_work(port: int, victim: str, *options: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A listener and a connector in mid message, the victim first. Ordinary threads: two real-time spinners would leave
    the test no CPU to end them."""
    options = ("--policy", "other", *options)
    words = [path_of("transport"), "--connect", f"127.0.0.1:{port}", "--cpus", "1", *options]
    with (
        listening(port, *options) as listener,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as connector,
    ):
        time.sleep(0.7)
        assert listener.poll() is None and connector.poll() is None, done_of(connector).err
        yield [listener, connector] if victim == "listener" else [connector, listener]


VICTIMS = combined(INTERNET, ["spin", "block"], ["listener", "connector"])


@pytest.mark.parametrize("transport, wait, victim", VICTIMS)
def test_a_program_that_vanishes_in_mid_message_is_told_by_the_other(transport, wait, victim, port):
    options = ("--transport", transport, "--wait", wait, "--bytes", "8000000")
    many = ("--iterations", "100000")
    with two_at_work(port, victim, *options, *many) as (first, second):
        first.kill()
        assert_one_line(done_of(second), "transport", harness.FAILED)


@pytest.mark.parametrize("transport, wait, victim", VICTIMS)
def test_a_program_that_falls_silent_in_mid_message_is_given_up_after_the_time_given(
    transport, wait, victim, port
):
    """As a machine that loses its network: nothing says that it is gone."""
    options = ["--transport", transport, "--wait", wait, "--bytes", "8000000", "--wait-for", "1"]
    options += ["--iterations", "100000"]
    with two_at_work(port, victim, *options) as (silent, other):
        for pid in harness.descendants(silent.pid):
            os.kill(pid, signal.SIGSTOP)
        since = time.monotonic()
        done = done_of(other)
        waited = time.monotonic() - since
        silent.kill()
    assert_one_line(done, "transport", harness.FAILED)
    assert re.search(r"\b1 s\b", done.err), str(done)
    # To lose a message of this size takes 0.8 s each time.
    assert 0.4 < waited < 4, f"{waited:.1f} s\n{done}"


def test_a_spinner_that_nothing_comes_for_pauses(port):
    """Or it would keep the kernel's own thread, of no real-time priority, from what it waits for."""
    options = ("--transport", "tcp", "--wait", "spin", "--wait-for", "3")
    with listening(port, *options) as process, connected(port) as peer:
        peer.sendall(peer.recv(256, socket.MSG_WAITALL) + b"\0" + 50 * b"x")
        time.sleep(0.5)
        (measured,) = harness.children(process.pid)
        (responder,) = harness.children(measured)
        before = voluntary_switches(responder)
        time.sleep(1)
        # At most 21, of which a machine with other work may leave few.
        assert voluntary_switches(responder) - before >= 3
        assert_one_line(done_of(process), "transport", harness.FAILED)


def test_a_spinner_does_not_pause_where_a_message_may_be_due():
    """A message that came meanwhile would look slower than it is."""
    options = ("--transport", "udp", "--wait", "spin", "--rate", "95")
    with harness.Running("transport", *options, "--iterations", "100000") as running:
        (measured,) = harness.children(running.process.pid)
        responder = max(harness.children(measured))
        begun, before = time.monotonic(), voluntary_switches(responder)
        time.sleep(1)
        rests = voluntary_switches(responder) - before
        # The rests that both agree upon, every 47 ms; the pauses would come with each message.
        assert rests < 50 * (time.monotonic() - begun)


def voluntary_switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^voluntary_ctxt_switches:\t(\d+)$", status, re.MULTILINE)
    assert found
    return int(found[1])


SAYS = [
    (0, "it does not answer"),
    (1, "did not begin the run in 1 s"),
    (2, "timed out after 1 s waiting for a byte"),
]


@pytest.mark.parametrize("says, wait", combined(SAYS, ["spin", "block"]))
def test_a_peer_that_says_no_more_is_given_up_after_the_time_given(says, wait, port):
    said, about = says
    options = ("--transport", "tcp", "--wait", wait, "--bytes", "100000", "--wait-for", "1")
    with listening(port, *options) as process, connected(port) as peer:
        greeting = peer.recv(256, socket.MSG_WAITALL)
        if said >= 1:
            peer.sendall(greeting)
        if said >= 2:
            peer.sendall(b"\0" + 50000 * b"x")
        since = time.monotonic()
        done = done_of(process)
        assert_one_line(done, "transport", harness.FAILED)
        assert about in done.err and time.monotonic() - since < 3, str(done)


def test_a_block_that_nobody_touches_has_no_throughput(two_cpus):
    def shown(*options: str) -> bool:
        return "mb_per_s" in json_of(works("transport", *options, "--json"))["evidence"]["counts"]

    for name in ("thread-pointer", "shm-zero-copy"):
        assert not shown("--transport", name, "--bytes", "1000000")
        assert shown("--transport", name, "--touch", "read")
    assert shown("--transport", "shm-copy")


@pytest.mark.slow
def test_timers_of_bbr_do_not_count_as_other_interrupts(root):
    """BBR waits between the packets of a long message."""
    file = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    if "bbr" not in file.with_name("tcp_available_congestion_control").read_text().split():
        harness.lacking("this kernel has no bbr, or its module is not loaded")
    words = "--transport tcp --wait block --bytes 1000000 --iterations 200 --json".split()
    before = file.read_text()
    file.write_text("bbr")
    try:
        reasons = [json_of(run("transport", *words))["reason"] for _ in range(3)]
    finally:
        file.write_text(before)
    assert not any("interrupts from" in reason for reason in reasons), reasons
