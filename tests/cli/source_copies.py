"""Copies of the source tree, for tests that build or change it."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from harness import FOLDERS, ROOT, Done, command

# Without the settings of a make above this one.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "RUNS", "LABEL", "SUDO_UID", "SUDO_GID")
}
# Compiles in half of the time.
NOT_OPTIMISED = "CFLAGS=-O0"


def make(
    tree: Path, *words: str | Path, environment: Mapping[str, str] | None = None, limit: float = 180
) -> Done:
    changed = ENVIRONMENT | dict(environment or {})
    return command(["make", "-j2", *words], cwd=tree, env=changed, limit=limit)


def copy_tree(target: Path) -> Path:
    """A copy of the tree like a clone, including uncommitted changes."""
    listed = command(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
    )
    if listed.status:
        # No clone but an unpacked archive.
        ignored = shutil.ignore_patterns("build", "__pycache__", ".git")
        shutil.copytree(ROOT, target, ignore=ignored, dirs_exist_ok=True, symlinks=True)
        return target
    for name in filter(None, listed.out.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def add_objects(tree: Path) -> None:
    """Copies the compiled objects with their times, so that `make` in the copy compiles only what differs."""
    here, there = ROOT / "build", tree / "build"
    there.mkdir()
    for folder in {"lib", "depend", *(folder.parts[0] for folder in FOLDERS.values())}:
        shutil.copytree(here / folder, there / folder)
    shutil.copy2(here / "prerequisites", there)
    # The flags contain the path of the tree. The objects do not.
    (there / "flags").write_text((here / "flags").read_text().replace(str(ROOT), str(tree)))
    shutil.copystat(here / "flags", there / "flags")


def files_below(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir()}
