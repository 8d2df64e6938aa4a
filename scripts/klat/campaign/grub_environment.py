"""The file grubenv, in which GRUB keeps variables: grub-core/commands/loadenv.c in GRUB's source."""

from __future__ import annotations

from collections.abc import Sequence

GRUBENV = "grubenv"


def environment_words(words: Sequence[str]) -> tuple[str, list[str]]:
    """The file that load_env or save_env names, or "", and the variables that it names."""
    file, names, rest = "", [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-f", "--file"):
            file = "".join(rest[:1])
            del rest[:1]
        elif word.startswith("--file="):
            file = word.partition("=")[2]
        elif word not in ("-s", "--skip-sig"):
            names.append(word)
    return file, names


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
