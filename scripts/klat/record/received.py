"""Unpacks sessions of a guest or another machine, which klat does not trust.

    python3 -m klat.record.received ARCHIVE RESULTS NAME LABEL...

moves the sessions in a .tar.gz to RESULTS/LABEL/SESSION-NAME, and those in LABEL/.failed to RESULTS/LABEL/.failed, and
removes the archive. An archive with a session of another label is refused. A session that RESULTS already has is not
replaced. Each session is renamed as a whole.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import secrets
import shutil
import sys
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from klat.base import files
from klat.base.bounded_read import open_to_read
from klat.base.errors import KlatError, SessionError, printable
from klat.record.json_files import read_session_json
from klat.record.session_directory import SET_ASIDE, check_label

# A session has about a hundred files. Its longest path has 80 characters and 10 parts.
_MEMBERS = 1 << 16
_PATH = 255
_DEPTH = 16
# Bytes of a header that belongs to the next member: a long name, and what pax(1) adds.
_HEADER = 4096
_HEADERS = {
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
}
# Samples and texts of a session shrink to a fifth, and to a fiftieth if all samples are alike.
_SMALL_BYTES, _SHRINKING = 256 << 20, 50
# Errors that a name in a tar can cause. All others are errors of this machine, for example a full disk.
_NAMES_FAULTS = frozenset(
    {errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
)


# The directory of a failed boot has only the second one.
_OF_A_SESSION = ("session.json", "run.json")
# Of the machine, as part of a directory's name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Refused(Exception):
    """The tar is damaged or hostile. The message is a predicate."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        ...


class _Member(tarfile.TarInfo):
    """Refuses what tarfile would hold in memory: long headers, and the lists of sparse files."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADERS and member.size > _HEADER:
            raise Refused(f"holds a header of {member.size:,} bytes")
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise Refused(f"holds the sparse file {member.name!r}")
        return member

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise Refused("holds a sparse file")


class _Limited(io.RawIOBase):
    """Reads from a stream, up to a number of bytes. tarfile holds some headers in memory as a whole."""

    def __init__(self, stream: Readable, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise Refused(f"holds more than {self._most:,} bytes")
        return data


@contextmanager
def _readable() -> Iterator[None]:
    """Turn any error of the tar into Refused. tarfile raises many kinds. A bad checksum of gzip is an OSError."""
    try:
        yield
    except Exception as error:
        of_machine = isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile)
        if of_machine or isinstance(error, (Refused, KlatError)):
            raise
        raise Refused(f"is damaged: {error or repr(error)}") from None


def unpack(stream: Readable, into: Path, most: int) -> None:
    """Unpack the files and directories of a tar of at most `most` bytes. Refuse a file outside `into`, and a file in
    place of another. Ignore links and devices. After Refused, the files before the bad one are there. Raises OSError
    for an error of this machine."""
    limited: Any = _Limited(stream, most)
    with _readable(), tarfile.open(fileobj=limited, mode="r|", tarinfo=_Member) as archive:
        for count, member in enumerate(archive):
            if count == _MEMBERS:
                raise Refused(f"holds more than {_MEMBERS} files")
            # Where the next header is. tarfile reads block by block up to there, also if it lies exabytes ahead.
            if archive.offset > most + tarfile.BLOCKSIZE:
                raise Refused(f"holds more than {most:,} bytes")
            name = member.name
            parts = [part for part in PurePosixPath(name).parts if part != "."]
            strange = len(name) > _PATH or len(parts) > _DEPTH or not name.isprintable()
            if strange or ".." in parts or name.startswith("/"):
                raise Refused(f"holds the forbidden path {name[:200]!r}")
            if member.issparse():  # it can claim any size
                raise Refused(f"holds the sparse file {name!r}")
            if parts:
                _place(archive, member, into.joinpath(*parts))
        while limited.read(1 << 20):  # to the checksum at the end
            pass


def unpack_file(archive: Path, into: Path) -> None:
    """unpack() of a .tar.gz. Its contents are limited to a multiple of its size, and to half of the free disk space."""
    with open_to_read(archive) as packed, gzip.open(packed) as stream:
        most = _SMALL_BYTES + _SHRINKING * os.fstat(packed.fileno()).st_size
        unpack(stream, into, min(most, shutil.disk_usage(into).free // 2))


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    try:
        if member.isdir():
            files.make_directories(place)
        elif member.isfile():
            files.make_directories(place.parent)
            source = archive.extractfile(member)
            assert source
            files.create(place, source)
    except OSError as error:
        if error.errno not in _NAMES_FAULTS:
            raise
        raise Refused(f"cannot be unpacked: {member.name[:200]!r}: {error.strerror}") from None


def take_in(archive: Path, results: Path, name: str, labels: Collection[str]) -> None:
    """Move the sessions of the machine `name` to `results`, and remove the archive. KlatError if it is refused."""
    draft = results / f".received-{secrets.token_hex(8)}"
    with files.explained("make", results), files.directory(results, make=True) as parent:
        files.make_directory(parent, draft.name, 0o700)
    try:
        unpack_file(archive, draft)
        for session in list(_sessions(draft, labels)):
            target = results / session.parent / f"{session.name}-{name}"
            if not os.path.lexists(target):
                files.make_directories(target.parent)
                files.rename(draft / session, target)
        archive.unlink()
    except (Refused, SessionError) as error:
        raise KlatError(f"{archive} {error}", 1) from None
    except OSError as error:
        raise KlatError(f"{error.filename or results}: {error.strerror}", 1) from None
    finally:
        files.remove_tree(draft)


def _sessions(draft: Path, labels: Collection[str]) -> Iterator[Path]:
    """The sessions, relative to `draft`."""
    for label in sorted(path for path in draft.iterdir() if path.is_dir()):
        for place in (label, label / SET_ASIDE):
            if place.is_dir():
                for session in sorted(place.iterdir()):
                    if any((session / name).is_file() for name in _OF_A_SESSION):
                        _check_label(session, label.name, labels)
                        yield session.relative_to(draft)


def _check_label(session: Path, label: str, expected: Collection[str]) -> None:
    """Refused if the directory or session.json has another label. A damaged session.json has none: it is never read
    as a session."""
    recorded = label
    with suppress(SessionError):
        recorded = read_session_json(session)["label"]
    if label not in expected or recorded != label:
        unexpected = {label, recorded}.difference(expected) or {recorded}
        raise Refused(f"has a session of label {min(unexpected)!r}, not of {' or '.join(expected)}")


def _main(words: list[str]) -> int:
    if len(words) < 4 or not _NAME.fullmatch(words[2]):
        print(
            "usage: python3 -m klat.record.received ARCHIVE RESULTS NAME LABEL...", file=sys.stderr
        )
        return 2
    archive, results, name, *labels = words
    try:
        for label in labels:
            check_label(label)
        take_in(Path(archive), Path(results), name, labels)
    except ValueError as error:
        print(f"LABEL: {error}", file=sys.stderr)
        return 2
    except KlatError as error:
        print(printable(str(error)), file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
