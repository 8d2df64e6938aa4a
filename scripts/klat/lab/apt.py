"""Debian packages, fetched and unpacked without root and without touching the system's own apt.

apt uses a state of its own below the cache. A configuration file that apt reads after the system's
names the sources, lists and archives, so the system's proxies still apply. The address of the
archive comes from the system's apt sources. apt checks the signatures of Debian's archive keys.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from klat.base import files
from klat.base.errors import KlatError
from klat.base.process import answer
from klat.lab import cache

_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_FRESH_SECONDS = 7 * 86400
_UPDATE_SECONDS = 300
_FETCH_SECONDS = 900
_WAIT_SECONDS = 1200  # for another lab that updates or fetches
_LITTLE_ROOM = 16 << 20

# linux-image-RELEASE, and the packages that it depends on if the kernel is split.
_KERNEL = re.compile(r"linux-(?:image|base|binary|modules)-\d\S*")

# What sysroot.py unpacks. The names are those of Debian 13, and _PREFERENCES takes the packages from there.
SYSROOT = (
    *("libc6", "libc6-dev", "linux-libc-dev", "libgcc-s1", "libatomic1"),
    *("libnuma1", "libnuma-dev", "libjansson4", "libjansson-dev", "libmd0", "libmd-dev"),
    *("libev4t64", "libev-dev", "libevent-core-2.1-7t64", "libevent-dev"),
    *("libuv1t64", "libuv1-dev", "liburing2", "liburing-dev", "libcmocka0", "libcmocka-dev"),
)

LINKER = "binutils-riscv64-linux-gnu libsframe1 libjansson4 zlib1g libzstd1 libc6".split()

_CONFIGURATION = """\
Dir::State "{base}/state";
Dir::State::status "{base}/state/status";
Dir::Cache "{base}/cache";
Dir::Etc::sourcelist "{base}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "{base}/preferences";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "{architecture}";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::AllowReleaseInfoChange "true";
#clear APT::Architectures;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
"""

# Kernels have different names in each release of Debian. Other packages do not: take them from one release.
_PREFERENCES = """\
Package: *
Pin: release n=trixie
Pin-Priority: 990
"""


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    size: int  # bytes to fetch
    parts: tuple[str, ...] = ()  # the kernel packages that it depends on


class _AptError(KlatError):
    """apt failed. `errors` holds its messages."""

    def __init__(self, message: str, errors: Sequence[str]) -> None:
        super().__init__(message)
        self.errors = errors


class Unavailable(KlatError):
    """A package cannot be fetched."""


class Gone(Unavailable):
    """The archive lists a package but no longer has it."""


class Archive:
    """Packages of Debian's archive, of one architecture by Debian's name. `say` prints what takes time."""

    def __init__(self, say: Callable[[str], None], architecture: str = "amd64") -> None:
        self.say = say
        self._architecture = architecture
        self._suffix = "" if architecture == "amd64" else f":{architecture}"
        self._base = cache.folder(f"apt{self._suffix.replace(':', '-')}")
        self._index: dict[str, Package] | None = None

    def packages(self, update: bool = False) -> dict[str, Package]:
        """Kernels, busybox and libraries by name. If the archive can be reached, the lists are at most a week old
        and from the archive that the system's sources name now. KlatError if there are no lists."""
        if self._index is not None and not update:
            return self._index
        with cache.exclusive("apt", _WAIT_SECONDS, self.say):
            kept = self._base / "index.json"
            try:
                fresh = time.time() - kept.stat().st_mtime < _FRESH_SECONDS
            except OSError:
                fresh = False
            if update or not fresh or self._archive_changed():
                try:
                    self._update()
                except KlatError as error:
                    if not kept.exists():
                        raise KlatError(
                            f"{error}; --kernel NAME=path/to/KERNEL takes a kernel of yours"
                        ) from None
                    self.say(f"{error}; using the lists of the last time")
            self._index = self._read_index(kept)
        return self._index

    def _read_index(self, kept: Path) -> dict[str, Package]:
        try:
            entries = [
                Package(name, version, size, tuple(*parts))
                for name, version, size, *parts in json.loads(kept.read_text())
            ]
        except (OSError, ValueError, TypeError):
            raise KlatError(f"{kept} is damaged: klat lab clear removes it") from None
        return {package.name: package for package in entries}

    @property
    def _sources(self) -> Path:
        """The sources.list that the lists were fetched with."""
        return self._base / "sources.list"

    def _archive_changed(self) -> bool:
        """Whether the system's sources name another archive than the lists are from; False if unknown."""
        try:
            return self._sources.read_text() != "".join(self._source_lines())
        except (OSError, KlatError):
            return False

    def _source_lines(self) -> list[str]:
        return source_lines(self._ask_system, str(_KEYS), self._architecture)

    def _configure(self) -> Path:
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self._base / name).mkdir(parents=True, exist_ok=True)
        (self._base / "state/status").touch()
        (self._base / "preferences").write_text(_PREFERENCES)
        path = self._base / "apt.conf"
        path.write_text(_CONFIGURATION.format(base=self._base, architecture=self._architecture))
        return path

    def _update(self) -> None:
        if not _KEYS.exists():
            raise KlatError(
                f"Debian's keys ({_KEYS}) are missing: apt install debian-archive-keyring"
            )
        # Renamed after success. After a failure, the old lists keep their own sources.
        draft = self._sources.with_suffix(".new")
        sources = ("-o", f"Dir::Etc::sourcelist={draft}")
        lines = self._source_lines()
        self._fetch_lists(draft, lines, sources)
        text = self._apt("dumpavail", *sources, command="apt-cache")
        kept = self._base / "index.json"
        newest: dict[str, Package] = {}
        for package in _paragraphs(text):
            others = ("busybox-static", *SYSROOT, *LINKER)
            if _KERNEL.fullmatch(package.name) or package.name in others:
                newest.setdefault(package.name, package)
        index = [[p.name, p.version, p.size, p.parts] for p in newest.values()]
        files.write_whole(kept, json.dumps(index).encode())
        draft.write_text("".join(lines))
        draft.rename(self._sources)

    def _fetch_lists(self, draft: Path, lines: Sequence[str], sources: Sequence[str]) -> None:
        """Fetch the lists, except for suites that the archive does not serve or that Debian did not sign."""
        draft.write_text("".join(lines))
        self.say("fetching Debian's package lists")
        try:
            self._apt("update", "-q", "--error-on=any", *sources, seconds=_UPDATE_SECONDS)
        except _AptError as error:
            served = [line for line in lines if not _names(error.errors, line)]
            if not served or len(served) == len(lines):
                raise
            left_out = ", ".join(line.split()[-2] for line in lines if line not in served)
            self.say(f"{error}; going on without {left_out}")
            self._fetch_lists(draft, served, sources)

    def kept(self) -> dict[str, Package]:
        """The packages that are unpacked here. The archive may not have them any more."""
        packages = {}
        for place in cache.folder("packages").glob("[!.]*_*"):
            name, _, version = place.name.partition("_")
            bare, colon, architecture = name.partition(":")
            if colon + architecture == self._suffix:
                packages[bare] = Package(bare, version.replace("%3a", ":"), 0)
        return packages

    def unpacked(self, package: Package, parts: Sequence[Package] = ()) -> Path:
        """The directory with the files of the package and its parts. Fetches missing packages."""
        base = cache.folder("packages")
        place = base / f"{package.name}{self._suffix}_{package.version.replace(':', '%3a')}"
        if place.is_dir():
            return place
        with cache.exclusive("packages", _WAIT_SECONDS, self.say):
            if place.is_dir():
                return place
            for left in base.glob(".*"):  # by a klat that was killed
                shutil.rmtree(left, ignore_errors=True)
            size = sum(part.size for part in (package, *parts)) / 1e6
            self.say(f"fetching {package.name} {package.version} ({size:.1f} MB)")
            draft = Path(tempfile.mkdtemp(prefix=".", dir=base))
            try:
                self.fetch([package, *parts], draft)
                (draft / "tree").rename(place)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return place

    def fetch(self, packages: Sequence[Package], draft: Path) -> None:
        """Unpack packages beside each other into `draft`/tree."""
        names = ", ".join(f"{package.name} {package.version}" for package in packages)
        words = [f"{package.name}={package.version}" for package in packages]
        try:
            self._apt("download", *words, cwd=draft, seconds=_FETCH_SECONDS)
        except KlatError as error:
            lines = error.errors if isinstance(error, _AptError) else ()
            kind = Gone if any(re.search(r"\b404\b", line) for line in lines) else Unavailable
            raise kind(f"cannot fetch {names}: {error}") from None
        for deb in sorted(draft.glob("*.deb")):
            done = answer(["dpkg-deb", "-x", deb, draft / "tree"])
            if done.returncode:
                # The first line names the cause, for example a full disk; the last says that tar has failed.
                first = (done.stderr.strip().splitlines() or ["dpkg-deb failed"])[0]
                raise Unavailable(f"cannot unpack {deb.name.partition('_')[0]}: {first}")

    def _ask_system(self, *words: str) -> str:
        """Run apt-get with the system's configuration."""
        return self._run(["apt-get"], words, seconds=_UPDATE_SECONDS)

    def _apt(
        self,
        *words: str,
        command: str = "apt-get",
        cwd: Path | None = None,
        seconds: float | None = None,
    ) -> str:
        """Run apt with the lab's configuration."""
        return self._run([command, "-c", str(self._configure())], words, cwd, seconds)

    def _run(
        self,
        program: Sequence[str],
        words: Sequence[str],
        cwd: Path | None = None,
        seconds: float | None = None,
    ) -> str:
        command = program[0]
        for needed in (command, "dpkg-deb"):
            if not shutil.which(needed):
                raise KlatError(f"this machine has no {needed} to fetch Debian's kernels with")
        try:
            environment = os.environ | {"LC_ALL": "C"}
            done = answer([*program, *words], seconds, cwd=cwd, env=environment)
        except subprocess.TimeoutExpired:
            # On a full disk apt never ends.
            full = shutil.disk_usage(self._base).free < _LITTLE_ROOM
            raise KlatError(
                f"{command} {words[0]} did not end within {seconds:g} s"
                + (f": there is no space left in {self._base}" if full else "")
            ) from None
        if done.returncode:
            errors = [
                line[2:].strip() for line in done.stderr.splitlines() if line.startswith("E:")
            ]
            failed = f"{command} {words[0]} failed"
            raise _AptError(f"{failed}: {errors[0]}" if errors else failed, errors)
        return done.stdout


def _names(errors: Iterable[str], line: str) -> bool:
    """Whether an error names the suite of this line of the sources."""
    uri, suite = line.split()[-3:-1]
    return any(f"'{uri} {suite} " in error or f"{uri}/dists/{suite}/" in error for error in errors)


def _paragraphs(text: str) -> Iterator[Package]:
    for paragraph in text.split("\n\n"):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            name, colon, value = line.partition(": ")
            if colon and not line.startswith(" "):
                fields[name] = value
        if fields.get("Package") and fields.get("Version"):
            parts = tuple(_KERNEL.findall(fields.get("Depends", "")))
            yield Package(fields["Package"], fields["Version"], int(fields.get("Size", 0)), parts)


MIRROR_VARIABLE = "KLAT_DEBIAN_MIRROR"
# Debian 11 has 5.10, Debian 12 has 6.1, and Debian 13 has 6.12. The security archive has the newest builds of them.
_RELEASES = ("bullseye", "bookworm", "trixie")
STABLE = "+deb13"  # in the releases of kernels that were built for the newest of these
# Newer kernels.
_NEWER = ("bookworm-backports", "trixie-backports", "testing", "unstable", "experimental")
_SECURITY = "-security"
_FORMAT = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)"


def source_lines(ask_apt: Callable[..., str], keys: str, architecture: str = "amd64") -> list[str]:
    """The lines of a sources.list with Debian's kernels. `ask_apt` runs apt-get on the system's sources.
    A mirror need not serve all of these suites."""
    if mirror := os.environ.get(MIRROR_VARIABLE, "").rstrip("/"):
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
    uri_by_kind: dict[bool, str] = {}
    for text, by_path in ((known, False), (configured, True)):
        for line in text.splitlines():
            uri, suite, component, origin = (*line.split("\t"), "", "", "")[:4]
            uri = uri.rstrip("/")
            path = re.search(r"/debian(-security)?$", uri)
            if component == "main" and (path if by_path else origin == "Debian"):
                uri_by_kind.setdefault(suite.endswith((_SECURITY, "/updates")), uri)
    if False not in uri_by_kind:
        raise KlatError(
            f"apt's sources on this machine name no Debian archive: set {MIRROR_VARIABLE} to a mirror's"
            " address without /debian"
        )
    return uri_by_kind[False], uri_by_kind.get(True, "")
