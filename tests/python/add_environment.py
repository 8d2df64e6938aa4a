"""Add the environments of recorded sessions to a file of tests/python/environments, or replace them there.

    /usr/bin/python3 tests/python/add_environment.py counted results/lab-7.3 results/lab-7.3-rt

MACHINE is the file's name without .json. Each LABEL is a directory of sessions of one kernel, and gives
the kernel its name. The test of all pairs of kernels (test_conditions.py) then has this kernel, too.
"""

import json
import sys
from pathlib import Path
from typing import Any

ENVIRONMENTS = Path(__file__).with_name("environments")
INFO = ("cpu_model", "cpus_online", "mode", "unit")
# Counters, and what says nothing beyond the kernel's release or the machine.
LEFT_OUT = ("boot/", "etc/", "sys/class/dmi", "proc/config.gz", "proc/cpuinfo", "proc/interrupts")
LEFT_OUT += ("proc/loadavg", "proc/meminfo", "proc/self", "proc/stat", "proc/swaps")
LEFT_OUT += ("proc/sys/kernel/osrelease", "proc/sys/kernel/version")

Texts = dict[str, dict[str, str]]  # by file and kernel


def by_kernel(machine: dict[str, Any]) -> Texts:
    return {
        name: {
            kernel: text
            for text, kernels in texts.items()
            for kernel in (machine["kernels"] if kernels == "all" else kernels.split())
        }
        for name, texts in machine["files"].items()
    }


def by_text(texts: Texts, kernels: dict[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, held in sorted(texts.items()):
        for text in dict.fromkeys(held[kernel] for kernel in kernels if kernel in held):
            of = [kernel for kernel in kernels if held.get(kernel) == text]
            found.setdefault(name, {})[text] = "all" if len(of) == len(kernels) else " ".join(of)
    return found


def add(machine: dict[str, Any], label: Path) -> None:
    kernel = label.name.removeprefix("lab-")
    (session, *_) = sorted(path.parent for path in label.glob("*/session.json"))
    info = json.loads((session / "session.json").read_text())
    texts = by_kernel(machine)
    for held in texts.values():
        held.pop(kernel, None)
    machine["kernels"][kernel] = f"{info['kernel_release']} {info['kernel_version']}"
    machine["info"] = {key: info[key] for key in INFO}
    for path in sorted((session / "environment").rglob("*")):
        name = path.relative_to(session / "environment").as_posix()
        if path.is_file() and not name.startswith(LEFT_OUT):
            texts.setdefault(name, {})[kernel] = path.read_text().strip()
    machine["files"] = by_text(texts, machine["kernels"])


def written(value: Any, before: str = "") -> str:
    """JSON, in which an object that fits on its line is not broken."""
    line = json.dumps(value)
    if not before or len(before) + len(line) > 110 and isinstance(value, dict):
        inner = before[: len(before) - len(before.lstrip())] + " "
        parts = [
            f"{inner}{(k := json.dumps(key))}: {written(v, f'{inner}{k}: ')}"
            for key, v in value.items()
        ]
        line = "{\n" + ",\n".join(parts) + "\n" + inner[1:] + "}"
    return line if before else line + "\n"


def main(name: str, *labels: str) -> None:
    file = ENVIRONMENTS / f"{name}.json"
    machine = (
        json.loads(file.read_text())
        if file.exists()
        else {"origin": "recorded: sessions of klat lab", "kernels": {}, "files": {}}
    )
    for label in labels:
        add(machine, Path(label))
    file.write_text(written(machine))


if __name__ == "__main__":
    main(*sys.argv[1:])
