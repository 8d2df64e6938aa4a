"""The conditions that two sides must agree in before their figures are compared.

A condition is a key with a value in each session. A difference that somebody or something set is
refused. What the kernel brings (release, version, configuration, preemption model, defaults, its own
texts) is under test: within one side it must agree, between two sides it is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os.path import commonprefix
from typing import Any

from klat.record.environment import ABSENT, captured, short
from klat.compare.environment_conditions import (
    FAMILIES,
    GUEST,
    KERNEL,
    LIBRARIES,
    PROCESS,
    RULES,
    STARTED,
    WORDS,
    Alike,
    Rule,
    Values,
    is_default,
    is_known_as_set,
    meaning,
    of_files,
    rule_of,
)
from klat.record.session import Session, printable
from klat.record.ways import WAYS

# Keys of session.json, of the environment's files, and of the rows. `--allow` takes any but unit.
RECORDED = {
    "machine": "machine_id",
    "architecture": "architecture",
    "cpu": "cpu_model",
    "cpus-online": "cpus_online",
    "mode": "mode",
    "unit": "unit",
}
# Whether the environment was captured.
CAPTURE = ("environment", "the environment")
NONE = "none"
RUN = {
    "load": "the background load",
    "setup": "the set-up command",
    "prefix": "the prefix",
    "options": "the options of one setting alone",
}
ROWS = ("program", "cpus", "policy", "placement")
# Conditions of a run that no option alone decides.
OBTAINED = ("policy", "cpus", "program", *WAYS)
# Params that set the conditions of a measurement, not what is measured.
PARAMS = {
    "dma-latency": "not held",
    "guest-halt-poll": "not held",
    "iterations": ABSENT,
    "soak": ABSENT,
    "warmup": ABSENT,
}
WITHIN_SIDE = {
    "kernel-release": "kernel_release",
    "kernel-version": "kernel_version",
    "preemption": "preemption",
}
_NOT_ALLOWABLE = {
    "unit",
    "architecture",
    *FAMILIES,
    *(key for key, rule in RULES.items() if rule is Rule.NEVER),
}
ALLOWABLE = tuple(
    sorted(
        {*RECORDED, *RULES, *RUN, *ROWS, *PARAMS, *WITHIN_SIDE, CAPTURE[0]} - _NOT_ALLOWABLE
        | {f"{family}.NAME" for family in FAMILIES}
    )
)
# What a set-up command, a prefix or the command line can change in the environment.
_SETTABLE = frozenset(RULES) - {"microcode", "cmdline", STARTED[0]}
# What may differ between turns or boots of one experiment: it is under test.
UNDER_TEST = _SETTABLE | {"cpus-online"}
SETTINGS = UNDER_TEST | set(RUN)


def is_allowable(key: str) -> bool:
    family, dot, name = key.partition(".")
    return bool(name) and family in FAMILIES if dot else key in ALLOWABLE


@dataclass(frozen=True)
class Condition:
    """A key whose values disagree. `name` is the file or field. `base` and `new` are short texts
    with every value of their side. `why` replaces them if the values agree but cannot be used."""

    key: str
    name: str
    base: str
    new: str
    why: str = ""

    def sentence(self) -> str:
        if self.why:
            return f"{self.key}: {self.why}"
        if self.base == self.new:
            return f"{self.key}: the boots of a side differ in {self.name}: {self.base}"
        return f"{self.key}: {self.name} is {self.base} in BASE and {self.new} in NEW"

    def refusal(self) -> str:
        """The sentence with what to do."""
        if self.key == "unit":
            return f"{self.sentence()}; measure both in one mode"
        if self.key == "architecture":
            return f"{self.sentence()}; programs and kernels have other instructions there"
        if self.key == "machine" and self.why:
            return (
                f"{self.sentence()}; give each machine an /etc/machine-id of its own before measuring,"
                " or, if both sides are of one machine, --allow machine"
            )
        return f"{self.sentence()}; measure both alike, or --allow {self.key}"

    @property
    def family(self) -> str:
        return self.key.partition(".")[0]


# Keys of conditions, each with its value.
Distinctions = tuple[tuple[str, str], ...]


def conditions(session: Session, facts: Mapping[str, Any]) -> Values:
    """Of one session, by (key, name). `facts` is run.json, or empty."""
    found = {(key, name): _text(session.info.get(name)) for key, name in RECORDED.items()}
    # The unit of figures: ticks become nanoseconds where they measure time, and stay ticks
    # elsewhere.
    found["unit", RECORDED["unit"]] = "ns" if session.khz else session.unit
    for key, name in RUN.items():
        value = facts.get(key)
        found[key, name] = " ".join(value) if value and isinstance(value, list) else value or NONE
    files = captured(session.path / "environment")
    found |= of_files(files)
    # Without the command line, nobody can say that a word is absent.
    found[CAPTURE] = "without proc/cmdline" if files and "proc/cmdline" not in files else "captured"
    if not files:
        found[CAPTURE] = ABSENT
    if facts.get("lab"):
        found[GUEST] = "yes"
    found[KERNEL] = f"{session.info.get('kernel_release')} {session.info.get('kernel_version')}"
    found |= dict(_inherited(session))
    declared = facts.get("under_test") or {}
    if declared.get("experiment"):
        found[WORDS, declared["experiment"]] = declared.get("append") or ""
    return found


def _inherited(session: Session) -> Iterator[tuple[tuple[str, str], str]]:
    for name, value in (session.info.get("inherited") or {}).items():
        # Real-time policies ignore it.
        if name != "nice" or any("=other:" in row.policy for row in session.rows):
            yield (f"{PROCESS}.{name}", f"the process's {name}"), value
    for program, libraries in (session.info.get("libraries") or {}).items():
        yield (LIBRARIES, f"the libraries of {program}"), libraries


@dataclass(frozen=True)
class RunConditions:
    """What a run obtained besides its params and placement. All runs of a figure agree in these."""

    policy: str
    cpus: str
    program: str  # the start of its SHA-256
    # The way of its event, see klat.record.ways. Empty where that was not counted.
    woken: str = ""
    delivery: str = ""

    def differs_from(self, others: Iterable[RunConditions]) -> Distinctions:
        """The conditions that differ from any of the others."""
        held = [asdict(other) for other in others]
        return tuple(
            (name, value or NONE)
            for name, value in asdict(self).items()
            if any(other[name] != value for other in held)
        )

    def values(self, benchmark: str) -> Values:
        """What one side must agree in. The way of an event depends on the kernel."""
        return {
            ("cpus", "the CPUs used"): self.cpus,
            ("policy", "the policy obtained"): self.policy,
            ("program", f"the build of {benchmark}"): self.program,
        }


# The words on the command line that only BASE's kernel got, and those that only NEW's got.
Words = tuple[str, str]


def words_under_test(base: Sequence[Values], new: Sequence[Values]) -> Words | None:
    """None unless all sessions are of one experiment, which gave the kernels of the two sides
    different words on the command line."""
    held = [
        {(name, text) for values in side for (key, name), text in _declared(values)}
        for side in (base, new)
    ]
    if [len(side) for side in held] != [1, 1]:
        return None
    (one,), (two,) = held
    return (one[1], two[1]) if one[0] == two[0] and one[1] != two[1] else None


def _declared(values: Values) -> list[tuple[tuple[str, str], str]]:
    return [item for item in values.items() if item[0][0] == WORDS] or [((WORDS, ""), "")]


# Benchmark, or "all", and option.
Declared = frozenset[tuple[str, str]]


def declared_options(facts: Mapping[str, Any]) -> Declared:
    """The options in run.json that only one of two alternating settings got."""
    pairs = [text.partition("=")[0].partition(".") for text in facts.get("options") or ()]
    return frozenset((benchmark, option) for benchmark, _, option in pairs if option)


def is_captured(values: Values) -> bool:
    """Whether the session holds its environment."""
    return values.get(CAPTURE) != ABSENT


def of_kernel(session: Session) -> Values:
    """What identifies the kernel under test, by (key, name)."""
    return {(key, name): _text(session.info.get(name)) for key, name in WITHIN_SIDE.items()}


def _text(value: object) -> str:
    return ABSENT if value is None else str(value)


def disagreements(base: Sequence[Values], new: Sequence[Values]) -> list[Condition]:
    """The settings that are not the same in all sessions of both sides. Only the architecture if that differs: all
    that depends on the machine differs then, too."""
    found = []
    every = [*base, *new]
    common = Alike.of(every)
    captured_only = [[v for v in side if is_captured(v)] for side in (base, new)]
    for key, name in dict.fromkeys(name for values in every for name in values):
        rule = rule_of(key)
        # A session without its environment is reported once, not for each file.
        sides = captured_only if rule else (base, new)
        if rule is Rule.NEVER or not all(sides):
            continue
        held = [[_said(values, key, name, common) for values in side] for side in sides]
        sessions = [values for side in sides for values in side]
        texts_of_sessions = [said for side in held for said in side]
        brought = _is_brought(key, name, texts_of_sessions, sessions)
        # What somebody set differs from a file that the other kernel lacks, or that could not be read.
        is_set = any(
            is_known_as_set(key, name, text, values)
            for (text, _), values in zip(texts_of_sessions, sessions)
        )
        where_shared = rule in (Rule.SHARED, Rule.DEBUG) or (rule is Rule.SET and not common.kernel)
        if where_shared and not is_set:
            held = [[said for said in side if said != _NOTHING] for side in held]
        differ = len({counts_as for side in held for _, counts_as in side}) > 1
        if all(held) and differ and not brought:
            texts = [_several(text for text, _ in side) for side in held]
            if texts[0] == texts[1] and all(len(set(side)) == 1 for side in held):
                texts = _told_apart(*(side[0] for side in held))
            found.append(Condition(key, printable(name), *texts))
    of_architecture = [condition for condition in found if condition.key == "architecture"]
    return of_architecture or sorted(found, key=lambda condition: condition.key)


_NOTHING = (ABSENT, ABSENT)


def _is_brought(
    key: str, name: str, texts: Sequence[tuple[str, str]], sessions: Sequence[Values]
) -> bool:
    """Whether the kernels bring their values: nobody set them, and all boots of a kernel have the same value."""
    if not all(is_default(key, name, text, values) for (text, _), values in zip(texts, sessions)):
        return False
    by_kernel: dict[str | None, set[str]] = {}
    for (_, counts_as), values in zip(texts, sessions):
        by_kernel.setdefault(values.get(KERNEL), set()).add(counts_as)
    absent = {ABSENT} if rule_of(key) in (Rule.SHARED, Rule.DEBUG) else set()
    return all(len(brought - absent) < 2 for brought in by_kernel.values())


def _said(values: Values, key: str, name: str, common: Alike) -> tuple[str, str]:
    """The text, and the value that it is compared as."""
    text = values.get((key, name), ABSENT)
    counts_as = ABSENT if text == ABSENT else meaning(key, text, values, common)
    return _NOTHING if counts_as is None or counts_as == ABSENT else (text, counts_as)


def alike(sessions: Sequence[Values]) -> list[tuple[list[int], Distinctions]]:
    """The indexes of the sessions, in groups without disagreements, and how each group differs from
    the others. A session joins the first group that it agrees with."""
    groups: list[tuple[list[Values], list[int]]] = []  # the different values of each group
    for place, values in enumerate(sessions):
        for held, places in groups:
            known = values in held
            if known or not disagreements(held, [values]):
                places.append(place)
                held += [] if known else [values]
                break
        else:
            groups.append(([values], [place]))
    found = []
    for held, places in groups:
        others = [values for other, _ in groups if other is not held for values in other]
        differ = disagreements(held, others) if others else []
        found.append((places, tuple((condition.key, condition.base) for condition in differ)))
    return found


def kernels_within(label: str, sessions: Sequence[Session]) -> list[Condition]:
    """The conditions in which the kernels of one side differ."""
    values = [of_kernel(session) for session in sessions]
    return [
        replace(found, why=f"the boots of {label} differ in {found.name}: {found.base}")
        for found in disagreements(values, values)
    ]


def _told_apart(one: tuple[str, str], two: tuple[str, str]) -> list[str]:
    """Two texts for two values that look the same when shortened. If the full texts are the same, each
    result adds the value that klat compares. Otherwise both results begin near the first difference.
    """
    if one[0] == two[0]:
        return [short(f"{text} ({counts_as})") for text, counts_as in (one, two)]
    place = max(0, len(commonprefix([one[0], two[0]])) - 10)
    return [short(f"...{text[place:]}") for text, _ in (one, two)]


def _several(values: Iterable[str]) -> str:
    return " | ".join(short(value) for value in dict.fromkeys(values))
