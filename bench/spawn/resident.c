/* SPDX-License-Identifier: MIT */
/*
 * The parent's memory, whose page tables a fork copies. A worker maps it, after the library has
 * locked the rest: the memory of an ordinary program is not locked.
 */
#include "spawn.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/param.h>

#define CHUNK (2l << 20)

int resident_make(struct klat_worker *parent, int64_t mib, bool huge, struct resident *resident)
{
	const int64_t size = mib << 20, align = huge ? klat_huge_page_bytes() : CHUNK;
	const char *const rollup = "/proc/self/smaps_rollup";
	const int64_t kib = klat_count_in(rollup, "\nRss"),
		      huge_kib = klat_count_in(rollup, "\nAnonHugePages");
	char *memory;

	if (!size)
		return 0;
	memory = mmap(NULL, size + align, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	memory = (char *)roundup((uintptr_t)memory, align);
	/* A kernel without huge pages knows neither advice. */
	madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (int64_t at = 0; at < size; at += 4096) {
		if (at % CHUNK == 0)
			klat_rest(parent);
		*(volatile char *)(memory + at) = 1;
	}
	resident->kib = kib < 0 ? -1 : klat_count_in(rollup, "\nRss") - kib;
	resident->huge_kib =
		huge_kib < 0 ? -1 : klat_count_in(rollup, "\nAnonHugePages") - huge_kib;
	return 0;
}
