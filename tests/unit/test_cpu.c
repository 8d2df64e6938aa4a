/* SPDX-License-Identifier: MIT */
/* CPU lists, sets and pinning. */
#include "support.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	const klat_cpu_set set = test_cpu_set("0,63-64,8191");

	assert_int_equal(klat_cpu_weight(&set), 4);
	assert_true(klat_cpu_in(&set, 64));
	assert_false(klat_cpu_in(&set, 65));
	assert_false(klat_cpu_in(&set, -1));
	assert_false(klat_cpu_in(&set, 8192));
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
