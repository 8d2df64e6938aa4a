"""An instruction that causes a page fault starts twice, and its sample has it once."""

import subprocess

import pytest
from labs import ROOT
from test_lab_boots import CLOCK, LABELS, klat, lab_run, session_of

pytestmark = pytest.mark.slow

# Four page faults before each write. A round trip has two writes.
FAULTING_WRITE = r"""
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE __attribute__((aligned(4096)))
static char pages[3][4096] PAGE;

ssize_t __real_write(int, const void *, size_t);
PAGE ssize_t __wrap_write(int fd, const void *data, size_t size)
{
	char *to = pages[1];
	size_t count = 8;

	munlockall();
	madvise(pages, sizeof(pages), MADV_DONTNEED);
	/* The return from madvise() does not fault, but its target does. */
	madvise((void *)__wrap_write, 4096, MADV_DONTNEED);
	*(volatile char *)pages[0] = 1; /* within a block */
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory"); /* a block's end */
	syscall(SYS_uname, pages[2]); /* in the kernel */
	return __real_write(fd, data, size);
}
"""
INVALID = 3  # faults in the timed part are against the evidence


def test_samples_with_page_faults_add_up(tmp_path):
    programs, source = tmp_path / "programs", tmp_path / "write.c"
    programs.mkdir()
    source.write_text(FAULTING_WRITE)
    static = ROOT / "build/static"
    subprocess.run(
        [
            *("gcc", "-O2", "-static", "-Wl,--wrap=write", "-o", programs / "pipes"),
            *(*static.glob("pipes/*.o"), source, static / "libklat.a"),
            *("-lnuma", "-ljansson", "-lmd", "-lm"),
        ],
        check=True,
    )
    words = ("--kernel", "debian:stock", "--mode", "counted", "--boots", "1", "--runs", "1", *CLOCK)
    own = ("--iterations", "100", "--seed", "5", "--output", tmp_path, "pipes")
    lab_run(*words, *own, cwd=tmp_path, status=INVALID, KLAT_PROGRAMS=str(programs))
    session = session_of(tmp_path, LABELS[0])
    done = klat(
        "lab", "explain", session, "--metric", "pipes.round_trip", "--least", "0", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (calls,) = [
        line.split()[-2]
        for line in done.stdout.splitlines()
        if line.startswith("asm_exc_page_fault ")
    ]
    assert calls == "8"
