"""The documentation site: `make docs`. The pages are plain Markdown, and index.md is the order of the book."""

import re

project = "klat"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "klat"
html_show_copyright = html_show_sphinx = html_copy_source = False
html_static_path = ["site"]
html_css_files = ["site.css"]
myst_heading_anchors = 3
# Code blocks are commands and output.
highlight_language = "none"


def _tree(pages, caption=""):
    lines = [":hidden:", *([f":caption: {caption}"] if caption else []), *pages]
    return "\n".join(["", "```{toctree}", *lines, "```", ""])


def _prepared(_app, name, source):
    """index.md lists the pages by chapter, programs.md those of the programs."""
    # No line ends between a number and its percent sign.
    source[0] = text = re.sub(r"(\d) %", "\\1\u00a0%", source[0])
    if name == "index":
        chapters = re.findall(r"^## (.*)\n\n((?:- .*\n)+)", text, re.MULTILINE)
        trees = [_tree(re.findall(r"^- \[.*?\]\((.*?)\.md\)", c, re.M), t) for t, c in chapters]
        source[0] = text + "".join(trees)
    elif name == "programs":
        source[0] = text + _tree(dict.fromkeys(re.findall(r"\]\((programs/\w+)\.md\)", text)))


def setup(app):
    app.connect("source-read", _prepared)
