"""The conditions that two sides must agree in before their figures are compared.

A condition is a key with a value in each session. A difference that somebody or something set is
refused. What the kernel brings (release, version, configuration, preemption model, defaults, its own
texts) is under test: within one side it must agree, between two sides it is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from os.path import commonprefix
from typing import Any, NamedTuple

from klat.record.environment import ABSENT, CONFIG, captured, compiler_of, short
from klat.compare.condition_meanings import Alike, meaning
from klat.compare.environment_conditions import BASIS, FAMILIES, GUEST, KERNEL, LIBRARIES, NET
from klat.compare.environment_conditions import PROCESS, RULES, STARTED, WORDS, Rule, Values
from klat.compare.environment_conditions import explained_by, of_files, rule_of, uses_network
from klat.compare.kernel_defaults import basis_of, cpus_counted, is_default, is_known_as_set
from klat.record.session import Row, Session, printable
from klat.record.evidence import WAYS, load_of

# Keys of session.json, of the environment's files, and of the rows. `--allow` takes any but unit.
RECORDED = {
    "machine": "machine_id",
    "architecture": "architecture",
    "cpu": "cpu_model",
    "cpus-online": "cpus_online",
    "mode": "mode",
    "unit": "unit",
}
COUNTER = "counter"
OTHER_SESSIONS, LOAD_PAUSE = _OF_LOADS = "other-sessions", "load-pause"
CAPTURE = ("environment", "the environment")  # whether it was captured
NONE = "none"
COMPILER = (KERNEL[0], "compiler")
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
_NOT_ALLOWABLE = {"unit", "architecture", *FAMILIES}
_NOT_ALLOWABLE |= {key for key, rule in RULES.items() if rule is Rule.NEVER}
ALLOWABLE = tuple(
    sorted(
        {*RECORDED, *RULES, *RUN, *ROWS, *PARAMS, *WITHIN_SIDE, CAPTURE[0], COUNTER, *_OF_LOADS}
        - _NOT_ALLOWABLE
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

    def refusal(self, can_allow: bool = True) -> str:
        """The sentence, and the cure. `can_allow`: the command has the option --allow."""
        allow = f", or --allow {self.key}" if can_allow else ""
        if self.key == "unit":
            return f"{self.sentence()}; measure both in one mode"
        if self.key == "architecture":
            return f"{self.sentence()}; programs and kernels have other instructions there"
        if self.key == "machine" and self.why:
            allow_on_one = allow.replace(", or", ", or, if both sides are of one machine,")
            cure = "give each machine an /etc/machine-id of its own before measuring"
            return f"{self.sentence()}; {cure}{allow_on_one}"
        if self.key == COUNTER:
            return (
                f"{self.sentence()}; one kernel measured it wrongly, so its times have the same error, or the"
                f" guest moved to another host; measure both again{allow}"
            )
        return f"{self.sentence()}; measure both alike{allow}"

    @property
    def family(self) -> str:
        return self.key.partition(".")[0]


# Keys of conditions, each with its value.
Distinctions = tuple[tuple[str, str], ...]


def conditions(session: Session, facts: Mapping[str, Any]) -> Values:
    """Of one session, by (key, name). `facts` is run.json, or empty."""
    values = {(key, name): _text(session.info.get(name)) for key, name in RECORDED.items()}
    # The unit of figures: ticks become nanoseconds where they measure time, and stay ticks
    # elsewhere.
    values["unit", RECORDED["unit"]] = "ns" if session.khz else session.unit
    for key, name in RUN.items():
        fact = load_of(session, facts) if key == "load" else facts.get(key)
        values[key, name] = " ".join(fact) if fact and isinstance(fact, list) else fact or NONE
    files = captured(session.path / "environment")
    programs = session.info.get("programs") or {}
    values |= {
        key: value
        for key, value in of_files(files).items()
        if key[0].partition(".")[0] != NET or uses_network(key[0], programs)
    }
    for key, name, was, now in facts.get("changed", []):
        values[key, name] = f"{was}, later {now}"
    values[BASIS] = basis_of(files)
    # Without the command line, nobody can say that a word is absent.
    values[CAPTURE] = (
        "without proc/cmdline" if files and "proc/cmdline" not in files else "captured"
    )
    if not files:
        values[CAPTURE] = ABSENT
    if facts.get("lab"):
        values[GUEST] = "yes"
    values[KERNEL] = f"{session.info.get('kernel_release')} {session.info.get('kernel_version')}"
    values |= dict(_inherited(session))
    if compiler := compiler_of(files.get(CONFIG, {})):
        values[COMPILER] = compiler
    experiment = facts.get("under_test") or {}
    if experiment.get("experiment"):
        values[WORDS, experiment["experiment"]] = experiment.get("append") or ""
    return values


# Real-time policies ignore them.
_OF_ORDINARY_THREADS = ("nice", "autogroup_nice", "slice_ns", "cpu.weight", "cpu_cgroup_depth")


def _is_effective(name: str, row: Row) -> bool:
    if name == "lo_mtu":
        return row.benchmark == "transport"
    is_ordinary = "=other:" in row.policy or "=batch:" in row.policy
    if name in ("rt_cgroup_depth", "cpu.rt_runtime_us"):
        return not is_ordinary
    return name not in _OF_ORDINARY_THREADS or is_ordinary


def _requests_less(session: Session, latency: str) -> bool:
    """Whether every run holds a DMA latency of its own, not above the one that others request."""
    requests = {row.options().get("dma-latency", "") for row in session.rows}
    return latency.isdecimal() and all(t.isdecimal() and int(t) <= int(latency) for t in requests)


def _inherited(session: Session) -> Iterator[tuple[tuple[str, str], str]]:
    for name, value in (session.info.get("inherited") or {}).items():
        if any(_is_effective(name, row) for row in session.rows):
            is_void = name == "dma_latency" and _requests_less(session, value)
            yield (f"{PROCESS}.{name}", f"the process's {name}"), NONE if is_void else value
    for program, libraries in (session.info.get("libraries") or {}).items():
        yield (LIBRARIES, f"the libraries of {program}"), libraries


class RunConditions(NamedTuple):
    """What a run obtained besides its params and placement. All runs of a figure agree in these."""

    policy: str
    cpus: str
    program: str  # the start of its SHA-256
    # The way of its event, see klat.record.evidence. Empty where that was not counted.
    woken: str = ""
    delivery: str = ""

    def differs_from(self, others: Iterable[RunConditions]) -> Distinctions:
        """The conditions that differ from any of the others."""
        other_values = [other._asdict() for other in others]
        pairs = self._asdict().items()
        return tuple(
            (n, v or NONE) for n, v in pairs if any(other[n] != v for other in other_values)
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
    experiments = [
        {(name, text) for values in side for (key, name), text in _declared(values)}
        for side in (base, new)
    ]
    if [len(side) for side in experiments] != [1, 1]:
        return None
    ((base_name, base_words),), ((new_name, new_words),) = experiments
    if base_name != new_name or base_words == new_words:
        return None
    return base_words, new_words


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


class _Value(NamedTuple):
    """A text, and the value that it is compared as."""

    text: str
    counts_as: str


def disagreements(base: Sequence[Values], new: Sequence[Values]) -> list[Condition]:
    """The settings that are not the same in all sessions of both sides, without the effects of words of the command line
    that differ. Only the architecture if that differs: all that depends on the machine differs then, too.
    """
    sessions = [*base, *new]
    common = Alike.of(sessions)
    with_environment = [[values for values in side if is_captured(values)] for side in (base, new)]
    disagreeing: list[Condition] = []
    for key, name in dict.fromkeys(name for values in sessions for name in values):
        rule = rule_of(key)
        # A session without its environment is reported once, not for each file.
        sides = with_environment if rule else (base, new)
        if rule is not Rule.NEVER and all(sides):
            disagreeing += filter(None, [_disagreement(key, name, sides, common)])
    if of_architecture := [c for c in disagreeing if c.key == "architecture"]:
        return of_architecture
    effects = explained_by({condition.key for condition in disagreeing})
    causes = (c for c in disagreeing if not {c.key, c.family} & effects)
    return sorted(causes, key=lambda condition: condition.key)


def _disagreement(
    key: str, name: str, sides: Sequence[Sequence[Values]], common: Alike
) -> Condition | None:
    rule = rule_of(key)
    by_side = [[_value(values, key, name, common) for values in side] for side in sides]
    by_session = list(zip(chain(*by_side), chain(*sides)))
    # What somebody set differs from a file that the other kernel lacks, or that could not be read.
    is_set = any(is_known_as_set(key, name, value.text, values) for value, values in by_session)
    where_shared = rule in (Rule.SHARED, Rule.DEBUG) or (rule is Rule.SET and not common.kernel)
    is_brought = _is_brought(key, name, by_session)
    if where_shared and not is_set:
        by_side = [[value for value in side if value.counts_as != ABSENT] for side in by_side]
    differ = len({value.counts_as for value in chain(*by_side)}) > 1
    if not all(by_side) or not differ or is_brought:
        return None
    texts = [_joined(value.text for value in side) for side in by_side]
    if texts[0] == texts[1] and all(len(set(side)) == 1 for side in by_side):
        texts = _distinct_texts(by_side[0][0], by_side[1][0])
    return Condition(key, printable(name), *texts)


def _is_brought(key: str, name: str, by_session: Sequence[tuple[_Value, Values]]) -> bool:
    """Whether the kernels bring their values: nobody set them, and all boots of a kernel have the same value."""
    if not all(is_default(key, name, value.text, values) for value, values in by_session):
        return False
    counted = [cpus_counted(name, value.text, values) for value, values in by_session]
    if (scaled := list(filter(None, counted))) and not frozenset.intersection(*scaled):
        return False
    by_kernel: dict[str | None, set[str]] = {}
    for value, values in by_session:
        by_kernel.setdefault(values.get(KERNEL), set()).add(value.counts_as)
    absent = {ABSENT} if rule_of(key) in (Rule.SHARED, Rule.DEBUG) else set()
    return all(len(brought - absent) < 2 for brought in by_kernel.values())


def _value(values: Values, key: str, name: str, common: Alike) -> _Value:
    text = values.get((key, name), ABSENT)
    counts_as = ABSENT if text == ABSENT else meaning(key, text, values, common)
    return _Value(ABSENT, ABSENT) if counts_as is None else _Value(text, counts_as)


def alike(sessions: Sequence[Values]) -> list[tuple[list[int], Distinctions]]:
    """The indexes of the sessions, in groups without disagreements, and how each group differs from
    the others. A session joins the first group that it agrees with."""
    groups: list[tuple[list[Values], list[int]]] = []  # the different values of each group
    for place, values in enumerate(sessions):
        for members, places in groups:
            is_repeated = values in members
            if is_repeated or not disagreements(members, [values]):
                places.append(place)
                members += [] if is_repeated else [values]
                break
        else:
            groups.append(([values], [place]))
    distinguished = []
    for members, places in groups:
        others = [values for group, _ in groups if group is not members for values in group]
        differ = disagreements(members, others) if others else []
        distinctions = tuple((condition.key, condition.base) for condition in differ)
        distinguished.append((places, distinctions))
    return distinguished


def kernels_within(label: str, sessions: Sequence[Session]) -> list[Condition]:
    """The conditions in which the kernels of one side differ."""
    kernels = [of_kernel(session) for session in sessions]
    return [
        replace(differs, why=f"the boots of {label} differ in {differs.name}: {differs.base}")
        for differs in disagreements(kernels, kernels)
    ]


def _distinct_texts(*values: _Value) -> list[str]:
    """Two texts for two values that look the same when shortened. If the full texts are the same, each
    result adds the value that klat compares. Otherwise both results begin near the first difference.
    """
    texts = [value.text for value in values]
    if len(set(texts)) == 1:
        return [short(f"{text} ({counts_as})") for text, counts_as in values]
    place = max(0, len(commonprefix(texts)) - 10)
    return [short(f"...{text[place:]}") for text in texts]


def _joined(values: Iterable[str]) -> str:
    return " | ".join(short(value) for value in dict.fromkeys(values))
