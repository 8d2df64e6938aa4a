"""Makes the output in README.md and the tables of docs/machines.md again, from the sessions in results/.

    figures.py [--check]

A block of README begins with the command that printed it. The tables are the end of their page. --check writes
nothing, and ends with status 1 if a page differs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from klat.base.errors import KlatError
from klat.commands import _lab_trend
from klat.compare.comparison import Options
from klat.compare.dataset import Dataset
from klat.compare.estimands import MEDIAN
from klat.compare.sources import read_sources
from klat.compare.submitted import read
from klat.compare.trend import trend
from klat.compare.verdicts import Rules
from klat.report import machines
from klat.report.renderers import markdown, terminal
from klat.report.trend import document

ROOT = Path(__file__).resolve().parents[1]
# What klat lab diff kept: boots of two kernels, and explanations.
KEPT = ROOT / "results/lab-diff"
KERNELS = ("lab-6.12", "lab-7.3")


def klat(*words: str) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run([ROOT / "klat", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)  # fmt: skip
    return done.stdout


def lab_diff() -> str:
    """The report of the kept boots. klat lab diff itself takes them only with the programs that recorded them."""
    kernels = []
    for label in KERNELS:
        by_label, problems = read_sources(sorted((KEPT / label).iterdir()))
        kernels.append(Dataset(by_label[label], path=KEPT / label, problems=problems))
    result = trend(kernels, [[0, 1]], Options(Rules(0.02, 0.05), tested=(MEDIAN,)), {})
    changes = _lab_trend.changes_of(result, kernels, KEPT, None)
    return "\n".join(terminal.lines(document(result, changes), colour=False))


# For each block: the command in README, what it prints, a pattern of the first line that README shows, and how many lines.
BLOCKS: tuple[tuple[str, Callable[[], str], str, int], ...] = (
    ("sudo make bench RUNS=3", lambda: klat("summary", "results/reference"), " +average", 6),
    ("./klat lab diff debian:6.12 debian:7.3 pipes switch syscall", lab_diff, "metric +step", 7),
    (
        "./klat compare results/trend/lab-6.12 results/trend/lab-7.3",
        lambda: klat("compare", *(str(KEPT / label) for label in KERNELS)),
        "(slower|faster|same) ",
        5,
    ),
)


def written(readme: str) -> str:
    """README with the blocks as the sessions make them."""
    for command, output, first, count in BLOCKS:
        lines = output().splitlines()
        start = next(number for number, line in enumerate(lines) if re.match(first, line))
        shown = "".join(f"    {line}".rstrip() + "\n" for line in lines[start : start + count])
        block = re.compile(
            rf"^(    \$ {re.escape(command)}\n)(?:    .*\n|\n(?=    ))*", re.MULTILINE
        )
        readme, count_of_blocks = block.subn(lambda match: match[1] + shown, readme)
        if count_of_blocks != 1:
            sys.exit(f"figures: README.md has {count_of_blocks} blocks of: {command}")
    return readme


# Files of klat submit.
MACHINES = ROOT / "results/machines"


def with_machines(page: str) -> str:
    """docs/machines.md with the tables of the files in results/machines."""
    with tempfile.TemporaryDirectory() as place:
        labels = {}
        for file in sorted(MACHINES.glob("*.tar.gz")):
            (into := Path(place, file.name)).mkdir()
            try:
                labels[file.name] = read(file, into)
            except KlatError as error:
                sys.exit(f"figures: {error}")
        tables = "\n".join(markdown.lines(machines.document(labels)))
    return f"{page[: page.index('## Figures')]}{tables.strip()}\n"


PAGES = {"README.md": written, "docs/machines.md": with_machines}


def main(check: bool) -> int:
    differ = False
    for name, make in PAGES.items():
        before = (ROOT / name).read_text()
        after = make(before)
        differ |= before != after
        if not check:
            (ROOT / name).write_text(after)
    return int(check and differ)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
