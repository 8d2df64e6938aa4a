"""The directory of a session, as far as the runner writes it: plan.csv and run.json.

The programs write the rest; klat.session reads all of it. run.json holds what resuming needs and
the record does not: the command line, the load, the plan's SHA-256, the boot, how often the
session was taken up again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import unicodedata
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from klat.errors import KlatError

PLAN = "plan.csv"
FACTS = "run.json"
LOAD_LOG = "load.log"
SCHEMA = 1
_KINDS: dict[str, type | tuple[type, ...]] = {
    "label": str,
    "seed": int,
    "boot_id": str,
    "plan_sha256": str,
    "load": (str, type(None)),
    "setup": (str, type(None)),  # these three only where klat ab began it
    "prefix": (str, type(None)),
    "restore": (str, type(None)),
    "pause_ms": int,
    "time_limit_s": int,
    "runner": int,
    "resumed": list,
}
_NAME_MAX = 255
# Marks, embeddings, overrides and isolates: they make a line read otherwise than it is.
_BIDIRECTIONAL = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def check_label(label: str) -> str:
    """The label, which becomes a directory's name. ValueError where it cannot."""
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
    # These end lines or steer terminals.
    if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in label):
        raise ValueError("a label cannot hold control characters")
    if _BIDIRECTIONAL.intersection(label):
        raise ValueError("a label cannot hold characters that change the direction of text")
    if size > _NAME_MAX:
        raise ValueError(f"a label cannot be longer than {_NAME_MAX} bytes, this one has {size}")
    return label


def boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def now() -> datetime:
    return datetime.now(timezone.utc)


def iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _caller() -> tuple[int, int] | None:
    """Who called sudo; None outside it."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        return int(user), int(group)
    return None


def give(path: Path) -> None:
    """To the caller of sudo, whose file it is to be."""
    caller = _caller()
    if caller:
        os.chown(path, *caller, follow_symlinks=False)


def make_directories(path: Path) -> None:
    """As `mkdir -p`. What is made belongs to the caller of sudo; what was there is not touched."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        if path == path.parent:
            break
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        give(directory)


def create(output: Path, label: str) -> Path:
    """A new session directory, `output/label/<UTC time>`."""
    parent = output / label
    stamp = now().strftime("%Y%m%dT%H%M%SZ")
    try:
        make_directories(parent)
        for attempt in range(1, 1000):
            path = parent / (stamp if attempt == 1 else f"{stamp}-{attempt}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            give(path)
            return path
    except OSError as error:
        raise _cannot("make a session in", parent, error) from error
    raise KlatError(f"{parent}: too many sessions begun in one second")


def _cannot(what: str, path: Path, error: OSError) -> KlatError:
    return KlatError(f"cannot {what} {path}: {error.strerror or error}")


def _write_whole(path: Path, data: bytes) -> None:
    """The file is there with all of it, or as before; also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o644)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        give(temporary)
        os.rename(temporary, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot("write", path, error) from error


def write_facts(session: Path, facts: dict[str, Any]) -> None:
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    _write_whole(session / FACTS, text.encode("utf-8", "backslashreplace"))


def write_plan(session: Path, text: str, facts: dict[str, Any]) -> None:
    """Put down the plan and the facts, the plan last: where it is, both are whole."""
    data = text.encode("utf-8")
    write_facts(session, facts | {"plan_sha256": hashlib.sha256(data).hexdigest()})
    _write_whole(session / PLAN, data)


def read_facts(session: Path) -> dict[str, Any]:
    """run.json of a session that was begun here. KlatError where there is none or it is not one."""
    if not session.is_dir():
        raise KlatError(f"{session}: no such session directory")
    path = session / FACTS
    try:
        facts = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        below = sorted(session.glob(f"*/{FACTS}"))
        why = (
            f"holds sessions and is none: name one, such as {below[-1].parent}"
            if below
            else f"has no {FACTS}, so klat run did not begin it"
        )
        raise KlatError(f"{session}: {why}") from None
    except OSError as error:
        raise _cannot("read", path, error) from error
    except ValueError:
        raise KlatError(f"{path} is damaged or was edited") from None
    if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
        raise KlatError(f"{path} is not of schema {SCHEMA}, the one this klat knows")
    if not all(isinstance(facts.get(key), kind) for key, kind in _KINDS.items()):
        raise KlatError(f"{path} is damaged or was edited")
    return facts


def read_plan(session: Path, facts: dict[str, Any]) -> str:
    path = session / PLAN
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise KlatError(
            f"{session}: has no {PLAN}; it was killed before its plan was written or the plan"
            " was removed; begin a new session"
        ) from None
    except OSError as error:
        raise _cannot("read", path, error) from error
    if hashlib.sha256(data).hexdigest() != facts["plan_sha256"]:
        raise KlatError(f"{path} is not what klat run wrote; begin a new session")
    return data.decode("utf-8")


def open_load_log(session: Path) -> tuple[Path, int]:
    """Where a load's standard error goes: the file and a descriptor that appends to it."""
    path = session / LOAD_LOG
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o644)
        give(path)
    except OSError as error:
        raise _cannot("write", path, error) from error
    return path, descriptor


def is_empty(session: Path) -> bool:
    """Whether no program has recorded anything."""
    return not any((session / name).exists() for name in ("session.json", "runs.csv", "samples"))


def remove_unused(session: Path) -> None:
    """Take away a session in which nothing was recorded, with the files that this module made."""
    for name in (PLAN, FACTS, LOAD_LOG):
        (session / name).unlink(missing_ok=True)
    for path in (session, session.parent):
        try:
            path.rmdir()
        except OSError:
            return


def changed_programs(info: dict[str, Any], programs: Iterable[tuple[str, Path]]) -> list[str]:
    """Names of programs that are not those the session began with, and would refuse to join."""
    recorded = info.get("programs")
    recorded = recorded if isinstance(recorded, dict) else {}
    return [
        name
        for name, path in programs
        if name in recorded and hashlib.sha256(path.read_bytes()).hexdigest() != recorded[name]
    ]


class Lock:
    """Held on plan.csv by a runner and by the program that it runs.

    A program inherits it, so that a runner killed with SIGKILL leaves it held until the run in
    flight has ended: resuming earlier would repeat the run that is about to be recorded.
    """

    def __init__(self, session: Path) -> None:
        path = session / PLAN
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _cannot("open", path, error) from error

    def try_take(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise KlatError(f"cannot lock {PLAN}: {error.strerror}") from error
        return True

    def close(self) -> None:
        os.close(self.descriptor)
