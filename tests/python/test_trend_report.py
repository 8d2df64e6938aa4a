"""The report of `klat lab trend` and `klat lab diff`."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import browse, browser, measured
from written_sessions import samples
from written_trend import explained, follow, page, three_kernels

from klat.compare.trend import Trend
from klat.explain.explanation import KeptSample
from klat.report import trend as report, trend_rows
from klat.report.document import Document
from klat.report.plot.trend_figures import metric_figures
from klat.report.renderers import markdown, terminal
from klat.report.trend import Change


@pytest.fixture
def three(side) -> Trend:
    return three_kernels(side)


def test_the_report_fits_a_terminal_and_names_the_functions_of_a_jump(three):
    failing = replace(three, failures={"lab-7.3": "panics"})
    lines = [*terminal.lines(report.document(failing, explained(failing)), False)]
    assert [line for line in lines if len(line) > 80] == []
    text = " ".join(" ".join(lines).split())
    assert "▲ 1.2" in text and "come +36, gone -35, schedule +30" in text
    assert "lab-7.3 not measured panics" in text
    assert "without a value: [1] not measured" in text
    assert any(re.match(r"pipes woken x=1 +\[1\] +\[1\] +3,462$", line) for line in lines)


def shown_in(document: Document) -> str:
    return " ".join(" ".join(terminal.lines(document, False)).split())


def test_a_sample_of_two_windows_is_their_mean_and_so_are_its_functions(three):
    (change,) = changes = explained(three, windows=2)
    assert change.samples == (50, 65) and change.difference == 15
    text = shown_in(report.document(three, changes))
    assert "come +18, gone -17.5, schedule +15, 1 more -0.5, together +15" in text
    assert "typical samples of 50 and 65, means of 2 parts" in text
    assert "6.12, the 2 parts of the sample: 100 instructions" in page(three, changes)
    out = io.StringIO()
    trend_rows.write_csv(three, changes, out)
    (jump,) = [r for r in csv.DictReader(io.StringIO(out.getvalue())) if r["functions"]]
    assert jump["functions"].startswith("come=+18;gone=-17.5;")
    assert (jump["explained_before"], jump["explained"], jump["windows"]) == ("50", "65", "2")


@pytest.mark.parametrize("share", [0.96, 0.94])
def test_the_line_of_a_jump_says_why_its_functions_miss_it_by_a_twentieth(three, share):
    """The boots of 6.12 have 20,022 to 20,040, and 6.18 is 4,006 instructions slower."""
    ((metric, step),) = three.jumps
    base, new = (round(metric.values[kernel]) for kernel in (step.base, step.new))
    base += round((1 - share) * (new - base))
    samples = (KeptSample(n, 1, 0, ((1, "f", n, 1),)) for n in (base, new))
    text = shown_in(report.document(three, [Change(metric, step, *samples)]))
    assert f"together {new - base:+,} in the typical samples" in text
    lowest, highest = map(round, metric.ranges[step.base])
    assert lowest < metric.values[step.base] < highest
    why = f"; boots of 6.12 have {lowest:,} to {highest:,}, the typical sample {base:,}"
    assert (why in text) == (share < 0.95) and "boots of 6.18" not in text


def policy(name: str) -> dict[str, Any]:
    return {"run": {"policy": f"writer={name}"}}


def knob(value: str) -> dict[str, Any]:
    return {"environment": {"proc/sys/kernel/timer_migration": value}}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ((knob("1"), knob("0")), "timer_migration is 1 in BASE and 0 in NEW; measure both alike"),
        ((policy("fifo:50"), policy("0")), "is writer=fifo:50 in BASE and writer=0 in NEW"),
    ],
)
def test_a_refused_step_has_its_reason_once_and_its_mark_a_meaning(side, settings, reason):
    first, second = settings
    result = follow(side("a", **first), side("b", **second), side("c", **second))
    out = io.StringIO()
    trend_rows.write_csv(result, [], out)
    document = report.document(result, [])
    unescaped = "\n".join(markdown.lines(document)).replace("\\", "")
    forms = [shown_in(document), unescaped, page(result, [])]
    for form in forms:
        assert form.count(reason) == 1 and "× not comparable" in form
    assert reason in out.getvalue()
    assert not any("--allow" in form for form in (*forms, out.getvalue()))


def test_the_change_is_since_the_first_kernel_that_has_the_metric(side):
    paths = [side(label) for label in ("a", "b", "c")]
    side.add("b", "woken", 1_000)
    side.add("c", "woken", 1_500)
    result = follow(*paths)
    text = shown_in(report.document(result, []))
    assert re.search(r"pipes woken +\[1\] 385 578 to the previous ▲ 1.499 to the first 1.499", text)
    html = page(result, [])
    assert '<td class="number ">' not in html and ">+50<" in html
    rows = [r for r in trend_rows.rows(result, []) if r["metric"] == "woken"]
    assert [r["ratio_to_first"] for r in rows] == [None, 1, pytest.approx(1.499, abs=0.002)]


def test_the_report_says_why_a_step_is_open(side):
    few = [side(label, ratio, boots=2) for label, ratio in (("a", 1.0), ("b", 1.3))]
    result = follow(*few)
    shown = " ".join(" ".join(terminal.lines(report.document(result, []), False)).split())
    assert (
        "inconclusive: pipes round_trip, a to b: " in shown and "boots a side are needed" in shown
    )


def test_a_mail_has_one_line_for_each_jump(three):
    changes = explained(three)
    brief = [*markdown.lines(report.document(three, changes, brief=True))]
    assert sum("come +36" in line for line in brief) == 1
    assert not any("typical samples of" in line for line in brief)


@pytest.fixture
def two(new_session) -> tuple[Trend, list[Change]]:
    """Two kernels, ten metrics, of which each is slower and none is explained."""

    def kernel(label: str, ratio: float) -> Path:
        medians = [ratio * (9_000 + 100 * number) for number in range(10)]
        run = lambda boot: {f"metric{n}": samples(m + boot) for n, m in enumerate(medians)}
        boots = [[run(boot)] for boot in range(5)]
        return new_session.label(label, boots)

    paths = [kernel("lab-6.12", 1.0), kernel("lab-7.3", 1.3)]
    result = follow(*paths)
    why = "the boot could not be repeated: the guest gave other samples than the boot that was recorded"
    return result, [Change(m, m.steps[1], KeptSample(why=why)) for m in result.series]


def test_a_diff_has_one_line_for_each_metric_and_each_reason_once(two):
    lines = [*terminal.lines(report.document(*two), False)]
    assert max(map(len, lines)) <= 80
    assert sum(bool(re.match(r"pipes metric\d .*\d  ▲ 1.300$", line)) for line in lines) == 10
    assert "to the first" not in "\n".join(lines)
    assert " ".join(" ".join(lines).split()).count("the boot could not be repeated") == 1


def test_a_diff_of_ten_metrics_fits_a_mail(two):
    brief = [*markdown.lines(report.document(*two, brief=True))]
    assert len(two[1]) == 10 and len(brief) <= 60


def test_the_page_of_a_diff_has_neither_maps_nor_curves(two):
    html = page(*two)
    assert "<figure" not in html and 'class="heat' not in html and "▲" in html


def test_a_section_of_a_page_has_content(three):
    html = page(three, explained(three))
    assert not re.search(r"</h2>\s*</section>", html)


def test_csv_and_json_have_a_row_for_each_kernel_and_the_whole_explanation(three):
    changes = explained(three)
    outs = io.StringIO(), io.StringIO()
    trend_rows.write_csv(three, changes, outs[0])
    trend_rows.write_json(replace(three, failures={"lab-7.3": "panics"}), changes, outs[1])
    rows = [*csv.DictReader(io.StringIO(outs[0].getvalue()))]
    assert len(rows) == 3 * len(three.series)
    (jump,) = [row for row in rows if row["functions"]]
    assert {row["functions"] for row in rows if row is not jump} == {""}
    assert (jump["kernel"], jump["before"], jump["verdict"]) == ("lab-6.18", "lab-6.12", "slower")
    assert sum(int(item.rpartition("=")[2]) for item in jump["functions"].split(";")) == 30
    document = json.loads(outs[1].getvalue())
    assert document["failures"] == {"lab-7.3": "panics"}
    assert document["status"] == 1 and document["chains"] == [[*three.labels]]
    assert document["rows"][2]["functions"] == dict(changes[0].functions)


def test_a_jump_without_an_explanation_has_no_functions_in_csv(two):
    out = io.StringIO()
    trend_rows.write_csv(*two, out)
    rows = [*csv.DictReader(io.StringIO(out.getvalue()))]
    assert any(row["explanation"] for row in rows)
    assert {row["functions"] for row in rows} == {""}


def test_a_page_shows_the_change_since_the_first_kernel_and_a_jump_opens_its_call_trees(three):
    html = page(three, explained(three))
    cells = re.findall(r'<td class="number (\w*)"[^>]*>(?:<a href="#(\w+)">)?([^<]*)<', html)
    assert cells[:3] == [("equal", "", "20,031"), ("equal", "", "0"), ("more2", "jump1", "+20")]
    missing = ("", "", "[1]")
    assert cells[3:6] == [missing, missing, ("equal", "", "3,462")]
    assert html.count('<td class="number " title="not measured">[1]</td>') == 2
    (opened,) = re.findall(r"<details>(.*?)</details>", html, re.S)
    assert opened.count('class="icicle"') == 2 and "come +36" not in opened
    # A function that the newer kernel has more of, below each of its callers.
    assert len(re.findall(r'class="more\d" .*?<title>come\n', opened)) == 2


def test_a_jump_without_an_explanation_has_no_call_trees(three):
    ((metric, step),) = three.jumps
    html = page(three, [Change(metric, step, KeptSample(why="no trace"), KeptSample())])
    assert "<details>" not in html and "no trace" in html


def test_kernels_of_one_series_are_beside_each_other_in_a_figure(side):
    """Those with RT too, whose releases come again."""
    result = follow(*(side(label) for label in ("a", "b", "a-rt", "b-rt")))
    drawn = metric_figures(result, report.names(result.series), [*result.labels])
    data = "\n".join(line for captioned in drawn for line in captioned.figure.commands)
    assert re.findall(r"^([0-3])(?:\.0)? \d", data, re.M)[:4] == ["0", "1", "2", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("link", ["td.name a", "td a .badge", ".heat td a"])
def test_a_click_on_a_jump_opens_its_functions(three, link, tmp_path):
    browser()
    (tmp_path / "page.html").write_text(page(three, explained(three)))
    script = (
        "const shown = () => document.querySelector('details table').checkVisibility("
        "{contentVisibilityAuto: true}); const before = shown();"
        f"document.querySelector('{link}').click();"
        "setTimeout(() => document.body.textContent = `before ${before}, after ${shown()}.`, 500)"
    )
    opened = measured(tmp_path / "page.html", script, "--virtual-time-budget=3000")
    assert "before false, after true." in opened


@pytest.mark.slow
def test_a_printed_page_has_what_is_folded(three, tmp_path):
    """The size of a PDF does not depend on which folds were open."""
    browser()
    written = page(three, explained(three))
    pages = {
        "closed": written,
        "open": written.replace("<details>", "<details open>"),
        "without": re.sub("<details>.*?</details>", "", written, flags=re.S),
    }
    sizes = {}
    for name, text in pages.items():
        (tmp_path / "page.html").write_text(text)
        printed = tmp_path / f"{name}.pdf"
        options = ("--no-pdf-header-footer", f"--print-to-pdf={printed}")
        browse(tmp_path / "page.html", tmp_path, *options)
        sizes[name] = printed.stat().st_size
    assert abs(sizes["closed"] - sizes["open"]) < 100 < sizes["open"] - sizes["without"], sizes
