"""Which machine this is: the id in its sessions, and an id for files that others read."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from klat.machine.kernel_files import text

_DIGITS = 32


def recorded(machine_id: str) -> str:
    """The machine_id in session.json of a machine with this /etc/machine-id."""
    return _hash(f"klat:{machine_id}")


def recorded_here(root: Path = Path("/")) -> str | None:
    """The machine_id in sessions of this machine, as klat_machine_id() of lib/record/identity.c."""
    if machine_id := _machine_id(root):
        return recorded(machine_id)
    serial = text(root / "proc/device-tree/serial-number")
    return _hash(f"klat:serial-number:{serial}") if serial.strip("0") else None


def pseudonym(name: str, root: Path = Path("/")) -> str | None:
    """The HMAC of `name` with /etc/machine-id as the key, as machine-id(5) advises. None without a machine id: a serial
    number is no secret key, because all serial numbers can be tried."""
    key = _machine_id(root).encode()
    return hmac.new(key, name.encode(), "sha256").hexdigest()[:_DIGITS] if key else None


def _machine_id(root: Path) -> str:
    """Empty if this machine has none, or not yet."""
    machine_id = text(root / "etc/machine-id")
    return machine_id if machine_id.strip("0") and machine_id != "uninitialized" else ""


def _hash(salted: str) -> str:
    return hashlib.sha256(salted.encode()).hexdigest()[:_DIGITS]
