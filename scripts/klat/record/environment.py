"""Reads the settings of the machine and the kernel that a session captured, and compares two captures."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from klat.base.bounded_read import directory_to_read, open_to_read, read_at_most
from klat.machine.kernel_files import ranges
from klat.record.session import SessionError, printable

ABSENT = "absent"
_LARGEST = 4 << 20
# More than klat records of a machine with 4,096 CPUs.
_MOST_FILES, _MOST_BYTES, _DEEPEST = 1 << 19, 64 << 20, 32
_LONGEST = 60

# Counters, and files that say nothing beyond the kernel's release.
_ALWAYS_DIFFERENT = frozenset(
    {
        "proc/loadavg",
        "proc/self/cgroup",
        "proc/self/status",
        "proc/stat",
        "proc/swaps",
        "proc/sys/kernel/osrelease",
        "proc/sys/kernel/version",
    }
)
CONFIG = "kernel configuration"
# Options that affect latency are listed first.
TELLING = re.compile(r"(PREEMPT|HZ|NO_HZ|RCU|CPU_IDLE|CPU_FREQ|SCHED|DEBUG|MITIGATION|KASAN|LOCK)")
_CPU = re.compile(r"\bcpu(\d+)\b")


@dataclass(frozen=True)
class Difference:
    """A value that differs between two sides; `a` and `b` are short texts."""

    name: str
    a: str
    b: str


def differences(a: Path, b: Path) -> list[Difference]:
    """The differences between the environment directories of two sessions, by name. Files with counters
    are left out. The files of all CPUs are one entry. A file that cannot be read counts as absent.
    """
    left_files, right_files = captured(a), captured(b)
    differing: list[Difference] = []
    for name in sorted({*left_files, *right_files}):
        left, right = left_files.get(name, {}), right_files.get(name, {})
        if left == right:
            continue
        if not left or not right:
            # One entry: every key of the file is missing.
            differing.append(Difference(name, *(_whole(v) if v else ABSENT for v in (left, right))))
        else:
            differing += _keys(name, left, right)
    return differing


def recorded_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """The differences between session.json of two sessions, except the kernel."""
    differing = []
    for key in ("machine_id", "cpu_model", "cpus_online", "architecture", "klat_version"):
        if a.get(key) != b.get(key):
            differing.append(Difference(key, short(a.get(key)), short(b.get(key))))
    left, right = (info.get("programs") or {} for info in (a, b))
    if rebuilt := [name for name in sorted({*left} & {*right}) if left[name] != right[name]]:
        names = ", ".join(map(printable, rebuilt))
        differing.append(Difference(f"program {names}", "one build", "another"))
    return differing


def changed(facts_by_session: Mapping[Path, Mapping[str, Any]]) -> list[str]:
    """A sentence for each session during which the machine changed, from run.json of the sessions."""
    lines = []
    for session, facts in facts_by_session.items():
        changes = [
            f"{printable(name)} was {short(was)} and later {short(now)}"
            for _, name, was, now in facts.get("changed", [])
        ]
        more = f"; and {len(changes) - 3} more" if changes[3:] else ""
        if changes:
            lines.append(
                f"{printable(str(session))}: the machine changed during the session, so its runs are not of one"
                f" setting: {'; '.join(changes[:3])}{more}"
            )
    return lines


def short(value: object) -> str:
    """A value in at most 60 printable characters."""
    text = ABSENT if value is None else printable(" ".join(str(value).split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _whole(values: Mapping[str, str]) -> str:
    return short(values[""]) if list(values) == [""] else "present"


def _keys(name: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    keys = [key for key in sorted({*left, *right}) if left.get(key) != right.get(key)]
    if name == CONFIG:
        keys.sort(key=lambda key: (not TELLING.match(key), key))
    for key in keys[:8]:
        shown = f"{name} {key}".rstrip()
        yield Difference(printable(shown), *_shortened(left.get(key), right.get(key)))
    if keys[8:]:
        yield Difference(f"{name}, {len(keys) - 8} more", "...", "...")


def _shortened(left: str | None, right: str | None) -> tuple[str, str]:
    """Both values, short. Two long lists of words (CPU flags) are reduced to the words that differ."""
    texts = short(left), short(right)
    if left is None or right is None or max(len(left), len(right)) <= _LONGEST:
        return texts
    words = left.split(), right.split()
    if not set(words[0]) & set(words[1]):
        return texts
    alone = [" ".join(w for w in mine if w not in other) for mine, other in (words, words[::-1])]
    return short(alone[0] or "nothing more"), short(alone[1] or "nothing more")


def captured(root: Path, top: Path | None = None) -> dict[str, dict[str, str]]:
    """The values of each file below an environment directory, by key. With `top`, the values are read from the same
    files below `top`. A file with one value has the key ''.
    The files of all CPUs are one file with `cpu*` in its name. If their values differ, each value names its
    CPUs. Empty without the directory. SessionError if it is more than klat ever writes."""
    by_file: dict[str, dict[str, str]] = {}
    per_cpu: dict[str, dict[str, list[int]]] = {}
    for name, data in texts(root, top):
        is_config = name == "proc/config.gz" or name.startswith("boot/config-")
        if cpu := _CPU.search(name):
            of_cpus = per_cpu.setdefault(_CPU.sub("cpu*", name), {})
            of_cpus.setdefault(data.strip(), []).append(int(cpu[1]))
        elif is_config:
            by_file.setdefault(CONFIG, _config(data))
        else:
            by_file[name] = _values(name, data)
    for name, values in per_cpu.items():
        by_file[name] = {"": _of_cpus(values)}
    return by_file


def texts(root: Path, top: Path | None = None) -> Iterator[tuple[str, str]]:
    """The name and the text of each file that captured() reads, within the same limits."""
    left = _MOST_BYTES
    for name, parent in _names(root):
        if name in _ALWAYS_DIFFERENT:
            continue
        data = _read(f"{top or root}/{name}", None if top else parent)
        if data is None:
            continue
        left -= len(data)
        if left < 0:
            raise _too_much(root)
        yield name, data


def _names(root: Path) -> Iterator[tuple[str, int]]:
    """The files below a directory, relative to it, each with a descriptor of its own directory. Those of each
    directory precede those below it. Follows no links below `root`."""
    count = 0
    with suppress(FileNotFoundError), directory_to_read(root) as top:
        for directory, names, files, descriptor in os.fwalk(".", dir_fd=top):
            names.sort()
            count += len(files)
            if count > _MOST_FILES or directory.count("/") > _DEEPEST:
                raise _too_much(root)
            prefix = f"{directory}/".removeprefix("./")
            yield from ((f"{prefix}{file}", descriptor) for file in sorted(files))


def _too_much(root: Path) -> SessionError:
    return SessionError(
        f"{printable(str(root))}: exceeds the limits of an environment ({_MOST_FILES:,} files, {_DEEPEST} levels, {_MOST_BYTES >> 20} MiB)"
    )


def _of_cpus(values: Mapping[str, Sequence[int]]) -> str:
    if len(values) == 1:
        return next(iter(values))
    ordered = sorted((sorted(cpus), value) for value, cpus in values.items())
    return ", ".join(f"{value} (CPU {ranges(cpus)})" for cpus, value in ordered)


def _read(path: str, parent: int | None) -> str | None:
    """None if it cannot be read, or is a link. `parent` as of open_to_read()."""
    try:
        name = path if parent is None else os.path.basename(path)
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            return None
        with open_to_read(path, parent) as file:
            data = read_at_most(file, 1 << 16, _LARGEST)
        if path.endswith(".gz"):
            # Bounded, because a small file can unpack to a very large one.
            data = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(data, _LARGEST)
    except (OSError, SessionError, zlib.error):
        return None
    return data.decode("utf-8", "replace")


# All boots of a kernel have one configuration.
@lru_cache(maxsize=4)
def _config(data: str) -> dict[str, str]:
    lines = (line.partition("=") for line in data.splitlines() if line.startswith("CONFIG_"))
    return {name.removeprefix("CONFIG_"): value for name, _, value in lines}


def compiler_of(config: Mapping[str, str]) -> str:
    """`gcc 14.2`, from a kernel's configuration; empty if it has none."""
    for name in ("gcc", "clang"):
        # 140200 for 14.2.0 (scripts/cc-version.sh in Linux)
        number = config.get(f"{name.upper()}_VERSION", "")
        if number.isdecimal() and int(number):
            return f"{name} {int(number) // 10000}.{int(number) // 100 % 100}"
    return ""


def _values(name: str, data: str) -> dict[str, str]:
    if name == "proc/cmdline":
        return command_line(data)
    if name == "proc/meminfo":
        return {"MemTotal": x[9:].strip() for x in data.split("\n") if x.startswith("MemTotal:")}
    if name == "proc/interrupts":
        cpus = data.partition("\n")[0].count("CPU")
        return {"CPUs": str(cpus)} if cpus else {}
    if name == "proc/net/ptype":
        # Handlers of all protocols, for example tcpdump's: "ALL [DEVICE] FUNCTION [MODULE]". Those of the loopback
        # device and of all devices.
        rows = [line.partition(" [")[0].split() for line in data.splitlines()]
        handlers = [row[1:] for row in rows if row[:1] == ["ALL"] and row[1:-1] in ([], ["lo"])]
        return {"": ", ".join(sorted(map(" ".join, handlers))) or "none"}
    if name == "proc/cpuinfo":
        return _cpuinfo(data)
    if name == "etc/os-release":
        lines = (line.partition("=") for line in data.splitlines())
        return {"": value.strip('"') for key, _, value in lines if key == "PRETTY_NAME"}
    return {"": data.strip()}


# Quotes can hold blanks. The kernel removes them.
_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')


def command_line(data: str) -> dict[str, str]:
    """The words of the kernel's command line, each with its value or `given`; the different values of a
    repeated word in their order. Without the path of the image, which says nothing beyond its release,
    and without the arguments of init, behind --, except for those that systemd reads there."""
    values_by_name: dict[str, list[str]] = {}
    of_init = False
    for word in _WORD.findall(data):
        name, _, value = word.replace('"', "").partition("=")
        if name == "--" and not value:
            of_init = True
        elif name not in ("BOOT_IMAGE", "initrd") and (not of_init or name.startswith("systemd.")):
            # In names the kernel takes a hyphen for an underscore.
            values = values_by_name.setdefault(name.replace("-", "_"), [])
            values += [value or "given"] if (value or "given") not in values[-1:] else []
    return {name: " ".join(values) for name, values in values_by_name.items()}


def _cpuinfo(data: str) -> dict[str, str]:
    """The constant fields of the first CPU."""
    first = data.split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    kept = ("model name", "stepping", "microcode", "cache size", "flags", "Features", "bugs")
    return {key: values[key] for key in kept if key in values}
