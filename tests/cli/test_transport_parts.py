"""Datagrams in an order of the test's own: a peer of transport --listen whose every part is sent by hand."""

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import harness
import pytest
from harness import json_of, path_of
from test_transport import connected

DATA, REPAIR, NAK, STATUS = range(4)
GROUP = "239.255.77.17"
# Three parts, of which the last is shorter.
BYTES, DATAGRAM, HEADER = 700, 272, 16
PARTS = 3
# The least that a run can have: warm-up, a timed one, and the tail. A test is about the last.
MESSAGES = 4
AGAIN = 1 << 32


def block(number: int) -> bytes:
    """As bench/transport/pattern.h says, of an initiator with --touch write."""
    base = number * 2 * 0x9E3779B97F4A7C15
    words = [(base + i) % 2**64 for i in range((BYTES - HEADER) // 8 + 1)]
    return (bytes(HEADER) + struct.pack(f"<{len(words)}Q", *words))[:BYTES]


class Peer:
    """The initiator: of ordinary messages, and at last of one that a test sends part by part."""

    def __init__(self, transport: str, port: int) -> None:
        self.control = connected(port)
        self.control.settimeout(5)
        self.control.sendall(self.control.recv(256, socket.MSG_WAITALL))
        self.incoming = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.outgoing = self.incoming
        self.incoming.settimeout(5)
        self.incoming.bind(("127.0.0.1" if transport == "udp" else GROUP, 0))
        if transport == "multicast":
            self.outgoing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            loopback = socket.inet_aton("127.0.0.1")
            membership = socket.inet_aton(GROUP) + loopback
            self.incoming.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            self.outgoing.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
        self.control.sendall(struct.pack("!H", self.incoming.getsockname()[1]))
        (there,) = struct.unpack("!H", self.control.recv(2, socket.MSG_WAITALL))
        self.outgoing.connect(("127.0.0.1" if transport == "udp" else GROUP, there))
        self.control.sendall(self.control.recv(1))
        for self.number in range(1, MESSAGES):
            for index in range(PARTS):
                self.send(DATA, index)
            assert self.answer() == 0
        self.number = MESSAGES

    def send(self, kind: int, index: int = 0, attempt: int = 0) -> None:
        part = DATAGRAM - HEADER
        bytes_of = (
            block(self.number)[index * part : (index + 1) * part] if kind in (DATA, REPAIR) else b""
        )
        self.outgoing.send(
            struct.pack("<QII", self.number + attempt * AGAIN, kind, index) + bytes_of
        )

    def receive(self) -> tuple[int, int, int]:
        """Of the next datagram that attempt, kind and index."""
        word, kind, index = struct.unpack("<QII", self.incoming.recv(65536)[:HEADER])
        assert word % AGAIN == self.number
        return word // AGAIN, kind, index

    def silence(self) -> bool:
        """Nothing comes for a while."""
        self.incoming.settimeout(0.05)
        try:
            self.incoming.recv(65536)
            return False
        except TimeoutError:
            return True
        finally:
            self.incoming.settimeout(5)

    def answer(self) -> int:
        """The attempt that is answered, with all parts in order."""
        parts = [self.receive() for _ in range(PARTS)]
        (attempt,) = {attempt for attempt, _, _ in parts}
        assert [(kind, index) for _, kind, index in parts] == [(DATA, i) for i in range(PARTS)]
        return attempt

    def close(self) -> None:
        for each in (self.control, self.incoming, self.outgoing):
            each.close()


class Listener:
    """A run; `counts` is there once the peer has gone."""

    counts: dict[str, int]


@contextmanager
def listener(transport: str, wait: str) -> Iterator[tuple[Peer, Listener]]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    words = [path_of("transport"), "--listen", port, "--transport", transport, "--wait", wait]
    words += ["--bytes", BYTES, "--datagram", DATAGRAM, "--touch", "write", "--wait-for", "5"]
    words += ["--iterations", 1, "--warmup", 0, "--policy", "other", "--json"]
    result = Listener()
    with subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            peer = Peer(transport, port)
            yield peer, result
            peer.close()
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    done = harness.Done(words, process.returncode, out.decode(), err.decode(), 0)  # type: ignore[arg-type]
    assert done.status in (harness.MEASURED, harness.UNTRUSTED), str(done)
    result.counts = json_of(done)["evidence"]["counts"]


both_waits = pytest.mark.parametrize("wait", ["spin", "block"])


@both_waits
@pytest.mark.parametrize(
    "order, repeated, outdated",
    [
        ([(0, 0), (0, 1), (0, 2)], 0, 0),
        ([(0, 2), (0, 1), (0, 0)], 0, 0),
        ([(0, 1), (0, 1), (0, 2), (0, 2), (0, 1), (0, 0)], 3, 0),
        # The second attempt, with a late part of the first among its own.
        ([(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)], 0, 1),
        # It does not begin with its first part, and lands where the first attempt went on.
        ([(0, 0), (0, 1), (1, 1), (1, 2), (1, 0)], 0, 0),
        ([(0, 0), (1, 2), (2, 2), (1, 0), (2, 0), (0, 1), (2, 1)], 0, 2),
    ],
    ids=str,
)
def test_a_message_is_the_parts_of_one_attempt_each_in_its_place(order, repeated, outdated, wait):
    with listener("udp", wait) as (peer, listens):
        for attempt, index in order[:-1]:
            peer.send(DATA, index, attempt)
        assert peer.silence(), "a part was missing"
        last = order[-1]
        peer.send(DATA, last[1], last[0])
        assert peer.answer() == last[0]
    counts = listens.counts
    assert (counts["received"], counts["damaged"]) == (MESSAGES, 0)
    assert (counts["repeated"], counts["outdated"]) == (repeated, outdated)


@both_waits
def test_an_answer_that_is_lost_is_given_again(wait):
    with listener("udp", wait) as (peer, listens):
        for attempt in (0, 1):
            for index in range(PARTS):
                peer.send(DATA, index, attempt)
            assert peer.answer() == attempt
        peer.send(DATA, 0, 2)
        assert peer.silence(), "the last part stands for all"
        peer.send(DATA, PARTS - 1, 2)
        assert peer.answer() == 2
    assert (listens.counts["received"], listens.counts["damaged"]) == (MESSAGES, 0)


@both_waits
def test_a_hole_is_asked_for_once_and_repaired(wait):
    with listener("multicast", wait) as (peer, listens):
        peer.send(DATA, 0)
        peer.send(DATA, 2)
        assert peer.receive() == (0, NAK | 1 << 8, 1)
        peer.send(DATA, 2)
        assert peer.silence()
        peer.send(REPAIR, 1)
        assert peer.answer() == 0
    counts = listens.counts
    assert (counts["received"], counts["damaged"]) == (MESSAGES, 0)
    assert (counts["repaired"], counts["repeated"], counts["lost"]) == (1, 1, 0)


@both_waits
def test_what_is_lost_at_the_end_is_asked_for_when_a_status_says_so(wait):
    with listener("multicast", wait) as (peer, listens):
        peer.send(DATA, 0)
        assert peer.silence()
        peer.send(STATUS)
        assert peer.receive() == (0, NAK | 2 << 8, 1)
        # In another order than asked for, one of them twice, the other by itself after all.
        peer.send(REPAIR, 2)
        peer.send(REPAIR, 2)
        assert peer.silence(), "it has been asked for"
        peer.send(DATA, 1)
        assert peer.answer() == 0
        peer.send(REPAIR, 1)
        # And its own answer is lost: it says that it has answered, and repairs.
        peer.send(STATUS)
        assert peer.receive() == (0, STATUS, 0)
        peer.send(NAK | 2 << 8, 1)
        assert [peer.receive(), peer.receive()] == [(0, REPAIR, 1), (0, REPAIR, 2)]
    counts = listens.counts
    assert (counts["received"], counts["damaged"]) == (MESSAGES, 0)
    assert (counts["repaired"], counts["repeated"], counts["outdated"]) == (1, 1, 1)
    assert counts["resent"] == 2


@both_waits
def test_nothing_at_all_came_and_a_status_tells(wait):
    with listener("multicast", wait) as (peer, listens):
        peer.send(STATUS)
        assert peer.receive() == (0, NAK | PARTS << 8, 0)
        for index in (1, 2, 0):
            peer.send(REPAIR, index)
        assert peer.answer() == 0
    assert (listens.counts["repaired"], listens.counts["damaged"]) == (3, 0)
