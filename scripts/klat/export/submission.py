"""The file of `klat submit`: sessions of one machine, packed, without the names of the machine and its users.

It has only listed keys and columns of a session, the samples, and the environment that klat compare reads. The rest can
hold what a user typed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from klat.base import files
from klat.base.bounded_read import read_regular
from klat.base.errors import KlatError, unique_file_name
from klat.compare.dataset import Dataset
from klat.compare.environment_conditions import of_files
from klat.compare.submitted import SUMS, sums
from klat.machine import privacy
from klat.record.environment import command_line, texts
from klat.record.json_files import FACTS, LARGEST_PLAN, SESSION_FILE, read_run_json
from klat.record.rows import COLUMNS
from klat.record.session import Session
from klat.record.session_directory import PLAN

# What GitHub takes as an attachment.
LARGEST = 25 << 20
_LARGEST_SAMPLES = 10 * LARGEST
_LARGEST_ROWS = 1 << 31
# The keys of session.json that are copied. The values of _TEXTS can hold names.
_PLAIN = """
    schema klat_version klat_commit seed created architecture cpus_online preemption mode unit tsc programs under_load
""".split()
_TEXTS = ("kernel_release", "kernel_version", "cpu_model", "libraries", "inherited")
_TEXTS_OF_RUN = ("changed", "unrecorded")
_COMMAND_LINE = "proc/cmdline"
# What programs record of the environment.
_RECORDED = re.compile(r"boot/config-[^/]+|etc/(os-release|ld\.so\.preload)|(proc|sys)/.+")
# Columns of runs.csv with pairs NAME=VALUE, whose values can hold names.
_PAIRS = ("params", "evidence")


@dataclass
class Remover:
    """Replaces private words, and counts the texts that had some."""

    remove: Callable[[str], str]
    seen: dict[str, str] = field(default_factory=dict)

    def __call__(self, text: str) -> str:
        if text not in self.seen:
            self.seen[text] = self.remove(text)
        return self.seen[text]

    @property
    def changed(self) -> int:
        return sum(before != after for before, after in self.seen.items())

    def within(self, value: Any) -> Any:
        """The same, for all texts in a value from JSON."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self.within(item) for item in value]
        if isinstance(value, dict):
            return {key: self.within(item) for key, item in value.items()}
        return value


@dataclass(frozen=True)
class Submission:
    file: Path
    size: int
    changed: int  # texts with a private word


def submit(label: Dataset, directory: Path, root: Path = Path("/")) -> Submission:
    """Write the file into the directory. Raises KlatError."""
    for session in label.sessions:
        _check_machine(session, root)
    remover = Remover(privacy.remover_of_names(root))
    name = unique_file_name(remover(str(label.info.get("kernel_release") or "unknown")), set())
    begun = re.sub("[^0-9TZ]", "", str(label.info.get("created") or ""))
    place = directory / f"klat-{name}-{begun}.tar.gz"
    if os.path.lexists(place):
        raise KlatError(f"{place}: exists already; move it or remove it first")
    if not os.access(directory, os.W_OK):
        raise KlatError(f"cannot write {place}; change to a directory that you can write")
    with tempfile.TemporaryDirectory(prefix="klat-") as draft:
        tree = Path(draft)
        with files.explained("write", tree, "set TMPDIR to another directory"):
            taken: set[str] = set()
            for session in label.sessions:
                created = re.sub("[^0-9TZ]", "", str(session.info.get("created") or ""))
                into = tree / name / unique_file_name(created, taken)
                _write_session(session, into, name, remover, root)
            (tree / SUMS).write_text("".join(sums(tree)))
        with files.output(place, streams=False) as out:
            _pack(tree, out)
            size = out.tell()
            _check_size(size, LARGEST)
    return Submission(place, size, remover.changed)


def _check_machine(session: Session, root: Path) -> None:
    recorded_id, id_here = session.info.get("machine_id"), privacy.recorded_id_here(root)
    if recorded_id not in (None, id_here):
        raise KlatError(
            f"{session.path}: is of another machine, and klat only knows the private names of this one; run klat submit"
            " on the machine that measured"
        )


def _check_size(size: int, largest: int) -> None:
    if size > largest:
        raise KlatError(
            f"the file is too large for the attachment of an issue ({LARGEST >> 20} MiB at most); measure with"
            " fewer --runs, or submit one session of the label"
        )


def _write_session(session: Session, into: Path, label: str, remover: Remover, root: Path) -> None:
    boot = privacy.pseudonym(session.boot_id, root) or _hash(session.boot_id)
    ids = {"label": label, "boot_id": boot}
    info = {key: session.info[key] for key in _PLAIN if key in session.info}
    info |= {key: remover.within(session.info[key]) for key in _TEXTS if key in session.info}
    info |= ids | {"machine_id": privacy.pseudonym("machine", root)}
    facts = read_run_json(session.path)
    kept = {key: facts[key] for key in ("schema", "klat_version", "created") if key in facts}
    kept |= {key: remover.within(facts[key]) for key in _TEXTS_OF_RUN if key in facts}
    (into / "samples").mkdir(parents=True)
    (into / SESSION_FILE).write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n")
    (into / FACTS).write_text(json.dumps(kept | ids, indent=2, ensure_ascii=False) + "\n")
    (into / PLAN).write_bytes(read_regular(session.path / PLAN, LARGEST_PLAN))
    rows = read_regular(session.path / "runs.csv", _LARGEST_ROWS).decode()
    (into / "runs.csv").write_text("".join(_rows(rows, boot, remover)))
    names = sorted({f"samples/{row.benchmark}.u64" for row in session.rows if row.n})
    _check_size(sum((session.path / name).stat().st_size for name in names), _LARGEST_SAMPLES)
    for name in names:
        (into / name).write_bytes(read_regular(session.path / name, _LARGEST_SAMPLES))
    for name, text in texts(session.path / "environment"):
        if not _RECORDED.fullmatch(name):  # another user may write there
            continue
        if name == "proc/config.gz" or name.startswith("boot/config-"):
            name = f"boot/config-{label}"
        file = into / "environment" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(remover(_needed(name, text)) + "\n")


def _needed(name: str, text: str) -> str:
    """The part of a file of the environment that readers use."""
    if name == _COMMAND_LINE:
        return " ".join(_conditions_of_boot(text))
    return text.partition("\n")[0] if name == "proc/interrupts" else text


def _conditions_of_boot(text: str) -> Iterator[str]:
    """The words of the kernel's command line that are conditions. The others name disks, hosts and networks."""
    for (_, name), value in of_files({_COMMAND_LINE: command_line(text)}).items():
        if name.startswith(f"{_COMMAND_LINE} "):
            word = name.removeprefix(f"{_COMMAND_LINE} ") + (
                "" if value == "given" else f"={value}"
            )
            yield f'"{word}"' if " " in word else word


def _rows(text: str, boot: str, remover: Remover) -> Iterator[str]:
    """runs.csv with other texts and their checksums, without a torn last line."""
    yield ",".join(COLUMNS) + "\n"
    for row in csv.DictReader(text.split("\n")[:-1]):
        row |= {"boot": boot, "reason": remover(row["reason"])}
        row |= {name: _without_names(row[name], remover) for name in _PAIRS}
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow(row[name] for name in COLUMNS[:-1])
        body = out.getvalue()
        yield f"{body},{_hash(body)[:16]}\n"


def _without_names(pairs: str, remover: Remover) -> str:
    parts = (pair.partition("=") for pair in pairs.split(";"))
    # Most values are numbers.
    return ";".join(k + by + (v if v.isdecimal() else remover(v)) for k, by, v in parts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _pack(tree: Path, out: BinaryIO) -> None:
    """The same files make the same bytes."""
    packed: Any
    with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path in sorted(path for path in tree.rglob("*") if path.is_file()):
                member = tarfile.TarInfo(str(path.relative_to(tree)))
                member.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(member, file)
