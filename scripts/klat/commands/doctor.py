"""`klat doctor`: lists, before a session, what on this machine would spoil it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from klat.commands import SUMMARIES, add_command, add_format

_DESCRIPTION = """\
Lists what on this machine would spoil a session, in order of harm, each with
its cure. Changes nothing. Watches the machine for about a second. Run it as the
session will be run: with sudo if the session will be.

  spoils     figures are wrong, or a program cannot run
  distorts   figures depend on this setting as much as on the kernel
  note       know it when you read or compare figures

Some checks read what only x86 shows: emulation, hypervisor, time-stamp counter
and clock source. On another architecture they find nothing.

--report writes one file for a bug report: the findings, versions, the kernel's
command line, the CPUs, and what a session records of the machine. klat replaces
the names of the machine and of its caller, serial numbers, addresses and home
directories that it recognises. Read the file before you publish it.
"""

_EPILOG = """\
Exit status: 0 nothing spoils a session; 1 something does; 2 usage, input or
output.
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "doctor", SUMMARIES["doctor"], _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add_format(add, "json")
    help_text = "where sessions will go (default: results)"
    add("--output", type=Path, default=Path("results"), metavar="DIR", help=help_text)
    add("--report", type=Path, metavar="FILE", help="write what a bug report needs, too")
    parser.set_defaults(func=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from klat.machine import checks, machine_state, probes
    from klat.machine.findings import spoiled, to_json, to_text

    machine = machine_state.gather()
    findings = checks.examine(machine, probes.probe(arguments.output, machine.cpus_allowed))
    if arguments.format == "json":
        print(to_json(findings))
    else:
        width = max(40, min(80, shutil.get_terminal_size().columns))
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(to_text(findings, width, colour))
    if arguments.report:
        from klat.base import files
        from klat.running import machine_report

        with files.output(arguments.report) as out:
            out.write(machine_report.report(to_text(findings)).encode())
    return 1 if spoiled(findings) else 0
