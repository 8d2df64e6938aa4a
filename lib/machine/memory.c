/* SPDX-License-Identifier: MIT */
/* How much memory a run may use, and whether there are huge pages. */
#include "machine/machine.h"

#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage/"

/* The page cache of files can be reclaimed, so it counts as available. The pages of tmpfs cannot.
 */
static void limit_by_cgroup(const char *directory, void *argument)
{
	static const char *const names[][4] = {
		{ "memory.max", "memory.current", "\nactive_file", "\ninactive_file" },
		{ "memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_active_file",
		  "\ntotal_inactive_file" },
	};
	const bool is_v1 = !access(klat_path("%s/%s", directory, names[1][0]), F_OK);
	const char *const *name = names[is_v1];
	const int64_t most = klat_read_count(klat_path("%s/%s", directory, name[0])),
		      used = klat_read_count(klat_path("%s/%s", directory, name[1])),
		      active = klat_count_in(klat_path("%s/memory.stat", directory), name[2]),
		      inactive = klat_count_in(klat_path("%s/memory.stat", directory), name[3]);
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

	klat_cgroups_visit("memory", limit_by_cgroup, &available);
	if (bytes <= available)
		return huge ? need_huge_pages(run) : 0;
	return klat_skip(run,
			 "needs %lld MiB of memory, and %lld MiB are available (MemAvailable in "
			 "/proc/meminfo, or the limit of the memory cgroup)",
			 (long long)(bytes >> 20), (long long)(MAX(available, 0) >> 20));
}
