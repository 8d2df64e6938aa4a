"""`klat submit`: writes one file of a session, for the table of machines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from klat.commands import SUMMARIES, add_command

_DESCRIPTION = """\
Writes one file into the current directory, klat-KERNEL-TIME.tar.gz, that you
can attach to an issue. docs/machines.md is a table made from such files. klat
sends nothing.

The file holds the sessions of one label: their runs with evidence and samples,
what they record of the machine and the kernel, and checksums. Unpacked, it is a
label that klat summary and klat compare read.

The label becomes the kernel's release. The ids of the machine and the boot
become others, which cannot be traced without /etc/machine-id. klat replaces the
names of the machine and of its caller, serial numbers, addresses and home
directories that it recognises. Commands and logs are not in the file. Look
through the file before you publish it.
"""

_EPILOG = """\
Run it on the machine that measured, because klat only knows the names of the
machine that it runs on. It takes sessions of klat run without options, profile
and load. Prints the name of the file on standard output, all else on standard
error.

Exit status: 0 done; 2 usage, a session that it does not take, input or output.

example:
  sudo ./klat run --label mine --runs 20
  ./klat submit results/mine
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "submit", SUMMARIES["submit"], _DESCRIPTION, _EPILOG)
    parser.add_argument("path", metavar="PATH", type=Path, help="a session or a label")
    parser.set_defaults(func=_submit)


def _submit(arguments: argparse.Namespace) -> int:
    from klat.compare.submitted import submittable
    from klat.export.submission import submit
    from klat.record.evidence import other_work
    from klat.report.text.columns import wrapped
    from klat.report.text.numbers import plural

    label = submittable(arguments.path)
    submission = submit(label, Path())
    print(submission.file, flush=True)
    runs = sum(len(session.runs) for session in label.sessions)
    holds = (
        f"{plural(len(label.sessions), 'session')} in {plural(label.boots, 'boot')},"
        f" {plural(runs, 'run')} with samples, {submission.size / 1000:,.0f} kB"
    )
    changed = plural(submission.changed, "value")
    lines = {
        "holds": holds,
        "replaced": f"label, ids of machine and boot, and private words in {changed}",
        "next": "look through it (tar -xzOf FILE --exclude '*.u64' | less), then attach it to an issue of klat, with"
        " the form 'Figures of a machine'",
    }
    if disturbance := other_work(label.sessions):
        lines["warning"] = disturbance
    for name, text in lines.items():
        print("\n".join(wrapped(text, f"{name}: ", "  ")), file=sys.stderr)
    return 0
