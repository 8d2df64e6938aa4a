"""Verdicts as JUnit XML, in the form that Jenkins and GitLab read: a suite for each NEW."""

from __future__ import annotations

from typing import BinaryIO
from xml.etree import ElementTree

from klat.compare.comparison import Comparison
from klat.export.cases import FAILED, PASSED, SKIPPED, Case, Group, groups
from klat.record.session import printable


def write(comparison: Comparison, out: BinaryIO) -> None:
    suites = [_suite(group) for group in groups(comparison)]
    root = ElementTree.Element("testsuites", name="klat")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.extend(suites)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    out.write(f"<?xml version='1.0' encoding='UTF-8'?>\n{text}\n".encode())


def _suite(group: Group) -> ElementTree.Element:
    found = group.cases
    suite = ElementTree.Element("testsuite", name=f"klat: {group.title}")
    suite.set("tests", str(len(found)))
    suite.set("failures", str(sum(case.outcome == FAILED for case in found)))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(case.outcome == SKIPPED for case in found)))
    properties = ElementTree.SubElement(suite, "properties")
    for name, text in group.heading:
        ElementTree.SubElement(properties, "property", name=name, value=printable(text))
    for case in found:
        suite.append(_case(case))
    return suite


def _case(case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=case.group, name=case.name)
    message = printable(f"{case.verdict}: {case.reason}" if case.reason else case.verdict)
    details = "\n".join(case.details)
    if case.outcome != PASSED:
        tag = "failure" if case.outcome == FAILED else "skipped"
        found = ElementTree.SubElement(element, tag, message=message)
        found.set("type", case.kind)
        found.text = details or None
    else:
        ElementTree.SubElement(element, "system-out").text = f"{message}\n{details}"
    return element
