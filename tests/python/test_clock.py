"""The system clock may be set while a session is recorded, and the counter's frequency may be wrong."""

import pytest
from written_sessions import words

from klat.compare.dataset import read_datasets, read_dataset

HOUR_NS = 3600 * 10**9
BEGUN_NS = 1_700_000_000_000_000_000


def test_runs_stay_in_the_order_taken_where_the_clock_was_set(new_session):
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
    assert [run.row.order for run in setting.measurements["round_trip"].sampled] == taken


@pytest.mark.parametrize(("khz", "independent", "warns"), [(2_626_000, True, True), (2_626_000, False, False), (2_600_500, True, False)])  # fmt: skip
def test_a_frequency_that_an_independent_reference_refutes_is_said(
    new_session, klat, khz, independent, warns
):
    second = {"second_khz": khz, "second_method": "acpi_pm", "independent": independent}
    tsc: dict[str, object] = {"khz": 2_600_000.0, "quantum": 26, **second}
    base, new = (new_session(name, tsc=tsc, boot_id=name) for name in ("base", "new"))
    for number, session in enumerate((base, new)):
        session.run({"round_trip": range(50_000 + number, 50_600)})
    for command in (("summary", base.path), ("compare", base.path, new.path)):
        err = words(klat(*command)[2])
        assert ("may be wrong by 1.0 %" in err) == warns
