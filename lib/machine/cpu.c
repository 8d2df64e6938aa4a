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

#define WORD_BITS (8 * sizeof(unsigned long))

static void set_add(klat_cpu_set *set, int cpu)
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

/* The system call itself: glibc's wrapper wants a cpu_set_t, which ends at 1,024 CPUs. */
static int get_affinity(klat_cpu_set *set)
{
	memset(set, 0, sizeof(*set));
	return syscall(SYS_sched_getaffinity, 0, sizeof(set->bits), set->bits) < 0 ? -errno : 0;
}

/* CPUs of the machine that is assumed in place of this one; 0 without. */
static int assumed_count;

void klat_cpus_assume(int count)
{
	assumed_count = count;
}

static int assumed_cpus(klat_cpu_set *set)
{
	memset(set, 0, sizeof(*set));
	for (int cpu = 0; cpu < assumed_count; cpu++)
		set_add(set, cpu);
	return 0;
}

int klat_cpus_allowed(klat_cpu_set *set)
{
	return assumed_count ? assumed_cpus(set) : get_affinity(set);
}

int klat_available_cpus(void)
{
	klat_cpu_set allowed;
	int err = klat_cpus_allowed(&allowed);

	return err ? err : klat_cpu_weight(&allowed);
}

/* One line of sysfs below /sys/devices/system/cpu. Returns false when the file is not there. */
static bool read_line(char *line, size_t size, const char *format, int cpu, int index)
{
	char path[128];
	FILE *file;
	bool read;

	snprintf(path, sizeof(path), format, cpu, index);
	file = fopen(path, "re");
	if (!file)
		return false;
	read = fgets(line, size, file);
	fclose(file);
	if (read)
		line[strcspn(line, "\n")] = 0;
	return read;
}

int klat_cpus_online(klat_cpu_set *set)
{
	char line[4096];
	int *cpus, count;

	if (assumed_count)
		return assumed_cpus(set);
	memset(set, 0, sizeof(*set));
	if (!read_line(line, sizeof(line), "/sys/devices/system/cpu/online", 0, 0))
		return -ENOENT;
	count = klat_cpus_parse(line, &cpus);
	if (count < 0)
		return count;
	for (int i = 0; i < count; i++)
		set_add(set, cpus[i]);
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

int klat_cpus_parse(const char *text, int **cpus)
{
	int count = 0, capacity = 16, err = 0;

	*cpus = malloc(capacity * sizeof(**cpus));
	if (!*cpus)
		return -ENOMEM;
	for (;;) {
		long first, last;

		err = parse_cpu(&text, &first);
		if (err)
			goto fail;
		last = first;
		if (*text == '-') {
			text++;
			err = parse_cpu(&text, &last);
			if (err)
				goto fail;
		}
		err = -EINVAL;
		if (last < first || count + last - first >= KLAT_MAX_CPU)
			goto fail;
		for (long cpu = first; cpu <= last; cpu++) {
			if (count == capacity) {
				int *grown = realloc(*cpus, 2 * capacity * sizeof(**cpus));

				err = -ENOMEM;
				if (!grown)
					goto fail;
				*cpus = grown;
				capacity *= 2;
			}
			(*cpus)[count++] = cpu;
		}
		if (!*text)
			return count;
		err = -EINVAL;
		if (*text++ != ',')
			goto fail;
	}
fail:
	free(*cpus);
	*cpus = NULL;
	return err;
}

/* What tells two CPUs apart; the smallest CPU number of a shared domain names it. */
struct place {
	int cpu, core, cache, node;
	int thread; /* 0 for the first CPU of its core, 1 for its sibling, … */
};

static int first_of_list(const char *format, int cpu, int index, int otherwise)
{
	char line[4096];

	return read_line(line, sizeof(line), format, cpu, index) && isdigit((unsigned char)line[0])
		       ? atoi(line)
		       : otherwise;
}

/* The last-level cache is the highest cache index that sysfs lists. */
static int last_level_cache(int cpu, int otherwise)
{
	int cache = otherwise;

	for (int index = 0; index < 8; index++) {
		int first =
			first_of_list("/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list",
				      cpu, index, -1);

		if (first < 0)
			break;
		cache = first;
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
	struct place place = { .cpu = cpu, .node = klat_cpu_node(cpu) };
	char line[4096];
	int *siblings, count;

	place.core = cpu;
	if (read_line(line, sizeof(line),
		      "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu, 0) &&
	    (count = klat_cpus_parse(line, &siblings)) > 0) {
		place.core = siblings[0];
		for (int i = 0; i < count; i++)
			if (siblings[i] == cpu)
				place.thread = i;
		free(siblings);
	}
	/* A guest may be told of no shared cache at all; its package stands in. */
	place.cache = last_level_cache(
		cpu, first_of_list("/sys/devices/system/cpu/cpu%d/topology/core_siblings_list", cpu,
				   0, place.node));
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

/* How unwelcome a CPU is beside `anchor`: siblings last, CPU 0 and its core before them, then
 * distance. */
static int rank_of(const struct place *place, const struct place *anchor)
{
	int distance = place->cache == anchor->cache ? 0 : place->node == anchor->node ? 1 : 2;

	return 16 * place->thread + 4 * (place->core == 0) + distance;
}

int klat_cpus_place(const klat_cpu_set *allowed, int count, int *cpus)
{
	int available = klat_cpu_weight(allowed), found = 0, best = INT_MAX;
	struct candidate *candidates;

	if (count > available || count < 1)
		return -ENOSPC;
	candidates = calloc(available, sizeof(*candidates));
	if (!candidates)
		return -ENOMEM;
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(allowed, cpu))
			candidates[found++].place = place_of(cpu);

	/* One anchor per last-level cache is enough: CPUs behind one cache rank the others alike.
	 */
	for (int anchor = 0; anchor < available; anchor++) {
		struct place at = candidates[anchor].place;
		struct candidate *sorted;
		int cost = 0;
		bool seen = false;

		for (int i = 0; i < anchor && !seen; i++)
			seen = candidates[i].place.cache == at.cache;
		if (seen)
			continue;
		sorted = malloc(available * sizeof(*sorted));
		if (!sorted) {
			free(candidates);
			return -ENOMEM;
		}
		memcpy(sorted, candidates, available * sizeof(*sorted));
		for (int i = 0; i < available; i++)
			sorted[i].rank = rank_of(&sorted[i].place, &at);
		qsort(sorted, available, sizeof(*sorted), compare_candidates);
		for (int i = 0; i < count; i++)
			cost += sorted[i].rank;
		if (cost < best) {
			best = cost;
			for (int i = 0; i < count; i++)
				cpus[i] = sorted[i].place.cpu;
		}
		free(sorted);
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

	/* Sharing a core, cache or node is transitive, so comparing with the first finds the
	 * farthest pair. */
	for (int i = 1; i < count; i++) {
		struct place other;
		int distance;

		if (cpus[i] == cpus[0])
			continue;
		other = place_of(cpus[i]);
		distance = other.core == first.core     ? 1
			   : other.cache == first.cache ? 2
			   : other.node == first.node   ? 3
							: 4;
		if (distance > farthest)
			farthest = distance;
	}
	return names[farthest];
}

void klat_cpus_allow(const klat_cpu_set *set)
{
	syscall(SYS_sched_setaffinity, 0, sizeof(set->bits), set->bits);
}

int klat_cpu_pin(int cpu)
{
	klat_cpu_set set = { 0 }, obtained;
	int err;

	if (cpu < 0 || cpu >= KLAT_MAX_CPU)
		return -EINVAL;
	set_add(&set, cpu);
	if (syscall(SYS_sched_setaffinity, 0, sizeof(set.bits), set.bits) < 0)
		return -errno;
	err = get_affinity(&obtained);
	if (err)
		return err;
	return memcmp(&set, &obtained, sizeof(set)) ? -EIO : 0;
}

bool klat_cpu_is_forbidden(int cpu)
{
	klat_cpu_set before;
	bool forbidden;

	if (assumed_count || get_affinity(&before))
		return false;
	forbidden = klat_cpu_pin(cpu) == -EINVAL;
	klat_cpus_allow(&before);
	return forbidden;
}
