"""Finds Debian's archive among the apt sources of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from klat.base.errors import KlatError

VARIABLE = "KLAT_DEBIAN_MIRROR"
# Debian 12 has 6.1 and Debian 13 has 6.12. The security archive has the newest builds of both.
_RELEASES = ("bookworm", "trixie")
_SECURITY = "-security"
_FORMAT = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)"


def choices(architecture: str) -> tuple[tuple[str, ...], ...]:
    """The releases to look in. If the archive does not have the first choice, there may be another. Debian
    12 has no riscv64, and mirrors fetch Debian 13's riscv64 later than the other architectures."""
    return (("trixie",), ("forky",)) if architecture == "riscv64" else (_RELEASES,)


def source_lines(
    ask_apt: Callable[..., str],
    keys: str,
    architecture: str = "amd64",
    releases: tuple[str, ...] = _RELEASES,
) -> str:
    """A sources.list with Debian's kernels. `ask_apt` runs apt-get on the system's sources."""
    if mirror := os.environ.get(VARIABLE, "").rstrip("/"):
        archive, security = f"{mirror}/debian", f"{mirror}/debian-security"
    else:
        archive, security = _of_system(ask_apt)
    suites = [(archive, release) for release in releases]
    if security:
        suites += [(security, f"{name}{_SECURITY}") for name in releases if name in _RELEASES]
    options = f"arch={architecture} target=Packages signed-by={keys}"
    return "".join(f"deb [{options}] {uri} {suite} main\n" for uri, suite in suites)


def _of_system(ask_apt: Callable[..., str]) -> tuple[str, str]:
    """The main archive, and the security archive or an empty string."""
    # apt knows the origin of lists that it has downloaded. For others, only the path shows it.
    known = ask_apt("indextargets", "--format", _FORMAT)
    configured = ask_apt("indextargets", "--no-release-info", "--format", _FORMAT)
    found: dict[bool, str] = {}
    for text, by_path in ((known, False), (configured, True)):
        for line in text.splitlines():
            uri, suite, component, origin = (*line.split("\t"), "", "", "")[:4]
            uri = uri.rstrip("/")
            path = re.search(r"/debian(-security)?$", uri)
            if component == "main" and (path if by_path else origin == "Debian"):
                found.setdefault(suite.endswith((_SECURITY, "/updates")), uri)
    if False not in found:
        raise KlatError(
            f"apt's sources on this machine name no Debian archive: set {VARIABLE} to a mirror's"
            " address without /debian"
        )
    return found[False], found.get(True, "")
