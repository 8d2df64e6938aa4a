"""Says who owns the files that klat writes, whose files klat trusts, and who holds a lock."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from klat.base.errors import KlatError

_ID = re.compile("[0-9]{1,10}", re.ASCII)
_ID_MAX = 2**32 - 2
_MOST_LINKS = 40  # as the kernel
# <linux/posix_acl_xattr.h>: a version, then entries of tag, permissions and id.
_POSIX = "system.posix_acl_access"
_POSIX_USER = 0x02
_POSIX_GROUP = 0x08
# RFC 8881, section 6.2.1: a number of entries, each of type, flags, permissions and name. The mode of the file shows
# only OWNER@, GROUP@ and EVERYONE@.
_NFS4 = "system.nfs4_acl"
_NFS4_ALLOW = 0
_NFS4_ONLY_NEW = 0x08  # ACE4_INHERIT_ONLY_ACE: for new files of the directory
# WRITE_DATA, APPEND_DATA, DELETE_CHILD, DELETE, WRITE_ACL, WRITE_OWNER
_NFS4_WRITE = 0x2 | 0x4 | 0x40 | 0x10000 | 0x40000 | 0x80000


def caller() -> tuple[int, int] | None:
    """User and group of the caller of sudo; None without sudo."""
    texts = [os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID")]
    if os.geteuid() != 0 or not all(texts):
        return None
    if not all(_ID.fullmatch(text) and int(text) <= _ID_MAX for text in texts):
        raise KlatError(
            "SUDO_UID and SUDO_GID must be the numbers of a user and a group; start klat with sudo, or"
            " unset them"
        )
    return int(texts[0]), int(texts[1])


def give(descriptor: int) -> None:
    """Make the caller of sudo the owner. Only for a file that this process has just made."""
    owner = caller()
    if owner:
        os.fchown(descriptor, *owner)


def trusted(user: int) -> bool:
    """Whether the user is root, the user of this process, or the caller of sudo."""
    sudo = caller()
    return user in (0, os.geteuid()) or (sudo is not None and user == sudo[0])


def doubt(file: int | Path) -> str:
    """Why an untrusted user may have written a file; empty if only trusted users can write it. klat assumes that a
    group with the owner's number has no other member. Raises OSError."""
    status = os.fstat(file) if isinstance(file, int) else file.lstat()
    if not trusted(status.st_uid):
        return f"belongs to {user_name(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, status.st_uid):
        return f"can be written by group {status.st_gid}"
    try:
        writer = next(_writers(file, status), "")
    except struct.error:
        return "has a damaged access list"
    return writer and f"can be written by {writer}, as its access list says"


def _writers(file: int | Path, status: os.stat_result) -> Iterator[str]:
    """The untrusted users and groups whom an access list allows to write the file. Mode bits do not name them."""
    trusted_groups = (0, status.st_uid)
    # The mode bits of the group are the mask of a POSIX access list.
    if status.st_mode & stat.S_IWGRP:
        for tag, permissions, number in struct.iter_unpack("<HHI", _attribute(file, _POSIX)[4:]):
            if permissions & os.W_OK and tag == _POSIX_USER and not trusted(number):
                yield user_name(number)
            if permissions & os.W_OK and tag == _POSIX_GROUP and number not in trusted_groups:
                yield f"group {number}"
    if listed := _attribute(file, _NFS4):
        (number_of_entries,) = struct.unpack_from(">I", listed)
        end = 4
        for _ in range(number_of_entries):
            kind, flags, permissions, length = struct.unpack_from(">4I", listed, end)
            start, end = end + 16, end + 16 + (length + 3) // 4 * 4
            who = listed[start : start + length].decode(errors="replace")
            owns = who == "OWNER@" or (who == "GROUP@" and status.st_gid in trusted_groups)
            if (
                kind == _NFS4_ALLOW
                and permissions & _NFS4_WRITE
                and not (flags & _NFS4_ONLY_NEW or owns)
            ):
                yield f"{who!r}"


def _attribute(file: int | Path, name: str) -> bytes:
    """An extended attribute; empty if there is none. Raises OSError."""
    # os.getxattr() cannot read a descriptor that was opened with O_PATH.
    path = Path(f"/proc/self/fd/{file}") if isinstance(file, int) else file
    try:
        return os.getxattr(path, name)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return b""
        raise


def doubt_of_path(path: Path) -> str:
    """The first directory, symbolic link or file on the way from the root directory to this path for which there
    is a doubt, with the doubt. Empty if no untrusted user can have written or replaced the file. Raises
    OSError."""
    parts = deque(path.absolute().parts)
    here = Path("/")
    links = 0
    while parts:
        here = here.parent if parts[0] == os.pardir else here / parts[0]
        parts.popleft()
        status = here.lstat()
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            # Nobody can write a symbolic link, so only its owner matters.
            why = "" if trusted(status.st_uid) else f"belongs to {user_name(status.st_uid)}"
            parts.extendleft(reversed(Path(os.readlink(here)).parts))
        elif parts and status.st_mode & stat.S_ISVTX and trusted(status.st_uid):
            why = ""  # as /tmp: other users cannot replace an entry of a trusted user
        else:
            why = doubt(here)
        if why:
            return f"{here} {why}"
        if stat.S_ISLNK(status.st_mode):
            here = here.parent
    return ""


def user_name(number: int) -> str:
    """`user alice`, for messages."""
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def try_lock(descriptor: int) -> bool:
    """Whether this process holds the lock now. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_holder(descriptor: int) -> int | None:
    """The pid that took the lock of a file; None if it is unknown."""
    return next(iter(lock_holders(descriptor)), None) or None


def lock_holders(descriptor: int) -> list[int]:
    """The pids that took the lock of a file, from /proc/locks; 0 for an unknown one. These processes may have ended:
    their children keep the lock."""
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    # "1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF"; a waiting process has "->" before FLOCK.
    return [
        int(words[4]) if words[4].isdecimal() else 0
        for words in map(str.split, lines)
        if words[1:2] == ["FLOCK"] and words[5:6] == [f"{device}:{status.st_ino}"]
    ]


def process_name(pid: int | None) -> str:
    """`klat (pid 4711)`, for messages."""
    if pid is None:
        return "another process"
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"a process that pid {pid} started before it ended"
    return f"{''.join(c if c.isprintable() else '?' for c in name)} (pid {pid})"
