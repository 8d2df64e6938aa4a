"""What holds for pipes alone; tests/cli/test_program_*.py hold it to what holds for every program."""

import subprocess
import sys
from subprocess import PIPE

import pytest
from harness import FAILED, command, json_of, try_again_unless, with_tries, works

pytestmark = pytest.mark.alone


@with_tries
def test_the_gap_before_a_one_way_message_is_no_sleep_for_it(real_time):
    """The writer sleeps in each gap, and again for the answer: only the latter is a wait of the pipe."""
    result = json_of(works("pipes", "--mode", "one-way", "--cpus", "1,1", "--json"))
    slept = {worker["role"]: worker["voluntary"] for worker in result["evidence"]["workers"]}
    try_again_unless(0 < slept["writer"] <= 1.1 * slept["reader"], slept)


@pytest.mark.parametrize(
    ("program", "size", "is_error"),
    [
        (("pipes",), "1", False),
        (("pipes",), "65536", True),
        (("transport", "--transport", "pipe"), "65536", True),
    ],
)
def test_a_pipe_that_is_smaller_than_usual_is_an_error_if_a_message_fills_it(
    program, size, is_error, published, as_nobody
):
    """As a user's pipes are who has 16,384 pages in other pipes."""
    many = (
        "import fcntl, os; os.setuid(65534)\n"
        "def size(change):\n"
        "    pipe = os.pipe()[0]\n"
        "    if change: fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)\n"
        "    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)\n"
        "try:\n"
        "    while size(True): pass\n"
        "except PermissionError:\n"
        "    while size(False) >= 16 * os.sysconf('SC_PAGESIZE'): pass\n"
        "print(flush=True); input()"
    )
    words = [
        *as_nobody,
        published / program[0],
        *program[1:],
        "--bytes",
        size,
        "--iterations",
        "10",
    ]
    with subprocess.Popen([sys.executable, "-c", many], stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout and other.stdout.readline()
        done = command(words, cwd="/")
        other.communicate(b"\n")
    assert (done.status == FAILED) == is_error, str(done)
    assert ("fs.pipe-user-pages-soft" in done.err) == is_error
