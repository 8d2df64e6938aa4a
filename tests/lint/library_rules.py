"""Checks the structure of the C code: the direction of calls and of includes, and sizes.

Usage: library_rules.py FILE...

An object is checked for calls to a higher layer. A source is checked for what it includes and for
its length.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# A file calls and includes its own layer and the layers below. Layers of one row are beside each
# other and do not call each other. The lowest layer is first.
ROWS = (("arch",), ("base",), ("machine",), ("run", "sync", "net"), ("record",), ("cli",))
HEIGHT = {layer: height for height, row in enumerate(ROWS) for layer in row}
FOR_BENCHMARKS = ("sync", "net")
# Part of klat.h, with a name of its own for helpers and C++.
WITH_KLAT_H = "base/clock.h"

FILE_LINES = 500
FUNCTION_LINES = 60


def violations(files: Iterable[Path]) -> Iterator[str]:
    """One line per violation."""
    given = list(files)
    yield from _upward_calls([file for file in given if file.suffix == ".o"])
    for source in (file for file in given if file.suffix in (".c", ".h")):
        text = source.read_text()
        yield from _wrong_includes(source, text)
        yield from _too_long(source, text)


def _layer(file: Path) -> str | None:
    """The folder below lib/. A path may hold another lib/ above it."""
    parts = file.parts[:-1]
    at = len(parts) - 1 - parts[::-1].index("lib") if "lib" in parts else len(parts)
    return parts[at + 1] if at + 1 < len(parts) else None


def _may_use(layer: str, other: str) -> bool:
    return layer == other or HEIGHT[other] < HEIGHT[layer]


def _upward_calls(objects: list[Path]) -> Iterator[str]:
    defined: dict[str, Path] = {}
    undefined: list[tuple[Path, str]] = []
    for file in objects:
        for name, kind in _symbols(file):
            if kind == "U":
                undefined.append((file, name))
            else:
                defined[name] = file
    for file, name in undefined:
        layer, definer = _layer(file), defined.get(name)
        if layer not in HEIGHT:
            yield f"{_source(file)}: lib/{layer} is no layer of {Path(__file__).name}"
            continue
        other = _layer(definer) if definer else None
        if definer and other in HEIGHT and not _may_use(layer, other):
            users = ", ".join(f"{user}()" for user in _users(file, name)) or "data"
            yield (
                f"{_source(file)}: {users} of {layer} uses {name} of {_source(definer)};"
                f" {other} is not below {layer}"
            )


def _symbols(file: Path) -> Iterator[tuple[str, str]]:
    table = subprocess.check_output(["nm", "-g", "-P", file], text=True)
    for line in table.splitlines():
        name, kind = line.split()[:2]
        yield name, kind


def _users(file: Path, symbol: str) -> list[str]:
    """The functions of the object with a relocation to the symbol."""
    listing = subprocess.check_output(["objdump", "-d", "-r", file], text=True)
    users: dict[str, None] = {}
    function = ""
    for line in listing.splitlines():
        if head := re.match(r"[0-9a-f]+ <([^>]+)>:", line):
            function = head[1].split(".")[0]
        elif re.search(rf"\sR_\w+\s+{re.escape(symbol)}\b", line):
            users[function] = None
    return list(users)


def _source(file: Path) -> str:
    parts = file.with_suffix(".c").parts
    return "/".join(parts[len(parts) - 1 - parts[::-1].index("lib") :])


def _wrong_includes(source: Path, text: str) -> Iterator[str]:
    layer = _layer(source)
    for number, line in enumerate(text.splitlines(), 1):
        included = re.match(r'\s*#\s*include\s*"((\w+)/[^"]+)"', line)
        other = included[2] if included else None
        if not included or other not in HEIGHT:
            continue
        if layer is None and other not in FOR_BENCHMARKS and included[1] != WITH_KLAT_H:
            yield (
                f"{source}:{number}: a benchmark includes klat.h and the headers of"
                f" {' and '.join(FOR_BENCHMARKS)}, not those of lib/{other}"
            )
        if layer in HEIGHT and not _may_use(layer, other):
            yield f"{source}:{number}: {layer} includes a header of {other}, which is not below it"


def _too_long(source: Path, text: str) -> Iterator[str]:
    lines = text.splitlines()
    if len(lines) > FILE_LINES:
        yield f"{source}:1: file of {len(lines)} lines; the limit is {FILE_LINES}"
    begin = 0
    for number, line in enumerate(lines, 1):
        # As clang-format leaves them, only the braces of a function's body stand in column 0.
        if line == "{":
            begin = number
        if line == "}" and begin and number - begin + 1 > FUNCTION_LINES:
            yield (
                f"{source}:{begin}: function of {number - begin + 1} lines; the limit is"
                f" {FUNCTION_LINES}"
            )


def main() -> int:
    found = list(violations(Path(word) for word in sys.argv[1:]))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
