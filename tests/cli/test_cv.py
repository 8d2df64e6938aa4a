"""What holds for cv alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import pytest
from harness import json_of, try_again_unless, with_tries, works

pytestmark = pytest.mark.alone

LOCKS = ("mutex", "pi-mutex")


def contended(primitive: str, iterations: int, *options: str) -> tuple[int, int]:
    words = ("--primitive", primitive, "--iterations", str(iterations))
    done = works("cv", *words, *options, "--json")
    counts = json_of(done)["evidence"]["counts"]
    return counts["contended"], counts["mismatches"]


@pytest.mark.parametrize("primitive", LOCKS)
@with_tries
def test_a_lock_that_is_handed_over_is_waited_for(primitive, real_time):
    found = contended(primitive, 60)
    try_again_unless(found == (60, 0), found)


@pytest.mark.parametrize("primitive", LOCKS)
@with_tries
def test_a_lock_that_is_freed_before_anybody_waits_is_seen(primitive, two_cpus, real_time):
    """An owner that had to wait for its lock has a word that says that others may wait, too."""
    waited, _ = contended(primitive, 10, "--plant", "late")
    try_again_unless(waited < 2, f"{waited} of 10 seen as waited for")
