"""Execution of a script of GRUB, and its conditions: grub-core/script/execute.c and grub-core/commands/test.c in GRUB's
source.

None stands for the value of a variable, the status of a command, or a condition that is known only during the boot."""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Union

from klat.base.errors import KlatError
from klat.campaign.grub_script import Command, GrubFunction, GrubLimitError, If, Loop, Statement
from klat.campaign.grub_script import TOO_DEEP, Variables, Word, expanded, text_of

ARGUMENTS = frozenset("@*#123456789")  # variables: the arguments of a function or a menuentry
_MOST_COMMANDS = 150_000  # about a second
_EXITS = ("return", "break", "continue")
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_PATTERN = re.compile(r"[*?]")  # GRUB replaces it by the names of files


class _Exit(Exception):
    """return, break or continue, at `line`. `place` is where GRUB continues. For a loop inside n other loops, 2n is the
    place after the loop, and 2n + 1 the end of its iteration. -1 is the end of the function. `status` is the argument
    of return.
    """

    def __init__(self, line: int, place: int, status: str | None = None) -> None:
        super().__init__()
        self.line = line
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
    _commands_left: int = field(default=_MOST_COMMANDS, init=False)
    _call_depth: int = field(default=0, init=False)
    _loop_depth: int = field(default=0, init=False)
    _path: Path = field(default=Path(), init=False)
    _returned: str = field(default="", init=False)  # the number of the last command's return

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
        if isinstance(statement, GrubFunction):
            self._functions[statement.name] = statement
            return True
        if isinstance(statement, Command):
            status = self._command(statement)
        elif isinstance(statement, If):
            status = self._if(statement.clauses)
        else:
            status = self._loop(statement)
        self.variables["?"] = None if status is None else "0" if status else self._returned or "1"
        return status

    def _status(self) -> Truth:
        """The status of the last command."""
        number = self.variables.get("?", "0")
        return None if number is None else number == "0"

    def _spend(self, work: int) -> None:
        """`work` is in 64ths of a command: the variables copied, or the characters expanded."""
        self._commands_left -= work >> 6
        if self._commands_left < 0:
            raise GrubLimitError("too many commands: a loop or a function may not end")

    def _if(self, clauses: Sequence[tuple[Sequence[Statement], Sequence[Statement]]]) -> Truth:
        for number, (condition, body) in enumerate(clauses, 1):
            holds = self._run(condition) if condition else True
            if holds:
                return self._run(body)
            if holds is None:
                rest = clauses[number:]
                ends = (lambda: self._run(body)), (lambda: self._if(rest))
                self.variables = _joined([*map(self._perhaps, ends)])
                return None
        return True

    def _perhaps(self, execute: Callable[[], object]) -> Variables:
        """Execute statements if only the boot decides whether GRUB executes them. Returns the variables at their end.
        KlatError if they leave a loop or a function: klat could not know the commands after it."""
        variables, self.variables = self.variables, dict(self.variables)
        sure, self._sure = self._sure, False
        try:
            execute()
        except _Exit as end:
            raise KlatError(
                f"{self._path}, line {end.line}: only the boot decides whether GRUB leaves a loop or a function here;"
                " remove this command"
            ) from None
        self._sure, self.variables, ends = sure, variables, self.variables
        return ends

    def _loop(self, statement: Loop) -> Truth:
        values = expanded(statement.words, self.variables)
        is_certain = values is not None and not any(map(_PATTERN.search, values))
        rest, place = iter(values or ()), 2 * self._loop_depth
        ended: Truth = False if is_certain else None
        self._loop_depth += 1
        try:
            while ended is False:
                ended = self._iterate(statement, rest, place)
            if ended is None:
                self._iterate_perhaps(statement)
        finally:
            self._loop_depth -= 1
        if ended is None:
            return None
        return self._status() if statement.condition or values else True

    def _iterate(self, statement: Loop, values: Iterator[str], place: int) -> Truth:
        """Whether the loop has ended; None if only the boot decides. `place` is the place after the loop."""
        try:
            ended = self._loop_ends(statement, values)
            if ended is False:
                self._run(statement.body)
        except _Exit as end:
            if end.place < place:
                raise
            ended = end.place == place
        return ended

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

    def _iterate_perhaps(self, statement: Loop) -> None:
        if not statement.condition:
            self.variables[statement.variable] = None
        before: Variables | None = None
        while before != self.variables:  # an iteration can depend on what an earlier one set
            before = self.variables
            both = (*statement.condition, *statement.body)
            self.variables = _joined([before, self._perhaps(lambda: self._run(both))])

    def _command(self, command: Command) -> Truth:
        arguments: list[str | None] = []
        for word in command.words:
            values = expanded([word], self.variables)
            arguments += [None] if values is None else [*values]
        self._spend(sum(len(word) for word in arguments if word))
        self._returned = ""
        if arguments[:1] == ["!"]:
            status = self._named(arguments[1:], command)
            self._returned = ""
            return negated(status)
        return self._named(arguments, command)

    def _named(self, arguments: Sequence[str | None], command: Command) -> Truth:
        """Execute a command by its name. `arguments` begins with the name."""
        if not arguments:
            return True
        name, rest = arguments[0] or "", arguments[1:]
        if name in ("true", "false"):
            return name == "true"
        if name == "sleep" and "--interruptible" in rest:
            return True
        if name == "keystatus" and rest:  # nobody presses a key during a campaign
            return False
        if name in ("[", "test"):
            return holds(rest[: -1 if rest[-1:] == ["]"] else None], self._is_file)
        if name in _EXITS:
            default = self.variables.get("?", "0") if name == "return" else "1"
            return self._exit(name, rest[0] if rest else default, command)
        if name in self._functions:
            return self._call(self._functions[name], arguments)
        if name == "set":
            for word in command.words[1:2]:
                self._assign(word, command)
        elif name in ("shift", "setparams") and self._call_depth:
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
            self._forget(command, rest)
            return None
        return True

    def _call(self, function: GrubFunction, arguments: Sequence[str | None]) -> Truth:
        outer = {name: v for name, v in self.variables.items() if name in ARGUMENTS}
        outer_state = self._arguments, self._loop_depth
        self._loop_depth = 0
        self._pass(arguments[1:])
        self._call_depth += 1
        try:
            self._run(function.body)
        except _Exit as end:
            self.variables["?"] = end.status
        self._call_depth -= 1
        self._arguments, self._loop_depth = outer_state
        self.variables = self._without_arguments() | outer
        self._returned = self.variables.get("?") or ""
        return self._status()

    def _pass(self, arguments: Sequence[str | None]) -> None:
        """Set the variables of the arguments of a function."""
        self._arguments = [*arguments]
        numbered = {str(number): word for number, word in enumerate(arguments, 1)}
        self.variables = self._without_arguments() | {"@": None, "#": str(len(numbered))} | numbered
        known = [word for word in arguments if word is not None]
        self.variables["*"] = " ".join(known) if len(known) == len(numbered) else None

    def _without_arguments(self) -> Variables:
        return {name: v for name, v in self.variables.items() if name not in ARGUMENTS}

    def _exit(self, name: str, number: str | None, command: Command) -> Truth:
        """return, break or continue. Elsewhere than in a function or a loop, GRUB ignores it."""
        if name == "return":
            if self._call_depth and (number is None or number.isdecimal()):
                raise _Exit(command.line, -1, None if number is None else str(int(number)))
        elif number is None and self._loop_depth:
            raise KlatError(
                f"{self._place(command)}: only the boot decides how many loops {name} leaves; write the number"
            )
        elif number and number.isdecimal() and int(number):
            if self._loop_depth:
                self.variables["?"] = "0"
                left = self._loop_depth - min(int(number), self._loop_depth)
                raise _Exit(command.line, 2 * left + (name == "continue"))
            return True
        return None if number is None else False

    def _assign(self, word: Word, command: Command) -> None:
        values = expanded([word], self.variables)
        value = None if values is None else "".join(values[:1]).partition("=")[2]
        name = text_of(word).partition("=")[0]
        self._set(name, value, command)

    def _set(self, name: str, value: str | None, command: Command) -> None:
        self.variables[name] = value
        self.set_at[name] = self._place(command)

    def _place(self, command: Command) -> str:
        return f"{self._path}, line {command.line}"

    def _forget(self, command: Command, arguments: Sequence[str | None]) -> None:
        """A command that klat does not know may set the variables that it names: --set=NAME, --set 1:NAME, NAME."""
        for word in filter(None, arguments):
            name = word.removeprefix("--set=").rpartition(":")[2]
            if name.isidentifier():
                self._set(name, None, command)


def _joined(ends: Sequence[Variables]) -> Variables:
    """The variables where the paths of a script meet."""
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


Truth = Optional[bool]

_TEXTS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne}
_NUMBERS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# grub_strtoul() in grub-core/kern/misc.c, with base 0.
NUMBER = re.compile(r"\s*(?:0x(?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]+)|(?P<decimal>\d+))")
_FILES = ("-d", "-e", "-f", "-s")
_UNARY = ("-n", "-z", *_FILES)
# -pgt and -plt (numbers after a common prefix), and -nt and -ot (ages of files) are known only during the boot.
_SIGN = re.compile(r"==?|!=|-(?:eq|ne|lt|le|gt|ge)|-p(?:gt|lt)|-[no]t[-+\d]*")


def holds(arguments: Sequence[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether `[` or `test` succeeds with these arguments. -a binds closer than -o."""
    return _group(list(arguments), is_file)


def _group(words: list[str | None], is_file: Callable[[str], Truth]) -> Truth:
    """Whether the arguments hold. Removes them, up to the parenthesis that ends the group."""
    groups: list[list[Truth]] = [[]]
    invert = False
    while words:
        sign = _SIGN.fullmatch(words[1] or "") if len(words) > 2 else None
        word = None if sign or (len(words) > 1 and words[0] in _UNARY) else words[0]
        if word in ("-a", "-o", "!", "(", ")"):
            del words[0]
        if word == ")":
            break
        if word in ("-a", "-o", "!"):
            groups += [[]] if word == "-o" else []
            invert ^= word == "!"
            continue
        value, used = (_group(words, is_file), 0) if word == "(" else _term(words, is_file)
        groups[-1].append(negated(value) if invert else value)
        invert = False
        del words[:used]
    return negated(_all([negated(_all(group)) for group in groups]))


def negated(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _term(words: Sequence[str | None], is_file: Callable[[str], Truth]) -> tuple[Truth, int]:
    """Whether the first condition holds, and how many arguments it has."""
    sign = words[1] if len(words) > 2 else None
    if sign and _SIGN.fullmatch(sign):
        left, right = words[0], words[2]
        if left is None or right is None or sign not in (*_TEXTS, *_NUMBERS):
            return None, 3
        if sign in _TEXTS:
            return bool(_TEXTS[sign](left, right)), 3
        return bool(_NUMBERS[sign](_signed(left), _signed(right))), 3
    is_unary = len(words) > 1 and words[0] in _UNARY
    kind, value, used = (words[0], words[1], 2) if is_unary else ("-n", words[0], 1)
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
