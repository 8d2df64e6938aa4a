"""Runs whose flushes were delivered in another way are another event, as runs woken in another way are."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from written_sessions import NewSession, words

from klat.record.session import read_session
from klat.record.evidence import state_of

Label = Callable[..., Path]


@pytest.fixture
def label(new_session: NewSession) -> Label:
    """`label("a", 100, 50)`: three boots with a run each for so many interrupts per 100 flushes."""

    def write(name: str, *percents: float | None) -> Path:
        sessions = [new_session(f"{name}/{b}", label=name, boot_id=f"{name}-{b}") for b in range(3)]
        for (boot, session), (run, percent) in product(enumerate(sessions), enumerate(percents)):
            counts = "" if percent is None else f"flushes=1000;flush_interrupts={10 * percent:.0f}"
            values = [30_000 + 26 * (i % 21 + boot + run) for i in range(100)]
            session.run({"initiator": values}, benchmark="tlbflush", run=run, order=run, evidence=counts)  # fmt: skip
        return sessions[0].path.parent

    return write


@pytest.mark.parametrize(
    ("percent", "delivery"),
    [(0, "broadcast"), (1, "broadcast"), (1.1, "mixed"), (98.9, "mixed"), (99, "interrupt")],
)
def test_a_run_is_mixed_if_more_than_a_hundredth_is_of_the_other_way(label, percent, delivery):
    (row,) = read_session(label("a", percent) / "0").rows
    assert state_of(row) == f"delivery={delivery}"


@pytest.mark.parametrize(
    ("percents", "named"),
    [
        ((100, 100), []),
        ((None, None), []),  # of an earlier klat
        ((100, 0), ["broadcast", "interrupt"]),
        ((100, 50, 0), ["broadcast", "interrupt", "mixed"]),
        ((50, 40), ["mixed"]),
        ((50,) * 19 + (100,), ["interrupt", "mixed"]),
        ((50,) + (100,) * 19, ["mixed"]),
    ],
)
def test_each_way_has_a_line_of_its_own_and_mixed_is_always_named(label, klat, percents, named):
    out = klat("summary", label("a", *percents))[1]
    assert sorted(re.findall(r"delivery=(\w+)", out)) == named


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        (100, 100, ""),
        (100, 0, "flushes were delivered by interrupt in BASE and by broadcast in NEW"),
        (100, 50, "flushes were delivered by interrupt in BASE and in both ways in NEW"),
        (None, 0, "flushes were delivered in a way not counted in BASE and by broadcast in NEW"),
        (50, 50, "flushes were delivered in both ways within a run"),
    ],
)
def test_compare_says_how_flushes_were_delivered(label, klat, base, new, said):
    out = words(klat("compare", label("a", base), label("b", new))[1])
    assert said in out and bool(said) == ("flushes were delivered" in out)
    assert ("delivery=mixed" in out) == (base == new == 50)
