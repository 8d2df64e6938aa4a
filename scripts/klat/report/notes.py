"""What a report says of BASE and one NEW beside the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klat.compare.comparison import Against
from klat.compare.dataset import Key
from klat.compare.verdicts import Verdict
from klat.record.session import NOT_MEASURABLE
from klat.report.document import Differences, Note
from klat.report.text import wording


def side_notes(against: Against) -> Iterator[Note]:
    """What refuses the comparison, and what a reader must know."""
    for condition in against.refused:
        yield Note(condition.refusal(), Verdict.NOT_COMPARABLE.value, "refused")
    for condition in against.accepted:
        yield Note(condition.sentence(), "allowed, though it differs")
    yield from map(Note, against.cautions)


def left_lines(against: Against) -> Iterator[str]:
    """The measurements that are in no cell."""
    yield from wording.unmeasurable(against)
    yield from (wording.uncompared(left, against) for left in against.uncompared)


def differences(against: Against, rows: Iterable[tuple[str, str, str]]) -> Differences:
    """What else differs: (name, in BASE, in NEW)."""
    kernel = (
        "Besides the kernel's release. Differences in the kernel's configuration are listed and refuse"
        " nothing."
    )
    note = kernel if against.subject == "kernel" else "In the first session of each side."
    return Differences("BASE and NEW also differ in", note, tuple(rows))


def nothing_shared(against: Against) -> str:
    """Why there is no cell, and for each program of both sides what differs."""
    if against.unmeasurable:
        return f"All that BASE and NEW have in common is {NOT_MEASURABLE}."
    nothing = "BASE and NEW have no benchmark, params, placement and metric in common."
    different = "; ".join(_differences(against))
    return f"{nothing} {different}: measure both with the same options." if different else nothing


def _differences(against: Against) -> Iterator[str]:
    base_keys = [cell.key for cell in against.cells]
    new_keys = [left.key for left in against.uncompared if not left.neither]
    for benchmark in dict.fromkeys(key[0] for key in base_keys):
        base, new = _words(benchmark, base_keys), _words(benchmark, new_keys)
        only_base = ", ".join(word for word in base if word not in new)
        only_new = ", ".join(word for word in new if word not in base)
        if only_base and only_new:
            yield f"{benchmark} has {only_base} in BASE alone, and {only_new} in NEW alone"


def _words(benchmark: str, keys: list[Key]) -> list[str]:
    """The params, placements and metrics of one program."""
    words = (
        word
        for program, params, placement, metric in keys
        if program == benchmark
        for word in (*params.split(";"), placement, metric)
    )
    return list(dict.fromkeys(words))
