"""Programs as a test starts them, and scripts of a test in the place of a machine's tools."""

import subprocess
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
