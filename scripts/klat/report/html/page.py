"""Pages of HTML: each is one file that fetches nothing, and the same for the same input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klat.base import files
from klat.base.errors import KlatError
from klat.report.plot import gnuplot
from klat.record.session import printable

if TYPE_CHECKING:
    from klat.report.html.page_figures import Captioned

_TEMPLATES = Path(__file__).parent / "templates"


def require() -> Any:
    """The templates of a page with figures. KlatError if a package for pages is missing: the user learns
    it before any sample is read."""
    environment = templates()
    gnuplot.require()
    return environment


def templates() -> Any:
    """The templates of a page without figures."""
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise KlatError(
            "--html needs jinja2 for /usr/bin/python3; on Debian and Ubuntu:"
            " apt install python3-jinja2"
        ) from error
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: Any) -> Any:
    """A value of a template. Texts of a record are without control characters. Markup is no plain `str`."""
    return "\n".join(map(printable, value.split("\n"))) if type(value) is str else value


@dataclass(frozen=True)
class Drawing:
    """A figure in a page: its SVG, which gnuplot has escaped, and the text beside it."""

    svg: Any  # Markup
    title: str
    note: str


def drawings(shown: Sequence[Captioned]) -> list[Drawing]:
    from markupsafe import Markup

    drawn = gnuplot.inline([s.figure for s in shown]) if shown else []
    return [Drawing(Markup(svg), s.title, s.note) for svg, s in zip(drawn, shown)]


def render(environment: Any, name: str, **values: Any) -> str:
    from markupsafe import Markup

    text: str = environment.get_template(name).render(marks=Markup(gnuplot.MARKS), **values)
    return text


def write(path: Path, text: str) -> None:
    """Write the whole page or nothing: the old file stays until the new one is complete."""
    with files.output(path) as out:
        out.write(text.encode("utf-8", "backslashreplace"))
