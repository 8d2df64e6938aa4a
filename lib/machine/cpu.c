/* SPDX-License-Identifier: MIT */
/* CPU lists, topology (libnuma and sysfs), default placement, and pinning with read-back. */
#include "machine/machine.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <numa.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYSFS "/sys/devices/system/cpu"
#define WORD_BITS (8 * sizeof(unsigned long))

void klat_cpu_add(klat_cpu_set *set, int cpu)
{
	set->bits[cpu / WORD_BITS] |= 1UL << cpu % WORD_BITS;
}

void klat_cpu_remove(klat_cpu_set *set, int cpu)
{
	set->bits[cpu / WORD_BITS] &= ~(1UL << cpu % WORD_BITS);
}

bool klat_cpu_in(const klat_cpu_set *set, int cpu)
{
	return cpu >= 0 && cpu < KLAT_MAX_CPU &&
	       (set->bits[cpu / WORD_BITS] >> cpu % WORD_BITS & 1);
}

int klat_cpu_weight(const klat_cpu_set *set)
{
	int weight = 0;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(set->bits); i++)
		weight += __builtin_popcountl(set->bits[i]);
	return weight;
}

static int assumed_count; /* 0: nothing is assumed */

void klat_cpus_assume(int count)
{
	assumed_count = count;
}

static int assumed_cpus(klat_cpu_set *set)
{
	memset(set, 0, sizeof(*set));
	for (int cpu = 0; cpu < assumed_count; cpu++)
		klat_cpu_add(set, cpu);
	return 0;
}

/* Not by glibc's wrapper: its cpu_set_t ends at 1,024 CPUs. */
int klat_cpus_allowed(klat_cpu_set *set)
{
	if (assumed_count)
		return assumed_cpus(set);
	memset(set, 0, sizeof(*set));
	return syscall(SYS_sched_getaffinity, 0, sizeof(set->bits), set->bits) < 0 ? -errno : 0;
}

int klat_available_cpus(void)
{
	klat_cpu_set allowed;

	return klat_cpus_allowed(&allowed) ?: klat_cpu_weight(&allowed);
}

int klat_cpus_online(klat_cpu_set *set)
{
	char line[4096];
	int *cpus, count;

	if (assumed_count)
		return assumed_cpus(set);
	memset(set, 0, sizeof(*set));
	if (!klat_read_line(SYSFS "/online", line, sizeof(line)))
		return -ENOENT;
	count = klat_cpus_parse(line, &cpus);
	if (count < 0)
		return count;
	for (int i = 0; i < count; i++)
		klat_cpu_add(set, cpus[i]);
	free(cpus);
	return 0;
}

static int parse_cpu(const char **text, long *cpu)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	errno = 0;
	*cpu = strtol(*text, &end, 10);
	*text = end;
	return errno || *cpu >= KLAT_MAX_CPU ? -ERANGE : 0;
}

static int parse_range(const char **text, long *first, long *last)
{
	int err = parse_cpu(text, first);

	*last = *first;
	if (!err && **text == '-') {
		++*text;
		err = parse_cpu(text, last);
	}
	return !err && *last < *first ? -EINVAL : err;
}

int klat_cpus_parse(const char *text, int **cpus)
{
	int count = 0, err;
	long first, last;

	*cpus = malloc(KLAT_MAX_CPU * sizeof(**cpus));
	if (!*cpus)
		return -ENOMEM;
	for (;; text++) {
		err = parse_range(&text, &first, &last);
		if (!err && count + last - first >= KLAT_MAX_CPU)
			err = -EINVAL;
		if (err)
			break;
		while (first <= last)
			(*cpus)[count++] = first++;
		if (!*text)
			return count;
		err = -EINVAL;
		if (*text != ',')
			break;
	}
	free(*cpus);
	*cpus = NULL;
	return err;
}

/* Where a CPU is. The first CPU of a core or of a cache names it. */
struct place {
	int cpu, core, cache, node;
	int thread; /* 0 for the first CPU of its core, 1 for its sibling, … */
};

static int first_of_list(const char *path, int otherwise)
{
	char line[4096];

	return klat_read_line(path, line, sizeof(line)) && isdigit((unsigned char)line[0])
		       ? atoi(line)
		       : otherwise;
}

/* The last-level cache has the highest index in sysfs. */
static int last_level_cache(int cpu, int otherwise)
{
	int cache = -1, first = otherwise;

	for (int index = 0; first >= 0; index++) {
		char path[128];

		cache = first;
		snprintf(path, sizeof(path), SYSFS "/cpu%d/cache/index%d/shared_cpu_list", cpu,
			 index);
		first = first_of_list(path, -1);
	}
	return cache;
}

int klat_cpu_node(int cpu)
{
	int node = numa_available() < 0 ? 0 : numa_node_of_cpu(cpu);

	return node < 0 ? 0 : node;
}

static struct place place_of(int cpu)
{
	struct place place = { .cpu = cpu, .core = cpu, .node = klat_cpu_node(cpu) };
	char path[128], line[4096];
	int *siblings, count;

	snprintf(path, sizeof(path), SYSFS "/cpu%d/topology/thread_siblings_list", cpu);
	if (klat_read_line(path, line, sizeof(line)) &&
	    (count = klat_cpus_parse(line, &siblings)) > 0) {
		place.core = siblings[0];
		for (int i = 0; i < count; i++)
			if (siblings[i] == cpu)
				place.thread = i;
		free(siblings);
	}
	/* Some hypervisors show no caches: then the package takes their place. */
	snprintf(path, sizeof(path), SYSFS "/cpu%d/topology/core_siblings_list", cpu);
	place.cache = last_level_cache(cpu, first_of_list(path, place.node));
	return place;
}

struct candidate {
	struct place place;
	int rank;
};

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->rank != y->rank ? x->rank - y->rank : x->place.cpu - y->place.cpu;
}

/* The lowest rank is the best beside `anchor`. Siblings come last, the core of CPU 0 before them,
 * and the others by distance. */
static int rank_of(const struct place *place, const struct place *anchor)
{
	int distance = place->cache == anchor->cache ? 0 : place->node == anchor->node ? 1 : 2;

	return 16 * place->thread + 4 * (place->core == 0) + distance;
}

static bool is_first_of_cache(const struct candidate *candidates, int index)
{
	for (int i = 0; i < index; i++)
		if (candidates[i].place.cache == candidates[index].place.cache)
			return false;
	return true;
}

int klat_cpus_place(const klat_cpu_set *allowed, int count, int *cpus)
{
	int available = klat_cpu_weight(allowed), found = 0, best = INT_MAX;
	struct candidate *candidates, *sorted;

	if (count > available || count < 1)
		return -ENOSPC;
	candidates = calloc(2 * available, sizeof(*candidates));
	if (!candidates)
		return -ENOMEM;
	sorted = candidates + available;
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(allowed, cpu))
			candidates[found++].place = place_of(cpu);

	for (int anchor = 0; anchor < available; anchor++) {
		int cost = 0;

		/* CPUs of one cache are equal as anchors: see rank_of(). */
		if (!is_first_of_cache(candidates, anchor))
			continue;
		memcpy(sorted, candidates, available * sizeof(*sorted));
		for (int i = 0; i < available; i++)
			sorted[i].rank = rank_of(&sorted[i].place, &candidates[anchor].place);
		qsort(sorted, available, sizeof(*sorted), compare_candidates);
		for (int i = 0; i < count; i++)
			cost += sorted[i].rank;
		if (cost >= best)
			continue;
		best = cost;
		for (int i = 0; i < count; i++)
			cpus[i] = sorted[i].place.cpu;
	}
	free(candidates);
	return 0;
}

const char *klat_cpus_relation(const int *cpus, int count)
{
	static const char *const names[] = { "one-cpu", "same-core", "same-llc", "same-node",
					     "cross-node" };
	struct place first = place_of(cpus[0]);
	int farthest = 0;

	/* If two CPUs are that far apart, at least one of them is as far from the first CPU. */
	for (int i = 1; i < count; i++) {
		struct place other = place_of(cpus[i]);
		int distance = other.cpu == first.cpu       ? 0
			       : other.core == first.core   ? 1
			       : other.cache == first.cache ? 2
			       : other.node == first.node   ? 3
							    : 4;

		if (distance > farthest)
			farthest = distance;
	}
	return names[farthest];
}

int klat_cpus_allow(const klat_cpu_set *set)
{
	return syscall(SYS_sched_setaffinity, 0, sizeof(set->bits), set->bits) < 0 ? -errno : 0;
}

int klat_cpu_pin(int cpu)
{
	klat_cpu_set set = { 0 }, obtained;
	int err;

	if (cpu < 0 || cpu >= KLAT_MAX_CPU)
		return -EINVAL;
	klat_cpu_add(&set, cpu);
	err = klat_cpus_allow(&set) ?: klat_cpus_allowed(&obtained);
	return !err && memcmp(&set, &obtained, sizeof(set)) ? -EIO : err;
}

bool klat_cpu_is_forbidden(int cpu)
{
	klat_cpu_set before;
	bool forbidden;

	if (assumed_count || klat_cpus_allowed(&before))
		return false;
	forbidden = klat_cpu_pin(cpu) == -EINVAL;
	klat_cpus_allow(&before);
	return forbidden;
}
