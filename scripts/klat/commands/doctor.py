"""`klat doctor`: says before a session what on this machine would spoil it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

_DESCRIPTION = """\
Says before a session what on this machine would spoil it, in order of harm,
each with its cure. Changes nothing. Watches the machine for about a second; run
it as the session will be run: with sudo, if that is.

  spoils     figures are wrong, or a program cannot run
  distorts   figures are those of this setting as much as of the kernel
  note       to know when reading or comparing
"""

_EPILOG = """\
Exit status: 0 nothing spoils a session; 1 something does; 2 usage, input or
output.
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="say what on this machine would spoil a session",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="where sessions will go (default: results)",
    )
    parser.set_defaults(func=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from klat.machine import checks, privileges, system
    from klat.machine.findings import spoiled, to_json, to_text

    known = system.gather()
    findings = checks.examine(known, privileges.attempt(arguments.output, known.cpus_allowed))
    if arguments.format == "json":
        print(to_json(findings))
    else:
        width = max(40, min(80, shutil.get_terminal_size().columns))
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(to_text(findings, width, colour))
    return 1 if spoiled(findings) else 0
