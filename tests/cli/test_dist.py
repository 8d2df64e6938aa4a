"""`make dist`, on copies of the tree."""

from pathlib import Path

import pytest
from harness import command
from source_copies import ENVIRONMENT, add_objects, copy_tree, files_below, make

# The files of the tarball get this time, before that of the objects that add_objects() copies.
COMMITTED = ENVIRONMENT | {"GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with a commit."""
    copy = copy_tree(tmp_path_factory.mktemp("tree"))
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "x"]):
        assert command(["git", *words], cwd=copy, env=COMMITTED).status == 0
    return copy


def tarball_of(tree: Path) -> Path:
    done = make(tree, "dist")
    assert done.status == 0, str(done)
    (tarball,) = tree.glob("build/klat-*.tar.gz")
    return tarball


def test_a_tarball_builds_without_git_and_says_its_commit(tree, tmp_path):
    commit = command(["git", "rev-parse", "--short=12", "HEAD"], cwd=tree).out.strip()
    tarball = tarball_of(tree)
    assert command(["tar", "-xzf", tarball, "-C", tmp_path]).status == 0
    unpacked = tmp_path / tarball.name.removesuffix(".tar.gz")
    assert files_below(unpacked) - {"COMMIT"} == {
        name for name in files_below(tree) if not name.startswith((".git/", "build/"))
    }
    done = command(["./klat", "--version"], cwd=unpacked)
    assert commit in done.out, str(done)
    add_objects(unpacked)
    for source in ("lib/base/proc.c", "pipes/pipes.c"):
        (unpacked / source).touch()
    done = make(unpacked, "pipes/pipes")
    assert (done.status, done.err) == (0, ""), str(done)
    for words in (["pipes/pipes", "--version"], ["./klat", "--version"]):
        done = command(words, cwd=unpacked)
        assert done.status == 0 and commit in done.out, str(done)


def test_tarballs_of_a_commit_are_equal(tree, tmp_path):
    clone = tmp_path / "clone"
    words = ["sh", "-c", 'umask 077 && git clone -q "$0" "$1"', tree, clone]
    assert command(words).status == 0
    (clone / "README.md").write_text("not committed")
    assert tarball_of(tree).read_bytes() == tarball_of(clone).read_bytes()


def test_a_tree_without_git_cannot_be_packed(tmp_path):
    done = make(copy_tree(tmp_path), "dist")
    assert done.status == 2
    assert "klat: make dist needs a git clone" in done.err, str(done)
