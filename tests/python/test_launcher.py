"""./klat works by whatever name and from wherever it is called."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import fakes
import made_tools
import pytest


def call(
    command: Sequence[str | Path], directory: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    return made_tools.run(*command, cwd=directory, env={"PATH": os.environ["PATH"]} | more)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An installed klat."""
    prefix = tmp_path / "pre fix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "libexec/klat").mkdir(parents=True)
    shutil.copy(fakes.KLAT, prefix / "bin/klat")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(fakes.ROOT / "scripts/klat", prefix / "share/klat/klat", ignore=ignored)
    for name in ("pipes", "switch"):
        fake = Path(__file__).with_name("fake_program.py")
        shutil.copy(fake, prefix / "libexec/klat" / name)
    return prefix


def test_it_runs_by_path_from_any_directory(tmp_path):
    assert call([fakes.KLAT, "--version"], tmp_path).stdout.startswith("klat ")
    assert call(["./klat", "--version"], fakes.ROOT).stdout.startswith("klat ")


def test_it_runs_by_symbolic_link_of_another_name(tmp_path):
    (tmp_path / "far").symlink_to(fakes.KLAT)
    (tmp_path / "latency").symlink_to("far")
    done = call(["./latency", "run", "--help"], tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: klat run")


def test_it_runs_installed_and_finds_the_installed_programs(prefix, tmp_path):
    path = f"{prefix / 'bin'}:{os.environ['PATH']}"
    done = call(["klat", "run", "switch", "pipes", "--runs", "2"], tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "next: klat summary" in done.stderr
    done = call([prefix / "bin/klat", "pipes", "--version"], tmp_path)
    assert done.stdout == "pipes (fake)\n"


def test_modules_in_the_current_directory_are_not_imported(tmp_path):
    for name in ("klat", "argparse", "pipes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('wrong one')")
    done = call([fakes.KLAT, "--version"], tmp_path)
    assert done.stdout.startswith("klat "), done.stderr


def test_a_launcher_without_its_package_says_so_in_one_line(tmp_path):
    shutil.copy(fakes.KLAT, tmp_path / "klat")
    done = call(["./klat", "--help"], tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("megabytes, status", [(60, 2), (100, 2), (160, 0)])
def test_with_little_memory_there_is_an_answer_or_one_line(tmp_path, megabytes, status):
    limit = ["timeout", "60", "prlimit", f"--as={megabytes * 1_000_000}"]
    done = call([*limit, fakes.KLAT, "summary", fakes.ROOT / "results/reference"], tmp_path)
    assert done.returncode == status
    lines = done.stderr.splitlines()
    assert not lines if status == 0 else len(lines) == 1 and "ulimit -v" in lines[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_without_dev_null_the_program_is_not_blamed(prefix, tmp_path):
    """A device node on a file system without devices cannot be opened."""
    script = (
        "mkdir m && mount -t tmpfs -o nodev none m && mknod -m 666 m/n c 1 3 && mount --bind m/n /dev/null"
        ' && exec "$0" run pipes --runs 1 --output results'
    )
    done = call(["unshare", "--mount", "sh", "-c", script, prefix / "bin/klat"], tmp_path)
    assert done.returncode == 2, done.stderr
    assert "/dev/null cannot be opened: Permission denied" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_leaves_no_caches_behind_in_a_users_tree(prefix, tmp_path):
    call([prefix / "bin/klat", "--help"], tmp_path)
    call([prefix / "bin/klat", "run", "pipes", "--runs", "1"], tmp_path)
    assert not list(prefix.rglob("__pycache__"))


def test_a_program_gets_its_arguments_and_answers_for_itself(prefix, tmp_path):
    done = call([prefix / "bin/klat", "pipes", "--no-such-option"], tmp_path)
    assert done.returncode == 2
    assert done.stderr == "pipes: unknown option '--no-such-option'; see --help\n"


def test_too_few_descriptors_are_named_as_the_limit(prefix, tmp_path):
    done = call(["prlimit", "--nofile=5", prefix / "bin/klat", "switch", "--version"], tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "Too many open files" in done.stderr and "ulimit -n" in done.stderr
