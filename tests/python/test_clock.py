"""The system clock may be set while a session is recorded."""

from __future__ import annotations

from written_sessions import NewSession

from klat.compare.dataset import read_datasets
from klat.compare.dataset import read_dataset

HOUR_NS = 3600 * 10**9
BEGUN_NS = 1_700_000_000_000_000_000


def test_runs_stay_in_the_order_taken_where_the_clock_was_set(new_session: NewSession) -> None:
    session = new_session()
    jumps = (0, HOUR_NS, HOUR_NS, -2 * HOUR_NS, 0, -HOUR_NS)
    for order, jump in enumerate(jumps, start=1):
        start = BEGUN_NS + jump + order * 10**9
        session.run({"round_trip": [100 + order] * 500}, order=order, run=order, start_ns=start)
    taken = list(range(1, len(jumps) + 1))
    (cell,) = read_dataset(session.path).cells.values()
    assert [run.row.order for run in cell.runs] == taken
    (label,), _ = read_datasets([session.path])
    (setting,) = label.settings
    assert [run.row.order for run in setting.measurements["round_trip"].all_runs] == taken
