"""docs/container.md and container/: what the commands may do in a container. setpriv stands for the container, where root has
only these capabilities; a long test builds the image."""

import os
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import harness
import pytest
import yaml
from harness import FAILED, MEASURED, ROOT, Done, command
import made_tools
from source_copies import copy_tree, make

pytestmark = pytest.mark.alone

KLAT = ROOT / "klat"
JOB = ROOT / "container/node-check.yaml"


def listed(name: str) -> set[str]:
    """The capabilities of a row of the table."""
    text = (ROOT / "docs/container.md").read_text()
    (row,) = re.findall(rf"^\| {re.escape(name)} \| ([^|]*) \|", text, re.M)
    capabilities = set(re.findall(r"CAP_(\w+)", row))
    assert capabilities or row == "none", row
    return capabilities


def inside(capabilities: set[str], *words: str | Path, **options: Any) -> Done:
    """As root of a container: with no other capability, whatever the file and the user."""
    bounds = ",".join(["-all", *(f"+{name.lower()}" for name in sorted(capabilities))])
    as_root = ["setpriv", f"--bounding-set={bounds}", "--inh-caps=-all", "--no-new-privs"]
    # Docker's limit before Linux 5.16.
    return command(["prlimit", "--memlock=65536", *as_root, *words], **options)


def test_a_run_needs_each_of_its_capabilities(root):
    capabilities = listed("`klat run`, `ab`, `soak`")
    words = (harness.path_of("pipes"), "--quiet", "--iterations=100")

    def attempt() -> str:
        done = inside(capabilities, *words)
        warned = "refused" in done.err or "cannot be locked" in done.err
        return str(done) if done.status != MEASURED or warned else ""

    harness.until(attempt)
    for name in capabilities:
        done = inside(capabilities - {name}, *words)
        assert "refused" in done.err or "cannot be locked" in done.err, f"without {name}\n{done}"


def test_reading_needs_no_capability(root, tmp_path):
    none = listed("`klat doctor`, `summary`, `compare`, `plot`, `export`")
    measure = ("run", "syscall", "--policy=other", "--runs=2", "--iterations=100", "--output=.")
    for words in (
        (*measure, "--label=a"),
        (*measure, "--label=b"),
        ("summary", "a", "b"),
        ("compare", "a", "b"),
        ("doctor",),
    ):
        done = inside(none, KLAT, *words, cwd=tmp_path)
        assert done.out and done.status != 2 and "denied" not in done.err, str(done)


def test_system_v_semaphores_need_one_more(root):
    capabilities = listed("`semaphore --primitive sysv`")
    words = (harness.path_of("semaphore"), "--primitive=sysv", "--quiet", "--iterations=100")
    harness.until(lambda: "" if inside(capabilities, *words).status == MEASURED else "not measured")
    less = inside(capabilities - {"SYS_ADMIN"}, *words)
    assert less.status == FAILED, str(less)


def containers() -> dict[str, dict[str, Any]]:
    spec = yaml.safe_load(JOB.read_text())["spec"]["template"]["spec"]
    return {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}


def test_the_job_has_whole_cpus_and_the_capabilities_of_the_table():
    for container in containers().values():
        limits = container["resources"]["limits"]
        assert limits == container["resources"]["requests"] and limits["cpu"].isdecimal()
        allowed = container["securityContext"]["capabilities"]
        assert allowed["drop"] == ["ALL"]
        assert set(allowed["add"]) == listed("`klat run`, `ab`, `soak`")


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "status"), [("9s", 0), ("1ns", 1)])
@pytest.mark.parametrize("name", ["noise", "timer"])
def test_a_node_is_accepted_or_rejected(name, limit, status, root, tmp_path):
    container = containers()[name]
    words: list[str] = container["args"]
    short = {"--for": "5s", "--limit": limit, "--output": str(tmp_path)}
    replaced = [short.get(before, word) for before, word in zip(["", *words], words)]
    allowed = set(container["securityContext"]["capabilities"]["add"])
    done = inside(allowed, KLAT, *replaced, "--share", "0.2", limit=60)
    assert done.status == status, str(done)
    assert (tmp_path / name).is_dir()


# This machine may have both versions of control groups, which crun refuses.
PODMAN = """\
#!/bin/sh
exec unshare -m sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null
exec podman --root "$0/root" --runroot "$0/run" "$@"' {base} "$@"
"""
SETTINGS = """\
[containers]
default_ulimits = ["nofile={0}:{0}", "nproc={1}:{1}"]
netns = "host"
"""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """podman with images of its own: klat, from a root of Debian packages."""
    for needed in ("podman", "mmdebstrap"):
        if not shutil.which(needed):
            harness.lacking(f"there is no {needed}")
    base = tmp_path_factory.mktemp("podman")
    tree = copy_tree(base / "tree")  # make dist packs the last commit
    commit = "git init -q && git add -A && git -c user.name=x -c user.email=x commit -qm x"
    assert command(["sh", "-c", commit], cwd=tree).status == 0
    script = made_tools.script(base / "podman", PODMAN.format(base=base))
    limits = [
        min(resource.getrlimit(kind)[1], 1024)
        for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
    ]
    (base / "containers.conf").write_text(SETTINGS.format(*limits))
    os.environ["CONTAINERS_CONF"] = str(base / "containers.conf")
    done = command(
        ["mmdebstrap", "-q", "--variant=minbase", "trixie", base / "debian.tar"], limit=600
    )
    assert done.status == 0, str(done)
    done = command([script, "import", base / "debian.tar", "debian-root"], limit=100)
    assert done.status == 0, str(done)
    done = make(tree, "image", f"PODMAN={script}", "BASE=debian-root", limit=1500)
    assert done.status == 0, str(done)
    return script


@pytest.mark.long
def test_the_image_measures_onto_a_volume_and_compare_names_the_container(podman, root, tmp_path):
    def run(*options: str | Path) -> Done:
        least = ["--cap-drop=all", "--cap-add=sys_nice,ipc_lock", "--cgroups=disabled"]
        volume = f"--volume={tmp_path}:/results"
        return command([podman, "run", "--rm", *least, volume, *options], limit=200)

    measure = ("klat", "run", "syscall", "--runs=4")
    for label, options in (("filtered", ()), ("open", ("--security-opt=seccomp=unconfined",))):
        done = run(*options, *measure, f"--label={label}")
        assert done.status == 0 and "refused" not in done.err, str(done)
    done = run("klat", "compare", "results/filtered", "results/open")
    assert done.status == 4, str(done)
    assert "process.Seccomp: the process's Seccomp is 2 in BASE and 0 in" in done.out
    done = run("klat", "lab", "run", "--kernel=debian:6.1", "pipes")
    assert done.status == 2 and "qemu-system-x86" in done.err and done.err.count("\n") == 1, str(
        done
    )
