"""Checks the structure of the Python package: the direction of imports, and sizes.

Usage: package_rules.py PACKAGE_DIRECTORY
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# A module imports from its own layer and from the layers below. The highest layer is first.
LAYERS = (
    "cli commands campaign lab running export report compare explain record tracing stats machine base"
).split()
# A report prints results. It neither matches sides nor judges them, so it cannot import what does.
COMPUTING = tuple(
    f"klat.compare.{name}"
    for name in (
        "cell_tests", "compare_sides", "judged_limits", "matching", "over_machines", "refusals",
    )
)  # fmt: skip
# A renderer writes a Document. It knows neither results nor the words for them.
RENDERERS = "renderers"
WRITING = (
    "base record report.document report.plot.gnuplot report.renderers report.text.columns"
).split()
MODULE_LINES = 400
FUNCTION_LINES = 60


def violations(package: Path) -> Iterator[str]:
    """One line per violation: path:line: what is wrong."""
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text, str(path))
        lines = len(text.splitlines())
        if lines > MODULE_LINES:
            yield f"{path}:1: module of {lines} lines; the limit is {MODULE_LINES}"
        yield from _long_functions(path, tree)
        yield from _upward_imports(package, path, tree)


def _long_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: function {node.name} of {lines} lines; the limit is"
                    f" {FUNCTION_LINES}"
                )


def _upward_imports(package: Path, path: Path, tree: ast.Module) -> Iterator[str]:
    own = path.relative_to(package).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    if own not in LAYERS:
        yield f"{path}:1: {own} is no layer of {Path(__file__).name}"
        return
    for node in ast.walk(tree):
        for name in _imported(node, package.name):
            other = name.split(".")[1]
            if other in LAYERS and LAYERS.index(other) < LAYERS.index(own):
                yield f"{path}:{node.lineno}: {own} imports {name}, which is in a higher layer"
            if own == "report" and name in COMPUTING:
                yield f"{path}:{node.lineno}: a report imports {name}, which computes results"
            if RENDERERS in path.parts and not name.startswith(tuple(f"klat.{w}" for w in WRITING)):
                yield f"{path}:{node.lineno}: a renderer imports {name}, which knows results"
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{path}:{node.lineno}: relative import"


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == package:
        names = [f"{package}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    else:
        names = []
    yield from (name for name in names if name.startswith(f"{package}."))


def main() -> int:
    found = list(violations(Path(sys.argv[1])))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
