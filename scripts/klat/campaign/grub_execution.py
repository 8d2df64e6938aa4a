"""Execution of a script of GRUB: grub-core/script/execute.c and grub-core/commands/test.c in GRUB's source.

None stands for the value of a variable, or the status of a command, that is known only during the boot."""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Union

from klat.base.errors import KlatError
from klat.campaign.grub_script import (
    Command,
    GrubFunction,
    GrubLimitError,
    If,
    Loop,
    Statement,
    TOO_DEEP,
    Variables,
    Word,
    expanded,
    text_of,
)

Truth = Optional[bool]

_TEXTS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne}
_NUMBERS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# grub_strtoul() in grub-core/kern/misc.c, with base 0.
NUMBER = re.compile(r"\s*(?:0x(?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]+)|(?P<decimal>\d+))")
_FILES = ("-d", "-e", "-f", "-s")
_UNARY = ("-n", "-z", *_FILES)
# Numbers after a common word, and the ages of files, are known only during the boot.
_SIGN = re.compile(r"==?|!=|-(?:eq|ne|lt|le|gt|ge)|-p(?:gt|lt)|-[no]t[-+\d]*")


def holds(arguments: Sequence[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether `[` or `test` succeeds with these arguments. -a binds closer than -o."""
    return _group(list(arguments), is_file)


def _group(rest: list[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether the arguments hold. Removes them, up to the parenthesis that ends the group."""
    groups: list[list[Truth]] = [[]]
    invert = False
    while rest:
        sign = _SIGN.fullmatch(rest[1] or "") if len(rest) > 2 else None
        word = None if sign or (len(rest) > 1 and rest[0] in _UNARY) else rest[0]
        if word in ("-a", "-o", "!", "(", ")"):
            del rest[0]
        if word == ")":
            break
        if word in ("-a", "-o", "!"):
            groups += [[]] if word == "-o" else []
            invert ^= word == "!"
            continue
        value, used = (_group(rest, is_file), 0) if word == "(" else _term(rest, is_file)
        groups[-1].append(negated(value) if invert else value)
        invert = False
        del rest[:used]
    return negated(_all([negated(_all(group)) for group in groups]))


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _term(rest: Sequence[str | None], is_file: Callable[[str], Truth]) -> tuple[Truth, int]:
    """Whether the first condition holds, and how many arguments it has."""
    sign = rest[1] if len(rest) > 2 else None
    if sign and _SIGN.fullmatch(sign):
        left, right = rest[0], rest[2]
        if left is None or right is None or sign not in (*_TEXTS, *_NUMBERS):
            return None, 3
        if sign in _TEXTS:
            return bool(_TEXTS[sign](left, right)), 3
        return bool(_NUMBERS[sign](_signed(left), _signed(right))), 3
    is_unary = len(rest) > 1 and rest[0] in _UNARY
    kind, value, used = (rest[0], rest[1], 2) if is_unary else ("-n", rest[0], 1)
    if value is None:
        return None, used
    if kind in _FILES:
        return is_file(value), used
    return (value == "") == (kind == "-z"), used


def _signed(text: str) -> int:
    """The number at the beginning. 0 if there is none: test.c ignores the error."""
    match = NUMBER.match(text.removeprefix("-"))
    value = number_of(match) if match else 0
    return -value if text.startswith("-") else value


def number_of(match: re.Match[str]) -> int:
    return int(match[match.lastgroup or 0], {"hex": 16, "octal": 8}.get(match.lastgroup or "", 10))


def _all(truths: Sequence[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


ARGUMENTS = frozenset("@*#123456789")  # variables: the arguments of a function or a menuentry
_MOST_COMMANDS = 150_000  # about a second
_EXITS = ("return", "break", "continue")
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_PATTERN = re.compile(r"[*?]")  # GRUB replaces it by the names of files


class _Exit(Exception):
    """return, break or continue, which lead to `place`: 2n is in the body of n loops, 2n + 1 at the end of the body of
    loop n + 1, and -1 at the end of the function. `status` is that of return."""

    def __init__(self, place: int, status: Truth = None) -> None:
        super().__init__()
        self.place = place
        self.status = status


@dataclass
class Execution(ABC):
    """`set_at` has the places where variables are set."""

    variables: Variables = field(default_factory=dict, init=False)
    set_at: dict[str, str] = field(default_factory=dict, init=False)
    _functions: dict[str, GrubFunction] = field(default_factory=dict, init=False)
    _arguments: list[str | None] = field(default_factory=list, init=False)
    _sure: bool = field(default=True, init=False)
    _left: int = field(default=_MOST_COMMANDS, init=False)
    _calls: int = field(default=0, init=False)
    _loops: int = field(default=0, init=False)
    _path: Path = field(default=Path(), init=False)
    # The places of exits that only the boot decides, with the variables there.
    _exits: list[tuple[int, Variables]] = field(default_factory=list, init=False)

    @abstractmethod
    def _is_file(self, name: str) -> Truth:
        ...

    def _run(self, statements: Sequence[Statement]) -> Truth:
        """The status of the last statement."""
        status: Truth = True
        for statement in statements:
            try:
                status = self._statement(statement)
            except (RecursionError, GrubLimitError) as error:
                why = TOO_DEEP if isinstance(error, RecursionError) else str(error)
                raise KlatError(f"{self._path}, line {statement.line}: {why}") from None
        return status

    def _statement(self, statement: Statement) -> Truth:
        self._spend(64 + len(self.variables))
        status: Truth = True
        if isinstance(statement, Command):
            status = self._command(statement)
            self.variables["?"] = None if status is None else str(int(not status))
        elif isinstance(statement, If):
            status = self._if(statement)
        elif isinstance(statement, Loop):
            status = self._loop(statement)
        else:
            self._functions[statement.name] = statement
        return status

    def _spend(self, work: int) -> None:
        """`work` is in 64ths of a command: the variables copied, or the characters expanded."""
        self._left -= work >> 6
        if self._left < 0:
            raise GrubLimitError("too many commands: a loop or a function may not end")

    def _if(self, statement: If) -> Truth:
        ends: list[Variables] = []  # the variables after each branch that may be executed
        status: Truth = True
        for condition, body in statement.clauses:
            holds = self._run(condition) if condition else True
            if holds is False:
                continue
            if holds and not ends:
                return self._run(body)
            ends += self._perhaps(body)
            status = None
            if holds:
                break
        else:
            ends.append(self.variables)
        self.variables = _joined(ends or [self.variables])
        return status

    def _perhaps(self, body: Sequence[Statement]) -> list[Variables]:
        """The variables after a body that GRUB may or may not execute: this is known only during the boot. None after a
        body that leaves a loop or a function."""
        variables, self.variables = self.variables, dict(self.variables)
        sure, self._sure = self._sure, False
        ends = []
        try:
            self._run(body)
            ends.append(self.variables)
        except _Exit as end:
            self._exits.append((end.place, self.variables))
        self._sure, self.variables = sure and not self._exits, variables
        return ends

    def _arrive(self, place: int) -> None:
        """Join the variables of the exits that lead to this place."""
        self.variables = _joined([self.variables, *(v for at, v in self._exits if at >= place)])
        self._exits = [(at, v) for at, v in self._exits if at < place]

    def _loop(self, statement: Loop) -> Truth:
        values = expanded(statement.words, self.variables)
        is_certain = values is not None and not any(map(_PATTERN.search, values))
        rest, sure, after = iter(values or ()), self._sure, 2 * self._loops
        ended: Truth = False if is_certain else None
        self._loops += 1
        try:
            while ended is False:
                ended = self._iterate(statement, rest, after)
            if ended is None:
                self._iterate_perhaps(statement, after)
        finally:
            self._loops -= 1
        self._arrive(after)
        self._sure = sure and not self._exits
        # The status of `for` is that of its last body, which klat does not keep.
        return None if ended is None or not statement.condition else statement.until

    def _iterate(self, statement: Loop, values: Iterator[str], after: int) -> Truth:
        """Whether the loop has ended; None if only the boot decides. `after` is the place after the loop."""
        sure = self._sure
        try:
            ended = self._loop_ends(statement, values)
            if ended is False:
                self._run(statement.body)
        except _Exit as end:
            ended = end.place == after
            if any(place >= after for place, _ in self._exits):
                self._exits.append((end.place, dict(self.variables)))
            elif end.place < after:
                raise
        self._arrive(after + 1)
        self._sure = sure and not self._exits
        return None if any(place == after for place, _ in self._exits) else ended

    def _loop_ends(self, statement: Loop, values: Iterator[str]) -> Truth:
        """Whether the loop ends here; None if only the boot decides. Sets the variable of `for`."""
        self._spend(64)
        if statement.condition:
            status = self._run(statement.condition)
            return None if status is None else status == statement.until
        value = next(values, None)
        if value is not None:
            self.variables[statement.variable] = value
        return value is None

    def _iterate_perhaps(self, statement: Loop, after: int) -> None:
        if not statement.condition:
            self.variables[statement.variable] = None
        before: Variables | None = None
        while before != self.variables:  # an iteration can depend on what an earlier one set
            before = self.variables
            self.variables = _joined(
                [before, *self._perhaps((*statement.condition, *statement.body))]
            )
            self._arrive(after + 1)

    def _command(self, command: Command) -> Truth:
        arguments: list[str | None] = []
        for word in command.words:
            values = expanded([word], self.variables)
            arguments += [None] if values is None else [*values]
        self._spend(sum(len(word) for word in arguments if word))
        if arguments[:1] == ["!"]:
            return negated(self._named(arguments[1:], command))
        return self._named(arguments, command)

    def _named(self, arguments: Sequence[str | None], command: Command) -> Truth:
        """Execute a command by its name. `arguments` begins with the name."""
        if not arguments:
            return True
        name, rest = arguments[0] or "", arguments[1:]
        if name in ("true", "false"):
            return name == "true"
        if name in ("[", "test"):
            return holds(rest[: -1 if name == "[" else None], self._is_file)
        if name in _EXITS:
            default = self.variables.get("?", "0") if name == "return" else "1"
            return self._exit(name, rest[0] if rest else default)
        if name in self._functions:
            return self._call(self._functions[name], arguments)
        if name == "set":
            for word in command.words[1:2]:
                self._assign(word, command)
        elif name in ("shift", "setparams") and self._calls:
            number = rest[0] if rest else "1"
            if name == "setparams":
                self._pass(rest)
            elif number is None:
                self._pass([None] * len(self._arguments))
            elif number.isdecimal() and int(number) <= len(self._arguments):
                self._pass(self._arguments[int(number) :])
        elif _ASSIGNMENT.fullmatch(text_of(command.words[0])):
            self._assign(command.words[0], command)
        elif name != "echo":
            self._forget(rest)
            return None
        return True

    def _call(self, function: GrubFunction, arguments: Sequence[str | None]) -> Truth:
        outer = {name: v for name, v in self.variables.items() if name in ARGUMENTS}
        outer_state = self._arguments, self._loops, self._exits, self._sure
        self._loops, self._exits = 0, []
        self._pass(arguments[1:])
        self._calls += 1
        try:
            status = self._run(function.body)
        except _Exit as end:
            status = end.status
        status = None if self._exits else status
        self._arrive(-1)
        self._calls -= 1
        self._arguments, self._loops, self._exits, self._sure = outer_state
        self.variables = self._without_arguments() | outer
        return status

    def _pass(self, arguments: Sequence[str | None]) -> None:
        """Set the variables of the arguments of a function."""
        self._arguments = [*arguments]
        numbered = {str(number): word for number, word in enumerate(arguments, 1)}
        self.variables = self._without_arguments() | {"@": None, "#": str(len(numbered))} | numbered
        known = [word for word in arguments if word is not None]
        self.variables["*"] = " ".join(known) if len(known) == len(numbered) else None

    def _without_arguments(self) -> Variables:
        return {name: v for name, v in self.variables.items() if name not in ARGUMENTS}

    def _exit(self, name: str, number: str | None) -> Truth:
        """return, break or continue. Elsewhere than in a function or a loop, GRUB ignores it."""
        if name == "return":
            if self._calls and (number is None or number.isdecimal()):
                raise _Exit(-1, None if number is None else int(number) == 0)
        elif number is None:
            self._exits += [(place, dict(self.variables)) for place in range(2 * self._loops)]
            self._sure &= not self._exits
        elif number.isdecimal() and int(number):
            if self._loops:
                left = self._loops - min(int(number), self._loops)
                raise _Exit(2 * left + (name == "continue"))
            return True
        return None if number is None else False

    def _assign(self, word: Word, command: Command) -> None:
        values = expanded([word], self.variables)
        value = None if values is None else "".join(values[:1]).partition("=")[2]
        name = text_of(word).partition("=")[0]
        self.variables[name] = value
        self.set_at[name] = f"{self._path}, line {command.line}"

    def _forget(self, arguments: Sequence[str | None]) -> None:
        """A command that klat does not know may set the variables that it names: --set=NAME, --set 1:NAME, NAME."""
        for word in filter(None, arguments):
            name = word.removeprefix("--set=").rpartition(":")[2]
            if name.isidentifier():
                self.variables[name] = None


def _joined(ends: Sequence[Variables]) -> Variables:
    """The variables where the paths of a script meet."""
    if len(ends) == 1:
        return ends[0]
    return {
        name: values.pop() if len(values) == 1 else None
        for name in set().union(*ends)
        for values in [{end.get(name, "") for end in ends}]
    }


class Shown(dict[str, Union[str, None]]):
    """The values of variables. A variable without a known value stays as its name."""

    def get(self, name: str, default: object = None) -> str:
        return shown(name, super().get(name))


def shown(name: str, value: str | None) -> str:
    return f"${name}" if value is None else value
