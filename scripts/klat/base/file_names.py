"""Makes file names from other texts."""

from __future__ import annotations

import re

_LONGEST = 200  # a name has at most 255 bytes; this leaves room for a suffix


def unique_file_name(text: str, taken: set[str], suffix: str = "") -> str:
    """The text as the name of a file, with a number before `suffix` if the name is taken. Adds the name
    to `taken`."""
    base = re.sub(r"[^A-Za-z0-9_.+=-]+", "_", text).lstrip(".-")[:_LONGEST] or "plot"
    name, number = f"{base}{suffix}", 2
    while name in taken:
        name, number = f"{base}-{number}{suffix}", number + 1
    taken.add(name)
    return name
