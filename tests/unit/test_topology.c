/* SPDX-License-Identifier: MIT */
/* Placement and relations on simulated machines: the linker wraps reads of sysfs and of the
 * affinity mask. */
#include "support.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The words of a list are separated by spaces. A group is a list of CPUs, as in sysfs. */
struct machine {
	const char *online;
	const char *allowed;                      /* NULL: as online */
	const char *cores;                        /* groups of siblings; other CPUs are alone */
	const char *caches[3], *packages, *nodes; /* groups; "-": a node without CPUs */
	const char *intel;                        /* NAME=GROUP, for perf */
	const char *capacity, *ranking, *part;    /* VALUE=GROUP */
	bool without_links;                       /* from CPUs to nodes */
	bool without_lists;                       /* of the CPUs of nodes */
	bool without_numa;
};

static const struct machine *machine;

static bool group_has(const char *group, int cpu)
{
	const klat_cpu_set set = test_cpu_set(group);

	return klat_cpu_in(&set, cpu);
}

/* The `index`th word of a list. */
static bool take_word(const char *list, int index, char *word)
{
	for (; list && index; index--) {
		list = strchr(list, ' ');
		list = list ? list + 1 : NULL;
	}
	return list && sscanf(list, "%255s", word) == 1;
}

/* The index of the word whose group has the CPU. */
static int find_group(const char *list, int cpu, char *word)
{
	for (int index = 0; take_word(list, index, word); index++) {
		const char *group = strchr(word, '=');

		if (group_has(group ? group + 1 : word, cpu))
			return index;
	}
	return -1;
}

static bool answer(char *line, size_t size, const char *text)
{
	snprintf(line, size, "%s", text);
	return true;
}

static bool read_of_cpu(int cpu, const char *file, char *line, size_t size)
{
	const struct {
		const char *file, *list;
	} lists[] = {
		{ "cache/index0/shared_cpu_list", machine->caches[0] },
		{ "cache/index1/shared_cpu_list", machine->caches[1] },
		{ "cache/index2/shared_cpu_list", machine->caches[2] },
		{ "topology/core_siblings_list", machine->packages },
		{ "topology/thread_siblings_list", machine->cores },
		{ "cpu_capacity", machine->capacity },
		{ "acpi_cppc/highest_perf", machine->ranking },
		{ "regs/identification/midr_el1", machine->part },
	};
	char word[256];

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(lists); i++)
		if (!strcmp(file, lists[i].file) && find_group(lists[i].list, cpu, word) >= 0) {
			word[strcspn(word, "=")] = 0;
			return answer(line, size, word);
		}
	if (strcmp(file, "topology/thread_siblings_list"))
		return false;
	snprintf(line, size, "%d", cpu);
	return true;
}

bool __wrap_klat_read_line(const char *path, char *line, size_t size);
int __real_glob(const char *pattern, int flags, int (*error)(const char *, int), glob_t *paths);
int __wrap_glob(const char *pattern, int flags, int (*error)(const char *, int), glob_t *paths);
int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, void *c);

bool __wrap_klat_read_line(const char *path, char *line, size_t size)
{
	char name[64], word[256];
	int number;

	line[0] = 0;
	if (!strcmp(path, "/sys/devices/system/cpu/online"))
		return answer(line, size, machine->online);
	if (!strcmp(path, "/sys/devices/system/cpu/isolated"))
		return answer(line, size, "");
	if (sscanf(path, "/sys/devices/system/node/node%d/cpulist", &number) == 1)
		return take_word(machine->nodes, number, word) &&
		       answer(line, size, strcmp(word, "-") ? word : "");
	if (sscanf(path, "/sys/devices/system/cpu/cpu%d/%63s", &number, name) == 2)
		return read_of_cpu(number, name, line, size);
	assert_int_equal(sscanf(path, "/sys/devices/cpu_%63[a-z]/cpus", name), 1);
	for (int i = 0; take_word(machine->intel, i, word); i++)
		if (!strncmp(word, name, strlen(name)))
			return answer(line, size, strchr(word, '=') + 1);
	return false;
}

static void add_path(glob_t *paths, int node, const char *rest)
{
	char **path = &paths->gl_pathv[paths->gl_pathc++];

	assert_true(asprintf(path, "/sys/devices/system/%s/node%d%s", *rest ? "node" : "cpu/cpu1",
			     node, rest) > 0);
}

int __wrap_glob(const char *pattern, int flags, int (*error)(const char *, int), glob_t *paths)
{
	char word[256];
	int cpu, node;

	if (!machine)
		return __real_glob(pattern, flags, error, paths);
	memset(paths, 0, sizeof(*paths));
	paths->gl_pathv = calloc(16, sizeof(*paths->gl_pathv));
	if (sscanf(pattern, "/sys/devices/system/cpu/cpu%d/", &cpu) == 1) {
		node = machine->without_links ? -1 : find_group(machine->nodes, cpu, word);
		if (node >= 0)
			add_path(paths, node, "");
	} else if (!machine->without_lists) {
		for (node = 0; take_word(machine->nodes, node, word); node++)
			add_path(paths, node, "/cpulist");
	}
	if (paths->gl_pathc)
		return 0;
	globfree(paths);
	return GLOB_NOMATCH;
}

int __wrap_access(const char *path, int mode)
{
	if (!machine)
		return __real_access(path, mode);
	return !strcmp(path, "/sys/devices/system/node") && machine->without_numa ? -1 : 0;
}

long __wrap_syscall(long number, long a, long b, void *c)
{
	klat_cpu_set set;

	if (!machine || number != SYS_sched_getaffinity)
		return __real_syscall(number, a, b, c);
	set = test_cpu_set(machine->allowed ?: machine->online);
	memcpy(c, set.bits, sizeof(set.bits));
	return sizeof(set.bits);
}

void tear_down(void)
{
	machine = NULL;
}

#define PAIRS "0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15"

static const struct machine two = { "0-1", .caches = { "0-1" }, .nodes = "0-1" };
static const struct machine two_without_caches = { "0-1", .packages = "0-1", .nodes = "0-1" };
static const struct machine one_core_two_threads = { "0-1", .cores = "0-1", .caches = { "0-1" },
						     .nodes = "0-1" };
static const struct machine four_cores_paired_caches = { "0-3", .caches = { "0-1 2-3" },
							 .nodes = "0-3" };
static const struct machine eight_on_two_nodes = { "0-7", .caches = { "0-3 4-7" },
						   .nodes = "0-3 4-7" };
/* Threads as most servers number them: 0 to 7, then their siblings 8 to 15. */
static const struct machine sixteen_threads = {
	"0-15", .cores = PAIRS, .caches = { PAIRS, "0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15" },
	.nodes = "0-3,8-11 4-7,12-15"
};

/* Hybrid machines. 12th generation: 4 cores with siblings, 2 modules of 4 efficient cores. */
static const struct machine alder_lake = {
	"0-15",
	.cores = "0-1 2-3 4-5 6-7",
	.caches = { "0-1 2-3 4-5 6-7 8-11 12-15", "0-15" },
	.nodes = "0-15",
	.intel = "core=0-7 atom=8-15",
};
/* Two of the efficient cores are outside the last-level cache. */
static const struct machine meteor_lake = {
	"0-13",
	.cores = "0-1 2-3",
	.caches = { "0-1 2-3 4-7 8-11 12-13", "0-11" },
	.nodes = "0-13",
	.intel = "core=0-3 atom=4-13",
};
static const struct machine arrow_lake = {
	"0-13",
	.caches = { "0-1 2-3 4-7 8-11 12-13", "0-11" },
	.nodes = "0-13",
	.intel = "core=0-3 atom=4-11 lowpower=12-13",
};
/* All efficient cores are outside the last-level cache. */
static const struct machine lunar_lake = {
	"0-7",
	.caches = { "0 1 2 3 4-7", "0-3" },
	.nodes = "0-7",
	.intel = "core=0-3 atom=4-7",
};
static const struct machine without_efficient_cores = { "0-3", .caches = { "0-3" }, .nodes = "0-3",
							.intel = "core=0-3" };
static const struct machine one_unlisted = { "0-4", .caches = { "0-4" }, .nodes = "0-4",
					     .intel = "core=0-1 atom=2-3" };
static const struct machine rk3588 = {
	"0-7",
	.caches = { "0-7" },
	.nodes = "0-7",
	.capacity = "530=0-3 1024=4-5 1010=6-7",
	.part = "0x412fd050=0-3 0x414fd0b0=4-7",
};
static const struct machine snapdragon = {
	"0-7",
	.caches = { "0-7" },
	.capacity = "250=0-3 800=4-6 1024=7",
	.without_numa = true,
};
/* Speeds that no core has. */
static const struct machine negative_speed = { "0-3", .caches = { "0-3" }, .nodes = "0-3",
					       .capacity = "1024=0-2 -1=3" };
static const struct machine absurd_speed = { "0-3", .caches = { "0-3" }, .nodes = "0-3",
					     .capacity = "1024=0-2 9223372036854775807=3" };
static const struct machine four_clusters = {
	"0-7",
	.caches = { "0-7" },
	.nodes = "0-7",
	.capacity = "1024=7 880=5-6 700=2-4 300=0-1",
};
/* Each cluster has a last-level cache; the firmware gives no speeds. */
static const struct machine apple = {
	"0-7",
	.caches = { "0-3 4-7" },
	.without_numa = true,
	.part = "0x611f0220=0-3 0x611f0230=4-7",
};
/* 4 cores in one cache and 8 dense cores in another; preferred cores differ in rank only. */
static const struct machine strix_point = {
	"0-23",
	.cores = "0,12 1,13 2,14 3,15 4,16 5,17 6,18 7,19 8,20 9,21 10,22 11,23",
	.caches = { "0-3,12-15 4-11,16-23" },
	.nodes = "0-23",
	.ranking = "208=0,12 203=1,13 198=2,14 193=3,15 132=4-11,16-23",
};
static const struct machine preferred_cores = {
	"0-7",
	.caches = { "0-7" },
	.nodes = "0-7",
	.ranking = "236=3 231=1 226=0 221=7 211=2 206=6 196=5 186=4",
};

/* Nodes and caches that do not nest. */
static const struct machine two_nodes_in_a_cache = { "0-7", .caches = { "0-7" },
						     .nodes = "0,2,4,6 1,3,5,7" };
static const struct machine node_for_each_cache = { "0-7", .caches = { "0-1 2-3 4-5 6-7" },
						    .nodes = "0-1 2-3 4-5 6-7" };
static const struct machine four_nodes_two_caches_each = {
	"0-15",
	.caches = { "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15" },
	.nodes = "0-3 4-7 8-11 12-15",
};
static const struct machine guest_with_two_nodes = { "0-7", .packages = "0-7", .nodes = "0-3 4-7" };
static const struct machine nothing_shown = { .online = "0-3" };
static const struct machine memory_node_and_holes = { "1,3-4,9", .caches = { "1,3-4,9" },
						      .nodes = "1,3 - 4,9" };
static const struct machine lists_only = { "0-3", .caches = { "0-3" }, .nodes = "0-1 2-3",
					   .without_links = true };
static const struct machine links_only = { "0-3", .caches = { "0-3" }, .nodes = "0-1 2-3",
					   .without_lists = true };
static const struct machine second_node_unlisted = { "0-3", .caches = { "0-3" }, .nodes = "0-1",
						     .without_links = true };
static const struct machine kernel_without_numa = { "0-3", .caches = { "0-1 2-3" },
						    .without_numa = true };

/* `count` CPUs chosen on `on` out of `allowed`. */
static void place(const struct machine *on, const char *allowed, int count, int *cpus)
{
	klat_cpu_set set = test_cpu_set(allowed ?: on->online);

	machine = on;
	assert_int_equal(klat_cpus_place(&set, count, cpus), 0);
	for (int i = 0; i < count; i++) {
		assert_true(klat_cpu_in(&set, cpus[i]));
		for (int j = 0; j < i; j++)
			assert_int_not_equal(cpus[i], cpus[j]);
	}
}

TEST(only_allowed_cpus_are_chosen)
{
	klat_cpu_set allowed = test_cpu_set("0,1,5");
	int cpus[3];

	place(&eight_on_two_nodes, "0,1,5", 2, cpus);
	place(&eight_on_two_nodes, "0,1,5", 3, cpus);
	assert_int_equal(klat_cpus_place(&allowed, 4, cpus), -ENOSPC);
	assert_int_equal(klat_cpus_place(&allowed, 0, cpus), -ENOSPC);
}

TEST(a_sibling_alone_still_counts_as_a_cpu)
{
	int cpus[2];

	place(&sixteen_threads, "3,9", 2, cpus);
	assert_int_equal(cpus[0], 3);
	assert_int_equal(cpus[1], 9);
}

TEST(defaults_take_the_fastest_type_that_has_enough_cpus_and_the_label_names_it)
{
	static const struct {
		const struct machine *machine;
		const char *cpus, *label;
	} rows[] = {
		{ &two, "1", "one-cpu" },
		{ &two, "1,0", "same-llc" },
		{ &two_without_caches, "1,0", "same-llc" },
		{ &four_cores_paired_caches, "2,3", "same-llc" },
		{ &eight_on_two_nodes, "4-7", "same-llc" },
		{ &eight_on_two_nodes, "4-7,1", "cross-node" },
		{ &sixteen_threads, "2,3", "same-llc" },
		{ &sixteen_threads, "1-7,0", "cross-node" },
		{ &sixteen_threads, "1-7,0,9-15,8", "cross-node" },
		{ &alder_lake, "2,4", "same-llc:core" },
		{ &alder_lake, "2,4,6,0,3", "same-llc:core" },
		{ &alder_lake, "2,4,6,0,8-12", "same-llc:core+atom" },
		{ &meteor_lake, "2,0", "same-llc:core" },
		{ &meteor_lake, "4-8", "same-llc:atom" },
		{ &lunar_lake, "1,2", "same-llc:core" },
		{ &without_efficient_cores, "1,2", "same-llc" },
		{ &rk3588, "4,5", "same-llc:big" },
		{ &rk3588, "4-7,1", "same-llc:big+little" },
		{ &snapdragon, "4,5", "same-llc:middle" },
		{ &snapdragon, "7", "one-cpu:big" },
		{ &four_clusters, "5,6", "same-llc:middle-1" },
		{ &apple, "4,5", "same-llc:big" },
		{ &strix_point, "1,2", "same-llc:big" },
		{ &preferred_cores, "1,2", "same-llc" },
		{ &two_nodes_in_a_cache, "2,4", "same-llc" },
		{ &two_nodes_in_a_cache, "1,3,5,7", "same-llc" },
		{ &node_for_each_cache, "2,3", "same-llc" },
		{ &four_nodes_two_caches_each, "4-7", "same-node" },
		{ &guest_with_two_nodes, "1,2", "same-llc" },
		{ &guest_with_two_nodes, "4-7", "same-llc" },
		{ &memory_node_and_holes, "1,3", "same-llc" },
		{ &memory_node_and_holes, "1,3,4", "cross-node" },
		{ &nothing_shown, "1,2", "unknown-node" },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(rows); i++) {
		int *expected, count = klat_cpus_parse(rows[i].cpus, &expected), cpus[16];

		place(rows[i].machine, NULL, count, cpus);
		for (int c = 0; c < count; c++)
			if (cpus[c] != expected[c])
				fail_msg("row %zu: CPU %d of %s is %d", i, c, rows[i].cpus,
					 cpus[c]);
		assert_string_equal(klat_cpus_relation(cpus, count), rows[i].label);
		free(expected);
	}
}

TEST(relations_name_types_and_nodes_that_no_cache_decides)
{
	static const struct {
		const struct machine *machine;
		const char *cpus, *label;
	} rows[] = {
		{ &sixteen_threads, "3,3", "one-cpu" },
		{ &sixteen_threads, "3,11", "same-core" },
		{ &sixteen_threads, "0,3", "same-node" },
		{ &sixteen_threads, "2,3,2,7", "cross-node" },
		{ &one_core_two_threads, "0,1", "same-core" },
		{ &alder_lake, "2,3", "same-core:core" },
		{ &alder_lake, "8,9", "same-llc:atom" },
		{ &alder_lake, "2,8", "same-llc:core+atom" },
		{ &alder_lake, "8,2", "same-llc:atom+core" },
		{ &meteor_lake, "12,13", "same-llc:lowpower" },
		{ &meteor_lake, "11,12", "same-node:atom+lowpower" },
		{ &arrow_lake, "12,13", "same-llc:lowpower" },
		{ &lunar_lake, "4,5", "same-llc:atom" },
		{ &one_unlisted, "1,4", "same-llc:core+unknown" },
		{ &snapdragon, "0,7,4", "same-llc:little+big+middle" },
		{ &negative_speed, "0,3", "same-llc" },
		{ &absurd_speed, "0,3", "same-llc" },
		{ &four_clusters, "2,0", "same-llc:middle-2+little" },
		{ &apple, "0,4", "same-node:little+big" },
		{ &strix_point, "3,15", "same-core:big" },
		{ &strix_point, "4,5", "same-llc:little" },
		{ &preferred_cores, "3,4", "same-llc" },
		{ &two_nodes_in_a_cache, "1,2", "cross-node" },
		{ &two_nodes_in_a_cache, "0,2,1", "cross-node" },
		{ &guest_with_two_nodes, "0,7", "cross-node" },
		{ &guest_with_two_nodes, "0,3", "same-llc" },
		{ &node_for_each_cache, "0,2", "cross-node" },
		{ &four_nodes_two_caches_each, "0,2", "same-node" },
		{ &lists_only, "1,2", "cross-node" },
		{ &links_only, "1,2", "cross-node" },
		{ &second_node_unlisted, "0,1", "same-llc" },
		{ &second_node_unlisted, "1,2", "same-llc-unknown-node" },
		{ &second_node_unlisted, "2,3", "same-llc-unknown-node" },
		{ &nothing_shown, "1,1", "one-cpu" },
		{ &kernel_without_numa, "0,1", "same-llc" },
		{ &kernel_without_numa, "1,2", "same-node" },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(rows); i++) {
		int *cpus, count = klat_cpus_parse(rows[i].cpus, &cpus);

		machine = rows[i].machine;
		assert_string_equal(klat_cpus_relation(cpus, count), rows[i].label);
		free(cpus);
	}
}

TEST(pairs_have_cpus_of_their_own_and_are_placed_alike)
{
	static const struct {
		const struct machine *machine;
		int pairs, count;
		const char *cpus, *reason; /* of a run that is skipped */
	} rows[] = {
		{ &eight_on_two_nodes, 1, 2, "1,2", "" },
		{ &eight_on_two_nodes, 4, 2, "1,2,4,5,6,7,3,0", "" },
		{ &eight_on_two_nodes, 8, 1, "1,2,3,4,5,6,7,0", "" },
		{ &eight_on_two_nodes, 5, 2, "", "needs 10 CPUs and may use 8" },
		{ &sixteen_threads, 4, 2, "2,3,4,5,6,7,1,0", "" },
		{ &alder_lake, 4, 2, "2,4,6,0,3,5,7,1", "" },
		{ &alder_lake, 5, 2, "", "pair 5 would be same-llc:atom (first CPU: 8)" },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(rows); i++) {
		int *expected, count = klat_cpus_parse(rows[i].cpus, &expected), err;

		machine = rows[i].machine;
		*run->outcome = (struct klat_outcome){ KLAT_OK, "" };
		free(run->cpus);
		run->cpus = NULL;
		run->pairs = rows[i].pairs;
		run->cpu_count = rows[i].pairs * rows[i].count;
		err = klat_place(run);
		assert_contains(run->outcome->reason, rows[i].reason);
		assert_int_equal(err, *rows[i].reason ? -ENOTSUP : 0);
		for (int c = 0; c < count; c++)
			if (run->cpus[c] != expected[c])
				fail_msg("row %zu: CPU %d of %s is %d", i, c, rows[i].cpus,
					 run->cpus[c]);
		if (count > 0)
			free(expected);
	}
}

TEST(an_online_list_without_an_allowed_cpu_is_not_of_this_machine)
{
	static const struct machine container = { "0", .allowed = "1" };
	static const struct machine half = { "0-3", .allowed = "1" };

	klat_cpu_set online;

	machine = &container;
	assert_int_equal(klat_cpus_online(&online), 0);
	assert_int_equal(klat_cpu_weight(&online), 1);
	assert_true(klat_cpu_in(&online, 1));
	assert_true(klat_machine_has_one_cpu());
	machine = &half;
	assert_int_equal(klat_cpus_online(&online), 0);
	assert_int_equal(klat_cpu_weight(&online), 4);
	assert_false(klat_machine_has_one_cpu());
}
