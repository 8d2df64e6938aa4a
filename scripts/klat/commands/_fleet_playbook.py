"""The input of Ansible for `klat fleet`, and the outcome that the role klat_campaign records for each machine.

Each fleet run has a directory on the controller, RESULTS/.fleet/RUN. It holds the variables of the run, klat for
the machines, and a file with the outcome of each machine. klat removes it when all machines are complete. Until
then, the same command continues this run, and does not measure a complete machine again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import klat
from klat.base import files, owners, programs
from klat.base.bounded_read import read_json
from klat.base.errors import KlatError, SessionError, printable
from klat.base.process import answer
from klat.base.fields import ListOf, Object, OneOf, Text
from klat.lab import suite
from klat.machine.findings import Severity
from klat.record import session_directory
from klat.record.json_files import read_session_json

COMPLETE = "complete"
_VARIABLES = "vars.json"
_ARCHIVE = "klat.tar.gz"
_LARGEST = 16 << 20  # bytes of a file in the directory
_FINDING = Object(
    {"severity": OneOf(tuple(s.value for s in Severity)), "title": Text()},
    frozenset({"severity", "title"}),
)
# What the role records for a machine. Its texts come from the machine.
_OUTCOME = Object(
    {"outcome": Text(1 << 20), "findings": ListOf(_FINDING, 4096)}, frozenset({"outcome"})
)
_SESSION = re.compile(r"\d{8}T\d{6}Z(-\d+)?")  # before the role adds the machine's name
# The name of a machine is part of file names.
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def hosts(inventory: Path, limit: str | None) -> list[str]:
    """The machines of the inventory, in its order. KlatError if there is none."""
    if not inventory.exists():
        raise KlatError(f"there is no inventory {inventory}")
    if not shutil.which("ansible-playbook"):
        raise KlatError("ansible-playbook is not installed: apt install ansible-core")
    _check_settings(inventory)
    limited = ("--limit", limit) if limit else ()
    done = answer(("ansible", "all", "-i", str(inventory), "--list-hosts", *limited))
    names = [line.strip() for line in done.stdout.splitlines()[1:]]
    if done.returncode or not names:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        matching = f" that matches {limit}" if limit else ""
        why = errors[-1] if errors else f"there is no machine{matching} in it"
        raise KlatError(f"{inventory}: {why}")
    for name in names:
        if not _HOST.fullmatch(name):
            raise KlatError(
                f"{inventory}: the name {name!r} must have only letters, digits, and . _ -; if it is"
                " an address, put it into ansible_host"
            )
    return names


def inventory_path(text: str) -> Path:
    """The inventory, by the path that Ansible makes of this text: it removes `..` without looking at links."""
    return Path(os.path.normpath(os.path.expanduser(os.path.expandvars(text))))


def _check_settings(inventory: Path) -> None:
    """KlatError if root's Ansible would take its settings, its modules, the inventory, or the variables beside it from
    a file that another user can write or make. Each can name code that Ansible executes."""
    for path in _settings(inventory) if os.geteuid() == 0 else ():
        with files.explained("check the owner of", path):
            doubt = _doubt(path)
        if doubt:
            raise KlatError(
                f"{doubt}, and Ansible executes what {path} names: move the inventory to a directory that"
                " only you can write, run klat there, and set HOME to a directory of root"
            )


def _settings(inventory: Path) -> Iterator[Path]:
    """The paths that decide what Ansible executes. Some may not exist."""
    home, config = Path.home(), Path(os.environ.get("ANSIBLE_CONFIG", ""))
    yield from (home, home / ".ansible.cfg", home / ".ansible")
    yield from [config] if config.is_file() else [Path.cwd(), Path("ansible.cfg")]
    yield from _tree(inventory)
    if not inventory.is_dir():
        # Ansible reads the variables beside a link to the inventory.
        for beside in dict.fromkeys((inventory.parent, inventory.resolve().parent)):
            yield beside
            for variables in beside.glob("*_vars"):
                yield from _tree(variables)


def _tree(top: Path) -> Iterator[Path]:
    """The path, and everything below it, also behind links to directories."""
    yield top
    walked = set()
    for directory, directories, names in os.walk(top, followlinks=True):
        yield from (Path(directory, name) for name in (*directories, *names))
        if (real := os.path.realpath(directory)) in walked:
            directories.clear()
        walked.add(real)


def _doubt(path: Path) -> str:
    """Why another user may have written this file, or can make it; empty if nobody can."""
    try:
        return owners.doubt_of_path(path)
    except FileNotFoundError:
        return _doubt(path.resolve().parent)


def record_of(results: Path, words: Sequence[str], seed: int | None) -> Path:
    """The directory of the fleet run with these arguments of klat campaign plan: the one that is not
    complete, or a new one."""
    digest = hashlib.sha256(json.dumps([*words, seed]).encode()).hexdigest()[:12]
    runs = results / ".fleet"
    kept = sorted(runs.glob(f"*-{digest}/{_VARIABLES}"))
    record = (
        kept[-1].parent if kept else runs / f"{session_directory.now():%Y%m%dT%H%M%SZ}-{digest}"
    )
    _check_owners(record)
    with files.explained("make", record):
        files.make_directories(record)
    _check_owners(record)  # another user can have made it first, in /tmp
    if kept:
        return record
    seed_text = "" if seed is None else seed
    variables = {"klat_run": record.name, "klat_words": unsafe(words), "klat_seed": seed_text}
    write_variables(record, variables)
    return record


def unsafe(words: Sequence[str]) -> list[dict[str, str]]:
    """The words, in which Ansible does not expand {{."""
    return [{"__ansible_unsafe": word} for word in words]


def _check_owners(record: Path) -> None:
    """KlatError if an untrusted user can write the directory or a file in it, or replace the directory. If it does not
    exist, only the directories above it count."""
    doubts = []
    with files.explained("check the owner of", record), suppress(FileNotFoundError):
        doubts.append(owners.doubt_of_path(record))
        doubts += [f"{path} {doubt}" for path in record.iterdir() if (doubt := owners.doubt(path))]
    if doubt := next(filter(None, doubts), ""):
        raise KlatError(
            f"{doubt}, and Ansible executes the files in {record}: give an --output that only you can"
            " write, or remove this directory if you did not make it"
        )


def prepare(record: Path, limit: str | None) -> None:
    """Pack klat into the directory, and write the variables that every playbook needs. Removes a new directory if klat
    cannot be packed."""
    try:
        build_archive(record / _ARCHIVE)
    except BaseException:
        if {path.name for path in record.iterdir()} <= {_VARIABLES, _ARCHIVE}:  # no machine began
            forget(record)
        raise
    variables = {
        "klat_hosts": limit or "all",
        "klat_record": str(record),
        "klat_archive": str(record / _ARCHIVE),
        "klat_package": str(Path(klat.__file__).resolve().parents[1]),
        "klat_architecture": platform.machine(),
    }
    write_variables(record, variables)


def write_variables(record: Path, more: Mapping[str, Any]) -> None:
    path = record / _VARIABLES
    known = read_json(path, Object(), _LARGEST) if path.exists() else {}
    files.write_whole(path, (json.dumps(known | dict(more), indent=1) + "\n").encode())


def play(playbook: str, inventory: Path, record: Path, machines: int) -> None:
    """Run the playbook. Each machine has a process of Ansible to the end. The machines together can fill half of the
    free disk space: the kernel ends a process that writes a larger file, whatever size the machine claims.
    """
    most = shutil.disk_usage(record).free // (2 * machines)

    def limit() -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    words = [
        *("ansible-playbook", "--inventory", str(inventory), "--forks", str(machines)),
        *("--extra-vars", f"@{record / _VARIABLES}", "--extra-vars", f"klat_most_bytes={most}"),
        str(programs.data() / "ansible" / playbook),
    ]
    quiet = dict.fromkeys(("ANSIBLE_DISPLAY_SKIPPED_HOSTS", "ANSIBLE_DISPLAY_OK_HOSTS"), "false")
    environment = quiet | os.environ
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, env=environment, preexec_fn=limit
    ) as process:
        try:
            process.wait()
        except KeyboardInterrupt:
            process.wait()  # the terminal interrupts Ansible, too
            raise


def outcome(record: Path, host: str) -> str:
    """The outcome of a machine, in words."""
    text = str(machine_file(record, host).get("outcome"))
    return printable(" ".join(text.split()))


def machine_file(record: Path, host: str) -> dict[str, Any]:
    """The file that the role records for a machine."""
    try:
        outcome: dict[str, Any] = read_json(record / f"{host}.json", _OUTCOME, _LARGEST)
    except FileNotFoundError:
        return {"outcome": "left out: Ansible lost the connection; see its messages above"}
    return outcome


def with_one_id(results: Path, hosts: Sequence[str]) -> list[tuple[str, ...]]:
    """The groups of machines whose sessions have the same machine id. klat compare takes such machines for
    one. Copies of a disk have the same /etc/machine-id."""
    hosts_by_id: dict[str, set[str]] = {}
    for host in hosts:
        for session in results.glob(f"*/*-{host}"):
            # Another machine's name can end like this one.
            if not _SESSION.fullmatch(session.name.removesuffix(f"-{host}")):
                continue
            with suppress(SessionError):
                if machine := read_session_json(session).get("machine_id"):
                    hosts_by_id.setdefault(str(machine), set()).add(host)
    return sorted(tuple(sorted(names)) for names in hosts_by_id.values() if len(names) > 1)


def forget(record: Path) -> None:
    """Remove the directory, so that the same command starts a new run."""
    files.remove_tree(record)


def build_archive(archive: Path) -> None:
    """Write the archive. In a source tree, build the programs first."""
    tree = programs.root()
    static = tree / suite.BUILD if programs.in_tree() else programs.static_directory()
    if programs.in_tree():
        suite.make([f"OUT={suite.BUILD}", "STATIC=1", "all"])
    elif not static.is_dir():
        raise KlatError(
            f"the machines need static programs, and there is no {static}; in klat's source tree, run make"
            " install-static with the prefix that you gave to make install"
        )
    with files.output(archive, streams=False) as out, tarfile.open(fileobj=out, mode="w:gz") as tar:
        launcher = tarfile.TarInfo("bin/klat")
        script = _launcher()
        launcher.size, launcher.mode = len(script), 0o755
        tar.addfile(launcher, io.BytesIO(script))
        for path, name in _contents(static):
            tar.add(path, name, filter=_anonymous)


def _launcher() -> bytes:
    """The launcher, with the machines' interpreter. In a virtual environment it has that of the environment."""
    path = programs.root() / ("klat" if programs.in_tree() else "bin/klat")
    _, _, rest = path.read_bytes().partition(b"\n")
    return b"#!/usr/bin/python3\n" + rest


def _contents(static: Path) -> Iterator[tuple[Path, str]]:
    """Paths, and their names below the prefix."""
    in_tree = programs.in_tree()
    yield programs.data() / ("scripts/klat" if in_tree else "klat"), "share/klat/klat"
    yield (static if in_tree else programs.data()) / "commit", "share/klat/commit"
    for path in programs.nested(static):
        if os.access(path, os.X_OK):
            name = "load-load" if path.name == "load" else path.name
            yield path, f"libexec/klat/{name}"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without this machine's users and umask."""
    if member.name.endswith("__pycache__"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
