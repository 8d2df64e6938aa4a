"""What a check finds, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum

from klat.base.errors import printable


class Severity(Enum):
    """In order of harm. Only the first makes `klat doctor` end with status 1."""

    SPOILS = "spoils"  # figures are wrong, or a program cannot run
    DISTORTS = "distorts"  # figures depend on this setting as much as on the kernel
    NOTE = "note"  # worth knowing when figures are read or compared


@dataclass(frozen=True)
class Finding:
    check: str
    severity: Severity
    title: str
    detail: str
    cure: str


def _finding_of(severity: Severity) -> Callable[[str, str, str, str], Finding]:
    """A finding of this severity, from its check, title, detail and cure."""
    return lambda check, *texts: Finding(check, severity, *texts)


spoils, distorts, note = map(_finding_of, Severity)


def spoiled(findings: Sequence[Finding]) -> bool:
    return any(finding.severity is Severity.SPOILS for finding in findings)


def to_json(findings: Sequence[Finding]) -> str:
    """One object: `schema`, `spoiled`, and `findings` in order of harm."""
    plain = [asdict(finding) | {"severity": finding.severity.value} for finding in findings]
    document = {"schema": 1, "spoiled": spoiled(findings), "findings": plain}
    return json.dumps(document, indent=2, ensure_ascii=False)


def to_text(findings: Sequence[Finding], width: int = 80, colour: bool = False) -> str:
    """As text, at most `width` columns wide."""
    tints = {Severity.SPOILS: "31", Severity.DISTORTS: "33", Severity.NOTE: "36"}
    indent = " " * 10
    lines = []
    for finding in findings:
        word = f"{finding.severity.value:<8}"
        if colour:
            word = f"\x1b[{tints[finding.severity]}m{word}\x1b[0m"
        head, *rest = textwrap.wrap(finding.title, width - len(indent))
        lines.append(f"{word}  {head}")
        lines.extend(indent + line for line in rest)
        for text in (finding.detail, f"Cure: {finding.cure}"):
            wrapped = textwrap.wrap(text, width - len(indent), break_on_hyphens=False)
            lines.extend(indent + line for line in wrapped)
        lines.append("")
    counts = Counter(finding.severity for finding in findings)
    summary = ", ".join(f"{counts[s]} {s.value}" for s in Severity if counts[s])
    lines.append(f"Findings: {summary or 'none, this machine is fit for a session'}")
    return "\n".join(lines)


def different_lines(
    findings_by_machine: Mapping[str, Sequence[Mapping[str, str]]]
) -> Iterator[str]:
    """The findings that only some machines have, as text. `findings_by_machine` has the findings of to_json by machine."""
    machines: dict[tuple[str, str], list[str]] = {}
    for machine, findings in findings_by_machine.items():
        for finding in findings:
            key = (Severity(finding["severity"]).value, printable(finding["title"]))
            machines.setdefault(key, []).append(machine)
    on_all = sum(len(names) == len(findings_by_machine) for names in machines.values())
    order = [severity.value for severity in Severity]
    for (severity, title), names in sorted(machines.items(), key=lambda m: order.index(m[0][0])):
        if len(names) < len(findings_by_machine):
            yield f"{severity:<8}  {', '.join(names)}: {title}"
    if findings_by_machine:
        yield f"{on_all} more findings are on all {len(findings_by_machine)} machines; klat doctor on one of them lists these"
