/* SPDX-License-Identifier: MIT */
/* How much memory a run may use. */
#include "machine/machine.h"

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

int klat_need_memory(struct klat_run *run, int64_t bytes)
{
	const int64_t kib = klat_count_in("/proc/meminfo", "MemAvailable");
	int64_t available = kib < 0 ? INT64_MAX : kib * 1024;

	klat_cgroups_visit(limit_by_cgroup, &available);
	if (bytes <= available)
		return 0;
	return klat_skip(run,
			 "needs %lld MiB of memory, and %lld MiB are available (MemAvailable in "
			 "/proc/meminfo, memory.max of the cgroup)",
			 (long long)(bytes >> 20), (long long)(MAX(available, 0) >> 20));
}
