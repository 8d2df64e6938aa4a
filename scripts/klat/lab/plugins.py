"""klat's plugin for the emulator (lab/plugin/), and the version of QEMU's plugin API that it declares."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from klat.base.errors import KlatError
from klat.lab import qemu, suite

# lab/plugin/qemu.c reads this variable before QEMU reads the plugin's version.
VERSION_VARIABLE = "KLAT_PLUGIN_API"
_NEWEST = 7  # the newest version that lab/plugin/qemu.c knows
_NONE_SUPPORTS = "1000000"
_SECONDS = 30


@dataclass(frozen=True)
class Plugin:
    file: Path
    api: int

    def load(self, arguments: str) -> qemu.PluginOption:
        file = qemu.quoted(self.file)
        return qemu.PluginOption(f"{file},{arguments}", {VERSION_VARIABLE: str(self.api)})


def find(emulator: qemu.Emulator) -> Plugin:
    """KlatError if this QEMU cannot load klat's plugin."""
    file = suite.trace_plugin()
    if not file.is_file():
        raise KlatError(f"{file} is missing; reinstall klat: make install", status=1)
    api = _newest_api(emulator, file)
    if api > _NEWEST:
        raise KlatError(
            f"QEMU {emulator.text} has version {api} of the plugin API; klat knows versions 1 to"
            f" {_NEWEST}",
            status=1,
        )
    return Plugin(file, api)


def _newest_api(emulator: qemu.Emulator, file: Path) -> int:
    """The newest version that QEMU supports. QEMU names this version when it refuses a plugin that
    declares a newer one."""
    words = [emulator.path, *("-machine", "none", "-nodefaults", "-display", "none")]
    try:
        done = subprocess.run(
            [*words, "-plugin", qemu.quoted(file)],
            env={**os.environ, VERSION_VARIABLE: _NONE_SUPPORTS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
        said = done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    found = re.search(r"supports only up to version (\d+)", said)
    if not found:
        last = (said.splitlines() or ["no message"])[-1]
        raise KlatError(
            f"QEMU {emulator.text} cannot load klat's plugin, which lab explain needs: {last}",
            status=1,
        )
    return int(found[1])
