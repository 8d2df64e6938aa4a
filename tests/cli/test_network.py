"""network --remote over forwarding between network namespaces, network/client, and what network refuses."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import Done, FAILED, MEASURED, SKIPPED, UNTRUSTED, assert_one_line, json_of, lacking

pytestmark = pytest.mark.alone

NETWORK = harness.ROOT / "network" / "network"
CLIENT = NETWORK.with_name("client")
TRIES = 4
SUBNET, PEER, PORT = "10.168.77.0/24", "10.168.77.2", 7717
HEADER = struct.Struct(">IIII8x")  # magic, stream, sequence, reserved, start
MAGIC = 0x6B6C6174
LARGEST = 1472

# Far more than any run here takes, so that the sender never ends first.
ENDLESS = ("--count", "200000", "--interval", "500")

# In the other machine's place: every second number is missing.
HOLED_SENDER = f"""
import socket, struct, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for sequence in range(0, 400000, 2):
    sender.sendto(struct.pack(">IIIIQ", {MAGIC}, 7, sequence, 0, 0), ("{PEER}", {PORT}))
    time.sleep(0.0005)
"""

BURST_SENDER = f"""
import socket, struct, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for sequence in range(0, 2000000):
    sender.sendto(struct.pack(">IIIIQ", {MAGIC}, 8, sequence, 0, 0), ("{PEER}", {PORT}))
    if sequence % 10 == 9:
        time.sleep(0.001)
"""

# The right port, but nothing that the client would send.
STRAY_SENDER = f"""
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    sender.sendto(b"x" * 64, ("{PEER}", {PORT}))
    time.sleep(0.002)
"""


@pytest.fixture
def tun(root: None) -> None:
    if not Path("/dev/net/tun").exists():
        lacking("this test needs /dev/net/tun")


def command(*words: str | Path) -> Done:
    return harness.command(words, limit=60)


def until(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true within 10 s."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def must(*words: str | Path) -> str:
    done = command(*words)
    assert done.status == 0, str(done)
    return done.out


@dataclass
class Machines:
    """Two network namespaces and the link between them; the first forwards what the second sends to the device."""

    measuring: str
    sending: str
    cpu: int
    other_cpu: int

    def there(self, *words: str | Path) -> list[str]:
        """A command line for the sending machine, which keeps off the measured CPU."""
        where = ("ip", "netns", "exec", self.sending, "taskset", "-c", str(self.other_cpu))
        return [*where, *map(str, words)]

    def here(self, *arguments: str) -> list[str]:
        """A command line of `network --remote` on the measuring machine."""
        where = ("ip", "netns", "exec", self.measuring)
        return [*where, str(NETWORK), "--remote", "--cpus", str(self.cpu), *arguments]

    def interfaces(self) -> str:
        """What a run must leave as it was."""
        return must("ip", "-n", self.measuring, "-details", "addr") + must(
            "ip", "-n", self.measuring, "route", "show", "table", "all"
        )

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        return ((self.measuring, "near"), (self.sending, "far"))

    def is_up(self, namespace: str, link: str) -> bool:
        return " state UP " in must("ip", "-n", namespace, "-oneline", "link", "show", link)

    def has_device(self, name: str = "klat0") -> bool:
        return command("ip", "-n", self.measuring, "link", "show", name).status == 0

    def forward(self, yes: bool) -> None:
        must(
            *("ip", "netns", "exec", self.measuring),
            *("sysctl", "-qw", f"net.ipv4.ip_forward={int(yes)}"),
        )

    def measure(self, senders: Sequence[Sequence[Any]], *arguments: str) -> dict[str, Any]:
        """A run with status 0 while the senders send; a noisy machine gets several tries at it."""
        done = None
        for _ in range(TRIES):
            processes = [
                subprocess.Popen(self.there(*words), stdout=subprocess.DEVNULL) for words in senders
            ]
            try:
                done = command(*self.here("--json", "--wait-for", "10", *arguments))
            finally:
                for process in processes:
                    process.kill()
                    process.wait(timeout=60)
            if done.status == MEASURED:
                break
        assert done and done.status == MEASURED, str(done)
        return json_of(done)


@pytest.fixture
def machines(tun: None, two_cpus: None) -> Iterator[Machines]:
    for tool in ("ip", "taskset", "sysctl"):
        if not shutil.which(tool):
            lacking(f"this test needs {tool}")
    name = f"klat-{os.getpid()}"
    cpus = sorted(os.sched_getaffinity(0))
    pair = Machines(f"{name}-a", f"{name}-b", cpus[-1], cpus[0])
    if command("ip", "netns", "add", pair.measuring).status:
        lacking("this test needs to make network namespaces")
    try:
        must("ip", "netns", "add", pair.sending)
        link = ("type", "veth", "peer", "name", "far", "netns", pair.sending)
        must("ip", "-n", pair.measuring, "link", "add", "near", *link)
        must("ip", "-n", pair.measuring, "addr", "add", "192.168.90.1/24", "dev", "near")
        must("ip", "-n", pair.sending, "addr", "add", "192.168.90.2/24", "dev", "far")
        # A new link's IPv6 addresses change by themselves for a while, which would be no doing of a run.
        for namespace in (pair.measuring, pair.sending):
            setting = "net.ipv6.conf.all.disable_ipv6=1"
            must("ip", "netns", "exec", namespace, "sysctl", "-qw", setting)
        must("ip", "-n", pair.measuring, "link", "set", "near", "up")
        must("ip", "-n", pair.sending, "link", "set", "far", "up")
        must("ip", "-n", pair.sending, "route", "add", SUBNET, "via", "192.168.90.1")
        pair.forward(True)
        # The kernel tells of a new link's state late where it is busy with links of others, and that would be no doing
        # of a run either.
        until(lambda: all(pair.is_up(*end) for end in pair.ends))
        yield pair
    finally:
        for namespace in (pair.measuring, pair.sending):
            command("ip", "netns", "del", namespace)


def evidence(result: dict[str, Any]) -> dict[str, int]:
    return dict(result["evidence"]["counts"])


def test_packets_of_another_machine_are_forwarded_to_the_reader(machines):
    before = machines.interfaces()
    result = machines.measure([[CLIENT, "--to", PEER, *ENDLESS]])
    assert result["status"] in ("ok", "disturbed")
    assert [(m["name"], m["n"]) for m in result["metrics"]] == [("interrupt_to_read", 500)]
    assert result["cpus"] == [machines.cpu]
    assert {worker["role"] for worker in result["evidence"]["workers"]} == {"low", "high"}
    counts = evidence(result)
    assert counts["preempted"] >= 495 and counts["strays"] == 0
    assert machines.interfaces() == before


def test_strays_are_counted_and_are_no_samples(machines):
    client = [CLIENT, "--to", PEER, *ENDLESS]
    other_port = [CLIENT, "--to", PEER, "--port", str(PORT + 1), *ENDLESS]
    result = machines.measure([client, other_port, [sys.executable, "-c", STRAY_SENDER]])
    assert result["metrics"][0]["n"] == 500
    assert evidence(result)["strays"] > 0


def test_holes_in_the_numbering_are_lost_packets(machines):
    result = machines.measure([[sys.executable, "-c", HOLED_SENDER]])
    assert evidence(result)["lost"] >= 500


def test_packets_without_a_preemption_are_not_measured(machines):
    """Of ten that come at once, many find the reader still busy with the first."""
    result = machines.measure([[sys.executable, "-c", BURST_SENDER]])
    assert result["metrics"][0]["n"] == 500
    assert evidence(result)["unspun"] > 100 and evidence(result)["preempted"] >= 495


def test_without_forwarding_the_run_ends_and_says_why(machines):
    machines.forward(False)
    done = command(*machines.here("--wait-for", "1"))
    assert_one_line(done, "network", FAILED)
    assert "net.ipv4.ip_forward is 0" in done.err


def test_a_yielding_spinner_is_caught(machines):
    for _ in range(TRIES):
        with subprocess.Popen(
            machines.there(CLIENT, "--to", PEER, *ENDLESS), stdout=subprocess.DEVNULL
        ) as sender:
            done = command(*machines.here("--plant", "yield", "--wait-for", "10", "--quiet"))
            sender.kill()
        if done.status != FAILED:
            break
    assert_one_line(done, "network", UNTRUSTED)
    assert "preempted" in done.err


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_the_device_is_gone_however_the_run_ends(machines, ending):
    before = machines.interfaces()
    # `exec`ed by ip, so that the signal reaches the program itself.
    with subprocess.Popen(machines.here(), stderr=subprocess.DEVNULL) as running:
        assert until(machines.has_device)
        running.send_signal(ending)
        assert running.wait(10) == -ending
    until(lambda: not machines.has_device())
    assert machines.interfaces() == before


def test_the_run_ends_when_the_device_is_taken_away(machines):
    with subprocess.Popen(machines.here(), stderr=subprocess.PIPE, text=True) as running:
        assert until(machines.has_device)
        must("ip", "-n", machines.measuring, "link", "del", "klat0")
        _, err = running.communicate(timeout=10)
    assert running.returncode == FAILED and err.count("\n") == 1, err


def test_a_device_or_subnet_of_somebody_else_is_left_alone(machines):
    before = machines.interfaces()
    for option, value in (("--device", "near"), ("--address", "192.168.90.77/16")):
        done = command(*machines.here(option, value))
        assert_one_line(done, "network", FAILED)
        assert "near" in done.err and option in done.err
    assert machines.interfaces() == before


def holds_device(pid: int) -> bool:
    """Whether a process or its child, which measures, has the tun device open."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = [
            file.read_text()
            for each in (pid, *children)
            for file in Path(f"/proc/{each}/fdinfo").iterdir()
        ]
    except (FileNotFoundError, ProcessLookupError):  # gone, or a descriptor of it is
        return False
    return any("iff:\tklat0" in text for text in found)


def test_a_private_run_touches_no_interface(machines):
    before = machines.interfaces()
    inside = ("ip", "netns", "exec", machines.measuring)
    private = [*inside, str(NETWORK), "--iterations", "10000000"]
    with subprocess.Popen(private, stderr=subprocess.PIPE, text=True) as running:
        seen = until(lambda: holds_device(running.pid))
        during = machines.interfaces()
        going = running.poll() is None
        running.kill()
        _, err = running.communicate()
    assert seen and going, err
    assert during == before and machines.interfaces() == before


def on_one_cpu(*arguments: str) -> Done:
    cpu = max(os.sched_getaffinity(0))
    return command(NETWORK, "--cpus", f"{cpu},{cpu}", "--iterations", "100", *arguments)


def test_on_one_cpu_the_reader_preempts_a_client_that_preempted_the_spinner(tun):
    for _ in range(4):
        done = on_one_cpu("--json")
        if done.status == MEASURED:
            break
    assert done.status == MEASURED, str(done)
    result = json_of(done)
    counts = result["evidence"]["counts"]
    assert counts["overtaken"] >= 99 and counts["preempted"] >= 99 and counts["offset_bound"] == 0
    low, high, client = (worker["priority"] for worker in result["evidence"]["workers"])
    assert low < client < high
    figures = {metric["name"]: metric["min"] for metric in result["metrics"]}
    # What it takes from send() on is a part of what it takes from the spinner's last stamp on.
    assert figures["send_to_read"] < figures["timer_to_read"]


@pytest.mark.parametrize(
    "words, status, why",
    [
        (("--plant", "yield"), UNTRUSTED, "spinning and preempted"),
        (("--low-priority", "97"), FAILED, "another --low-priority"),
    ],
)
def test_on_one_cpu_a_yielding_spinner_and_no_priority_between_are_caught(tun, words, status, why):
    done = on_one_cpu(*words)
    assert done.status == status and why in done.err, str(done)


def test_without_the_tun_device_the_run_is_skipped(tun, two_cpus):
    # A network of its own as well, in which nobody else has a device.
    without = ("unshare", "--mount", "--net")
    if command(*without, "true").status:
        lacking("this test needs to make namespaces")
    script = 'mount -t tmpfs none /dev/net && exec "$0" "$@"'
    for mode in ((), ("--remote",)):
        done = command(*without, "sh", "-c", script, NETWORK, *mode)
        assert_one_line(done, "network", SKIPPED)
        assert "/dev/net/tun" in done.err


def test_an_ordinary_user_who_may_open_the_device_has_a_network_of_their_own(tun, two_cpus):
    if command("unshare", "--mount", "true").status or not shutil.which("setpriv"):
        lacking("this test needs to make a mount namespace, and setpriv")
    # The namespace's /dev/net/tun is open to all, as distributions have it; the program is where everyone can run it.
    script = (
        "mount -t tmpfs none /mnt && chmod 755 /mnt && cp $0 /mnt/network && mkdir /mnt/dev &&"
        " mknod -m 666 /mnt/dev/tun c 10 200 && mount --bind /mnt/dev /dev/net &&"
        ' exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/network "$@"'
    )
    for _ in range(3 * TRIES):
        done = command("unshare", "--mount", "sh", "-c", script, NETWORK, "--json")
        if done.status == SKIPPED:
            lacking(done.err.strip())
        result = json_of(done)
        # Without priorities, other work on the machine can take the reader's place.
        if done.status == MEASURED and evidence(result)["preempted"] >= 495:
            break
    else:
        pytest.fail(str(done))
    assert {m["name"] for m in result["metrics"]} == {"interrupt_to_read", "send_to_read"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        yield receiver


def send_to(listener: socket.socket, *arguments: str) -> list[bytes]:
    """What the client says that it sent, received."""
    port = str(listener.getsockname()[1])
    done = command(CLIENT, "--to", "127.0.0.1", "--port", port, *arguments)
    assert done.status == 0 and done.err == "", str(done)
    return [listener.recv(65536) for _ in range(int(done.out.split()[1]))]


@pytest.mark.parametrize("size", [HEADER.size, 64, LARGEST])
def test_the_client_numbers_its_datagrams(listener, size):
    arguments = ("--count", "100", "--interval", "0", "--bytes", str(size))
    datagrams = send_to(listener, *arguments)
    assert {len(datagram) for datagram in datagrams} == {size}
    headers = [HEADER.unpack(datagram[: HEADER.size]) for datagram in datagrams]
    assert [sequence for _, _, sequence, _ in headers] == list(range(100))
    assert {magic for magic, *_ in headers} == {MAGIC}
    again = HEADER.unpack(send_to(listener, "--count", "1")[0][: HEADER.size])
    assert again[1] not in {stream for _, stream, *_ in headers}


def test_the_client_never_sends_before_the_time(listener):
    begun = time.monotonic()
    send_to(listener, "--count", "50", "--interval", "2000")
    assert time.monotonic() - begun >= 49 * 0.002


def test_the_client_reports_refusals(listener):
    port = str(listener.getsockname()[1])
    listener.close()
    done = command(CLIENT, "--to", "127.0.0.1", "--port", port, "--count", "20")
    assert done.status == 0
    assert "refused" in done.err and done.err.count("\n") == 1, str(done)


def test_the_client_says_when_there_is_no_route(machines):
    done = command(*machines.there(CLIENT, "--to", "203.0.113.1"))
    assert_one_line(done, "client", FAILED)
    assert "route" in done.err


def test_the_client_helps(listener):
    done = command(CLIENT, "--help")
    assert done.status == 0 and done.err == ""
    assert all(len(line) < 80 for line in done.out.splitlines())
    with open("/dev/full", "w") as full:
        for words in (["--help"], ["--to", "127.0.0.1", "--count", "1", "--interval", "0"]):
            words += ["--port", str(listener.getsockname()[1])]
            assert harness.command([CLIENT, *words], stdout=full).status == FAILED
