"""`make deb`, on copies of the tree."""

import hashlib
import re
import shutil
from pathlib import Path

import harness
import pytest
from harness import MEASURED, PROGRAMS, ROOT, UNTRUSTED, command, json_of
from made_tools import write
from source_copies import copy_tree, files_below, make

from klat.lab import elf

# What debhelper adds. debian/copyright has the text of LICENSE.
ADDED = re.compile(
    r"usr/share/(doc/klat(-programs)?/(changelog|copyright)|lintian/overrides/klat|python3/.*)"
)
LICENSE = "usr/share/doc/klat/LICENSE"
BUILD_SECONDS = 600
PT_INTERP = 3  # elf(5): the program needs shared libraries


def test_lint_finds_a_package_of_another_version(tmp_path):
    copy = copy_tree(tmp_path)
    assert make(copy, "lint-version").status == 0
    changelog = copy / "debian/changelog"
    changelog.write_text(changelog.read_text().replace("klat (", "klat (9.", 1))
    done = make(copy, "lint-version")
    assert done.status == 2
    assert "klat: debian/changelog has 9." in done.err, str(done)


def packages_of(tree: Path, *words: str) -> dict[str, Path]:
    done = make(tree, "deb", *words, limit=BUILD_SECONDS)
    assert done.status == 0, str(done)
    return {deb.name.split("_")[0]: deb for deb in tree.glob("build/deb/*.deb")}


@pytest.fixture(scope="module")
def built_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without git."""
    if not shutil.which("dh"):
        harness.lacking("there is no debhelper")
    return copy_tree(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def packages(built_tree: Path) -> dict[str, Path]:
    return packages_of(built_tree)


def files_of(deb: Path) -> set[str]:
    listed = command(["sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -t', deb])
    assert listed.status == 0, str(listed)
    names = (name for name in listed.out.splitlines() if not name.endswith("/"))
    return {name.removeprefix("./").removesuffix(".gz") for name in names}


@pytest.mark.slow
def test_the_packages_contain_what_make_installs(packages, built_tree, tmp_path):
    done = make(
        built_tree, "install", "install-static", f"DESTDIR={tmp_path}", "prefix=/usr", limit=300
    )
    assert done.status == 0, str(done)
    front, programs = files_of(packages["klat"]), files_of(packages["klat-programs"])
    assert not front & programs
    packed = {name for name in front | programs if not ADDED.fullmatch(name)}
    assert packed == files_below(tmp_path) - {LICENSE}
    assert {f"usr/libexec/klat/{program}" for program in PROGRAMS} <= programs
    assert not [name for name in programs if name.endswith((".py", ".so"))]
    done = make(built_tree, "uninstall", f"DESTDIR={tmp_path}", "prefix=/usr")
    assert (done.status, files_below(tmp_path)) == (0, set()), str(done)


@pytest.mark.slow
def test_lintian_finds_no_error_and_no_warning(packages):
    if not shutil.which("lintian"):
        harness.lacking("there is no lintian")
    (changes,) = packages["klat"].parent.glob("*.changes")
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", changes]
    done = command(words, limit=200)
    assert (done.status, done.out) == (0, ""), str(done)


# Stands for Ansible: keeps klat for the machines, and says which playbook it was called with.
PLAYBOOK = """\
#!/bin/sh
for last; do :; done
head -1 "$last"
record=$(dirname "$6")
cp "${record#@}/klat.tar.gz" .
echo '{"outcome": "complete"}' >"${record#@}/m1.json"
"""


@pytest.mark.slow
def test_a_fleet_gets_static_programs_from_the_packages(packages, tmp_path):
    for name in ("klat", "klat-programs"):
        assert command(["dpkg-deb", "-x", packages[name], tmp_path]).status == 0
    tools = {
        "ansible": "#!/bin/sh\necho '  hosts (1):'; echo '    m1'\n",
        "ansible-playbook": PLAYBOOK,
    }
    for name, text in tools.items():
        write(tmp_path / name, text).chmod(0o755)
    (tmp_path / "hosts.ini").write_text("m1\n")
    words = ["fleet", "run", "--inventory", "hosts.ini", "--boots", "4", "pipes"]
    kernels = ["--kernel", "stock=6.1", "--kernel", "rt=6.1-rt"]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = command([tmp_path / "usr/bin/klat", *words, *kernels], cwd=tmp_path, env=path)
    assert (done.status, done.out.splitlines()[1:]) == (0, ["m1: complete"]), str(done)
    assert done.out.startswith("---"), "the playbook is not in the package"

    (tmp_path / "there").mkdir()
    assert (
        command(["tar", "-xzf", "klat.tar.gz", "-C", "there"], cwd=tmp_path, limit=100).status == 0
    )
    there = tmp_path / "there"
    assert command([there / "bin/klat", "--version"]).status == 0
    for program in (*PROGRAMS, "load-load"):
        kinds = {kind for kind, _ in elf.segments((there / "libexec/klat" / program).read_bytes())}
        assert PT_INTERP not in kinds, program


@pytest.mark.parametrize(
    "machine, name",
    [
        pytest.param("aarch64", "arm64", marks=pytest.mark.slow),
        pytest.param("riscv64", "riscv64", marks=pytest.mark.long),
    ],
)
def test_packages_for_another_architecture(machine, name, packages, tmp_path):
    for needed in (f"{machine}-linux-gnu-gcc", f"qemu-{machine}-static", "lintian"):
        if not shutil.which(needed):
            harness.lacking(f"this machine has no {needed}")
    sysroot = ROOT / "build/sysroot" / machine
    done = make(ROOT, "-s", "sysroot", f"ARCH={name}", limit=300)
    if done.status:
        harness.lacking(done.err.strip().splitlines()[0])

    tree = copy_tree(tmp_path / "tree")
    of_this_machine = write(tree / "build/deb/klat_1_amd64.buildinfo")
    built = packages_of(tree, f"ARCH={name}", f"SYSROOT={sysroot}")
    assert of_this_machine.exists()
    (changes,) = built["klat"].parent.glob("*.changes")
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", changes]
    done = command(words, limit=200)
    assert (done.status, done.out) == (0, ""), str(done)
    for package, deb in built.items():
        assert deb.name.endswith(f"_{name}.deb")
        if not package.endswith("-dbgsym"):  # these have the hashes of the programs as names
            assert files_of(deb) == files_of(packages[package])
    depends = command(["dpkg-deb", "--field", built["klat-programs"], "Depends"]).out
    assert re.search(r"\blibc6 \(>= 2\.\d+\)", depends) and "libnuma1 (>= " in depends
    static = command(["dpkg-deb", "--field", built["klat"], "Built-Using"]).out
    assert re.search(r"\bglibc \(= \S+\), jansson \(= ", static)

    assert command(["dpkg-deb", "-x", built["klat-programs"], tmp_path]).status == 0
    emulator = [f"qemu-{machine}-static", "-L", sysroot]
    pipes = tmp_path / "usr/libexec/klat/pipes"
    assert command([*emulator, pipes, "--version"]).out.startswith("pipes (klat ")
    done = command([*emulator, pipes, "--policy", "other", "--iterations", "50", "--json"])
    # Page faults of the emulator can make the run invalid.
    assert done.status in (MEASURED, UNTRUSTED) and json_of(done)["mode"] == "emulated", str(done)


@pytest.mark.long
def test_packages_built_elsewhere_and_later_are_equal(packages, tmp_path):
    other = packages_of(copy_tree(tmp_path / "a" / "longer" / "path"))
    hashes = [
        {name: hashlib.sha256(deb.read_bytes()).hexdigest() for name, deb in built.items()}
        for built in (packages, other)
    ]
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) >= 2


# Installs the packages, runs their tests and removes them. Its mounts and processes end with its namespaces.
IN_A_FRESH_SYSTEM = """
set -eu
root=$1 packages=$2 tests=$3
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp "$packages"/klat_*.deb "$root/tmp/klat.deb"
cp "$packages"/klat-programs_*.deb "$root/tmp/klat-programs.deb"
cp "$tests"/* "$root/tmp"
listed() {
	(cd "$root" && find . -xdev \\( -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/log \\
		-o -path ./var/cache \\) -prune -o -print | sort)
}
apt_get() { DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qq "$@"; }

listed >"$root/../before"
apt_get install --no-install-recommends /tmp/klat.deb /tmp/klat-programs.deb gnuplot-nox
for test in programs front; do
	mkdir "$root/tmp/$test.d"
	chroot "$root" env AUTOPKGTEST_TMP=/tmp/$test.d /tmp/$test
done
apt_get purge --autoremove klat klat-programs gnuplot-nox
listed >"$root/../after"
"""


@pytest.mark.long
def test_packages_leave_nothing_of_themselves_in_a_fresh_debian(
    packages, built_tree, tmp_path, root
):
    system = tmp_path / "system"
    words = ["mmdebstrap", "-q", "--variant=minbase", "--skip=cleanup/apt", "bookworm", system]
    done = command(words, limit=600)
    assert done.status == 0, str(done)
    try:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        script = ["sh", "-c", IN_A_FRESH_SYSTEM, "sh", system]
        directories = [packages["klat"].parent, built_tree / "debian/tests"]
        done = command([*unshare, *script, *directories], limit=900)
        assert done.status == 0, str(done)
        assert "measured" in done.out
    finally:
        command(["rm", "-rf", "--one-file-system", system], limit=100)
    assert (tmp_path / "after").read_text() == (tmp_path / "before").read_text()
