"""Source lines of an explanation, from a kernel with debug information."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import explained
import pytest

from klat.base.errors import KlatError
from klat.explain import symbols
from klat.explain.symbols import Function, Symbols
from klat.explain.trace import Block, Executed
from klat.explain.windows import Content
from klat.lab import elf
from klat.report import explanation as report
from klat.report.renderers import terminal

SOURCE = """\
	.globl work
work:
	nop
	add %rdi, %rax
	ret
"""
SIZES = bytes([1, 3, 1])


def kernel(directory: Path, source: str, *words: str) -> Path:
    """A linked file with debug information."""
    (directory / "kernel").mkdir(parents=True)
    (directory / "kernel/work.S").write_text(source)
    path = directory / "vmlinux"
    options = ("-g", "-nostdlib", "-static", "-Wl,-e,work", *words)
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, *options, "kernel/work.S", "-o", path], cwd=directory, check=True)
    return path


def stripped(path: Path) -> Path:
    """As it boots."""
    booted = path.with_suffix(".booted")
    subprocess.run(["strip", path, "-o", booted], check=True)
    return booted


def test_each_instruction_counts_for_its_line(tmp_path):
    path = kernel(tmp_path, SOURCE)
    (work,) = [each for each in symbols.of_program(path) if each.name == "work"]
    names = Symbols([Function("work", "kernel", work.start)])
    block = Block(work.start, SIZES)
    content = Content([], [Executed(block, 0, 3), Executed(block, 1, 2, 10)], 0)
    found = symbols.lines_by_function(path, names, [content], ["work"])
    file = tmp_path / "kernel/work.S"
    assert found == {"work": {f"{file}:3": 1, f"{file}:4": 11, f"{file}:5": 11}}
    assert not symbols.lines_by_function(path, names, [content], ["other"])


def test_paths_are_those_of_the_source_tree(tmp_path):
    """In Debian's kernels, paths from the compiler are relative and paths from the assembler absolute."""
    text = '.text\n.file 1 "build/init/main.c"\n.file 2 "build/fs/pipe.c"\n'
    text += '.file 3 "/src/arch/linux/arch/x86/lib/copy.S"\n.globl work\n'
    text += "start_kernel: .loc 1 7\nret\nwork: .loc 2 8\nnop\n.loc 3 9\nret\n"
    path = kernel(tmp_path, text)
    starts = {each.name: each.start for each in symbols.of_program(path)}
    names = Symbols([Function(name, "kernel", start) for name, start in starts.items()])
    content = Content([], [Executed(Block(starts["work"], bytes([1, 1])), 0, 2)], 0)
    found = symbols.lines_by_function(path, names, [content], ["work"])
    assert found == {"work": {"fs/pipe.c:8": 1, "arch/x86/lib/copy.S:9": 1}}


def test_a_kernel_that_was_booted_is_taken(tmp_path):
    path = kernel(tmp_path, SOURCE, "-Wl,--build-id")
    elf.check_vmlinux(path, stripped(path))


def test_another_build_is_refused(tmp_path):
    path = kernel(tmp_path / "a", SOURCE)
    other = stripped(kernel(tmp_path / "b", SOURCE.replace("add", "sub")))
    with pytest.raises(KlatError, match="its code differs from that of the booted kernel"):
        elf.check_vmlinux(path, other)


def test_a_build_is_known_by_its_build_id(tmp_path):
    def with_id(name: str, build_id: str) -> Path:
        path = kernel(tmp_path / name, SOURCE, f"-Wl,--build-id=0x{build_id}")
        rename = ("--rename-section", ".note.gnu.build-id=.notes")
        subprocess.run(["objcopy", *rename, path], check=True)
        return path

    one, other = with_id("a", "12" * 20), with_id("b", "34" * 20)
    assert elf.build_id(one.read_bytes()).hex() == "12" * 20
    elf.check_vmlinux(one, stripped(one))
    with pytest.raises(KlatError, match=f"build ID {'12' * 20}.* has {'34' * 20}"):
        elf.check_vmlinux(one, stripped(other))


@pytest.mark.parametrize("section", [".notes", ".text"])
def test_the_build_of_a_flat_image_is_known_by_its_contents(tmp_path, section):
    paths = []
    for name, sign in (("a", "add"), ("b", "sub")):
        path = kernel(tmp_path / name, SOURCE.replace("add", sign), "-Wl,--build-id")
        if section == ".notes":
            rename = ("--rename-section", f".note.gnu.build-id={section}")
            subprocess.run(["objcopy", *rename, path], check=True)
        image = tmp_path / f"{name}.image"
        subprocess.run(
            ["objcopy", "-O", "binary", f"--only-section={section}", path, image], check=True
        )
        image.write_bytes(bytes(64) + image.read_bytes() + bytes(64))
        paths.append((path, image))
    (one, image), (_, other) = paths
    elf.check_vmlinux(one, image)
    with pytest.raises(KlatError, match="is not of the booted kernel's build"):
        elf.check_vmlinux(one, other)


def test_a_kernel_without_debug_information_is_refused(tmp_path):
    path = kernel(tmp_path, SOURCE)
    with pytest.raises(KlatError, match=r"has no \.debug_line section"):
        elf.check_vmlinux(stripped(path), path)


def test_the_table_has_the_lines_below_their_function():
    base = replace(explained.BASE, lines={"read": {"fs/read.c:7": 60, "fs/read.c:8": 40}})
    new = replace(explained.NEW, lines={"read": {"fs/read.c:7": 75, "fs/read.c:8": 45}})
    shown = [
        re.split(r"  +", line.strip())
        for line in terminal.lines(report.document(explained.explanation(base, new), 20), False)
    ]
    at = [line[0] for line in shown].index("read")
    assert shown[at + 1] == ["fs/read.c:7", "60", "75", "+15"]
    assert shown[at + 2] == ["fs/read.c:8", "40", "45", "+5"]
    alone = "\n".join(terminal.lines(report.document(explained.explanation(base), 20), False))
    assert re.search(r"\nread .*\n  fs/read.c:7 +60 +12.1 %\n  fs/read.c:8 +40 ", alone)
