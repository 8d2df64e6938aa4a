"""Random command lines: no crash, no hang, and the status that the words deserve."""

import os
import random
import secrets
import re
import shlex
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, SKIPPED, UNTRUSTED, USAGE

TRIES = 60
RUBBISH = [
    *("", " ", "\n", "\t1", "\x7f", "１", "\udcff", "a" * 5000),
    *"- -- 0x10 1e9 nan +1 %s%n%p 1;2 ' \" $(true) ../..".split(),
    *("-9223372036854775809", "18446744073709551616"),
]


class Line:
    """A command line in the making, and whether some word of it has to be refused."""

    def __init__(self, program: str, chance: random.Random, scratch: Path) -> None:
        self.words: list[str] = []
        self.refused_at_once = False
        # The policy is judged when all words are read, so that only the last one counts.
        self.policy_refused = False
        self.chance = chance
        self.scratch = scratch
        self.options = harness.help_options(program)

    def add(self) -> None:
        pick = self.chance.random()
        if pick < 0.06:
            self.words.append(
                self.chance.choice(["--nonsense", "-q", "stray", "--nonsense=3", "", "-"])
            )
            self.refused_at_once = True
            return
        name = self.chance.choice(sorted(set(self.options) - {"help", "version"}))
        rest = self.options[name]
        argument = rest.split(" ")[0]
        takes_value = "|" in argument or argument.isupper() or "/" in argument
        if not takes_value:
            # A value for a flag has to be refused.
            wrong = self.chance.random() < 0.1
            self.words.append(f"--{name}=1" if wrong else f"--{name}")
            self.refused_at_once |= wrong
            return
        value, wrong = self.value(name, argument, rest)
        self.words += [f"--{name}={value}"] if self.chance.random() < 0.5 else [f"--{name}", value]
        if name == "policy":
            self.policy_refused = wrong
        else:
            self.refused_at_once |= wrong

    @property
    def must_be_refused(self) -> bool:
        return self.refused_at_once or self.policy_refused

    def value(self, name: str, argument: str, rest: str) -> tuple[str, bool]:
        """A value, and whether it is certainly wrong."""
        wild = self.chance.random() < 0.25
        limits = re.search(r"\((-?\d+) to (\d+)(?:; default (-?\d+))?", rest)
        if name == "policy":
            right = ["fifo", "rr", "other", "batch", "fifo:99", "rr:1", "fifo:60"]
            return self.of(right, ["fifo:0", "other:3", "deadline", "rr:1x", *RUBBISH], wild)
        if "|" in argument:
            return self.of(argument.split("|"), ["nothing", *RUBBISH], wild)
        if limits:
            low, high = int(limits[1]), int(limits[2])
            # Near the low end and at the default: the high end is often hours.
            right = [str(low), str(low + 1), limits[3] or str(low)]
            return self.of(right, [str(low - 1), str(high + 1), *RUBBISH], wild)
        if name in ("run", "order", "seed"):
            return self.of(["1", "2", "30"], ["-1", *RUBBISH], wild)
        if name == "cpus":
            return (
                self.chance.choice(["0", "0,1", "1,1", "1-0", "0-1", "9000", "7", *RUBBISH]),
                False,
            )
        if name == "record":
            return self.chance.choice([str(self.scratch / "s"), "/proc/nowhere", ""]), False
        # Texts of which the program is the judge; label and the like.
        safe = [text for text in RUBBISH if "/" not in text]
        return self.chance.choice(["name", *safe]), False

    def of(self, right: list[str], wrong: list[str], wild: bool) -> tuple[str, bool]:
        return self.chance.choice(wrong if wild else right), wild


def fuzz(program: str, seed: int, tries: int, scratch: Path) -> None:
    chance = random.Random(f"{program} {seed}")
    seen: set[int] = set()
    for _ in range(tries):
        line = Line(program, chance, scratch)
        for _ in range(chance.randrange(1, 6)):
            line.add()
        # The last of duplicates counts: whatever came before, the run is short.
        last = ("--iterations", "6", "--warmup", "2", *harness.traits(program).bounded)
        words = [*line.words, *last]
        done = harness.run(program, *words, cwd=scratch, limit=30)
        shown = f"seed {seed}: {shlex.join(words)}\n{done}"
        assert done.status in (MEASURED, FAILED, USAGE, UNTRUSTED, SKIPPED), shown
        if line.must_be_refused:
            assert done.status == USAGE, shown
        if done.status != MEASURED:
            assert done.err.startswith(f"{program}: ") and done.err.endswith("\n"), shown
        if done.status == USAGE:
            assert done.err.count("\n") == 1 and done.out == "", shown
        for text in done.err.splitlines():
            assert text.startswith(f"{program}: ") and len(text) < 1200, shown
        seen.add(done.status)
    assert len(seen) >= 2, f"seed {seed}: always {seen}, so the search is too tame"


@harness.on_two
def test_random_command_lines(program, tmp_path):
    fuzz(program, 1, TRIES, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("program", harness.PROGRAMS)
def test_random_command_lines_of_a_fresh_seed(program, tmp_path):
    """A failure prints the seed. KLAT_SEED=N tries that seed again."""
    fuzz(program, int(os.environ.get("KLAT_SEED") or secrets.randbelow(10**6)), TRIES, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("program", harness.PROGRAMS)
def test_many_random_command_lines(program, tmp_path):
    for seed in range(20):
        fuzz(program, seed, TRIES, tmp_path)
