"""An instruction that causes a page fault starts twice, and its sample has it once."""

import re

import pytest
from labs import pipes_with_write
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
    source = tmp_path / "write.c"
    source.write_text(FAULTING_WRITE)
    programs = pipes_with_write(source, tmp_path / "programs", "-O2")
    words = ("--kernel", "debian:stock", "--mode", "counted", "--boots", "1", "--runs", "1", *CLOCK)
    own = ("--iterations", "100", "--seed", "5", "--output", tmp_path, "pipes")
    lab_run(*words, *own, cwd=tmp_path, status=INVALID, KLAT_PROGRAMS=str(programs))
    session = session_of(tmp_path, LABELS[0])
    done = klat(
        "lab", "explain", session, "--metric", "pipes.round_trip", "--least", "0", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (line,) = re.findall("^asm_exc_page_fault .*", done.stdout, re.MULTILINE)
    assert line.split()[-2] == "8"
