"""The grammar of GRUB's scripts: grub-core/script/yylex.l and parser.y in GRUB's source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Optional, Union

_VARIABLE = r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\d+|\{\d+\}|[?#*@]|\{[?#*@]\})"
_DOUBLE = rf'"(?:\\.|[^"\\$]|{_VARIABLE})*"'
_WORD = rf"(?:[^{{}}|&$;<> \t\n'\"\\]|{_DOUBLE}|'[^']*'|\\.|{_VARIABLE}|\${_DOUBLE})+"
_TOKEN = re.compile(
    rf"(?P<blank>[ \t]+|#[^\n]*)|(?P<sign>\n|\|\||&&|;;|[|&;<>{{}}])|(?P<word>{_WORD})",
    re.DOTALL | re.ASCII,
)
_PART = re.compile(
    rf"(?P<double>\$?{_DOUBLE})|'(?P<single>[^']*)'|\\(?P<escaped>.)|(?P<variable>{_VARIABLE})"
    r"|(?P<text>.)",
    re.DOTALL | re.ASCII,
)
_QUOTED = re.compile(rf'\\(?P<escaped>[$\\"\n])|(?P<variable>{_VARIABLE})|(?P<text>.)', re.DOTALL)
_ENDS = ("\n", ";")
_LONGEST = 1 << 16  # characters in the words of a command
TOO_DEEP = "conditions, loops or functions are nested deeper than klat can follow"
_RESERVED = frozenset(
    "[[ ]] case do done elif else esac fi for if in select then until while function".split()
)
_VALUED = ("class", "users", "hotkey", "source", "id")  # options of menuentry


class GrubSyntaxError(ValueError):
    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")


class GrubLimitError(ValueError):
    """The script exceeds a limit of klat: of commands or characters."""


class WordPart(NamedTuple):
    """A text, or the name of a variable. GRUB splits the value of a variable at blanks if it is not
    `quoted`, and removes an empty word if no part of it is quoted."""

    text: str
    is_variable: bool = False
    quoted: bool = False


Word = tuple[WordPart, ...]


@dataclass(frozen=True)
class GrubBlock:
    """`text` is the source between the braces. It begins at `start` in the whole script."""

    statements: tuple[Statement, ...]
    text: str
    start: int


@dataclass(frozen=True)
class Command:
    """Its words reach from `start` to `end` in the whole script, and with its block to `stop`."""

    words: tuple[Word, ...]
    block: GrubBlock | None
    line: int
    start: int
    end: int
    stop: int


@dataclass(frozen=True)
class If:
    """The clauses of if and elif, and of else, whose condition is empty."""

    clauses: tuple[tuple[tuple[Statement, ...], tuple[Statement, ...]], ...]
    line: int


@dataclass(frozen=True)
class Loop:
    """`words` has the values of `variable`; while and until have a condition instead."""

    variable: str
    words: tuple[Word, ...]
    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]
    line: int
    until: bool = False


@dataclass(frozen=True)
class GrubFunction:
    name: str
    body: tuple[Statement, ...]
    line: int


Statement = Union[Command, If, Loop, GrubFunction]
Variables = dict[str, Optional[str]]  # None if the value is known only during the boot


class _Token(NamedTuple):
    text: str
    is_word: bool
    start: int
    line: int


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[Statement, ...]:
    """GrubSyntaxError if GRUB or klat cannot parse the script."""
    parser = _Parser(text)
    try:
        return parser.script()
    except RecursionError:
        raise GrubSyntaxError(parser.line(), TOO_DEEP) from None


def parse_block(text: str) -> GrubBlock:
    return GrubBlock(parse(text), text, 0)


def commands(statements: Sequence[Statement]) -> Iterator[Command]:
    """All commands in their order, also those of conditions and loops."""
    for statement in statements:
        if isinstance(statement, Command):
            yield statement
        elif isinstance(statement, If):
            for condition, body in statement.clauses:
                yield from commands((*condition, *body))
        elif isinstance(statement, Loop):
            yield from commands((*statement.condition, *statement.body))


def without_commands(body: GrubBlock, names: Sequence[str]) -> str:
    """The text of the body without the commands with these names. Commands in conditions and loops stay."""
    text, at = "", body.start
    for statement in body.statements:
        if isinstance(statement, Command) and text_of(statement.words[0]) in names:
            text += body.text[at - body.start : statement.start - body.start]
            rest = body.text[statement.stop - body.start :]
            at = statement.stop + len(rest) - len(re.sub(r"^[ \t]*;", "", rest))
    text += body.text[at - body.start :]
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip(" \t;"))


def text_of(word: Word) -> str:
    """The word, with the names of its variables."""
    return "".join(f"${{{part.text}}}" if part.is_variable else part.text for part in word)


def expanded(words: Sequence[Word], variables: Variables) -> list[str] | None:
    """The arguments that GRUB makes of the words. None if they are known only during the boot."""
    arguments: list[str] = []
    length = 0
    for word in words:
        current: str | None = None
        for part in word:
            value = variables.get(part.text, "") if part.is_variable else part.text
            if value is None:
                return None
            length += len(value)
            if length > _LONGEST:
                raise GrubLimitError(f"a command with more than {_LONGEST:,} characters")
            pieces = value.split() if part.is_variable and not part.quoted else [value]
            for number, piece in enumerate(pieces):
                if number:
                    arguments.append(current or "")
                    current = None
                if piece or part.quoted:
                    current = (current or "") + piece
        if current is not None:
            arguments.append(current)
    return arguments


def menu_options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options of menuentry, and its other arguments (grub-core/lib/arg.c)."""
    options, others = {}, []
    at = 0
    while at < len(words):
        name, equals, value = words[at].removeprefix("--").partition("=")
        is_option = words[at].startswith("--") and name in (*_VALUED, "unrestricted")
        at += 1
        if not is_option:
            others.append(words[at - 1])
        elif name in _VALUED and not equals and not "".join(words[at : at + 1]).startswith("-"):
            value = "".join(words[at : at + 1])
            at += 1
        if is_option:
            options[name] = value
    return options, others


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise GrubSyntaxError(line, f"GRUB cannot read {text[at:].split()[0][:40]!r}")
        if match.lastgroup != "blank":
            yield _Token(match[0], match.lastgroup == "word", at, line)
        line += match[0].count("\n")
        at = match.end()
    yield _Token("\n", False, at, line)


def _parts(word: str) -> Iterator[WordPart]:
    for match in _PART.finditer(word):
        if match["double"] is not None:
            yield WordPart("", quoted=True)
            for inner in _QUOTED.finditer(match["double"].lstrip("$")[1:-1]):
                yield _part(inner, quoted=True)
        elif match["single"] is not None:
            yield WordPart(match["single"], quoted=True)
        else:
            yield _part(match, quoted=False)


def _part(match: re.Match[str], quoted: bool) -> WordPart:
    if match["variable"]:
        return WordPart(match["variable"].strip("${}"), True, quoted)
    text = match["text"] if match["escaped"] is None else match["escaped"].replace("\n", "")
    return WordPart(text, quoted=quoted)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def script(self) -> tuple[Statement, ...]:
        statements = self._statements()
        if self._at < len(self._tokens):
            raise self._unexpected()
        return statements

    def line(self) -> int:
        return self._tokens[min(self._at, len(self._tokens) - 1)].line

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> _Token:
        if self._at >= len(self._tokens) or wanted not in ("", self._peek()):
            raise self._unexpected()
        self._at += 1
        return self._tokens[self._at - 1]

    def _unexpected(self) -> GrubSyntaxError:
        at = min(self._at, len(self._tokens) - 1)
        seen = "the end of the file" if at == len(self._tokens) - 1 else repr(self._tokens[at].text)
        return GrubSyntaxError(self._tokens[at].line, f"GRUB does not expect {seen}")

    def _skip_end(self) -> None:
        """The end of a statement, and empty lines. GRUB has no empty statement."""
        self._at += self._peek() in _ENDS
        while self._peek() == "\n":
            self._at += 1

    def _statements(self, *until: str) -> tuple[Statement, ...]:
        """Up to a reserved word or brace of `until`, which stays. Only a whole script may be empty."""
        statements: list[Statement] = []
        if self._peek() == "\n":
            self._skip_end()
        while self._peek() and self._peek() not in until:
            statements.append(self._statement() if until else self._function())
            if self._peek() not in (*_ENDS, "}"):
                raise self._unexpected()
            self._skip_end()
        if until and not statements:
            raise self._unexpected()
        return tuple(statements)

    def _statement(self) -> Statement:
        word = self._peek()
        if word == "if":
            return self._if()
        if word in ("for", "while", "until"):
            return self._loop()
        return self._command()

    def _function(self) -> Statement:
        """GRUB has no function in a block, a condition or a loop."""
        if self._peek() != "function":
            return self._statement()
        line = self._take().line
        name = self._take().text
        while self._peek() == "\n":
            self._take()
        body = self._block().statements
        if self._tokens[self._at - 2].text not in _ENDS:  # GRUB demands this only here
            raise GrubSyntaxError(self._tokens[self._at - 1].line, "GRUB does not expect '}'")
        return GrubFunction(name, body, line)

    def _if(self) -> If:
        line = self._take("if").line
        clauses = []
        ended = "elif"
        while ended == "elif":
            condition = self._statements("then")
            self._take("then")
            clauses.append((condition, self._statements("elif", "else", "fi")))
            ended = self._take().text
        if ended == "else":
            clauses.append(((), self._statements("fi")))
            self._take("fi")
        return If(tuple(clauses), line)

    def _loop(self) -> Loop:
        begin = self._take()
        variable = ""
        words: tuple[Word, ...] = ()
        condition: tuple[Statement, ...] = ()
        if begin.text == "for":
            variable = self._take().text
            self._take("in")
            words = self._words()
            self._skip_end()
        else:
            condition = self._statements("do")
        self._take("do")
        body = self._statements("done")
        self._take("done")
        return Loop(variable, words, condition, body, begin.line, begin.text == "until")

    def _block(self) -> GrubBlock:
        start = self._take("{").start + 1
        statements = self._statements("}")
        return GrubBlock(statements, self._text[start : self._take("}").start], start)

    def _words(self) -> tuple[Word, ...]:
        words = []
        while self._at < len(self._tokens) and self._tokens[self._at].is_word:
            words.append(tuple(_parts(self._take().text)))
        return tuple(words)

    def _command(self) -> Command:
        first = self._tokens[self._at]
        if not first.is_word or first.text in _RESERVED:
            raise self._unexpected()
        words = self._words()
        end = self._end()
        block = self._block() if self._peek() == "{" else None
        return Command(words, block, first.line, first.start, end, self._end())

    def _end(self) -> int:
        """The end of the last token that was taken."""
        last = self._tokens[self._at - 1]
        return last.start + len(last.text)
