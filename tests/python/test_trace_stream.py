"""klat reads the plugin's stream exactly as written, or refuses it."""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

import pytest
from made_traces import BEGIN, END, MadeTrace, idle, part, switch, whole

from klat.base.errors import KlatError
from klat.explain import trace
from klat.explain.trace import IDLE, REPEAT, SWITCH, Block, Executed, Idle, Switched

KERNEL = 0xFFFFFFFF81000000


def made() -> MadeTrace:
    stream = MadeTrace()
    block = stream.block(KERNEL, bytes([1, 7, 2, 2, 5]))
    other = stream.block(0x400000, bytes([4, 2]))
    stream.path(
        *whole(block, 4),
        *part(other, 1, 1),
        *idle(),
        *switch(KERNEL + 8, "ktimers/0"),
        *whole(other),
    )
    stream.stamp(BEGIN, 0, 0)
    stream.stamp(END, 1, 23 + (3 << 32), 2)
    return stream


def test_a_stream_is_read_as_it_was_written(tmp_path):
    found = made().read(tmp_path)
    (tmp_path / "trace").unlink()
    kernel, user = Block(KERNEL, bytes([1, 7, 2, 2, 5])), Block(0x400000, bytes([4, 2]))
    assert user.addresses == [0x400000, 0x400004, 0x400006]
    assert found.blocks == [kernel, user]
    assert list(found.items(1)) == [
        Executed(kernel, 0, 5, 4),
        Executed(user, 1, 1),
        Idle(),
        Switched(KERNEL + 8, "ktimers/0"),
        Executed(user, 0, 2),
    ]
    assert found.stamps.tolist() == [[BEGIN, 0, 0, 1], [END, 1, 23 + (3 << 32), 2]]


def in_order(words: Sequence[int]) -> Iterator[int]:
    at = 0
    while at < len(words):
        yield at
        if words[at] in (IDLE, SWITCH):
            at += 7 if words[at] == SWITCH else 1
        elif words[at] & 1:
            at += 2
        else:
            at += 3 if words[at + 1 : at + 2] == [REPEAT] else 1


@pytest.mark.parametrize("seed", range(50))
def test_items_begin_where_a_reader_word_by_word_finds_them(tmp_path, seed):
    draw = random.Random(seed)
    stream = MadeTrace()
    # Sizes, tasks and counts that look like other words.
    odd = draw.choice([1, 3, 5])
    kinds = [
        lambda: whole(draw.randint(1, 9)),
        lambda: whole(draw.randint(1, 9), draw.choice([2, 3, 8])),
        lambda: part(draw.randint(1, 9), draw.randint(0, 3), odd),
        lambda: switch(draw.choice([SWITCH, REPEAT, IDLE, SWITCH << 32 | 3]), "\xf1\xff"),
        idle,
    ]
    weights = [draw.choice([0, 1, 8]) for _ in kinds]
    weights[0] += 1
    words = [w for kind in draw.choices(kinds, weights, k=draw.randint(1, 40)) for w in kind()]
    stream.path(*words)
    trace_of_it = stream.read(tmp_path)
    assert trace_of_it.words(1).tolist() == words
    assert trace.items_of(trace_of_it.words(1)).tolist() == list(in_order(words))


def test_a_stream_that_is_cut_off_anywhere_is_refused(tmp_path):
    records = made().stream()
    data = b"".join(records)
    assert len(list(accumulate(map(len, records)))) == 7
    file = tmp_path / "trace"
    for length in range(len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(
            KlatError, match=r"trace: (is not the output|the plugin's output is cut off)"
        ):
            trace.read(file)


@pytest.mark.parametrize("missing", range(1, 6))
def test_a_stream_without_one_of_its_records_is_refused(tmp_path, missing):
    records = made().stream()
    del records[missing]
    (tmp_path / "trace").write_bytes(b"".join(records))
    with pytest.raises(KlatError, match="cut off or damaged"):
        trace.read(tmp_path / "trace")


@pytest.mark.parametrize("data", [b"", b"klat", b"klat\1\0\0\0", b"#!/bin/sh\nexit 0\n"])
def test_another_file_is_no_trace(tmp_path, data):
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(KlatError, match="is not the output of klat's plugin"):
        trace.read(tmp_path / "trace")


def test_too_large_a_number_is_damage_and_an_empty_path_has_no_items(tmp_path):
    stream = MadeTrace()
    stream.path()
    assert stream.read(tmp_path).items(1) == []
    stream.stamp(BEGIN, 1, 1 << 63)
    with pytest.raises(KlatError, match="cut off or damaged"):
        stream.read(tmp_path)


def test_a_trace_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(KlatError, match="cannot read the trace: No such file"):
        trace.read(tmp_path / "trace")


def test_paths_that_differ_in_their_tasks_alone_have_one_shape(tmp_path):
    stream = MadeTrace()
    block = stream.block(KERNEL, 5)
    for first, second in ((0x1000, 0x2000), (0x3000, 0x1000), (0x1000, 0x1000)):
        stream.path(*switch(first, "a"), *whole(block), *switch(second, "b"), *whole(block))
    one, other, same_task = stream.read(tmp_path).shapes[1:]
    assert one == other != same_task
