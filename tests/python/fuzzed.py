"""Inputs for the readers of a record: valid ones, changed at random in their bytes or in their structure.

An input is a function of its kind and its number, so one that fails can be made again. Checksums are
computed again, as somebody who edits a record would do. A wrong checksum would hide the other
checks.
"""

import copy
import hashlib
import io
import json
import random
import tarfile
from typing import Any

from written_sessions import COLUMNS, quoted

SEED = 20261122
NUMBERS: list[Any] = [
    0, 1, -1, 2, 7, 255, 4096, 65536, 10**6 + 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**59, 2**60,
    2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**19, 10**20, 10**400, -(10**30), 0.5, -0.0, 1e-300,
    1e18, 1e308, -1e308, float("nan"), float("inf"), True, False, None,
]  # fmt: skip
TEXTS = [
    "", " ", "x", "0", "-1", "1.5", "nan", "inf", "1e5", "0x10", "1_0", " 1", "1 ", "+1", "٣", "１",
    "²", "1" * 19, "1" * 20, "1" * 21, "9" * 20, "9" * 400, "9" * 5000, "1.000", "1.0000", ".5",
    "18446744073709551615", "18446744073709551616", "18446744073709551615.999", "\0", "a\0b", "\t",
    "\r", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\ud800", "\U0010ffff", "ø漢", "a" * 300,
    "a" * 5000, "a" * 9000, "../x", "/etc/passwd", ".", "..", "a/b", "a,b", 'a"b', '"', "'", "`id`",
    "$(id)", "=1+1", "@", ";", "=", "a=1;a=2", "=1", ";;=;", "%s%n", "\\", "{}", "[]", "null", "ok",
    "disturbed", "invalid", "error", "skipped", "not delivered: x", "ticks", "instructions",
    "counted", "emulated", "2026-01-01T00:00:00Z", "responders=1", "responders=" + "9" * 20,
    "responders=0;iterations=20", "iterations=0", "iterations=٣", "inject=1", "woken=polling",
    "bytes=1", "bytes=1.5;wait=read", "bytes=x", "soak=60", "soak=", "wakeups=10;wake_interrupts=1", "wakeups=0",
    "wakeups=" + "9" * 20 + ";wake_interrupts=1", "cpu_us=0;other_busy_us=9;other_busy_error_us=0",
    "cpu_us=-5;other_busy_us=9;other_busy_error_us=1", "cpu_us=1;other_busy_us=" + "9" * 20 +
    ";other_busy_error_us=0", "a_ticks=-5;b_per_us=1e400", "net_ticks=" + "9" * 20,
    "writer=fifo:50", "writer=fifo:" + "9" * 20, "fifo:50", "one-cpu", "cross-node",
]  # fmt: skip
BYTES = [
    b"\0", b"\n", b"\r\n", b'"', b",", b"[", b"{", b"}", b"]", b":", b"\\", b"\\ud800", b"\xff",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"9" * 40, b"NaN", b"-", b"1e999", b"[" * 50, b"'", b"..",
]  # fmt: skip


def draw_of(kind: str, number: int) -> random.Random:
    return random.Random(f"{SEED} {kind} {number}")


def changed_bytes(draw: random.Random, data: bytes) -> bytes:
    held = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(held) + 1)
        span = draw.choice((1, 1, 2, 4, 16, 64, 256))
        how = draw.randrange(6)
        if how == 0 and held:
            held[at % len(held)] ^= 1 << draw.randrange(8)
        elif how == 1 and held:
            held[at % len(held)] = draw.randrange(256)
        elif how == 2:
            del held[at : at + span]
        elif how == 3:
            held[at:at] = held[at : at + span]
        elif how == 4:
            held[at:at] = draw.choice(BYTES)
        else:
            del held[at:]
    return bytes(held)


def nested(draw: random.Random) -> Any:
    found: Any = draw.choice(NUMBERS)
    for _ in range(draw.choice((1, 2, 30, 32, 33, 60))):
        found = [found] if draw.random() < 0.5 else {"a": found}
    return found


def anything(draw: random.Random) -> Any:
    how = draw.randrange(10)
    if how < 4:
        return draw.choice(NUMBERS)
    if how < 8:
        return draw.choice(TEXTS)
    return nested(draw) if how == 8 else draw.choice(([], {}, [[]], [{}], {"a": []}, [1, "x"]))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (list or object, index or key) below."""
    found: list[tuple[Any, Any]] = []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            found += places(value[key])
    return found


def changed_value(draw: random.Random, value: Any) -> Any:
    """Of lists and objects: values replaced, added, removed, renamed, moved."""
    value = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        every = places(value)
        if not every:
            break
        holder, key = draw.choice(every)
        how = draw.randrange(8)
        if how < 4:
            holder[key] = anything(draw)
        elif how == 4:
            del holder[key]
        elif how == 5:
            other, there = draw.choice(every)
            if there in other if isinstance(other, dict) else there < len(other):
                holder[key] = copy.deepcopy(other[there])
        elif isinstance(holder, dict):
            holder[draw.choice(TEXTS)] = anything(draw)
        else:
            holder.insert(draw.randrange(len(holder) + 1), anything(draw))
    return value


def changed_json(draw: random.Random, value: Any) -> bytes:
    if draw.random() < 0.3:
        return changed_bytes(draw, json.dumps(value, indent=2).encode())
    if draw.random() < 0.002:
        return draw.choice((b"[", b'{"a":')) * 100_000
    return json.dumps(changed_value(draw, value)).encode()


def checked_line(body: bytes) -> bytes:
    return body + b"," + hashlib.sha256(body).hexdigest()[:16].encode() + b"\n"


Rows = list[dict[str, str]]


def changed_rows(draw: random.Random, rows: Rows) -> bytes:
    """runs.csv. Nearly all lines have a right checksum."""
    rows = [dict(row) for row in rows]
    for _ in range(draw.choice((1, 1, 2, 3))):
        row = draw.choice(rows)
        column = draw.choice(COLUMNS[:-1])
        whole = [number for number in NUMBERS if type(number) is int and number >= 0]
        row[column] = draw.choice(TEXTS) if draw.random() < 0.6 else str(draw.choice(whole))
        if draw.random() < 0.2:  # in all rows, so that the run is whole
            for other in rows:
                other[column] = row[column]
        if draw.random() < 0.05:
            rows.append(dict(draw.choice(rows)))
        if draw.random() < 0.05:
            rows.remove(row)
        if not rows:
            break
    header = ",".join(COLUMNS).encode() + b"\n"
    lines = []
    for row in rows:
        fields = (quoted(row[name]) for name in COLUMNS[:-1])
        body = ",".join(fields).encode("utf-8", "surrogatepass")
        lines.append(checked_line(changed_bytes(draw, body) if draw.random() < 0.1 else body))
    data = b"".join([header, *lines])
    return changed_bytes(draw, data) if draw.random() < 0.05 else data


def changed_plan(draw: random.Random, text: str) -> bytes:
    lines = text.splitlines()
    if draw.random() < 0.5:
        return changed_bytes(draw, text.encode())
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(len(lines))
        fields = lines[at].split(",", 3)
        fields[draw.randrange(len(fields))] = draw.choice(TEXTS + [f'"{text}"' for text in TEXTS])
        lines[at] = ",".join(fields)
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


# Of a header: where a field begins, and how long it is.
_TAR_FIELDS = {
    "name": (0, 100), "mode": (100, 8), "uid": (108, 8), "gid": (116, 8), "size": (124, 12),
    "mtime": (136, 12), "typeflag": (156, 1), "linkname": (157, 100), "magic": (257, 8),
    "prefix": (345, 155),
}  # fmt: skip
_TAR_VALUES = [
    b"", b"\0", b"\xff" * 12, b"\x80" + b"\xff" * 11, b"\x80" + b"\x7f" * 11, b"-1", b"9" * 12,
    b"7" * 11, b"00000000001", b"\x80" + b"\0" * 10 + b"\x05", b"../../x", b"/x", b"x\0y", b"a/" * 40,
    b".", b"./", b"session.json/x", b"\xff\xfe", b"lab/machine.json", b"\x1b[2J", b"GNU.sparse",
]  # fmt: skip


def changed_tar(draw: random.Random, data: bytes) -> bytes:
    if draw.random() < 0.4:
        return changed_bytes(draw, data)
    held = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        headers = [at for at in range(0, len(held) - 511, 512) if held[at + 257 : at + 262] == b"ustar"]  # fmt: skip
        if not headers:
            break
        at = draw.choice(headers)
        start, length = _TAR_FIELDS[draw.choice(list(_TAR_FIELDS))]
        value = draw.choice([*_TAR_VALUES, *(bytes([draw.choice(b"01234567ALKSVgxNDMX\0")]),) * 4])
        held[at + start : at + start + length] = value[:length].ljust(length, b"\0")
        held[at + 148 : at + 156] = b" " * 8
        held[at + 148 : at + 156] = b"%06o\0 " % sum(held[at : at + 512])
    return bytes(held)


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()
