"""The lab finds Debian's archive in the system's apt sources."""

import re
import shutil
from pathlib import Path

import pytest

from klat.base.errors import KlatError
from klat.lab import apt
from klat.lab.apt import Archive

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt-get")

UBUNTU = "deb http://ubuntu.example/ubuntu noble main universe\n"
THIRD_PARTY = "deb https://tools.example/linux/debian bookworm stable\n"
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64] http://mirror.example/debian bookworm main contrib
deb-src http://source.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main
"""
DEB822 = """\
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main
Enabled: no

Types: deb deb-src
URIs: https://mirror.example/debian/
Suites: trixie trixie-updates
Components: main
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt configuration of its own, without sources."""
    for name in ("parts", "lists/partial"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "apt.conf").write_text(
        f"""\
Dir::Etc::sourcelist "{tmp_path}/sources.list";
Dir::Etc::sourceparts "{tmp_path}/parts";
Dir::State::lists "{tmp_path}/lists";
"""
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KLAT_DEBIAN_MIRROR", raising=False)
    return tmp_path


def lab_sources(system: Path) -> list[tuple[str, ...]]:
    """The URI and suite of each source that the lab would use."""
    archive = Archive(lambda line: None)
    lines = apt.source_lines(archive._ask_system, "keys.gpg", "arm64")
    assert all(line.startswith("deb [arch=arm64 ") for line in lines)
    return [tuple(line.partition("] ")[2].split()[:2]) for line in lines]


def test_one_line_sources(system):
    (system / "sources.list").write_text(UBUNTU + THIRD_PARTY + ONE_LINE)
    sources = lab_sources(system)
    assert {suite for uri, suite in sources if uri == "http://mirror.example/debian"} >= {
        *("bullseye", "bookworm", "trixie", "trixie-backports", "unstable", "experimental")
    }
    assert [suite for uri, suite in sources if uri == "http://mirror.example/debian-security"] == [
        *("bullseye-security", "bookworm-security", "trixie-security")
    ]


@pytest.mark.parametrize(
    ("error", "left_out"),
    [
        ("The repository '{} testing Release' does not have a Release file.", {"testing"}),
        ("The repository '{} bookworm InRelease' is not signed.", {"bookworm"}),
        ("Failed to fetch {}/dists/trixie/main/binary-amd64/Packages.xz  404", {"trixie"}),
        ("Failed to fetch {}/dists/bookworm-backports/InRelease  502", {"bookworm-backports"}),
        ("Unable to fetch some archives", None),
    ],
)
def test_the_archive_need_not_serve_every_suite(system, monkeypatch, error, left_out):
    message = error.format("http://mirror.example/debian")
    used: list[set[str]] = []

    def fake_run(
        self: Archive, program: list[str], words: tuple[str, ...], *_: object, **__: object
    ) -> str:
        if words[0] == "update":
            text = (system / "cache/klat/lab/apt/sources.new").read_text()
            used.append({line.split()[-2] for line in text.splitlines()})
            if len(used) == 1:
                raise apt._AptError(f"apt-get update failed: {message}", [message])
        return ""

    monkeypatch.setattr(Archive, "_run", fake_run)
    monkeypatch.setenv("KLAT_DEBIAN_MIRROR", "http://mirror.example")
    monkeypatch.setattr(apt, "_KEYS", system)
    said: list[str] = []
    archive = Archive(said.append)
    if left_out is None:
        with pytest.raises(KlatError, match="Unable to fetch"):
            archive.packages()
        return
    archive.packages()
    assert used[0] - used[1] == left_out
    assert said[-2] == f"apt-get update failed: {message}; going on without {', '.join(left_out)}"
    assert not archive._archive_changed(), "the suite is asked for again with the next lists"


def test_an_architecture_has_lists_and_packages_of_its_own(system):
    native, foreign = Archive(lambda line: None), Archive(lambda line: None, "arm64")
    for name in ("x_1%3a2", "x:arm64_3"):
        (system / "cache/klat/lab/packages" / name).mkdir(parents=True)
    assert {p.name: p.version for p in native.kept().values()} == {"x": "1:2"}
    assert {p.name: p.version for p in foreign.kept().values()} == {"x": "3"}
    assert native._sources.parent != foreign._sources.parent


def test_deb822_sources_without_a_security_archive(system):
    (system / "parts/debian.sources").write_text(DEB822)
    assert {uri for uri, _ in lab_sources(system)} == {"https://mirror.example/debian"}


def test_the_origin_of_downloaded_lists_identifies_a_mirror_of_any_path(system):
    (system / "sources.list").write_text(
        THIRD_PARTY + "deb [trusted=yes] http://mirror.example/remote trixie main\n"
    )
    release = system / "lists/mirror.example_remote_dists_trixie_Release"
    release.write_text("Origin: Debian\nSuite: stable\nCodename: trixie\nComponents: main\n")
    (system / "lists/mirror.example_remote_dists_trixie_main_binary-amd64_Packages").touch()
    assert {uri for uri, _ in lab_sources(system)} == {"http://mirror.example/remote"}


@pytest.mark.parametrize("sources", ["", UBUNTU, THIRD_PARTY])
def test_without_a_debian_archive_the_error_names_the_variable(system, sources):
    (system / "sources.list").write_text(sources)
    with pytest.raises(KlatError, match="no Debian archive: set KLAT_DEBIAN_MIRROR"):
        lab_sources(system)


def test_the_variable_replaces_the_sources(system, monkeypatch):
    (system / "sources.list").write_text(ONE_LINE)
    monkeypatch.setenv("KLAT_DEBIAN_MIRROR", "http://other.example/")
    assert {uri for uri, _ in lab_sources(system)} == {
        "http://other.example/debian",
        "http://other.example/debian-security",
    }


def test_a_changed_archive_is_used_once_its_lists_are_fetched(system, monkeypatch):
    fails = False
    fetched = []

    def fake_apt(self: Archive, *words: str, **_: object) -> str:
        if fails:
            raise KlatError("apt-get update failed")
        fetched.append(words[0])
        return ""

    monkeypatch.setattr(Archive, "_apt", fake_apt)
    monkeypatch.setattr(apt, "_KEYS", system)
    said: list[str] = []

    def used_archives() -> set[str]:
        Archive(said.append).packages()
        lines = (system / "cache/klat/lab/apt/sources.list").read_text()
        return set(re.findall(r"http://([a-z]+)", lines))

    (system / "sources.list").write_text(ONE_LINE)
    assert used_archives() == used_archives() == {"mirror"}
    assert fetched == ["update", "dumpavail"], "the lists are fresh the second time"
    (system / "sources.list").write_text(ONE_LINE.replace("mirror", "other"))
    fails = True
    assert used_archives() == {"mirror"}
    assert said[-1] == "apt-get update failed; using the lists of the last time"
    fails = False
    assert used_archives() == {"other"}
    assert fetched == 2 * ["update", "dumpavail"]
