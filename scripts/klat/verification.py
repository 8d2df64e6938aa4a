"""Holds every row of a session to its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from klat.samples import SampleFiles
from klat.session import FIGURES, Session, SessionError, printable
from klat.statistics import exact_row


@dataclass
class Verification:
    """What came of it: the rows that were held to their samples, and a sentence for each that
    failed."""

    rows: int = 0
    failures: list[str] = field(default_factory=list)


def verify(session: Session) -> Verification:
    """Recompute the statistics of every row that has samples, whatever its status."""
    result = Verification()
    files = SampleFiles(session)
    where = printable(str(session.path / "runs.csv"))
    if session.damaged:
        result.failures.append(f"{where}: {session.damaged} damaged rows could not be verified")
    for row in session.rows:
        if not row.n:
            continue
        result.rows += 1
        name = f"{where} line {row.line} ({printable(row.benchmark)} {printable(row.metric)})"
        try:
            exact = exact_row(files.of(row))
        except SessionError as error:
            result.failures.append(f"{name}: {error}")
            continue
        said = {column: getattr(row, column) for column in FIGURES}
        found = {column: getattr(exact, column) for column in FIGURES}
        result.failures += (f"{name}: {d}" for d in _differences(said, found))
    return result


def _differences(said: dict[str, object], found: dict[str, object]) -> Iterator[str]:
    for column in FIGURES:
        # As text, for digit for digit means that 1.50 is not 1.500.
        if str(said[column]) != str(found[column]):
            row = "empty" if said[column] is None else said[column]
            samples = "empty" if found[column] is None else found[column]
            yield f"{column} is {row} in the row and {samples} from the samples"
