"""Says why runs are not ok, and what the programs wrote: each text once, with its count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from klat.base.grouping import grouped
from klat.report.text.columns import wrapped

_LINES_SHOWN = 8


def say_reasons(reasons: Counter[tuple[str, str, str]], say: Callable[[str], None]) -> None:
    """Say why runs are not ok, from their counts by (status, benchmark, reason)."""
    _say_counted(Counter({f"{s}: {name}: {why}": n for (s, name, why), n in reasons.items()}), say)


def say_messages(messages: Mapping[str, int], say: Callable[[str], None]) -> None:
    """Say the lines of the programs, "PROGRAM: TEXT". Programs with one text share a line."""
    programs: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for line, count in messages.items():
        name = re.match("[a-z]+: ", line)
        program, text = (line[: name.end() - 2], line[name.end() :]) if name else ("", line)
        programs.setdefault(text, []).append(program)
        counts[text] += count
    lines = Counter[str]()
    for text, count in counts.items():
        names = ", ".join(name for name in programs[text] if name)
        lines[f"{names}: {text}" if names else text] = count
    _say_counted(lines, say)


def _say_counted(lines: Counter[str], say: Callable[[str], None]) -> None:
    """Say each line once with its count. Lines that differ only in numbers count as one."""
    groups = grouped(lines, lambda line: re.sub(r"[0-9]+(\.[0-9]+)?", "#", line))
    counts = {group[0]: sum(lines[line] for line in group) for group in groups.values()}
    several = {group[0] for group in groups.values() if len(group) > 1}
    shown = sorted(counts, key=lambda line: -counts[line])
    for line in shown[:_LINES_SHOWN]:
        like = " (and similar)" if line in several else ""
        text = f"{counts[line]} x {line}{like}"
        say("\n".join(wrapped(text, "  ", "      ")))
    if len(shown) > _LINES_SHOWN:
        say(f"  and {len(shown) - _LINES_SHOWN} other lines")
