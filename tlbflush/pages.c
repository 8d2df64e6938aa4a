/* SPDX-License-Identifier: MIT */
/* The pages of one initiator. */
#include "tlbflush.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int map_pages(char *place)
{
	void *mapped = mmap(place, options.pages * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	return mapped == MAP_FAILED ? -errno : 0;
}

/*
 * With --page-table kept, an inaccessible reservation surrounds the pages and shares their page
 * tables. With freed, nothing else is mapped in these page tables.
 */
int make_pages(char **pages)
{
	const size_t size = (options.pages * PAGE + TABLE - 1) / TABLE * TABLE + 2 * TABLE;
	char *reservation =
		mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (reservation == MAP_FAILED)
		return -ENOMEM;
	*pages = (char *)(((uintptr_t)reservation + TABLE - 1) & ~(TABLE - 1));
	if (options.freed)
		munmap(reservation, size);
	else
		*pages += PAGE;
	return map_pages(*pages);
}

/* A read would map the shared zero page. */
void touch_pages(char *pages)
{
	for (int64_t page = 0; page < options.pages; page++)
		*(volatile char *)(pages + page * PAGE) = 1;
}

/* The evidence allows the initiator these faults and no others. The kernel may map several pages in
 * one fault. */
void touch_first(struct klat_worker *worker, int64_t i, char *pages)
{
	const int64_t before = klat_thread_usage().ru_minflt;

	worker->other_faults = before - worker->expected_faults;
	touch_pages(pages);
	if (i >= -worker->run->lead)
		worker->expected_faults += klat_thread_usage().ru_minflt - before;
}

int operate(char *pages)
{
	size_t size = options.pages * PAGE;
	int result = 0;

	switch (options.operation) {
	case MUNMAP:
		result = munmap(pages, size);
		break;
	case MPROTECT:
		result = mprotect(pages, size, PROT_READ);
		break;
	case MADVISE:
		result = madvise(pages, size, MADV_DONTNEED);
		break;
	/* Last, so that the paths to the others are not longer. */
	default:
		result = syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
		break;
	}
	return result ? -errno : 0;
}

int64_t flushes_of(void)
{
	return options.operation == MPROTECT ? 2 : 1;
}

int64_t most_flushes(int64_t expected)
{
	/* A large munmap frees in batches, with a flush for each. */
	return options.operation == MPROTECT || options.pages <= 256 ? expected * 21 / 20
								     : INT64_MAX;
}

int protect(char *pages, int access)
{
	return mprotect(pages, options.pages * PAGE, access) ? -errno : 0;
}

/* Make the pages writable again for the next iteration. */
int restore(char *pages)
{
	if (options.operation == MUNMAP)
		return map_pages(pages);
	return options.operation == MPROTECT ? protect(pages, PROT_READ | PROT_WRITE) : 0;
}
