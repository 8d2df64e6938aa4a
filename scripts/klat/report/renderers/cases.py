"""The verdicts of a Document as test cases. A verdict of the tone `slower` fails. Those of the tones `same` and
`faster` pass. All others are skipped with their reason. So are those that are part of another verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO
from xml.etree import ElementTree

from klat.record.session import printable
from klat.report.document import Document, Facts, Item, Judged, Notes, Row, Section, Verdicts

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_OUTCOMES = {"same": PASSED, "faster": PASSED, "slower": FAILED}


@dataclass(frozen=True)
class Case:
    """One verdict. `message` has its word and its reason, `details` further lines."""

    group: str
    name: str
    outcome: str
    kind: str
    message: str
    details: tuple[str, ...]


def _heading(section: Section, document: Document) -> Iterator[tuple[str, str]]:
    """The facts and notes that apply to all cases of a section: (name, text)."""
    for block in section.blocks:
        if isinstance(block, Facts):
            yield from block.sentences
        elif isinstance(block, Notes):
            yield from ((n.label, n.text) for n in block.notes if n.tone != "refused")
    yield "terms", " ".join(document.terms)


def _cases(section: Section) -> Iterator[Case]:
    for verdicts in (*section.verdicts(), Verdicts((), section.unjudged, "")):
        titles = [column.heading(verdicts.unit) for column in verdicts.columns]
        for item in verdicts.items:
            for row, judged in item.judged:
                if judged.word.tone:  # else it is no verdict
                    figures = [_line(r, titles) for r in (row, item.last) if r and r.cells]
                    name = judged.name or row.name or "verdict"
                    yield _case(item, judged, name, figures)


def _line(row: Row, titles: Sequence[str]) -> str:
    return f"{row.name}: {', '.join(f'{t} {cell}' for t, cell in zip(titles, row.cells) if cell)}"


def _case(item: Item, judged: Judged, name: str, figures: Sequence[str]) -> Case:
    group, where = item.id
    reason = "; ".join(filter(None, [judged.part_of, *judged.remarks]))
    details = (*figures, *item.sentences, *item.below)
    return Case(
        printable(group),
        printable(f"{name} {where}".strip()),
        SKIPPED if judged.part_of else _OUTCOMES.get(judged.word.tone, SKIPPED),
        judged.word.text,
        printable(f"{judged.word}: {reason}" if reason else judged.word.text),
        tuple(map(printable, details)),
    )


def write_junit(document: Document, out: BinaryIO) -> None:
    """JUnit XML, in the form that Jenkins and GitLab read: a suite for each section."""
    suites = [_suite(section, document) for section in document.sections]
    root = ElementTree.Element("testsuites", name="klat")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    out.write(f"<?xml version='1.0' encoding='UTF-8'?>\n{text}\n".encode())


def _suite(section: Section, document: Document) -> ElementTree.Element:
    cases = list(_cases(section))
    suite = ElementTree.Element("testsuite", name=f"klat: {section.title}")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.outcome == FAILED for case in cases)))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(case.outcome == SKIPPED for case in cases)))
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in _heading(section, document):
        ElementTree.SubElement(properties, "property", name=name, value=printable(text))
    suite.extend(map(_element, cases))
    return suite


def _element(case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=case.group, name=case.name)
    details = "\n".join(case.details)
    if case.outcome != PASSED:
        tag = "failure" if case.outcome == FAILED else "skipped"
        outcome = ElementTree.SubElement(element, tag, message=case.message)
        outcome.set("type", case.kind)
        outcome.text = details or None
    else:
        ElementTree.SubElement(element, "system-out").text = f"{case.message}\n{details}"
    return element


def write_ktap(document: Document, out: BinaryIO) -> None:
    """KTAP, version 1 (Documentation/dev-tools/ktap.rst of the kernel)."""
    out.write("".join(f"{line}\n" for line in _lines(document)).encode())


def _lines(document: Document) -> Iterator[str]:
    cases = [list(_cases(section)) for section in document.sections]
    yield "KTAP version 1"
    yield f"1..{sum(map(len, cases))}"
    number = 0
    for section, of_section in zip(document.sections, cases):
        yield f"# {printable(section.title)}"
        for name, text in _heading(section, document):
            yield f"# {printable(f'{name}: {text}')}"
        prefix = f"{section.title}: " if len(cases) > 1 else ""
        for number, case in enumerate(of_section, number + 1):
            # Diagnostics of a test go before its result.
            yield from (f"# {line}" for line in case.details)
            name = _unmarked(f"{prefix}{case.group} {case.name}")
            if case.outcome == SKIPPED:
                yield f"ok {number} {name} # SKIP {_unmarked(case.message)}"
            else:
                yield f"# {_unmarked(case.message)}"
                yield f"{'not ok' if case.outcome == FAILED else 'ok'} {number} {name}"


def _unmarked(text: str) -> str:
    """Without the sign that begins a directive, for which KTAP has no escape."""
    return printable(text).replace("#", "\\x23")


WRITERS = {"junit": write_junit, "ktap": write_ktap}
