/* SPDX-License-Identifier: MIT */
/* Counts of the kernel: what is no count is unknown. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

void set_up(void)
{
	klat_mode_assume("hardware");
}

void tear_down(void)
{
	klat_mode_assume(NULL);
}

TEST(a_file_of_one_count_has_nothing_else)
{
	static const struct {
		const char *text;
		int64_t count;
	} files[] = {
		{ "12\n", 12 },   { "0", 0 },     { "", -1 },      { "\n", -1 },
		{ "(null)", -1 }, { "-1\n", -1 }, { "1 2\n", -1 }, { "9223372036854775808\n", -1 },
	};
	const char *path = test_path(directory, "file");

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(files); i++) {
		test_write(path, files[i].text, strlen(files[i].text));
		assert_int_equal(klat_read_count(path), files[i].count);
	}
	assert_int_equal(klat_read_count(directory), -1);
}

TEST(a_line_of_times_is_whole_and_counts)
{
	static const char *const others[] = { "cpu  1 2 3 4 5 6 7 8",  "cpu3 0 0 0 0 0 0 0 0 0 0",
					      "cpu3 1 2 3 4 5 6 7",    "cpu3 1 2 (null) 4 5 6 7 8",
					      "cpu3 1 2 -3 4 5 6 7 8", "intr 1 2 3 4 5 6 7 8" };
	int64_t times[KLAT_STAT_TIMES];
	int cpu;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(others); i++)
		assert_false(klat_stat_line(others[i], &cpu, times));
	assert_true(klat_stat_line("cpu3 1 2 3 4 5 6 7 8 9 10", &cpu, times));
	assert_int_equal(cpu, 3);
	assert_int_equal(times[7], 8);
}

static void worked(int64_t busy_ms, int64_t own_ms)
{
	struct klat_busy *before = &run->library->busy_before, *after = &run->library->busy_after;

	*before = (struct klat_busy){ .at_ns = 1, .step_ns = 10000000 };
	*after = (struct klat_busy){ .at_ns = 1 + KLAT_NS_PER_S,
				     .step_ns = 10000000,
				     .busy_ns = busy_ms * 1000000,
				     .own_ns = own_ms * 1000000 };
	run->library->count_count = 0;
	klat_busy_count(run);
}

TEST(other_work_is_unknown_where_the_kernel_does_not_count)
{
	static const struct {
		int64_t busy_ms, own_ms;
		const char *first;
	} runs[] = {
		{ 500, 400, "cpu_us" },
		{ 0, 100, "cpu_us" }, /* within the error and the share that readers warn of */
		{ 0, 500, "other_busy_unknown" },
		{ 3000, 0, "other_busy_unknown" },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(runs); i++) {
		worked(runs[i].busy_ms, runs[i].own_ms);
		assert_string_equal(run->library->counts[0].name, runs[i].first);
	}
	run->library->busy_before.own_ns = -1;
	run->library->count_count = 0;
	klat_busy_count(run);
	assert_string_equal(run->library->counts[0].name, "other_busy_unknown");
}

TEST(stolen_time_of_one_unknown_cpu_is_unknown)
{
	struct klat_library *library = run->library;

	library->after.steal[0] = 7;
	assert_int_equal(klat_stolen(run, &library->before, &library->after), 7);
	library->before.steal[1] = -1;
	assert_int_equal(klat_stolen(run, &library->before, &library->after), -1);
}

TEST(a_correction_of_one_cpu_does_not_hide_the_stolen_time_of_another)
{
	struct klat_library *library = run->library;

	library->before.steal[1] = 9;
	library->after.steal[0] = 7;
	assert_int_equal(klat_stolen(run, &library->before, &library->after), 7);
}

TEST(interrupts_that_go_back_are_unknown)
{
	run->library->before.irq_present[KLAT_IRQ_TLB] = true;
	run->library->after.irq_present[KLAT_IRQ_TLB] = true;
	run->library->before.irq[KLAT_IRQ_TLB][1] = 548;
	assert_int_equal(klat_interrupts(run, "TLB", 1), -1);
}

TEST(an_unknown_count_is_left_out)
{
	klat_require(run, { "elsewhere", -1, KLAT_AT_MOST, 5, .reason = "" });
	assert_int_equal(run->library->count_count, 0);
}
