"""A machine without gnuplot: what still works, and what says how to get it."""

import re
from pathlib import Path

import fakes
import made_tools
import pytest
from test_matrices import write as write_matrix
from written_sessions import RT, Klat, NewSession, SideWriter, SyntheticSession

SENTENCE = "The page has no figures, because gnuplot is not installed; on Debian and Ubuntu: apt install gnuplot-nox."


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("jinja2")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "page.html"


def check(page: Path, err: str) -> None:
    text = page.read_text()
    assert err.count(SENTENCE) == 1
    assert text.count(SENTENCE) == 1 and "<figure" not in text and 'class="figures"' not in text


def test_a_comparison_has_its_page_without_figures(side: SideWriter, klat: Klat, page: Path):
    status, out, err = klat("compare", side("stock"), side("rt", 1.2, **RT), "--html", page)
    assert status == 1 and "slower" in out
    check(page, err)
    assert "2 slower: regression" in page.read_text()


def test_a_history_has_its_page_without_figures(new_session: NewSession, klat: Klat, page: Path):
    boots = [[[50_000 + boot] * 600] * 3 for boot in range(8)]
    path = new_session.label("stock", boots)
    _, _, err = klat("history", path, "--html", page)
    check(page, err)


def test_a_summary_has_its_page_without_its_map(writer: SyntheticSession, klat: Klat, page: Path):
    write_matrix(writer, [(0, 1), (1, 0)])
    status, _, err = klat("summary", writer.path, "--html", page)
    assert status == 0
    check(page, err)


def test_a_page_that_never_has_figures_says_nothing(side: SideWriter, klat: Klat, page: Path):
    status, _, err = klat("summary", side("stock"), "--html", page)
    assert (status, err) == (0, "") and SENTENCE not in page.read_text()


def test_a_plot_is_an_error_with_its_cure(writer: SyntheticSession, klat: Klat, page: Path):
    writer.run({"round_trip": [50_000] * 600})
    status, out, err = klat("plot", writer.path, "-o", page.parent / "plots")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"klat plot: .*apt install gnuplot-nox\n", err)


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_session_advises_a_plot_only_with_gnuplot(is_installed: bool, tmp_path: Path):
    directory = tmp_path / "bin"
    directory.mkdir()
    if is_installed:
        made_tools.script(directory / "gnuplot", "exit 0")
    done = fakes.Klat(tmp_path)(
        "run", "pipes", "--runs", "1", status=0, more={"PATH": str(directory)}
    )
    advice = done.stderr.split("next: ")[1]
    assert "klat summary" in advice and ("klat plot" in advice) == is_installed
