/* SPDX-License-Identifier: MIT */
/* CPU lists, and placement on simulated machines: the linker wraps reads of sysfs and libnuma. */
#include "support.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* A machine of `cpus` CPUs whose threads, caches and nodes are numbered by functions of the CPU
 * number. */
struct machine {
	int cpus;
	int (*core)(int cpu), (*cache)(int cpu), (*node)(int cpu);
	bool caches_shown;
};

static const struct machine *machine;

/* The CPUs that share a domain with `cpu`, as sysfs lists them. */
static void list_sharing(char *text, size_t size, int cpu, int (*domain)(int))
{
	size_t length = 0;

	for (int other = 0; other < machine->cpus; other++)
		if (domain(other) == domain(cpu))
			length += snprintf(text + length, size - length, "%s%d", length ? "," : "",
					   other);
}

static int itself(int cpu)
{
	return cpu;
}

bool __wrap_klat_read_line(const char *path, char *line, size_t size);
int __real_numa_available(void);
int __wrap_numa_available(void);
int __real_numa_node_of_cpu(int cpu);
int __wrap_numa_node_of_cpu(int cpu);

bool __wrap_klat_read_line(const char *path, char *line, size_t size)
{
	char name[64];
	int cpu, index;

	line[0] = 0;
	path += strlen("/sys/devices/system/cpu/");
	if (!strcmp(path, "online")) {
		snprintf(line, size, "0-%d", machine->cpus - 1);
		return true;
	}
	if (sscanf(path, "cpu%d/cache/index%d/shared_cpu_list", &cpu, &index) == 2) {
		/* Index 3 is the last level. The first levels belong to a core. */
		if (!machine->caches_shown || index > 3)
			return false;
		list_sharing(line, size, cpu, index == 3 ? machine->cache : machine->core);
		return true;
	}
	assert_int_equal(sscanf(path, "cpu%d/topology/%63s", &cpu, name), 2);
	list_sharing(line, size, cpu,
		     strcmp(name, "thread_siblings_list") ? machine->node : machine->core);
	return true;
}

int __wrap_numa_available(void)
{
	return machine ? 0 : __real_numa_available();
}

int __wrap_numa_node_of_cpu(int cpu)
{
	return machine ? machine->node(cpu) : __real_numa_node_of_cpu(cpu);
}

void tear_down(void)
{
	machine = NULL;
}

static int one(int cpu)
{
	(void)cpu;
	return 0;
}

static int pair(int cpu)
{
	return cpu / 2;
}

static int half_of_8(int cpu)
{
	return cpu / 4;
}

/* Threads as most servers number them: 0 to 7, then their siblings 8 to 15. */
static int sibling_of_16(int cpu)
{
	return cpu % 8;
}

static int quarter_of_16(int cpu)
{
	return cpu % 8 / 2;
}

static int half_of_16(int cpu)
{
	return cpu % 8 / 4;
}

static const struct machine two = { 2, itself, one, one, true };
static const struct machine two_without_caches = { 2, itself, one, one, false };
static const struct machine one_core_two_threads = { 2, one, one, one, true };
static const struct machine four_cores_paired_caches = { 4, itself, pair, one, true };
static const struct machine eight_on_two_nodes = { 8, itself, half_of_8, half_of_8, true };
static const struct machine sixteen_threads = { 16, sibling_of_16, quarter_of_16, half_of_16,
						true };

static klat_cpu_set set_of(const int *cpus, int count)
{
	klat_cpu_set set = { 0 };

	for (int i = 0; i < count; i++)
		klat_cpu_add(&set, cpus[i]);
	return set;
}

static klat_cpu_set all_of_machine(void)
{
	klat_cpu_set set;

	assert_int_equal(klat_cpus_online(&set), 0);
	return set;
}

#define assert_list(text, ...)                                                                     \
	do {                                                                                       \
		const int wanted[] = { __VA_ARGS__ };                                              \
		int *cpus, count = klat_cpus_parse(text, &cpus);                                   \
                                                                                                   \
		assert_int_equal(count, KLAT_ARRAY_SIZE(wanted));                                  \
		assert_memory_equal(cpus, wanted, sizeof(wanted));                                 \
		free(cpus);                                                                        \
	} while (0)

TEST(lists_keep_order_and_repetition)
{
	assert_list("0", 0);
	assert_list("2,3", 2, 3);
	assert_list("1,1", 1, 1);
	assert_list("3,0", 3, 0);
	assert_list("4-7", 4, 5, 6, 7);
	assert_list("5-5", 5);
	assert_list("9,0-2,1", 9, 0, 1, 2, 1);
	assert_list("8191", 8191);
}

static void assert_no_list(const char *text, int error)
{
	int *cpus = (int *)1, err = klat_cpus_parse(text, &cpus);

	if (err != error)
		fail_msg("'%s' gave %d", text, err);
	assert_null(cpus);
}

TEST(what_is_no_list_is_refused)
{
	static const char *const texts[] = { "",    " ",   "a",   "1,",    ",1",  "1,,2",
					     "-1",  "1-",  "3-1", "1-2-3", "1 ",  " 1",
					     "1;2", "0x1", "1.5", "+1",    "1-a", "1,-2" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(texts); i++)
		assert_no_list(texts[i], -EINVAL);
}

TEST(cpus_that_cannot_exist_are_refused)
{
	assert_no_list("8192", -ERANGE);
	assert_no_list("0-8192", -ERANGE);
	assert_no_list("99999999999999999999", -ERANGE);
	assert_no_list("0-8191,0-8191", -EINVAL);
}

TEST(the_longest_list_is_every_cpu)
{
	int *cpus;

	assert_int_equal(klat_cpus_parse("0-8191", &cpus), KLAT_MAX_CPU);
	assert_int_equal(cpus[8191], 8191);
	free(cpus);
}

TEST(a_set_holds_what_was_put_into_it)
{
	const int cpus[] = { 0, 63, 64, 8191 };
	klat_cpu_set set = set_of(cpus, 4);

	assert_int_equal(klat_cpu_weight(&set), 4);
	assert_true(klat_cpu_in(&set, 64));
	assert_false(klat_cpu_in(&set, 65));
	assert_false(klat_cpu_in(&set, -1));
	assert_false(klat_cpu_in(&set, 8192));
}

/* The first `count` CPUs chosen on `on` out of `allowed`. */
static void place(const struct machine *on, const klat_cpu_set *allowed, int count, int *cpus)
{
	machine = on;
	assert_int_equal(klat_cpus_place(allowed, count, cpus), 0);
	for (int i = 0; i < count; i++) {
		assert_true(klat_cpu_in(allowed, cpus[i]));
		for (int j = 0; j < i; j++)
			assert_int_not_equal(cpus[i], cpus[j]);
	}
}

TEST(one_role_avoids_cpu_0)
{
	static const struct machine *const machines[] = { &two, &two_without_caches,
							  &four_cores_paired_caches,
							  &eight_on_two_nodes, &sixteen_threads };
	int cpu;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(machines); i++) {
		klat_cpu_set all;

		machine = machines[i];
		all = all_of_machine();
		place(machines[i], &all, 1, &cpu);
		assert_int_not_equal(cpu, 0);
	}
}

TEST(two_roles_share_a_cache_but_no_core_and_not_cpu_0)
{
	klat_cpu_set all;
	int cpus[2];

	machine = &four_cores_paired_caches;
	all = all_of_machine();
	place(machine, &all, 2, cpus);
	assert_int_equal(cpus[0], 2);
	assert_int_equal(cpus[1], 3);

	machine = &sixteen_threads;
	all = all_of_machine();
	place(machine, &all, 2, cpus);
	assert_int_equal(cpus[0] / 2, cpus[1] / 2);
	assert_true(cpus[0] > 1 && cpus[0] < 8 && cpus[1] < 8);
	assert_string_equal(klat_cpus_relation(cpus, 2), "same-llc");
}

TEST(cpu_0_is_used_when_there_is_no_choice)
{
	klat_cpu_set all;
	int cpus[2];

	machine = &two;
	all = all_of_machine();
	place(machine, &all, 2, cpus);
	assert_int_equal(cpus[0], 1);
	assert_int_equal(cpus[1], 0);
}

TEST(siblings_come_last)
{
	klat_cpu_set all;
	int cpus[16];

	machine = &sixteen_threads;
	all = all_of_machine();
	place(machine, &all, 8, cpus);
	for (int i = 0; i < 8; i++)
		assert_true(cpus[i] < 8);
	place(machine, &all, 16, cpus);
	for (int i = 8; i < 16; i++)
		assert_true(cpus[i] >= 8);
}

TEST(roles_stay_behind_one_cache_while_they_fit)
{
	klat_cpu_set all;
	int cpus[5];

	machine = &eight_on_two_nodes;
	all = all_of_machine();
	for (int count = 2; count <= 4; count++) {
		place(machine, &all, count, cpus);
		assert_string_equal(klat_cpus_relation(cpus, count), "same-llc");
		for (int i = 0; i < count; i++)
			assert_int_not_equal(cpus[i], 0);
	}
	place(machine, &all, 5, cpus);
	assert_string_equal(klat_cpus_relation(cpus, 5), "cross-node");
}

TEST(only_allowed_cpus_are_chosen)
{
	static const int some[] = { 0, 1, 5 };
	klat_cpu_set allowed = set_of(some, 3);
	int cpus[3];

	place(&eight_on_two_nodes, &allowed, 2, cpus);
	place(&eight_on_two_nodes, &allowed, 3, cpus);
	assert_int_equal(klat_cpus_place(&allowed, 4, cpus), -ENOSPC);
	assert_int_equal(klat_cpus_place(&allowed, 0, cpus), -ENOSPC);
}

TEST(a_sibling_alone_still_counts_as_a_cpu)
{
	static const int some[] = { 9, 3 };
	klat_cpu_set allowed = set_of(some, 2);
	int cpus[2];

	place(&sixteen_threads, &allowed, 2, cpus);
	assert_int_equal(cpus[0], 3);
	assert_int_equal(cpus[1], 9);
}

static const char *relation(const struct machine *on, int a, int b)
{
	int cpus[] = { a, b };

	machine = on;
	return klat_cpus_relation(cpus, 2);
}

TEST(relations_are_named_by_the_nearest_shared_thing)
{
	int spread[] = { 2, 3, 2, 7 };

	assert_string_equal(relation(&sixteen_threads, 3, 3), "one-cpu");
	assert_string_equal(relation(&sixteen_threads, 3, 11), "same-core");
	assert_string_equal(relation(&sixteen_threads, 2, 3), "same-llc");
	assert_string_equal(relation(&sixteen_threads, 0, 3), "same-node");
	assert_string_equal(relation(&sixteen_threads, 0, 7), "cross-node");
	assert_string_equal(relation(&one_core_two_threads, 0, 1), "same-core");
	assert_string_equal(relation(&two_without_caches, 0, 1), "same-llc");
	assert_string_equal(klat_cpus_relation(spread, 4), "same-llc");
	machine = &sixteen_threads;
	assert_string_equal(klat_cpus_relation(spread, 4), "cross-node");
}

TEST(pinning_reads_back_and_refuses_what_is_not_there)
{
	klat_cpu_set before, after;
	int cpu = 0;

	assert_int_equal(klat_cpus_allowed(&before), 0);
	while (!klat_cpu_in(&before, cpu))
		cpu++;
	assert_int_equal(klat_cpu_pin(cpu), 0);
	assert_int_equal(klat_cpus_allowed(&after), 0);
	assert_int_equal(klat_cpu_weight(&after), 1);
	assert_int_equal(sched_getcpu(), cpu);
	assert_int_equal(klat_cpu_pin(8190), -EINVAL);
	assert_int_equal(klat_cpu_pin(-1), -EINVAL);
	assert_int_equal(klat_cpu_pin(8192), -EINVAL);
	assert_int_equal(sched_setaffinity(0, sizeof(before.bits), (const cpu_set_t *)&before), 0);
}
