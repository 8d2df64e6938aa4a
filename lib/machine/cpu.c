/* SPDX-License-Identifier: MIT */
/* CPU lists, topology (sysfs), default placement, and pinning with read-back. */
#include "machine/machine.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYSFS "/sys/devices/system/cpu"
#define NODES "/sys/devices/system/node"
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

int klat_cpus_read(const char *path, klat_cpu_set *set)
{
	char line[4096];
	int *cpus, count;

	memset(set, 0, sizeof(*set));
	if (!klat_read_line(path, line, sizeof(line)))
		return -ENOENT;
	if (strlen(line) == sizeof(line) - 1)
		return -EFBIG; /* the last number may be cut off */
	count = klat_cpus_parse(line, &cpus);
	if (count < 0)
		return count;
	for (int i = 0; i < count; i++)
		klat_cpu_add(set, cpus[i]);
	free(cpus);
	return 0;
}

/* Containers can have an `online` of their own (lxcfs), for example 0 where CPU 1 alone is allowed.
 * The kernel allows online CPUs only. */
int klat_cpus_online(klat_cpu_set *set)
{
	klat_cpu_set allowed;
	int err;

	if (assumed_count)
		return assumed_cpus(set);
	err = klat_cpus_read(KLAT_ONLINE_FILE, set);
	if (err || klat_cpus_allowed(&allowed))
		return err;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(set->bits); i++)
		if (allowed.bits[i] & ~set->bits[i])
			*set = allowed;
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
	int cpu, core, cache, node; /* a cache or node of -1 is unknown */
	int thread;                 /* 0 for the first CPU of its core, 1 for its sibling, … */
	int type;
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

	for (int index = 0; first >= 0 || !index; index++) {
		cache = first;
		first = first_of_list(
			klat_path(SYSFS "/cpu%d/cache/index%d/shared_cpu_list", cpu, index), -1);
	}
	return cache;
}

static int node_of_path(const char *path)
{
	return atoi(strstr(path, "/node") + strlen("/node"));
}

int klat_cpu_node(int cpu)
{
	glob_t paths;
	int node = -1;

	if (!glob(klat_path(SYSFS "/cpu%d/node[0-9]*", cpu), 0, NULL, &paths)) {
		node = node_of_path(paths.gl_pathv[0]);
		globfree(&paths);
		return node;
	}
	/* A kernel without NUMA has one node, and no directory for it. */
	if (access(NODES, F_OK))
		return access(SYSFS, F_OK) ? -1 : 0;
	if (glob(NODES "/node[0-9]*/cpulist", 0, NULL, &paths))
		return -1;
	for (size_t i = 0; i < paths.gl_pathc && node < 0; i++) {
		const char *path = paths.gl_pathv[i];
		klat_cpu_set cpus;

		if (!klat_cpus_read(path, &cpus) && klat_cpu_in(&cpus, cpu))
			node = node_of_path(path + strlen(NODES));
	}
	globfree(&paths);
	return node;
}

static struct place place_of(int cpu, const struct klat_core_types *types)
{
	struct place place = { .cpu = cpu, .core = cpu, .node = klat_cpu_node(cpu) };
	char line[4096];
	int *siblings, count;

	if (klat_read_line(klat_path(SYSFS "/cpu%d/topology/thread_siblings_list", cpu), line,
			   sizeof(line)) &&
	    (count = klat_cpus_parse(line, &siblings)) > 0) {
		place.core = siblings[0];
		for (int i = 0; i < count; i++)
			if (siblings[i] == cpu)
				place.thread = i;
		free(siblings);
	}
	/* Some hypervisors show no caches: then the package takes their place. */
	place.cache = last_level_cache(
		cpu, first_of_list(klat_path(SYSFS "/cpu%d/topology/core_siblings_list", cpu), -1));
	place.type = klat_core_type(types, cpu);
	return place;
}

enum relation {
	ONE_CPU,
	SAME_CORE,
	SAME_LLC,
	SAME_LLC_UNKNOWN_NODE,
	SAME_NODE,
	UNKNOWN_NODE,
	CROSS_NODE,
};

/* Nodes do not nest in caches: one last-level cache can serve several nodes. */
static enum relation relation_of(const struct place *a, const struct place *b)
{
	bool one_cache = a->cache >= 0 && a->cache == b->cache;

	if (a->cpu == b->cpu)
		return ONE_CPU;
	if (a->core == b->core)
		return SAME_CORE;
	if (a->node < 0 || b->node < 0)
		return one_cache ? SAME_LLC_UNKNOWN_NODE : UNKNOWN_NODE;
	if (a->node != b->node)
		return CROSS_NODE;
	return one_cache ? SAME_LLC : SAME_NODE;
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

/* The lowest rank is the best beside `anchor`. Siblings come last, slower types before them, then
 * the core of CPU 0, and the others by distance. */
static int rank_of(const struct place *place, const struct place *anchor)
{
	int relation = relation_of(place, anchor), distance = relation - SAME_LLC;

	return 32 * place->thread + 16 * place->type + 8 * (place->core == 0) +
	       (distance > 0 ? distance : 0);
}

static bool is_first_of_place(const struct candidate *candidates, int index)
{
	const struct place *place = &candidates[index].place;

	for (int i = 0; i < index; i++)
		if (candidates[i].place.cache == place->cache &&
		    candidates[i].place.node == place->node)
			return false;
	return true;
}

/* The allowed CPUs of the fastest type that has `count` of them. All, if no type has so many. */
static klat_cpu_set fastest_of(const klat_cpu_set *allowed, int count,
			       const struct klat_core_types *types)
{
	for (int type = 0; type < types->count; type++) {
		klat_cpu_set members = *allowed;

		for (size_t i = 0; i < KLAT_ARRAY_SIZE(members.bits); i++)
			members.bits[i] &= types->cpus[type].bits[i];
		if (klat_cpu_weight(&members) >= count)
			return members;
	}
	return *allowed;
}

int klat_cpus_place(const klat_cpu_set *allowed, int count, int *cpus)
{
	int available, found = 0, best = INT_MAX;
	struct candidate *candidates, *sorted;
	struct klat_core_types types;
	klat_cpu_set members;

	klat_core_types_read(&types);
	members = fastest_of(allowed, count, &types);
	available = klat_cpu_weight(&members);
	if (count > available || count < 1)
		return -ENOSPC;
	candidates = calloc(2 * available, sizeof(*candidates));
	if (!candidates)
		return -ENOMEM;
	sorted = candidates + available;
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(&members, cpu))
			candidates[found++].place = place_of(cpu, &types);

	for (int anchor = 0; anchor < available; anchor++) {
		int cost = 0;

		/* CPUs of one cache and node are equal as anchors: see rank_of(). */
		if (!is_first_of_place(candidates, anchor))
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

/* Append the types of the CPUs, in the order of their first CPUs. */
static void append_types(char *text, size_t size, const struct klat_core_types *types,
			 const int *cpus, int count)
{
	bool appended[KLAT_CORE_TYPES] = { false };
	char separator = ':';

	for (int i = 0; i < count && types->count; i++) {
		int type = klat_core_type(types, cpus[i]);
		size_t length = strlen(text);

		if (!appended[type])
			snprintf(text + length, size - length, "%c%s", separator,
				 types->names[type]);
		appended[type] = true;
		separator = '+';
	}
}

const char *klat_cpus_relation(const int *cpus, int count)
{
	static const char *const names[] = {
		"one-cpu",   "same-core",    "same-llc",   "same-llc-unknown-node",
		"same-node", "unknown-node", "cross-node",
	};
	static char text[256];
	struct place *places = calloc(count, sizeof(*places));
	enum relation farthest = ONE_CPU;
	struct klat_core_types types;

	if (!places)
		return NULL;
	klat_core_types_read(&types);
	for (int i = 0; i < count; i++) {
		places[i] = place_of(cpus[i], &types);
		for (int j = 0; j < i; j++) {
			enum relation relation = relation_of(&places[i], &places[j]);

			if (relation > farthest)
				farthest = relation;
		}
	}
	free(places);
	snprintf(text, sizeof(text), "%s", names[farthest]);
	append_types(text, sizeof(text), &types, cpus, count);
	return text;
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

bool klat_cpu_is_pinned(int cpu)
{
	klat_cpu_set set;

	return !klat_cpus_allowed(&set) && klat_cpu_weight(&set) == 1 && klat_cpu_in(&set, cpu);
}

bool klat_cpu_is_usable(int cpu)
{
	klat_cpu_set before;
	bool usable;

	if (assumed_count || klat_cpus_allowed(&before))
		return !assumed_count || cpu < assumed_count;
	usable = klat_cpu_pin(cpu) != -EINVAL;
	klat_cpus_allow(&before);
	return usable;
}
