"""`klat compare --html`: what a reader of the page sees, in a browser and without."""

import html.parser
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import browse, browser, measured
from written_sessions import RT, SOAK, Klat, SideWriter
from written_trend import explained, three_kernels
from written_trend import page as trend_page

from klat.base.errors import installing
from klat.compare.dataset import read_dataset
from klat.compare.figure_data import _side, maxima_of
from klat.compare.observations import Units

pytest.importorskip("jinja2")
pytestmark = pytest.mark.skipif(not shutil.which("gnuplot"), reason="gnuplot is not installed")

FIGURES = [
    "Ratio and interval",
    "Shift at every quantile",
    "Distribution of the samples",
    "Tail",
    "Boot by boot",
    "Median of each run",
]
HOSTILE = "a<b>\"&'\u2603</title><script>alert(1)</script>"


class Page(html.parser.HTMLParser):
    """The text, the elements with their attributes, and which of them were never closed."""

    VOID = {"meta", "link", "br", "input"}

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.words, self.elements = source, [], []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


Pages = Callable[..., tuple[int, Page]]


@pytest.fixture
def page_of(klat: Klat, tmp_path: Path) -> Pages:
    """`page_of(base, new)` compares them and returns the status and tmp_path/page.html."""

    def make(*args: object, said: str = "") -> tuple[int, Page]:
        file = tmp_path / "page.html"
        status, _, err = klat("compare", *args, "--html", file)
        assert said in err and bool(said) == bool(err)
        page = Page(file.read_text(encoding="utf-8"))
        assert page.open == []
        return status, page

    return make


def test_the_page_has_the_verdict_of_the_text_and_every_figure(side, klat, page_of):
    stock, rt = side("stock"), side("rt", 1.2, **RT)
    out = klat("compare", stock, rt)[1]
    status, page = page_of(stock, rt)
    assert status == 1
    assert "2 slower: regression" in page.text and "\u25b2 slower" in page.text
    ratio = re.search(r"^ +median .* (1\.\d+) +(1\.\d+ to 1\.\d+)", out, re.MULTILINE)
    assert ratio and ratio[1] in page.text and ratio[2] in page.text
    for title in FIGURES:
        assert title in page.text
    assert page.count("figure") == len(FIGURES)
    assert page.text.index("▲ slower") < page.text.index("Ratio and interval")
    assert page.text.index("Median of each run") < page.text.index("What else differs")
    assert page.text.index("What else differs") < page.text.index("How to read it")


@pytest.mark.parametrize("limit", [(), ("--limit", "50us")])
def test_the_page_draws_the_segments_of_soaks(limit, side, page_of):
    soak: dict[str, Any] = {"run": {"params": SOAK}}
    _, page = page_of(side("stock", **soak), side("rt", **soak, **RT), *limit)
    for title in ("Median of each segment", "Maximum of each segment"):
        assert title in page.text
    assert "Median of each run" not in page.text
    assert ("the line is the limit, 50us" in page.text) == bool(limit)


def test_the_maximum_of_each_segment_is_that_of_its_row(side):
    dataset = read_dataset(side("stock", boots=2, runs=3, run={"params": SOAK}))
    (cell,) = dataset.cells.values()
    found = maxima_of(_side(cell, Units()).units)
    assert found.tolist() == [(run.row.max or 0) * run.source.scale for run in cell.runs]
    assert len(found) == 6


def test_the_page_judges_a_limit_like_the_text(side, page_of):
    stock, rt = side("stock", 2.0), side("rt", **RT)
    status, page = page_of(stock, rt, "--limit", "100us", "--share", "5%")
    assert status == 0 and page.text.index("1 within") < page.text.index("= within")
    for text in (
        "0 of 12,000",
        "NEW has fewer samples above the limit than BASE",
        "above: samples",
    ):
        assert text in page.text
    assert "Tail" in page.text and "faster" not in page.text


def counted(side: SideWriter) -> tuple[Path, Path]:
    """Sides of a lab's sessions, the figures of which stand in a unit with a long name."""
    counted = {"mode": "counted", "unit": "instructions"}
    return side("stock", noise=0.0001, **counted), side("rt", 1.2, noise=0.0001, **counted, **RT)


def test_the_unit_stands_in_the_head_and_digits_are_those_that_the_interval_supports(side, page_of):
    _, page = page_of(*counted(side))
    assert "BASE instructions NEW instructions" in page.text
    tables = " ".join(re.findall(r"<table.*?</table>", page.source, re.S))
    assert "interval" in tables and not re.search(r"\d instructions", tables)
    assert not re.search(r"\d\.\d{5}", tables)


def test_the_page_fetches_nothing_and_says_so_to_the_browser(side, page_of):
    _, page = page_of(side("stock"), side("rt", 1.2, **RT))
    assert page.count("script") == page.count("img") == page.count("iframe") == 0
    for _, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert not re.search(r"https?:|file:|//[a-z]|@import|url\(", page.source)
    assert "default-src 'none'" in page.source


def test_every_reference_within_the_page_leads_somewhere(side, page_of):
    _, page = page_of(side("stock"), side("rt", 1.2, **RT), side("other", **RT))
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids))
    used = {a["href"][1:] for _, a in page.elements if (a.get("href") or "").startswith("#")}
    assert used and used <= set(ids)


def test_every_colour_of_a_figure_has_one_for_the_dark(side, page_of):
    _, page = page_of(side("stock"), side("rt", 1.2, **RT))
    style, body = page.source.split("</style>", 1)
    used = set(re.findall(r'(stroke|fill|color) ?= ?["\'](#[0-9A-F]{6}|rgb\([^)]*\))', body))
    assert used
    for attribute, colour in used:
        assert f'[{attribute}="{colour}"]' in style, (attribute, colour)


def test_the_same_input_makes_the_same_page(side, page_of):
    sides = side("stock"), side("rt", 1.01, **RT)
    first = page_of(*sides)[1].source
    assert page_of(*sides)[1].source == first


def hostile(label: Path) -> Path:
    """The label with names that would be markup."""
    for file in label.glob("*/session.json"):
        info = json.loads(file.read_text())
        info |= {"label": HOSTILE, "kernel_release": "6.1<i>&amp;\x07"}
        file.write_text(json.dumps(info))
    return label


def test_labels_and_names_are_text_whatever_they_hold(side, page_of):
    setting = {"params": "mode=<u>\"'", "placement": "p<q>"}
    stock = side("stock", run=setting)
    plain = page_of(stock, side("rt", 1.2, run=setting, **RT))[1]
    odd = hostile(side("odd", 1.2, run=setting, environment={"proc/cmdline": "q=<u>\"'\x07"}, **RT))
    status, page = page_of(stock, odd, "--allow", "cmdline.q")
    assert status == 1
    for tag in ("script", "title", "i", "u", "q", "b"):
        assert page.count(tag) == plain.count(tag), tag
    assert HOSTILE in page.text and "6.1<i>&amp;" in page.text and "\x07" not in page.source
    assert "pipes p<q> mode=<u>\"'" in page.text
    refused = page_of(stock, side("word", environment={"proc/cmdline": "q\x07=1"}))[1]
    assert "--allow cmdline.q\\x07" in refused.text and "\x07" not in refused.source


def test_a_refused_comparison_is_named_and_not_drawn(side, page_of):
    rt = side("rt", 1.2, **RT, cpu_model="Another CPU")
    status, page = page_of(side("stock"), rt)
    assert status == 4
    assert "\u00d7 not comparable" in page.text and page.count("figure") == 0
    assert "cpu_model is Test CPU in BASE and Another CPU in NEW" in page.text
    assert "--allow cpu" in page.text
    status, page = page_of(side("stock2"), rt, "--allow", "cpu")
    assert status == 1 and page.count("figure") == len(FIGURES)
    assert "allowed, though it differs: cpu" in page.text


def test_one_boot_a_side_and_one_run_a_side_still_make_a_page(side, page_of):
    for runs in (1, 3):
        stock, rt = side(f"stock{runs}", boots=1, runs=runs), side(f"rt{runs}", 1.5, boots=1, runs=runs, **RT)  # fmt: skip
        status, page = page_of(stock, rt)
        assert status == 3
        assert "? cannot be attributed" in page.text
        assert "it says nothing about other boots" in page.text
        assert "n/a ns" not in page.text


def test_samples_that_are_gone_leave_the_verdict_and_a_reason(side, page_of):
    stock, rt = side("stock"), side("rt", 1.2, **RT)
    (rt / "0" / "samples" / "pipes.u64").unlink()
    status, page = page_of(stock, rt, said="not verified: the samples of 4 rows")
    assert status == 1
    assert "slower" in page.text and "no curves: " in page.text
    assert page.count("figure") == 1


def test_an_unwritable_page_is_an_error_and_changes_nothing(side, klat, tmp_path):
    stock, rt = side("stock"), side("rt", **RT)
    status, _, err = klat("compare", stock, rt, "--html", tmp_path / "nowhere" / "a.html")
    assert status == 2 and "cannot write" in err and "No such file or directory" in err
    directory = tmp_path / "directory"
    directory.mkdir()
    status, _, err = klat("compare", stock, rt, "--html", directory)
    assert status == 2 and "Is a directory" in err
    assert list(directory.iterdir()) == []


def test_without_its_template_library_it_says_what_to_install(side, klat, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, out, err = klat("compare", side("stock"), side("rt"), "--html", tmp_path / "a.html")
    assert (status, out) == (2, "")
    assert f"--html needs jinja2 for {sys.executable}: {installing('jinja2')}\n" in err


@pytest.mark.slow
def test_a_browser_shows_the_verdict_and_asks_for_nothing(side, page_of, tmp_path):
    browser()
    page_of(side("stock"), hostile(side("odd", 1.2, **RT)))
    log = tmp_path / "net.json"
    file = tmp_path / "page.html"
    done = browse(file, tmp_path, "--dump-dom", f"--log-net-log={log}")
    page = Page(done.stdout)
    assert "\u25b2 slower" in page.text and HOSTILE in page.text
    assert page.count("script") == 0 and page.count("svg") == len(FIGURES) + 1
    assert "CONSOLE" not in done.stderr  # where a policy that was broken would show
    asked = set(re.findall(r'"url":"([^"]*)"', log.read_text()))
    assert {url for url in asked if url.startswith("file:")} <= {file.as_uri()}


@pytest.fixture(params=["compare", "trend"])
def written_page(request, side, page_of, tmp_path) -> Path:
    browser()
    if request.param == "compare":
        page_of(*counted(side))
    else:
        result = three_kernels(side)
        (tmp_path / "page.html").write_text(trend_page(result, explained(result)))
    return tmp_path / "page.html"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_a_light_and_a_dark_form(written_page, scheme):
    script = (
        "const style = getComputedStyle(document.body);"
        "document.body.textContent = `shown: ${style.backgroundColor} ${style.color}`"
    )
    setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    shown = measured(written_page, script, setting).partition("shown: ")[2]
    background, ink = (int(green) for green in re.findall(r"rgb\(\d+, (\d+),", shown))
    assert background < 60 if scheme == "dark" else background > 220
    assert abs(ink - background) > 120


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_a_name_keeps_its_line_and_nothing_is_wider_than_the_window(written_page, width):
    script = (
        "const name = document.querySelector('td.what a, td.name a').getClientRects().length;"
        "document.body.textContent = `lines ${name}, beyond "
        "${document.documentElement.scrollWidth - innerWidth}.`"
    )
    shown = measured(written_page, script, f"--window-size={width},900", "--hide-scrollbars")
    assert "lines 1, beyond 0." in shown
