/* SPDX-License-Identifier: MIT */
/* How much memory a run may use, and whether there are huge pages. */
#include "machine/machine.h"

#include <string.h>
#include <sys/prctl.h>

#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage/"

/* The page cache of files can be reclaimed, so it counts as available. The pages of tmpfs cannot.
 */
static void limit_by_cgroup(const char *directory, void *argument)
{
	const int64_t most = klat_read_count(klat_path("%s/memory.max", directory)),
		      used = klat_read_count(klat_path("%s/memory.current", directory)),
		      active = klat_count_in(klat_path("%s/memory.stat", directory),
					     "\nactive_file"),
		      inactive = klat_count_in(klat_path("%s/memory.stat", directory),
					       "\ninactive_file");
	int64_t *available = argument;

	if (most >= 0 && used >= 0)
		*available = MIN(*available, most - used + MAX(active, 0) + MAX(inactive, 0));
}

int64_t klat_huge_page_bytes(void)
{
	return klat_count_in(HUGE_PAGES "hpage_pmd_size", "");
}

static int need_huge_pages(struct klat_run *run)
{
	char enabled[64] = "";

	if (klat_huge_page_bytes() <= 0)
		return klat_skip(run, "this kernel has no transparent huge pages");
	klat_read_small(HUGE_PAGES "enabled", enabled, sizeof(enabled));
	if (strstr(enabled, "[never]"))
		return klat_skip(run, "transparent huge pages are off: write madvise to " HUGE_PAGES
				      "enabled");
	/* With a value above 1, madvise() can still get huge pages. */
	if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1)
		return klat_skip(run, "transparent huge pages are off for this process: its parent "
				      "called prctl(PR_SET_THP_DISABLE)");
	return 0;
}

int klat_need_memory(struct klat_run *run, int64_t bytes, bool huge)
{
	const int64_t kib = klat_count_in("/proc/meminfo", "MemAvailable");
	int64_t available = kib < 0 ? INT64_MAX : kib * 1024;

	klat_cgroups_visit(limit_by_cgroup, &available);
	if (bytes <= available)
		return huge ? need_huge_pages(run) : 0;
	return klat_skip(run,
			 "needs %lld MiB of memory, and %lld MiB are available (MemAvailable in "
			 "/proc/meminfo, memory.max of the cgroup)",
			 (long long)(bytes >> 20), (long long)(MAX(available, 0) >> 20));
}
