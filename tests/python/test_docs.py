"""The documentation: its size, its links, and its figures by the data that they come from."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import figures
import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [*ROOT.glob("*.md"), ROOT / "results/README.md"]


def targets(page):
    """The files that a page links to, without what the site generator checks: anchors, and links between the pages."""
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            yield page.parent / target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_at_most_200_lines(page):
    assert len(page.read_text().splitlines()) <= 200


def test_readme_is_one_screen_and_names_every_program():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 90
    sources = [*ROOT.glob("*/*.c"), *ROOT.glob("bench/*/*.c")]
    programs = {source.stem for source in sources if source.stem == source.parent.name} - {"load"}
    assert set(re.findall(r"^\| \[(\w+)\]\(docs/programs/", readme, re.MULTILINE)) == programs
    assert programs == {page.stem for page in PAGES if page.parent.name == "programs"}


def test_the_figures_in_the_pages_are_those_of_the_recorded_sessions():
    script = [sys.executable, "-B", ROOT / "scripts/figures.py", "--check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run(script, env=environment, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_machines_is_made_from_the_files_alone(tmp_path, monkeypatch):
    page = (ROOT / "docs/machines.md").read_text()
    assert "| 1 " in page and ", virtual |" in page
    by_hand, tables = page.split("## Figures")
    assert figures.with_machines(f"{by_hand}## Figures{tables.replace(' / ', ' / 9')}") == page
    (tmp_path / "damaged.tar.gz").write_bytes(b"no archive")
    monkeypatch.setattr(figures, "MACHINES", tmp_path)
    with pytest.raises(SystemExit, match="damaged.tar.gz is damaged"):
        figures.with_machines(page)


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.name)
def test_links_of_pages_outside_the_site_lead_to_a_file(page):
    assert not [str(target) for target in targets(page) if not target.exists()]


@pytest.mark.slow
def test_the_site_is_built_and_a_broken_link_fails(tmp_path):
    docs = tmp_path / "tree"
    for name in ("Makefile", "scripts", "docs", "lib"):
        (docs / name).parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", ROOT / name, docs / name], check=True)

    def build():
        return subprocess.run(["make", "-s", "docs"], cwd=docs, text=True, capture_output=True)

    done = build()
    assert done.returncode == 0, done.stderr
    site = docs / "build/site"
    assert {path.stem for path in PAGES} <= {path.stem for path in site.rglob("*.html")}
    # The site needs no other server.
    assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css)', (site / "index.html").read_text())  # fmt: skip
    for broken in ("missing.md", "record.md#missing", "#missing", "missing.csv"):
        (docs / "docs/start.md").write_text(f"# Start\n\n[here]({broken})\n")
        done = build()
        assert done.returncode != 0 and broken in done.stderr, broken


def largest(name, *columns):
    with (ROOT / f"docs/validation/{name}.csv").open(newline="") as file:
        cells = [row[column] for row in csv.DictReader(file) for column in columns]
    return max(cells, key=lambda cell: float(cell.split()[0]))


MARGIN = "change of the margin: "


@pytest.mark.parametrize(
    "promise, figure",
    [
        ("a false `faster` or `slower`", ("kernels", "any false verdict in a suite, change 0")),
        ("the same, all ten changes", ("kernels", "any false verdict in a suite, change 1")),
        ("the margin called `slower`", ("kernels", "slower, change 1")),
        ("`same` at the margin", ("kernels", "same, change 1")),
        ("a campaign with", ("looks", MARGIN + "faster or slower", MARGIN + "same")),
        ("over 6 to 20 machines: a mean ratio at the margin called `slower`", ("machines", "slower, change 1")),
        ("over 6 to 20 machines: a mean ratio at the margin called `same`", ("machines", "same, change 1")),
        ("equal shares above a limit", ("shares", "differ", "unequal: differ")),
        ("So with the default margin", ("levels", MARGIN + "wide margin")),
        ("So with the default margin", ("levels", "no change, margin 0")),
    ],
)  # fmt: skip
def test_what_validation_found_is_the_largest_rate_of_its_table(promise, figure):
    page = (ROOT / "docs/validation.md").read_text()
    (line,) = [line for line in page.splitlines() if line.removeprefix("| ").startswith(promise)]
    assert f"at most {largest(*figure)}".split(" (")[0] in line
