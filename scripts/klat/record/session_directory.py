"""Writes and reads the runner's files in the directory of a session: plan.csv and run.json.

The programs write the rest; klat.record.session reads all of it. run.json holds what --resume needs: the
command line, the load, the plan's SHA-256, the boot, and when the session was resumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from klat import __version__
from klat.base import files, owners
from klat.base.bounded_read import read_open
from klat.base.errors import KlatError, SessionError
from klat.record.json_files import FACTS as FACTS, LARGEST_PLAN, LARGEST_RUN, SCHEMA
from klat.record.json_files import parse_resumable

PLAN = "plan.csv"
LOAD_LOG = "load.log"
SET_ASIDE = ".failed"  # the directory of a label with the sessions that do not count
_NAME_MAX = 255
# Characters that change the direction of text. A line with them can look like another text.
_BIDIRECTIONAL = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def check_label(label: str) -> str:
    """The label. ValueError if it cannot be the name of a directory."""
    if not label:
        raise ValueError("a label cannot be empty")
    if label.startswith("."):
        raise ValueError("a label cannot begin with a dot")
    if "/" in label:
        raise ValueError("a label cannot hold a slash")
    try:
        size = len(label.encode("utf-8"))
    except UnicodeEncodeError:
        raise ValueError("a label has to be valid UTF-8") from None
    # These can end a line or control a terminal.
    if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in label):
        raise ValueError("a label cannot hold control characters")
    if _BIDIRECTIONAL.intersection(label):
        raise ValueError("a label cannot hold characters that change the direction of text")
    if size > _NAME_MAX:
        raise ValueError(f"a label cannot be longer than {_NAME_MAX} bytes, this one has {size}")
    return label


def _kind_of(file: Path) -> str:
    """The type of the file system that has this file."""
    kind, length = "", 0
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4]
        if file.is_relative_to(point) and len(point) >= length:
            kind, length = rest.split()[0], len(point)
    return kind


def _cgroup_id() -> int:
    """As cgroup_id() of lib/record/session.c."""
    for place in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")):
        number = os.statvfs(place).f_fsid if place.is_dir() and _kind_of(place) == "cgroup2" else 0
        if number >> 32:
            return number
    return 0


def boot_id() -> str:
    """As klat_boot_id() of lib/record/session.c."""
    try:
        text = _BOOT_ID.read_text(errors="replace").strip()
        if text and _kind_of(_BOOT_ID) != "proc":
            began = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(
                time.CLOCK_BOOTTIME
            )
            number = (_cgroup_id() or began // 10**9) & 0xFFFFFFFFFFFF
            text = f"00000000-0000-4000-8000-{number:012x}"
    except OSError:
        text = ""
    if not re.fullmatch(r"[0-9a-f-]{36}", text):
        raise KlatError(
            f"{_BOOT_ID} has no boot id, and a session needs one; mount the kernel's /proc"
        )
    return text


def now() -> datetime:
    return datetime.now(timezone.utc)


def iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def create(output: Path, label: str) -> Path:
    """Make a session directory, `output/label/<UTC time>`, that no other user can write."""
    parent = output / label
    stamp = now().strftime("%Y%m%dT%H%M%SZ")
    cure = "--output DIR records elsewhere"
    with files.explained("make a session in", parent, cure), files.directory(
        parent, make=True
    ) as descriptor:
        for attempt in range(1, 1000):
            name = stamp if attempt == 1 else f"{stamp}-{attempt}"
            with suppress(FileExistsError):
                files.make_directory(descriptor, name, 0o755)
                return parent / name
    raise KlatError(f"{parent}: too many sessions were started in one second")


def new_facts(command: Sequence[str]) -> dict[str, Any]:
    """The fields of run.json that every new session has. `command` started klat."""
    return {
        "schema": SCHEMA,
        "klat_version": __version__,
        "command": list(command),
        "created": iso(now()),
        "boot_id": boot_id(),
        "runner": os.getpid(),
    }


def write_facts(session: Path, facts: dict[str, Any]) -> None:
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    files.write_whole(session / FACTS, text.encode("utf-8", "backslashreplace"))


def write_plan(session: Path, text: str, facts: dict[str, Any]) -> None:
    """Write run.json, then plan.csv. If plan.csv is there, both are complete."""
    data = text.encode("utf-8")
    write_facts(session, facts | {"plan_sha256": hashlib.sha256(data).hexdigest()})
    files.write_whole(session / PLAN, data)


def _read(session: Path, name: str, largest: int, trust: bool) -> bytes:
    """The whole file. Raises OSError; SessionError if it is larger than `largest`; KlatError if another
    user may have written it and `trust` is False."""
    with files.directory(session) as descriptor:
        with open(files.open_regular(descriptor, name, os.O_RDONLY), "rb", buffering=0) as file:
            if not trust:
                _check_owner(descriptor, session)
                _check_owner(file.fileno(), session / name)
            return read_open(file, session / name, largest)


def _check_owner(descriptor: int, path: Path) -> None:
    doubt = owners.doubt(descriptor)
    if doubt:
        raise KlatError(
            f"{path} {doubt}, and --resume runs the commands in {FACTS}: read its load, setup,"
            " prefix and restore first, then give --trust"
        )


def read_facts(session: Path, trust: bool = False) -> dict[str, Any]:
    """run.json of a session that klat run or klat ab began. KlatError if it is missing or damaged, or if
    another user may have written it and `trust` is False."""
    if not session.is_dir():
        raise KlatError(f"{session}: no such session directory")
    path = session / FACTS
    try:
        return parse_resumable(path, _read(session, FACTS, LARGEST_RUN, trust))
    except FileNotFoundError:
        below = sorted((*session.glob(f"*/{FACTS}"), *session.glob(f"*/*/{FACTS}")))
        why = (
            f"is not a session but holds sessions; name one, for example {below[-1].parent}"
            if below
            else f"has no {FACTS}, so klat run did not begin it"
        )
        raise KlatError(f"{session}: {why}") from None
    except SessionError as error:
        raise KlatError(str(error)) from None
    except OSError as error:
        raise KlatError(f"cannot read {path}: {error.strerror or error}") from error


def read_plan(session: Path, facts: dict[str, Any]) -> str:
    path = session / PLAN
    try:
        # run.json holds its SHA-256
        data = _read(session, PLAN, LARGEST_PLAN, trust=True)
    except FileNotFoundError:
        raise KlatError(
            f"{session}: has no {PLAN}; it was killed before its plan was written or the plan"
            " was removed; start a new session"
        ) from None
    except SessionError as error:
        raise KlatError(str(error)) from None
    except OSError as error:
        raise KlatError(f"cannot read {path}: {error.strerror or error}") from error
    if hashlib.sha256(data).hexdigest() != facts["plan_sha256"]:
        raise KlatError(f"{path} is not what klat run wrote; start a new session")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise KlatError(f"{path} is damaged or was edited: not UTF-8") from None


def is_empty(session: Path) -> bool:
    """Whether no program has recorded anything."""
    return not any((session / name).exists() for name in ("session.json", "runs.csv", "samples"))


@contextmanager
def removed_unless_begun(session: Path) -> Iterator[None]:
    """Remove a new session at an error, for example on a full disk."""
    try:
        yield
    except BaseException:
        remove_unused(session)
        raise


def remove_unused(session: Path) -> None:
    """Remove a session in which nothing was recorded, and the files that klat and its programs made in it."""
    files.remove_tree(session / "environment")
    with suppress(OSError, KlatError):
        with files.directory(session) as descriptor:
            for name in (PLAN, FACTS, LOAD_LOG):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=descriptor)
        for path in (session, session.parent):
            with files.directory(path.parent) as descriptor:
                os.rmdir(path.name, dir_fd=descriptor)


def changed_programs(info: dict[str, Any], programs: Iterable[tuple[str, Path]]) -> list[str]:
    """Programs that were built again since the session began. They would refuse to append to it."""
    recorded = info.get("programs") or {}
    contents = ((name, path.read_bytes()) for name, path in programs if name in recorded)
    return [name for name, data in contents if hashlib.sha256(data).hexdigest() != recorded[name]]


class Lock:
    """The lock on plan.csv. The runner takes it, and each program that it runs inherits it.

    If the runner is killed, the program keeps the lock until the run has ended. Resuming earlier would
    repeat that run.
    """

    def __init__(self, session: Path) -> None:
        self._path = session / PLAN
        with files.explained("open", self._path), files.directory(session) as descriptor:
            self.descriptor = files.open_regular(descriptor, PLAN, os.O_RDONLY)

    def try_take(self) -> bool:
        with files.explained("lock", self._path):
            return owners.try_lock(self.descriptor)

    def holder(self) -> int | None:
        """The process that took the lock; None if it is unknown."""
        return owners.lock_holder(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)
