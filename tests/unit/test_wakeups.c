/* SPDX-License-Identifier: MIT */
/* Counts of wakeups and of the interrupts that cause them: see docs/runs.md. */
#include "support.h"

#include <string.h>

/* The reader alone on CPU 0, two writers on CPU 1, each woken once an iteration. */
void set_up(void)
{
	run->iterations = run->end = 90;
	run->warmup = 10;
	for (int i = 0; i < run->worker_count; i++) {
		run->workers[i].woken = true;
		run->workers[i].wakeups = 100;
	}
	for (int row = 0; row < KLAT_IRQ_ROWS; row++)
		run->library->before.irq_present[row] = run->library->after.irq_present[row] = true;
	run->library->before.irq[KLAT_IRQ_RES][1] = 1000;
	run->library->after.irq[KLAT_IRQ_RES][1] = 1150;
	run->library->after.irq[KLAT_IRQ_CAL][1] = 50;
	run->library->after.irq[KLAT_IRQ_CAL][0] = 99;
	run->library->after.irq[KLAT_IRQ_TLB][0] = 7;
}

static int64_t count_of(const char *name)
{
	for (int i = 0; i < run->library->count_count; i++)
		if (!strcmp(run->library->counts[i].name, name))
			return run->library->counts[i].value;
	return -1;
}

TEST(wakeups_of_all_and_interrupts_of_each_cpu_once)
{
	klat_wakeups_count(run);
	assert_int_equal(count_of("wakeups"), 300);
	assert_int_equal(count_of("wake_interrupts"), 150 + 50 + 99);
}

TEST(who_is_woken_by_nobody_is_not_counted)
{
	run->workers[0].woken = run->workers[1].woken = false;
	klat_wakeups_count(run);
	assert_int_equal(count_of("wakeups"), 100);
	assert_int_equal(count_of("wake_interrupts"), 99);
}

TEST(nobody_on_one_cpu_needs_an_interrupt)
{
	for (int i = 0; i < run->worker_count; i++)
		run->workers[i].cpu = 1;
	klat_wakeups_count(run);
	assert_int_equal(run->library->count_count, 0);
}

TEST(a_run_that_hardly_slept_has_no_state)
{
	for (int i = 0; i < run->worker_count; i++)
		run->workers[i].wakeups = 3;
	klat_wakeups_count(run);
	assert_int_equal(run->library->count_count, 0);
}

TEST(a_kernel_without_these_rows_has_no_state)
{
	run->library->after.irq_present[KLAT_IRQ_CAL] = false;
	klat_wakeups_count(run);
	assert_int_equal(run->library->count_count, 0);
}
