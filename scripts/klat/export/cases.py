"""The verdicts of a comparison as test cases: slower fails, same and faster pass, all others are skipped with
their reason. A verdict over machines replaces those of the machines that it includes: they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from xml.etree import ElementTree

from klat.compare.comparison import Against, Cell, Comparison, OverMachines, Result
from klat.compare.dataset import Key
from klat.compare.verdicts import Verdict
from klat.record.session import NOT_MEASURABLE, printable
from klat.report.text import wording
from klat.report.over_machines import machine_names, over_machines_explanations
from klat.report.notes import nothing_shared, side_notes

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_REFUSED = (Verdict.NOT_COMPARABLE.value,) * 2
_OUTCOMES = {Verdict.SAME: PASSED, Verdict.FASTER: PASSED, Verdict.SLOWER: FAILED}


@dataclass(frozen=True)
class Case:
    """One verdict. `group` is benchmark and metric, `kind` the verdict's word for programs, `verdict` its
    words for people. `reason` explains it if it needs one. `details` are further lines."""

    group: str
    name: str
    outcome: str
    kind: str
    verdict: str
    reason: str
    details: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """The cases with one title. `heading` is what they all rest on, as (name, text)."""

    title: str
    heading: tuple[tuple[str, str], ...]
    cases: tuple[Case, ...]


def groups(comparison: Comparison) -> list[Group]:
    """One for each NEW and machine, and one over machines."""
    names = machine_names(comparison)
    made = []
    over = tuple(_over_machines(o, comparison) for o in comparison.over_machines if o.judgement)
    terms = ("terms", " ".join(wording.terms(comparison)))
    if over:
        made.append(Group("over machines", (terms,), over))
    for against in comparison.against:
        title = f"{against.new.label} against {against.base.label}"
        if against.machine:
            title += f" on machine {names[against.machine]}"
        sides = (("BASE", wording.side(against.base)), ("NEW", wording.side(against.new)))
        notes = ((n.label, n.text) for n in side_notes(against) if n.tone != "refused")
        cases = list(_cases(against, comparison))
        if not cases:
            why = nothing_shared(against).removesuffix(".")
            cases = [Case("klat.compare", "anything in common", SKIPPED, *_REFUSED, why, ())]
        made.append(Group(title, (*sides, *notes, terms), tuple(cases)))
    return made


def _cases(against: Against, comparison: Comparison) -> Iterator[Case]:
    for cell in against.cells:
        if cell.refused:
            why = "; ".join(condition.refusal() for condition in cell.refused)
            yield Case(*_named("verdict", cell.key), SKIPPED, *_REFUSED, why, ())
        for result in cell.results:
            if result.tested and result.verdict:
                yield _case(cell, result, against, comparison)
    for side, key in against.unmeasurable:
        yield _left_out(key, *_REFUSED, f"{NOT_MEASURABLE} ({side})")
    for left in against.uncompared:
        yield _left_out(left.key, left.what, left.what, wording.uncompared_reason(left))


def _left_out(key: Key, kind: str, verdict: str, why: str) -> Case:
    return Case(*_named("verdict", key), SKIPPED, kind, verdict, why, ())


def _named(what: str, key: Key) -> tuple[str, str]:
    """The group, which is benchmark and metric, and the name of a case."""
    benchmark, params, placement, metric = key
    name = " ".join(f"{what} {placement} {params.replace(';', ' ')}".split())
    return printable(".".join(filter(None, (benchmark, metric)))), printable(name)


def _over_machines(over: OverMachines, comparison: Comparison) -> Case:
    j = over.judgement
    assert j and j.verdict
    ratio, interval = wording.ratio(j)
    details = [
        f"{len(over.machines)} machines, NEW/BASE {ratio}, {interval}",
        f"p adjusted {wording.p_value(j.p_adjusted)}",
        *(f"under test: {changed}" for changed in over.under_test),
    ]
    group, name = _named(over.estimand, over.key)
    return Case(
        group,
        printable(f"{over.new}: {name}"),
        _OUTCOMES.get(j.verdict, SKIPPED),
        j.verdict.value,
        wording.verdict(j),
        "; ".join(over_machines_explanations(over, comparison)),
        tuple(printable(line) for line in details),
    )


def _case(cell: Cell, result: Result, against: Against, comparison: Comparison) -> Case:
    j = result.judgement
    ratio, interval = wording.ratio(j)
    unit = printable(cell.unit)
    base, new = (wording.quantity(side.value, unit) for side in (j.base, j.new))
    details = [
        f"BASE {base}, NEW {new}, NEW/BASE {ratio}, {interval or 'no interval'}",
        *([f"p adjusted {p}"] if (p := wording.p_value(j.p_adjusted)) else []),
        *([method] if (method := wording.method(j, against.unit_noun)) else []),
        f"{cell.run_noun}s of BASE: {cell.base_runs}; of NEW: {cell.new_runs}",
        *(f"under test: {changed}" for changed in cell.under_test),
        *(f"allowed, though it differs: {condition.sentence()}" for condition in cell.accepted),
    ]
    assert result.verdict is not None
    over = ["part of the verdict over machines"] if result.decided_over_machines else []
    return Case(
        *_named(result.estimand, cell.key),
        SKIPPED if over else _OUTCOMES.get(result.verdict, SKIPPED),
        result.verdict.value,
        wording.verdict(j),
        "; ".join([*over, *wording.explanations(result, against, comparison)]),
        tuple(printable(line) for line in details),
    )


def write_junit(comparison: Comparison, out: BinaryIO) -> None:
    """JUnit XML, in the form that Jenkins and GitLab read: a suite for each NEW."""
    suites = [_suite(group) for group in groups(comparison)]
    root = ElementTree.Element("testsuites", name="klat")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    out.write(f"<?xml version='1.0' encoding='UTF-8'?>\n{text}\n".encode())


def _suite(group: Group) -> ElementTree.Element:
    tested = group.cases
    suite = ElementTree.Element("testsuite", name=f"klat: {group.title}")
    suite.set("tests", str(len(tested)))
    suite.set("failures", str(sum(case.outcome == FAILED for case in tested)))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(case.outcome == SKIPPED for case in tested)))
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in group.heading:
        ElementTree.SubElement(properties, "property", name=name, value=printable(text))
    for case in tested:
        suite.append(_element(case))
    return suite


def _element(case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=case.group, name=case.name)
    message = printable(f"{case.verdict}: {case.reason}" if case.reason else case.verdict)
    details = "\n".join(case.details)
    if case.outcome != PASSED:
        tag = "failure" if case.outcome == FAILED else "skipped"
        outcome = ElementTree.SubElement(element, tag, message=message)
        outcome.set("type", case.kind)
        outcome.text = details or None
    else:
        ElementTree.SubElement(element, "system-out").text = f"{message}\n{details}"
    return element


def write_ktap(comparison: Comparison, out: BinaryIO) -> None:
    """KTAP, version 1 (Documentation/dev-tools/ktap.rst of the kernel)."""
    out.write("".join(f"{line}\n" for line in _lines(comparison)).encode())


def _lines(comparison: Comparison) -> Iterator[str]:
    listed = groups(comparison)
    every = [(group, case) for group in listed for case in group.cases]
    yield "KTAP version 1"
    yield f"1..{len(every)}"
    headed = None
    for number, (group, case) in enumerate(every, start=1):
        if group is not headed:
            headed = group
            yield f"# {printable(group.title)}"
            for name, text in group.heading:
                yield f"# {printable(f'{name}: {text}')}"
        # Diagnostics of a test go before its result.
        for line in case.details:
            yield f"# {line}"
        prefix = f"{group.title}: " if len(listed) > 1 else ""
        name = _unmarked(f"{prefix}{case.group} {case.name}")
        verdict = _unmarked(f"{case.verdict}: {case.reason}" if case.reason else case.verdict)
        if case.outcome == SKIPPED:
            yield f"ok {number} {name} # SKIP {verdict}"
        else:
            yield f"# {verdict}"
            yield f"{'not ok' if case.outcome == FAILED else 'ok'} {number} {name}"


def _unmarked(text: str) -> str:
    """Without the sign that begins a directive, for which KTAP has no escape."""
    return printable(text).replace("#", "\\x23")


WRITERS = {"junit": write_junit, "ktap": write_ktap}
