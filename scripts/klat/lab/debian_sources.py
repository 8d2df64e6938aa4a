"""Finds Debian's archive among the apt sources of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from klat.base.errors import KlatError

VARIABLE = "KLAT_DEBIAN_MIRROR"
# Debian 11 has 5.10, Debian 12 has 6.1, and Debian 13 has 6.12. The security archive has the newest builds of them.
_RELEASES = ("bullseye", "bookworm", "trixie")
# Newer kernels.
_NEWER = ("bookworm-backports", "trixie-backports", "testing", "unstable", "experimental")
_SECURITY = "-security"
_FORMAT = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)"


def source_lines(ask_apt: Callable[..., str], keys: str, architecture: str = "amd64") -> list[str]:
    """The lines of a sources.list with Debian's kernels. `ask_apt` runs apt-get on the system's sources.
    A mirror need not serve all of these suites."""
    if mirror := os.environ.get(VARIABLE, "").rstrip("/"):
        archive, security = f"{mirror}/debian", f"{mirror}/debian-security"
    else:
        archive, security = _of_system(ask_apt)
    suites = [(archive, suite) for suite in (*_RELEASES, *_NEWER)]
    if security:
        suites += [(security, f"{release}{_SECURITY}") for release in _RELEASES]
    options = f"arch={architecture} target=Packages signed-by={keys}"
    return [f"deb [{options}] {uri} {suite} main\n" for uri, suite in suites]


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
