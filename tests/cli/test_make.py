"""The Makefile, on copies of the tree: nothing here touches the tree that the tests run in."""

import ctypes
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from harness import FOLDERS, PROGRAMS, ROOT, command
from source_copies import ENVIRONMENT, NOT_OPTIMISED, add_objects, copy_tree, files_below, make

HELPERS = harness.makefile_list("HELPERS")
STRANGER = 1234


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built copy."""
    copy = copy_tree(tmp_path_factory.mktemp("tree"))
    add_objects(copy)
    done = make(copy)
    assert (done.status, done.err) == (0, ""), str(done)
    return copy


def test_a_warning_stops_only_a_build_that_asks_for_it(tree):
    source = tree / "lib/base/warned_of.c"
    source.write_text("static int unused;\n")
    try:
        for words, status in (("WERROR=", 0), ("WERROR=1", 2)):
            done = make(tree, "OUT=build/warned", words, "build/warned/lib/base/warned_of.o")
            assert done.status == status and "unused" in done.err, str(done)
    finally:
        source.unlink()


def test_building_again_does_nothing(tree):
    done = make(tree)
    assert (done.status, done.out, done.err) == (0, "", ""), str(done)


def test_more_metrics_than_a_program_may_have_do_not_compile(tmp_path):
    source = tmp_path / "many.c"
    library = ["-I", ROOT / "lib", "-I", ROOT / "lib/arch/portable"]
    words = ["cc", "-fsyntax-only", "-D_GNU_SOURCE", *library, source]
    for count, status in ((8, 0), (9, 1)):
        source.write_text(
            f'#include "klat.h"\nstatic const struct klat_metric many[{count}];\n'
            "const struct klat_benchmark b = { KLAT_METRICS(many) };\n"
        )
        done = command(words)
        assert done.status == status, str(done)
    assert "more than KLAT_MAX_METRICS" in done.err


def rebuilt(tree: Path, changed: str) -> str:
    """What make would do. Without these two files, which it always makes again, it would do everything."""
    made = ("--old-file=build/flags", "--old-file=build/commit")
    return make(tree, "--dry-run", *made, f"--what-if={changed}").out


def test_a_header_that_changes_rebuilds_what_includes_it(tree):
    out = rebuilt(tree, "lib/run/run.h")
    assert "lib/record/record.c" in out and "-o pipes/pipes" in out
    out = rebuilt(tree, "network/datagram.h")
    assert "-o network/network" in out and "-o pipes/pipes" not in out, out


@pytest.mark.slow
def test_clang_builds_without_a_warning(tree):
    if not shutil.which("clang"):
        harness.lacking("there is no clang")
    done = make(tree, "OUT=build/clang", "CC=clang", NOT_OPTIMISED, "all")
    assert (done.status, done.err) == (0, ""), str(done)
    clang_built = tree / "build" / "clang" / "pipes" / "pipes"
    assert command([clang_built, "--version"]).status == 0


def test_static_programs_run_by_themselves():
    program = harness.path_of("pipes", "static")
    assert b"/ld-linux" not in program.read_bytes()[:4096], "no interpreter"
    assert command([program, "--cpus", "0,0"]).status in (harness.MEASURED, harness.UNTRUSTED)


PR_SET_TSC, PR_TSC_SIGSEGV, SYS_PRCTL = 26, 2, 157


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of prctl()")
@pytest.mark.parametrize("refused", [False, True])
def test_a_program_that_may_not_read_the_counter_allows_it_or_says_so(refused):
    """A static program: a dynamic linker would read the counter before the program does."""
    refuse = harness.refusing(SYS_PRCTL) if refused else lambda: None
    libc = ctypes.CDLL(None)

    def forbid() -> None:
        assert libc.prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0
        refuse()

    words = (harness.path_of("pipes", "static"), "--cpus", "0,0")
    done = command(words, preexec_fn=forbid)
    if refused:
        harness.assert_one_line(done, "pipes", harness.SKIPPED)
        assert "may not read this CPU's counter here, and prctl(PR_SET_TSC) could not" in done.err
    else:
        assert done.status in (harness.MEASURED, harness.UNTRUSTED), str(done)


def test_a_variant_does_not_touch_the_programs(tree):
    out = make(tree, "--dry-run", "OUT=build/plain", "CFLAGS=-O1").out
    written = re.findall(r" -o (\S+)", out)
    assert len(written) > len(PROGRAMS)
    assert not [path for path in written if not path.startswith("build/plain/")]
    assert make(tree).out == ""


@pytest.mark.slow
def test_what_root_builds_belongs_to_the_trees_owner(tmp_path, root):
    """Git refuses a tree of another owner. Its message is not printed, and the build still has its commit."""
    copy = copy_tree(tmp_path)
    for words in (["init", "-q"], ["add", "Makefile"]):
        assert command(["git", *words], cwd=copy).status == 0
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    assert command(["git", *author, "commit", "-qm", "x"], cwd=copy).status == 0
    commit = command(["git", "rev-parse", "--short=12", "HEAD"], cwd=copy).out.strip()
    for path in [copy, *copy.rglob("*")]:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    sudo = {"SUDO_UID": str(STRANGER), "HOME": str(tmp_path)}
    done = make(copy, "all", NOT_OPTIMISED, environment=sudo)
    assert (done.status, done.err) == (0, ""), str(done)
    made = [
        copy / "build",
        *(copy / "build").rglob("*"),
        *(copy / f / p for p, f in FOLDERS.items()),
    ]
    assert {path.stat().st_uid for path in made} == {STRANGER}
    assert commit in command([copy / "pipes" / "pipes", "--version"]).out


@pytest.fixture(scope="module")
def installed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """DESTDIR of an installation into /opt/klat."""
    target = tmp_path_factory.mktemp("installed")
    done = make(tree, "install", f"DESTDIR={target}", "prefix=/opt/klat")
    assert (done.status, done.err) == (0, ""), str(done)
    yield target
    (target / "opt/klat/share/klat/other").write_text("somebody else's")
    done = make(tree, "uninstall", f"DESTDIR={target}", "prefix=/opt/klat")
    assert (done.status, done.err) == (0, ""), str(done)
    assert files_below(target) == {"opt/klat/share/klat/other"}, "uninstall takes what install made"
    (target / "opt/klat/share/klat/other").unlink()
    make(tree, "uninstall", f"DESTDIR={target}", "prefix=/opt/klat")
    shared = {
        "bin",
        "share",
        "share/man",
        "share/man/man1",
        "share/bash-completion",
        "share/doc",
        "libexec",
    }
    left = {str(path.relative_to(target / "opt/klat")) for path in (target / "opt/klat").rglob("*")}
    assert left <= shared | {"share/bash-completion/completions"}


def test_install_compiles_the_modules_and_uninstall_removes_them(tree, tmp_path):
    """klat writes no .pyc files as root, and others may not write there. Without them a command takes twice as long."""
    prefix = f"prefix={tmp_path}/klat"
    assert make(tree, "install", prefix).status == 0
    modules = {path.stem for path in (tmp_path / "klat/share/klat/klat").rglob("*.py")}
    compiled = (tmp_path / "klat/share/klat/klat").rglob("*.pyc")
    assert {path.name.partition(".")[0] for path in compiled} == modules
    assert make(tree, "uninstall", prefix).status == 0
    assert not list(tmp_path.rglob("*.py*"))


@pytest.mark.parametrize(
    "words, said",
    [
        (("all", "CROSS_COMPILE=aarch64-linux-gnu"), "must end in '-', as aarch64-linux-gnu-"),
        (
            ("all", "ARCH=arm64", "CROSS_COMPILE=riscv64-linux-gnu-"),
            "ARCH is arm64, but riscv64-linux-gnu- builds for riscv64",
        ),
        (
            ("deps", "CROSS_COMPILE=aarch64-none-linux-gnu-"),
            "no program aarch64-none-linux-gnu-gcc in PATH; for the distribution's compiler give ARCH=",
        ),
        (("sysroot",), "libraries for another machine; name it: ARCH=arm64"),
    ],
)
def test_a_compiler_that_cannot_build_it_is_refused(words, said, tmp_path):
    done = make(ROOT, f"OUT={tmp_path}", *words)
    assert done.status == 2 and said in done.err, str(done)


def test_static_programs_of_another_machine_are_built_and_installed_apart():
    """klat lab looks for this machine's in static."""
    done = make(ROOT, "-n", "install-static", "ARCH=arm64")
    assert done.status == 0 and "cd build/static-arm64 && " in done.out, str(done)
    assert "/libexec/klat/static-arm64/" in done.out, str(done)


def test_an_architecture_in_the_environment_is_told_to_have_no_effect():
    set_by_kernel_builds = {"ARCH": "arm64", "CROSS_COMPILE": "aarch64-linux-gnu-"}
    done = make(ROOT, "-n", "all", "OUT=build/none", environment=set_by_kernel_builds)
    assert done.status == 0 and "-Ilib/arch/aarch64" not in done.out, str(done)
    assert (
        "ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- in the environment has no effect" in done.err
    )


def test_everything_is_installed_in_its_place(installed):
    there = files_below(installed / "opt/klat")
    assert {"bin/klat", "share/klat/klat/cli.py", "share/doc/klat/docs/record.md"} <= there
    assert {f"libexec/klat/{program}" for program in PROGRAMS} <= there
    assert {f"libexec/klat/{helper.replace('/', '-')}" for helper in HELPERS} <= there
    assert {f"share/man/man1/klat-{program}.1" for program in PROGRAMS} <= there
    assert {"libexec/klat/lab-trace.so", "share/klat/lab/init"} <= there
    assert "share/klat/ansible/fleet.yml" in there
    assert {"share/man/man1/klat.1", "share/bash-completion/completions/klat"} <= there
    assert not [name for name in there if "__pycache__" in name or "/tests/" in name]
    for name in there:
        mode = (installed / "opt/klat" / name).stat().st_mode
        executable = name.startswith(("bin/", "libexec/", "share/klat/lab/"))
        assert stat.S_IMODE(mode) == (0o755 if executable else 0o644), name


def test_installed_it_finds_its_parts_and_works_from_anywhere(installed, tmp_path):
    klat = installed / "opt/klat/bin/klat"
    link = tmp_path / "klat"
    link.symlink_to(klat)
    for words in (
        [klat, "--version"],
        [link, "--version"],
        [klat, "pipes", "--version"],
        [klat, "--help"],
    ):
        done = command(words, cwd="/")
        assert (done.status, done.err) == (0, ""), str(done)
    assert all(program in command([klat, "--help"]).out for program in PROGRAMS)
    done = command([klat, "run", "pipes", "--runs", "1", "--output", tmp_path / "results"], cwd="/")
    assert done.status in (harness.MEASURED, harness.UNTRUSTED), str(done)
    assert command([klat, "summary", tmp_path / "results"]).status == 0


@pytest.fixture(scope="module")
def reference(tree: Path) -> Path:
    """The directory of man pages and completion."""
    done = make(tree, "man", "completion")
    assert (done.status, done.err) == (0, ""), str(done)
    return tree / "build"


def klat_commands() -> set[str]:
    listed = re.findall(r"^    (\w+) ", command([ROOT / "klat", "--help"]).out, re.MULTILINE)
    assert {"run", "summary"} <= set(listed)
    return set(listed)


def test_manuals_hold_every_command_and_option_and_format_without_a_warning(reference):
    pages = sorted((reference / "man").glob("*.1"))
    assert len(pages) == len(PROGRAMS) + 1
    for page in pages:
        done = command(["groff", "-man", "-Tutf8", "-ww", "-rLL=79n", "-P-cbou", page])
        assert (done.status, done.err) == (0, ""), str(done)
        # The help of the commands is not wrapped.
        assert max(map(len, done.out.splitlines())) <= (90 if page.name == "klat.1" else 79)
        assert "EXIT STATUS" in done.out and "NAME" in done.out
        if page.name == "klat.1":
            wanted = {f"klat {name}" for name in klat_commands()}
        else:
            options = harness.help_options(page.stem.removeprefix("klat-"))
            wanted = {f"--{option}" for option in options}
        text = page.read_text().replace("\\-", "-")
        assert not [name for name in wanted if name not in text]


COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_klat
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(reference: Path, *words: str) -> set[str]:
    tree, file = reference.parent, reference / "completion" / "klat"
    done = command(["bash", "-c", COMPLETE, "bash", file, tree / "klat", *words], cwd=tree)
    assert done.err == "", str(done)
    return set(done.out.split())


def test_completion_knows_commands_programs_options_and_choices(reference):
    assert completed(reference, "") == klat_commands() | set(PROGRAMS) | {"--help", "--version"}
    assert completed(reference, "pi") == {"pipes"}
    assert completed(reference, "pipes", "--mode", "") == {"round-trip", "one-way"}
    assert completed(reference, "run", "--ru") == {"--runs"}
    for name in ("run", "soak", "explain"):
        assert completed(reference, name, "pi") == {"pipes"}
    for program in PROGRAMS:
        options = {f"--{name}" for name in harness.help_options(program)}
        assert completed(reference, program, "--") == options


def test_a_new_benchmark_builds_measures_and_passes(tmp_path):
    copy = copy_tree(tmp_path)
    add_objects(copy)
    done = make(copy, "new", "NAME=getppid")
    assert done.status == 0, str(done)
    # The author's first act: the sample option gets another name.
    source = copy / "bench/getppid/getppid.c"
    source.write_text(source.read_text().replace("repeat", "rounds"))
    done = make(copy, "getppid")
    assert (done.status, done.err) == (0, ""), str(done)
    harness_result = command([copy / "klat", "getppid", "--json"])
    assert harness_result.status in (harness.MEASURED, harness.UNTRUSTED), str(harness_result)
    words = ["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/cli/test_getppid.py"]
    done = command(["/usr/bin/python3", *words], cwd=copy)
    assert done.status == 0, str(done)


@pytest.mark.parametrize(
    "name", ["", "a b", "A", "1x", "x/y", "../x", "x;y", "pipes", "switch", "lib", "build", "run"]
)
def test_a_name_that_will_not_do_is_one_line_and_changes_nothing(name, tree):
    before = {*tree.glob("bench/*"), *tree.glob("tests/cli/*")}
    done = make(tree, "new", f"NAME={name}")
    ours = [line for line in done.err.splitlines() if not line.startswith("make")]
    assert done.status == 2 and len(ours) == 1 and ours[0].startswith("klat: "), str(done)
    assert {*tree.glob("bench/*"), *tree.glob("tests/cli/*")} == before


def test_clean_leaves_what_a_clone_has(tmp_path):
    copy = copy_tree(tmp_path)
    before = files_below(copy)
    assert make(copy, "build/lib/base/lock.o").status == 0
    for name in (*(f / p for p, f in FOLDERS.items()), *HELPERS):
        (copy / name).touch()
    assert make(copy, "clean").status == 0
    assert files_below(copy) == before
