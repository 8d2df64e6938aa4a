"""`make wheel`, on a copy of the tree, and what a virtual environment has from the wheel."""

import os
import re
import shutil
import zipfile
from pathlib import Path

import harness
import pytest
from harness import MEASURED, PROGRAMS, ROOT, UNTRUSTED, command
from source_copies import NOT_OPTIMISED, copy_tree, files_below, make

from klat.lab import elf

pytestmark = pytest.mark.slow
BUILD_SECONDS = 600
PT_DYNAMIC, PT_INTERP = 2, 3  # elf(5)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree without git."""
    return copy_tree(tmp_path_factory.mktemp("tree"))


def wheel_of(tree: Path, *words: str | Path) -> Path:
    done = make(tree, "build-wheel", NOT_OPTIMISED, *words, limit=BUILD_SECONDS)
    assert done.status == 0, str(done)
    assert "WHEEL   build/wheel/klat-" in done.out
    return max(tree.glob("build/wheel/*.whl"), key=os.path.getmtime)


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    return wheel_of(tree)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with numpy, scipy and jinja2 of the system."""
    path = tmp_path_factory.mktemp("environment") / "venv"
    done = command(["/usr/bin/python3", "-m", "venv", "--system-site-packages", path], limit=200)
    assert done.status == 0, str(done)
    words = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    done = command([path / "bin/python3", "-m", "pip", *words], limit=200)
    assert done.status == 0, str(done)
    return path


def klat(environment: Path, *words: str | Path, cwd: Path) -> harness.Done:
    """Run the klat of the environment. No compiler and no other program is in PATH."""
    path = {"PATH": str(environment / "bin"), "HOME": str(cwd)}
    return command([environment / "bin/klat", *words], cwd=cwd, env=path, limit=100)


def test_the_environment_has_what_make_installs(environment, tree, tmp_path):
    words = ["OUT=build/static", "STATIC=1", NOT_OPTIMISED, f"DESTDIR={tmp_path}", "prefix=/p"]
    done = make(tree, *words, "install-front", "install-static", limit=BUILD_SECONDS)
    assert done.status == 0, str(done)
    files = files_below(tmp_path / "p")
    assert "bin/klat" in files and f"libexec/klat/static/{PROGRAMS[0]}/{PROGRAMS[0]}" in files
    assert files <= files_below(environment)
    for name in files:
        modes = [(where / name).stat().st_mode & 0o111 for where in (environment, tmp_path / "p")]
        assert modes[0] == modes[1], name


def test_nothing_in_it_needs_a_library(wheel):
    """So its name may say that it is for every C library. The plugin takes the functions that QEMU has."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/libexec/" in name]
        assert len(names) == len(PROGRAMS) + 3  # load, the client of network, the plugin
        for name in names:
            kinds = {kind for kind, _ in elf.segments(archive.read(name))}
            assert PT_INTERP not in kinds, name
            assert (PT_DYNAMIC in kinds) == name.endswith(".so"), name
        (plugin,) = (name for name in names if name.endswith(".so"))
        assert not re.search(rb"\0GLIBC_|\0libc\.so", archive.read(plugin))


def test_the_page_of_the_package_has_no_links_to_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text and "# klat\n" in text
    assert "](" not in text


def test_the_plugin_finds_all_its_functions(environment):
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    words = ["/usr/bin/python3", "-c", script, environment / "libexec/klat/lab-trace.so"]
    done = command(words, env={"LD_BIND_NOW": "1"})
    assert done.status == 0, str(done)


def test_it_measures_and_reports(environment, tmp_path):
    done = klat(environment, "--version", cwd=tmp_path)
    assert done.status == 0 and done.out.startswith("klat "), str(done)
    done = klat(environment, "run", "pipes", "--runs", "3", cwd=tmp_path)
    assert done.status in (MEASURED, UNTRUSTED), str(done)
    done = klat(environment, "summary", "results", cwd=tmp_path)
    assert done.status == 0 and "round_trip" in done.out, str(done)
    assert all(program in klat(environment, "--help", cwd=tmp_path).out for program in PROGRAMS)
    done = klat(environment, "plot", "results", "-o", "plots", cwd=tmp_path)
    harness.assert_one_line(done, "klat plot", 2)
    assert "apt install gnuplot-nox" in done.err


def test_root_leaves_no_caches_in_it(environment, tmp_path, root):
    """The user whose environment it is could not remove it otherwise."""
    for directory in (environment / "share").rglob("__pycache__"):
        shutil.rmtree(directory)
    assert klat(environment, "doctor", cwd=tmp_path).status in (0, 1)
    assert not [*(environment / "share").rglob("__pycache__")]


@pytest.mark.long
def test_a_wheel_for_another_architecture(tree, environment, tmp_path):
    for needed in ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"):
        if not shutil.which(needed):
            harness.lacking(f"this machine has no {needed}")
    sysroot = ROOT / "build/sysroot/aarch64"
    done = make(ROOT, "-s", "sysroot", "ARCH=arm64", limit=300)
    if done.status:
        harness.lacking(done.err.strip().splitlines()[0])
    built = wheel_of(tree, "ARCH=arm64", f"SYSROOT={sysroot}")
    assert built.name.endswith("-py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64.whl")
    words = ["install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path, built]
    done = command([environment / "bin/python3", "-m", "pip", *words], limit=200)
    assert done.status == 1 and "is not a supported wheel on this platform" in done.err
    with zipfile.ZipFile(built) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/pipes/pipes"))
        program = Path(archive.extract(name, tmp_path))
    program.chmod(0o755)
    assert command(["qemu-aarch64-static", program, "--version"]).out.startswith("pipes (klat ")
