"""scripts/deps, with stand-ins for the compiler and for package managers."""

import shutil
from pathlib import Path

import pytest
from harness import ROOT, command
import made_tools
from source_copies import ENVIRONMENT, make


@pytest.fixture
def picky_compiler(tmp_path: Path) -> Path:
    """A compiler that finds no numa.h until `installed` is beside it."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        "#!/bin/sh\n"
        f'[ -e "{tmp_path}/installed" ] && exec cc "$@"\n'
        'case "$*" in\n'
        '*" -E "* | "-E "*) text=$(cat); case $text in *numa.h*) exit 1 ;; esac; exit 0 ;;\n'
        "esac\n"
        'echo "a flood of errors" >&2; exit 1\n'
    )
    compiler.chmod(0o755)
    return compiler


def test_a_missing_library_is_one_clear_line(tmp_path, picky_compiler):
    done = make(ROOT, f"OUT={tmp_path}/build", f"CC={picky_compiler}")
    ours = [line for line in done.err.splitlines() if not line.startswith("make")]
    assert done.status == 2
    assert ours == ["klat: missing: libnuma-dev; sudo make deps installs them"], str(done)
    assert "flood" not in done.err


def test_deps_does_nothing_where_nothing_is_missing(root):
    """Without network, too."""
    done = command(["unshare", "--net", "make", "deps", "test-deps"], cwd=ROOT, env=ENVIRONMENT)
    assert (done.status, done.out, done.err) == (0, "", ""), str(done)


NEEDED = "sh tr id mktemp rm cat grep ls gnuplot dirname touch sed".split()
DEPS = ROOT / "scripts" / "deps"


def with_commands(tmp_path: Path, compiler: Path, **scripts: str) -> dict[str, str]:
    """An environment in which only these commands are found, besides the commands of deps."""
    path = tmp_path / "bin"
    path.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found, name
        (path / name).symlink_to(found)
    for name, script in scripts.items():
        made_tools.script(path / name, script)
    compiler.write_text(compiler.read_text().replace("exec cc", f"exec {shutil.which('cc')}"))
    return ENVIRONMENT | {"CC": str(compiler), "PATH": str(path)}


def test_deps_says_what_is_missing_and_installs_it(tmp_path, picky_compiler, root):
    log, installed = tmp_path / "log", tmp_path / "installed"
    apt_get = f'echo "$*" >>{log}\ncase "$*" in *" install "*) touch {installed} ;; esac'
    scripts = {"apt-get": apt_get, "apt-cache": "echo Package: $2"}
    done = command([DEPS, "build", "run"], env=with_commands(tmp_path, picky_compiler, **scripts))
    assert done.status == 0, str(done)
    assert done.err == "klat: missing: libnuma-dev; installing\n"
    update, install = log.read_text().splitlines()
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends libnuma-dev")


def test_deps_that_cannot_install_says_why(tmp_path, picky_compiler, root):
    scripts = {"apt-get": 'echo "E: no such thing"; exit 100', "apt-cache": ""}
    done = command([DEPS, "build"], env=with_commands(tmp_path, picky_compiler, **scripts))
    assert done.status == 1
    assert "E: no such thing" in done.err
    assert done.err.splitlines()[-1] == "klat: could not install: libnuma-dev"


# By package manager: the package of numa.h, and the words that install it.
ELSEWHERE = {
    "dnf": ("numactl-devel", "-q -y --setopt=install_weak_deps=False install numactl-devel"),
    "pacman": ("numactl", "-S --noconfirm --needed numactl"),
    "zypper": ("libnuma-devel", "-q --non-interactive install --no-recommends libnuma-devel"),
    "apk": ("numactl-dev", "-q -U add numactl-dev"),
}


@pytest.mark.parametrize("manager", ELSEWHERE)
def test_deps_uses_the_package_manager_that_is_there(manager, tmp_path, picky_compiler, root):
    package, words = ELSEWHERE[manager]
    log, installed = tmp_path / "log", tmp_path / "installed"
    scripts = {manager: f'echo "$*" >>{log}; touch {installed}'}
    environment = with_commands(tmp_path, picky_compiler, **scripts)
    done = command([DEPS, "--check", "build"], env=environment)
    assert (done.status, done.err) == (
        1,
        f"klat: missing: {package}; sudo make deps installs them\n",
    )
    done = command([DEPS, "build"], env=environment)
    assert (done.status, done.err) == (0, f"klat: missing: {package}; installing\n"), str(done)
    assert log.read_text() == f"{words}\n"


@pytest.mark.parametrize("manager", ELSEWHERE)
def test_every_package_of_a_user_has_a_name_for_each_package_manager(
    manager, tmp_path, picky_compiler
):
    """Nothing is there: no compiler and no header, and Python finds no module."""
    environment = with_commands(tmp_path, picky_compiler, **{manager: ""})
    for name in ("gnuplot", "ls"):
        (tmp_path / "bin" / name).unlink()
    environment |= {"PYTHONHOME": str(tmp_path), "CC": "gcc-of-nowhere"}
    words = ["--check", "build", "eventloop", "run", "plot"]
    done = command([DEPS, *words], env=environment)
    assert done.err.endswith(f"; sudo scripts/deps {' '.join(words[1:])} installs them\n"), str(
        done
    )
    names = done.err.removeprefix("klat: missing: ").partition(";")[0].split()
    assert len(names) == 15 and {"gcc", "gnuplot", ELSEWHERE[manager][0]} <= {*names}


def test_deps_without_a_known_package_manager_names_debians_packages(tmp_path, picky_compiler):
    done = command([DEPS, "build", "run"], env=with_commands(tmp_path, picky_compiler))
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert line.startswith("klat: missing: libnuma-dev (names of Debian packages)")
    assert line.endswith("install them by hand")


def test_deps_says_which_packages_have_no_known_name_here(tmp_path, picky_compiler):
    environment = with_commands(tmp_path, picky_compiler, dnf="")
    done = command([DEPS, "build", "test"], env=environment)
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert line.startswith("klat: missing: ") and "strace" in line and "numactl" not in line


def test_deps_as_an_ordinary_user_says_so(open_directory, picky_compiler, as_nobody):
    for source in (picky_compiler, DEPS):
        shutil.copy(source, open_directory / source.name)
        (open_directory / source.name).chmod(0o755)
    environment = ENVIRONMENT | {"CC": str(open_directory / "cc")}
    words = [*as_nobody, open_directory / "deps", "build", "run"]
    done = command(words, env=environment, cwd="/")
    assert done.status == 1
    assert done.err == "klat: missing: libnuma-dev; run this with sudo to install them\n"
