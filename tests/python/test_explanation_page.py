"""`klat lab explain --html`: what a reader of the page sees, with scripts and without."""

import re
from html import unescape
from itertools import combinations
from pathlib import Path

import pytest
from explained import BASE, NEW, explanation, side
from test_page import HOSTILE, Page, browse

from klat.explain.explanation import Side, differences
from klat.report.document import Line
from klat.report import explanation_page as pages
from klat.report.icicles import MOST_BOXES, Shades, icicles
from klat.report.renderers import html

pytest.importorskip("jinja2")
TEMPLATES = Path(html.__file__).parent / "templates"


def page_of(*sides: Side) -> Page:
    page = Page(pages.explanation_page(html.templates(), explanation(*sides)))
    assert page.open == []
    return page


def rows(source: str) -> dict[str, list[int]]:
    """The numbers of the table by function."""
    table = source[source.index('class="functions') :]
    body = table.partition("<tbody>")[2].partition("</tbody>")[0]
    matches = re.findall(r'<tr><th scope="row">(?:<span.*?</span>)?(.*?)<(.*)</tr>', body)
    return {
        unescape(name): [int(n.replace(",", "")) for n in re.findall(r"<td>(.*?)</td>", cells)]
        for name, cells in matches
    }


def test_the_table_has_the_numbers_of_the_explanation():
    page = page_of(BASE, NEW)
    assert rows(page.source) == {
        f.name: [*f.own, f.difference, *f.calls, *f.with_callees] for f in differences(BASE, NEW)
    }
    assert "idle time, skipped 50 0 -50 sum 497 1,110 +613" in page.text


def test_boxes_lie_on_one_scale_and_have_their_instructions():
    source = page_of(BASE, NEW).source
    drawn = re.findall(r'x="([\d.]+)%" y="(\d+)" width="([\d.]+)%" .*?data-box="\d+ \d+ (\d+)"><title>(.*?)\n', source)  # fmt: skip
    widths = {(name, int(y)): (float(w), int(size)) for _, y, w, size, name in drawn}
    assert widths[("migrate", 54)] == (pytest.approx(100 * 600 / 1110, abs=1e-3), 600)
    assert widths[("lock", 36)] == (pytest.approx(100 * 47 / 1110, abs=1e-3), 47)
    assert {size for _, y, _, size, _ in drawn if y == "0"} == {"497", "1110"}
    # Boxes of one level do not overlap.
    for level in {y for _, y, *_ in drawn}:
        for one in (drawn[:6], drawn[6:]):
            spans = [(float(x), float(x) + float(w)) for x, y, w, *_ in one if y == level]
            assert all(
                a[1] <= b[0] + 1e-3 or b[1] <= a[0] + 1e-3 for a, b in combinations(spans, 2)
            )


def test_a_tooltip_has_the_difference_on_this_chain_and_from_all_callers():
    titles = page_of(BASE, side("rt", {"read;lock": 90, "exit;lock": 5})).text
    assert "lock own 90, with callees 90, calls 1 NEW-BASE: own +50, with callees +43" in titles
    assert "own from all callers: BASE 40, NEW 95, NEW-BASE +55" in titles


def test_one_side_has_a_neutral_picture_and_no_difference():
    page = page_of(NEW)
    assert set(re.findall(r'<svg class="(\w+)" x=', page.source)) == {"equal"}
    assert "NEW-BASE" not in page.text.partition("use strict")[0]
    assert rows(page.source)["migrate"] == [600, 1, 600]


def test_a_box_is_coloured_by_the_sign_and_the_size_of_the_difference():
    shades = Shades({f.name: f.difference for f in differences(BASE, NEW)})
    assert [shades.of(name) for name in ("migrate", "rt_lock", "read", "exit", "lock")] == [
        "more3", "more2", "more1", "equal", "less1",
    ]  # fmt: skip
    ranges = [(shade.low, shade.high) for shade in shades.legend()]
    assert ranges[0][0] == -600 and ranges[-1][1] == 600
    assert all(low == high + 1 for (_, high), (low, _) in zip(ranges, ranges[1:]))


def test_a_large_sample_folds_the_narrowest_boxes_and_keeps_its_sums():
    many = side("many", {f"f{n % 50}_{'x' * 20};g{n}_{'y' * 20};h{n}": n for n in range(1, 1500)})
    drawn = icicles([many.sample])[0]
    assert len(drawn.boxes) <= MOST_BOXES
    assert len(drawn.boxes) + drawn.folded == 1 + 50 + 2 * 1499
    kept = {box.chain: box.here.with_callees for box in drawn.boxes}
    assert kept == {
        chain: node.total for chain, node in many.sample.tree.walk() if chain in kept
    } | {(): many.sample.ticks}
    assert drawn.widest < min(kept.values())
    page = page_of(many, many)
    assert len(page.source.encode()) < 10**6
    assert f"{drawn.folded:,} more boxes are too narrow to draw" in page.text


def test_the_page_fetches_nothing_and_runs_only_its_own_script():
    page = page_of(BASE, NEW)
    assert page.count("link") == 1 and page.count("script") == 1
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!data:)|url\(|@import|https?:", page.source)
    policy = next(a["content"] for tag, a in page.elements if "http-equiv" in a)
    assert re.search(r"default-src 'none'; script-src 'sha256-[\w+/]{43}='; ", policy)


def test_names_are_escaped_wherever_they_stand():
    page = page_of(
        side(HOSTILE, {f"{HOSTILE};callee": 5, "long": 900}), side("b", {f"{HOSTILE}b": 9})
    )
    assert "alert(1)" not in re.sub(r"&lt;/title&gt;&lt;script&gt;alert", "", page.source)
    assert page.count("script") == 1 and f"{HOSTILE}b" in rows(page.source)
    assert f"{HOSTILE}: 905 instructions" in page.text


def test_what_is_not_explained_is_said_first():
    page = page_of(BASE, side("rt", {"read": 100}, missing=-4))
    assert page.text.index("NEW -4 instructions belong to no function") < page.text.index("By call")


def test_what_ran_is_told_as_in_the_text():
    story = [Line("what ran, in order:"), Line(f"600  {HOSTILE}", 1)]
    page = Page(pages.explanation_page(html.templates(), explanation(BASE, NEW), story))
    assert f"What ran what ran, in order: 600 {HOSTILE} By call chain" in page.text


def test_the_calls_in_order_are_a_diff():
    source = page_of(BASE, NEW).source
    calls = re.findall(r"<span(?: class=\"\w+\")?>([-+ ] .*?)</span>", source.partition("<pre")[2])
    assert calls == [
        "    read", "-     lock", "-       irq", "+     rt_lock", "+       migrate", "    exit",
    ]  # fmt: skip


def test_the_diff_of_calls_that_repeat_thousands_of_times_has_both_sides():
    from klat.explain.explanation import calls_in_order

    sides = [side(name, {"loop": 1}) for name in "ab"]
    for number, one in enumerate(sides):
        one.sample.path[:] = [(1, "free"), (1 + number, "lock")] * 5000
    page = list(calls_in_order(sides))
    kept = [[call for mark, *call in page if mark in (" ", of)] for of in "-+"]
    assert kept == [[list(call) for call in one.sample.path] for one in sides]


def luminance(colour: str) -> float:
    """As in WCAG 2.1, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_a_label_can_be_read_on_every_colour(scheme):
    def colours(sheet: str) -> dict[str, str]:
        return dict(re.findall(r"--(\w+): (#\w{6})", sheet.split("prefers-color-scheme: dark")[scheme]))  # fmt: skip

    style = colours((TEMPLATES / "style.css").read_text())
    ink = luminance(style["ink"])
    shades = {name: c for name, c in style.items() if re.fullmatch(r"equal|(less|more)\d", name)}
    assert len(shades) == 7
    for name, colour in shades.items():
        light, dark = sorted((ink, luminance(colour)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, name


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_in_a_browser_a_search_adds_up_and_a_click_zooms_both_sides(tmp_path, width):
    source = page_of(BASE, NEW).source
    script = """
      const word = (text) => { search.value = text; find(); return said.textContent; };
      const sum = word("LOCK");
      const rowsLeft = rows.filter((row) => !row.hidden).length;
      word("");
      sides[0].boxes.find((box) => box.name === "read").box.dispatchEvent(new Event("click"));
      const shown = sides.map((side) => side.boxes.find((box) => box.name === "read").box.getAttribute("width"));
      const zoomed = said.textContent;
      reset.click();
      document.querySelectorAll(".sort [role=button]")[0].click();
      const beyond = document.documentElement.scrollWidth - innerWidth;
      document.body.textContent =
        `[${sum}] [${rowsLeft}] [${zoomed}] [${shown}] [${nameOf(rows[0])}] [${reset.disabled}] [${beyond}]`;
    """
    copy = tmp_path / "copy.html"
    source = re.sub(r"<meta http-equiv[^>]*>", "", source)
    copy.write_text(source.replace("</body>", f"<script>{script}</script></body>"))
    options = (f"--window-size={width},900", "--hide-scrollbars", "--dump-dom")
    shown = re.findall(r"\[(.*?)\]", browse(copy, tmp_path, *options).stdout.partition("<body")[2])
    assert shown == [
        "2 functions, own: BASE 40, NEW 90, NEW-BASE +50",
        "2",
        "read, with callees: BASE 147, NEW 810",
        f"{100 * 147 / 810}%,100%",
        "exit",
        "true",
        "0",
    ]


@pytest.mark.slow
def test_a_browser_runs_the_script_under_the_policy_of_the_page(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page_of(BASE, NEW).source)
    done = browse(file, tmp_path, "--dump-dom")
    assert '<p class="controls">' in done.stdout  # shown by the script
    assert "CONSOLE" not in done.stderr
