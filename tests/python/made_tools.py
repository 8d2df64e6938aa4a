"""Programs as a test starts them, scripts of a test in the place of a machine's tools, and other files."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(*words: str | Path, seconds: float = 60, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. `more` is for subprocess.run()."""
    usual: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "check": False,
    }
    if {"stdout", "stderr"} & more.keys():
        del usual["capture_output"]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        list(map(str, words)), timeout=seconds, **usual | more
    )
    return done


def script(path: Path, text: str) -> Path:
    """Write an executable file. Without a first line that names its interpreter it is for /bin/sh."""
    write(path, text if text.startswith("#!") else f"#!/bin/sh\n{text}\n").chmod(0o755)
    return path


def write(path: Path, content: str | bytes = "") -> Path:
    """Write a file, and make the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def plant(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        write(root / name, content)
    return root
