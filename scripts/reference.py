"""Writes the man pages and the bash completion of klat and its programs.

    reference.py DIRECTORY PROGRAM...

PROGRAM is the path of a built program. The pages go to DIRECTORY/man, the completion to
DIRECTORY/completion/klat. The programs describe themselves with --print-benchmark, the commands
with --help. The command EMULATOR, if there is one, runs the programs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from klat import __version__, commands

ROOT = Path(__file__).resolve().parents[1]


def output_of(*words: str | Path) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def roff(text: str) -> str:
    """Text as it stands: the reader may type its hyphens and backslashes, no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def tagged(entries: Iterable[tuple[str, str]]) -> list[str]:
    return [line for tag, text in entries for line in (".TP", tag, roff(text))]


def options(rows: Iterable[Mapping[str, str]]) -> list[str]:
    def tag(row: Mapping[str, str]) -> str:
        # A long list of words breaks after a bar only.
        argument = roff(row["argument"]).replace("|", "|\\:\\%")
        return f".B {roff('--' + row['name'])}" + (f" \\fI\\%{argument}\\fR" if argument else "")

    return tagged((tag(row), row["help"]) for row in rows)


def examples(program: Mapping[str, Any]) -> list[str]:
    lines = []
    for line in program["examples"].splitlines():
        command, _, comment = line.partition("\t")
        # An installed program is not on the path: klat starts it.
        prefix = "klat " if command.split()[0] == program["name"] else ""
        lines += [roff(prefix + command), *([f"    {roff(comment)}"] if comment else [])]
    return [".SH EXAMPLES", ".nf", *lines, ".fi"] if lines else []


def program_page(program: Mapping[str, Any]) -> list[str]:
    name = program["name"]
    return [
        f'.TH KLAT\\-{name.upper()} 1 "" "klat {__version__}" "klat"',
        ".ad l",
        ".SH NAME",
        f"klat\\-{name} \\- {roff(program['summary'])}",
        ".SH SYNOPSIS",
        f".B klat {name}",
        "[\\fIOPTION\\fR]...",
        ".SH DESCRIPTION",
        roff(program["description"]).replace("\n\n", "\n.PP\n"),
        ".SH METRICS",
        *tagged((f".B {metric['name']}", metric["summary"]) for metric in program["metrics"]),
        ".SH OPTIONS",
        *options(program["options"]),
        '.SS "Options of every program"',
        *options(program["common_options"]),
        '.SH "EXIT STATUS"',
        roff(program["exit_status"]),
        *examples(program),
        '.SH "SEE ALSO"',
        ".BR klat (1)",
    ]


def klat_page(programs: Iterable[Mapping[str, Any]], command_help: Mapping[str, str]) -> list[str]:
    lines = []
    for line in (ROOT / "docs/klat.1").read_text().splitlines():
        if line == "@PROGRAMS@":
            lines += tagged((f".BR klat\\-{p['name']} (1)", p["summary"]) for p in programs)
        elif line == "@COMMANDS@":
            for name, text in command_help.items():
                # The text has its own line breaks, and fills 80 columns.
                lines += [f'.SS "klat {name}"', ".nf", ".in 0", roff(text), ".in", ".fi"]
        else:
            lines.append(line.replace("@VERSION@", __version__))
    return lines


def completion(programs: Iterable[Mapping[str, Any]], command_help: Mapping[str, str]) -> list[str]:
    """scripts/completion.bash, and the options and their words that it looks up."""
    listed = {
        name: re.findall(r"^  (?:-\w(?: \w+)?, )?(--[a-z-]+)", text, re.MULTILINE)
        for name, text in command_help.items()
    }
    words = {}
    for program in programs:
        rows = [*program["options"], *program["common_options"]]
        listed[program["name"]] = [f"--{row['name']}" for row in rows]
        for row in rows:
            if row["argument"]:
                choices = row["argument"].split("|")
                text = " ".join(choices) if len(choices) > 1 else row["argument"]
                words[f"{program['name']} --{row['name']}"] = text
    return [
        (ROOT / "scripts/completion.bash").read_text(),
        f"_klat_commands='{' '.join(command_help)}'",
        f"_klat_programs='{' '.join(program['name'] for program in programs)}'",
        *(f"_klat_options[{name}]='{' '.join(names)}'" for name, names in listed.items()),
        *(f"_klat_words['{key}']='{text}'" for key, text in words.items()),
    ]


def main(directory: Path, *paths: Path) -> None:
    emulator = os.environ.get("EMULATOR", "").split()
    if emulator and not shutil.which(emulator[0]):
        sys.exit(f"klat: the man pages need {emulator[0]}: apt install qemu-user-static")
    described = [output_of(*emulator, path.absolute(), "--print-benchmark") for path in paths]
    programs = [json.loads(text) for text in described]
    command_help = {name: output_of("./klat", name, "--help") for name in commands.names()}
    texts = {f"man/klat-{program['name']}.1": program_page(program) for program in programs}
    texts["man/klat.1"] = klat_page(programs, command_help)
    texts["completion/klat"] = completion(programs, command_help)
    for name, lines in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
