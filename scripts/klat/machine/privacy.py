"""Removes from a text what names a machine or its users: names, serial numbers, addresses, home directories. Computes
the ids of this machine: the id in its sessions, and an id for files that others read."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import ipaddress
import os
import pwd
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from klat.machine.kernel_files import text as _text

# Common words: they identify no machine, and a text can contain them for another reason.
_COMMON = frozenset(
    "root localhost none (none) linux unknown debian ubuntu fedora user admin test".split()
) | {"default string"}
_FIRMWARE = ("sys/class/dmi/id/*serial*", "sys/class/dmi/id/*uuid*", "sys/class/dmi/id/*asset_tag*")
_SHORTEST = 3

_PATTERNS = (
    (r"/home/[^/\s\"',:;]+", "HOME"),
    # Who built the kernel, for example, and where boot files come from.
    (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*", "USER@HOST"),
    (r"(\b(?:https?|ftp|nfs|tftp|iscsi)://)[^\s/\"',]+", r"\1HOST"),
    (r"(\bnfsroot=)[^\s:/,]+:", r"\1HOST:"),
    (r"\b(?:iqn\.\d{4}-\d{2}|naa|eui)\.[^\s\"',]+|\bwwn-0x[0-9a-f]+", "DISK"),
    # Of a partition.
    (r"\b[0-9a-f]{8}-[0-9a-f]{2}\b", "UUID"),
    (r"\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b", "MAC"),
    # The name of a network device can be its address.
    (r"\b((?:en|wl|ww)x)[0-9a-f]{12}\b", r"\1MAC"),
    (r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "UUID"),
    (r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])", "IP"),
    # A machine id.
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"(/dev/disk/by-[a-z]+/)[^\s\"',]+", r"\1DISK"),
    (r"((?:serial|passw|token|secret)[\w.-]*\"?\s*[=:]\s*\"?)[^\s\"',]+", r"\1PRIVATE"),
)
_IPV6 = re.compile(
    r"(?<![\w.:])(?=[a-f.:]*[0-9])[0-9a-f.:]*:[0-9a-f.:]*[0-9a-f:](?![\w.:])", re.IGNORECASE
)


def without_names(text: str, root: Path = Path("/")) -> str:
    """The text with a word in capitals in the place of each private one."""
    return remover_of_names(root)(text)


def remover_of_names(root: Path = Path("/")) -> Callable[[str], str]:
    """without_names() for many texts: it reads the names once."""
    values = sorted(_values(root).items(), key=lambda item: -len(item[0]))
    names = [(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", word) for value, word in values]
    patterns = [(re.compile(p, re.IGNORECASE), word) for p, word in (*names, *_PATTERNS)]

    def remove(text: str) -> str:
        for pattern, word in patterns:
            text = pattern.sub(word, text)
        return _IPV6.sub(_without_ipv6, text)

    return remove


def _without_ipv6(match: re.Match[str]) -> str:
    try:
        ipaddress.IPv6Address(match[0])
    except ValueError:
        return match[0]
    return "IP"


def _values(root: Path) -> Mapping[str, str]:
    """The names of this machine and its users, with the word that replaces each."""
    words = [(name, "HOST") for name in _host_names(root)]
    words += [(str(Path(home)), "HOME") for home in _homes()]
    words += [(name, "USER") for name in _users()]
    for pattern in _FIRMWARE:
        words += [(_text(path), "SERIAL") for path in root.glob(pattern)]
    words.append((_text(root / "proc/device-tree/serial-number"), "SERIAL"))
    return {
        value: word
        for value, word in words
        if len(value) >= _SHORTEST and value.lower() not in _COMMON and value not in ("/", "/root")
    }


def _host_names(root: Path) -> Iterator[str]:
    files = (root / "etc/hostname", root / "proc/sys/kernel/domainname")
    for name in (socket.gethostname(), os.uname().nodename, *map(_text, files)):
        yield name
        yield name.partition(".")[0]


def _users() -> Iterator[str]:
    for name in ("SUDO_USER", "LOGNAME", "USER", "DOAS_USER"):
        yield os.environ.get(name, "")
    with suppress(KeyError, OSError):
        yield getpass.getuser()
    for identifier in _identifiers():
        with suppress(KeyError, OverflowError):
            yield pwd.getpwuid(identifier).pw_name


def _homes() -> Iterator[str]:
    yield os.environ.get("HOME", "/")
    for identifier in _identifiers():
        with suppress(KeyError, OverflowError):
            yield pwd.getpwuid(identifier).pw_dir


def _identifiers() -> Iterator[int]:
    yield os.getuid()
    caller = os.environ.get("SUDO_UID", "")
    if caller.isascii() and caller.isdigit():
        yield int(caller)


_DIGITS = 32


def recorded_id(machine_id: str) -> str:
    """The machine_id in session.json of a machine with this /etc/machine-id."""
    return _hash(f"klat:{machine_id}")


def recorded_id_here(root: Path = Path("/")) -> str | None:
    """The machine_id in sessions of this machine, as klat_machine_id() of lib/record/identity.c."""
    if machine_id := _machine_id(root):
        return recorded_id(machine_id)
    serial = _text(root / "proc/device-tree/serial-number")
    return _hash(f"klat:serial-number:{serial}") if serial.strip("0") else None


def pseudonym(name: str, root: Path = Path("/")) -> str | None:
    """The HMAC of `name` with /etc/machine-id as the key, as machine-id(5) advises. None without a machine id: a serial
    number is no secret key, because all serial numbers can be tried."""
    key = _machine_id(root).encode()
    return hmac.new(key, name.encode(), "sha256").hexdigest()[:_DIGITS] if key else None


def _machine_id(root: Path) -> str:
    """Empty if this machine has none, or not yet."""
    machine_id = _text(root / "etc/machine-id")
    return machine_id if machine_id.strip("0") and machine_id != "uninitialized" else ""


def _hash(salted: str) -> str:
    return hashlib.sha256(salted.encode()).hexdigest()[:_DIGITS]
