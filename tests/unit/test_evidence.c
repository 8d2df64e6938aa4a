/* SPDX-License-Identifier: MIT */
/* What the evidence that every program shares makes of a run. */
#include "support.h"

#include <sched.h>

void set_up(void)
{
	run->counter_khz = 2000000;
	run->library->counter.invariant = true;
}

static void assert_judged(enum klat_status status, const char *reason)
{
	*run->outcome = (struct klat_outcome){ KLAT_OK, "" };
	klat_evidence_judge(run);
	assert_int_equal(run->outcome->status, status);
	assert_contains(run->outcome->reason, reason);
}

TEST(a_run_with_nothing_against_it_is_ok)
{
	assert_judged(KLAT_OK, "");
	assert_string_equal(run->outcome->reason, "");
}

TEST(a_thread_that_was_moved_and_put_back_is_seen)
{
	run->workers[2].migrations = -1; /* unknown */
	assert_judged(KLAT_OK, "");
	run->workers[2].migrations = 2;
	assert_judged(KLAT_INVALID, "the reader was moved");
}

TEST(a_real_time_thread_that_nothing_of_the_run_could_preempt_was_disturbed)
{
	run->workers[2].involuntary = 1;
	assert_judged(KLAT_DISTURBED, "the reader was preempted");
	/* Nor do equals on one CPU preempt each other. */
	run->workers[2].involuntary = 0;
	run->workers[0].involuntary = 1;
	assert_judged(KLAT_DISTURBED, "the writer was preempted");
	/* But a superior does. */
	run->workers[1].priority = run->workers[1].priority_obtained = 51;
	assert_judged(KLAT_OK, "");
}

static void make_ordinary(void)
{
	run->library->policy = (struct klat_policy){ .policy = SCHED_OTHER, .asked = true };
	for (int i = 0; i < run->worker_count; i++) {
		run->workers[i].priority = run->workers[i].priority_obtained = 0;
		run->workers[i].policy_obtained = SCHED_OTHER;
	}
}

TEST(an_ordinary_thread_may_be_preempted)
{
	make_ordinary();
	run->workers[2].involuntary = 1;
	assert_judged(KLAT_OK, "");
}

TEST(a_real_time_thread_alone_on_its_cpu_does_not_wait_for_long)
{
	const int64_t allowed = 4000000 + 10000 * klat_observed(run);

	run->workers[2].account.waited_ns = allowed;
	assert_judged(KLAT_OK, "");
	run->workers[2].account.waited_ns = allowed + 1;
	assert_judged(KLAT_DISTURBED, "the reader was kept waiting");
}

TEST(workers_of_one_cpu_wait_for_each_other)
{
	run->workers[0].account.waited_ns = run->workers[1].account.cpu_ns = 1000000000;
	assert_judged(KLAT_OK, "");
	run->workers[1].account.cpu_ns = 500000000;
	assert_judged(KLAT_DISTURBED, "the writer was kept waiting");
}

static void slept(int64_t first, int64_t second, enum klat_status status, const char *reason)
{
	run->end = 500 - run->lead;
	run->workers[0].voluntary = first;
	run->workers[1].voluntary = second;
	run->workers[0].sleeps = run->workers[1].sleeps = KLAT_MOSTLY;
	assert_judged(status, reason);
}

TEST(what_goes_beyond_the_event_disturbs_a_run_and_from_half_of_the_iterations_on_makes_it_invalid)
{
	struct klat_worker *reader = &run->workers[2];
	struct klat_library *library = run->library;
	const struct {
		int64_t *count;
		int64_t none; /* the largest count that means nothing */
		const char *reason;
		bool ordinary;
	} cases[] = {
		{ &reader->voluntary, 1020, "the reader slept", false },
		{ &reader->involuntary, 0, "the reader was preempted", false },
		{ &library->stops, 0, "the process was stopped", false },
		{ &library->after.throttled, 7, "the CPU quota", true },
	};

	run->end = 500 - run->lead;
	library->before.throttled = 7;
	reader->sleeps = KLAT_MOSTLY;
	reader->most_sleeps = 2;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		const enum klat_status expected[] = { KLAT_OK, KLAT_DISTURBED, KLAT_INVALID };
		const int64_t half = cases[i].none < 1000 ? cases[i].none + 250 : 1250,
			      counts[] = { cases[i].none, half - 1, half };

		for (size_t j = 0; j < KLAT_ARRAY_SIZE(counts); j++) {
			reader->voluntary = 500;
			reader->involuntary = library->stops = 0;
			library->after.throttled = 7;
			library->policy.policy = cases[i].ordinary ? SCHED_OTHER : SCHED_FIFO;
			for (int w = 0; w < run->worker_count; w++)
				run->workers[w].policy_obtained = library->policy.policy;
			*cases[i].count = counts[j];
			assert_judged(expected[j], j ? cases[i].reason : "");
		}
	}
}

TEST(other_interrupts_in_the_samples_disturb_a_run_without_a_load)
{
	static const struct {
		int row;
		int64_t count;
		bool sockets, under_load;
		enum klat_status status;
		bool remote; /* another machine wakes the worker */
	} cases[] = {
		{ KLAT_IRQ_DEVICES, 25, false, false, KLAT_OK, false },
		{ KLAT_IRQ_DEVICES, 26, false, false, KLAT_DISTURBED, false },
		{ KLAT_IRQ_DEVICES, 250, false, false, KLAT_INVALID, false },
		{ KLAT_IRQ_DEVICES, 250, true, false, KLAT_OK, false },
		{ KLAT_IRQ_DEVICES, 250, false, true, KLAT_OK, false },
		{ KLAT_SOFTIRQS, 26, false, false, KLAT_DISTURBED, false },
		{ KLAT_SOFTIRQS, 250, true, false, KLAT_OK, false },
		{ KLAT_IRQ_CAL, 25, false, false, KLAT_OK, false },
		{ KLAT_IRQ_CAL, 26, false, false, KLAT_DISTURBED, false },
		/* expected: 500 ticks of 1 ms, and 10 for klat's sleeps */
		{ KLAT_IRQ_LOC, 510 + 25, false, false, KLAT_OK, false },
		{ KLAT_IRQ_LOC, 510 + 26, false, false, KLAT_DISTURBED, false },
		{ KLAT_IRQ_LOC, 510 + 250, false, false, KLAT_INVALID, false },
		{ KLAT_IRQ_LOC, 510 + 250, true, false, KLAT_INVALID, false },
		{ KLAT_IRQ_LOC, 510 + 250, true, false, KLAT_OK, true },
	};

	run->end = 500 - run->lead;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		struct klat_snapshot *after = &run->library->after;

		memset(after, 0, sizeof(*after));
		run->library->before.irq_present[cases[i].row] = true;
		after->irq_present[cases[i].row] = true;
		after->irq[cases[i].row][run->cpus[0]] = cases[i].count;
		after->clocks.at_ns = 500000000;
		run->library->common.under_load = cases[i].under_load;
		run->workers[2].kernel_threads = cases[i].sockets;
		run->workers[2].woken = !cases[i].remote;
		run->one_cpu = cases[i].row == KLAT_IRQ_CAL;
		assert_judged(cases[i].status, cases[i].status == KLAT_OK ? "" : "interrupts from");
	}
}

static int64_t throttles[2]; /* of cores, of packages */

int64_t __real_klat_read_count(const char *path);
int64_t __wrap_klat_read_count(const char *path)
{
	return strstr(path, "/core_throttle_count")      ? throttles[0]
	       : strstr(path, "/package_throttle_count") ? throttles[1]
							 : __real_klat_read_count(path);
}

TEST(thermal_throttling_disturbs_a_run)
{
	for (int i = 0; i < 2; i++) {
		struct klat_library *library = run->library;

		throttles[i] = -1; /* unknown */
		klat_snapshot_take(&library->before, run);
		library->after = library->before;
		assert_judged(KLAT_OK, "");
		throttles[i] = 1;
		klat_snapshot_take(&library->after, run);
		library->after.clocks = library->before.clocks;
		memcpy(library->after.irq, library->before.irq, sizeof(library->before.irq));
		memcpy(library->after.steal, library->before.steal, sizeof(library->before.steal));
		assert_judged(KLAT_DISTURBED, "thermal throttling");
		assert_string_equal(run->outcome->reason,
				    "thermal throttling slowed CPUs of the run");
	}
}

TEST(a_machine_that_was_suspended_makes_a_run_invalid)
{
	struct klat_clocks *before = &run->library->before.clocks,
			   *after = &run->library->after.clocks;

	after->at_ns = 1000000000;
	after->boot_ns = 1000400000;
	assert_judged(KLAT_OK, "");
	after->boot_ns = 1001000000;
	assert_judged(KLAT_INVALID, "the machine was suspended for 1 ms");
	after->boot_ns = after->at_ns;
	after->suspensions = before->suspensions + 1;
	assert_judged(KLAT_INVALID, "the machine began to suspend, which stops every thread");
	before->suspensions = -1; /* unknown */
	assert_judged(KLAT_OK, "");
}

/* The counter was calibrated at 2 GHz. */
TEST(a_counter_that_does_not_run_as_it_was_calibrated_makes_a_run_invalid)
{
	static const struct {
		int64_t raw_ns, ticks, width_ns;
		enum klat_status status;
	} cases[] = {
		{ 1000000000, 2000000000, 0, KLAT_OK },
		{ 1000000000, 2001900000, 0, KLAT_OK },
		{ 1000000000, 2002100000, 0, KLAT_INVALID },
		{ 1000000000, 1997900000, 0, KLAT_INVALID },
		{ 1000000000, 1997900000, 1000000, KLAT_OK },
		{ 1000000000, 0, 0, KLAT_INVALID },
		{ 1000000, 2041000, 0, KLAT_OK }, /* two CPUs */
		{ 1000000, 2043000, 0, KLAT_INVALID },
		{ 0, 0, 0, KLAT_OK },
	};
	struct klat_clocks *after = &run->library->after.clocks;

	run->library->counter.khz = 2000000;
	run->library->counter.quantum = 1;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		after->raw_ns = cases[i].raw_ns;
		after->ticks = cases[i].ticks;
		after->width_ns = cases[i].width_ns;
		assert_judged(cases[i].status,
			      cases[i].status ? "kHz, and was calibrated at 2000000 kHz" : "");
	}
	after->boot_ns = 5000000; /* a suspension says enough */
	after->raw_ns = 1000000000;
	assert_judged(KLAT_INVALID, "suspended for 5 ms");
}

static void sample_500_times(uint64_t ticks)
{
	uint64_t sorted[500];

	for (int i = 0; i < 500; i++)
		klat_series(run, 0, 0)[i] = ticks;
	klat_samples_copy(run, 0, sorted);
	klat_summarise(sorted, 500, &run->library->summaries[0]);
}

static void map_500_samples(void)
{
	run->iterations = 500;
	run->end = 500 - run->lead;
	klat_use_metric(run, 0, 1);
	assert_int_equal(klat_samples_map(run), 0);
}

/* 500 samples cover a tenth of the time. The counter has 2 GHz. */
TEST(other_interrupts_count_by_the_share_of_the_time_that_samples_cover)
{
	static const struct {
		uint64_t ticks;
		int64_t count;
		enum klat_status status;
	} cases[] = {
		{ 2000, 259, KLAT_OK },
		{ 2000, 261, KLAT_DISTURBED },
		{ 2000, 2501, KLAT_INVALID },
		/* In 200 us, two interrupts change as much as one in 100 us. */
		{ 400000, 519, KLAT_OK },
		{ 400000, 521, KLAT_DISTURBED },
		{ 400000, 5001, KLAT_INVALID },
	};

	map_500_samples();
	run->library->before.irq_present[KLAT_IRQ_DEVICES] = true;
	run->library->after.irq_present[KLAT_IRQ_DEVICES] = true;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		sample_500_times(cases[i].ticks);
		run->library->after.clocks.at_ns = 10 * 500 * cases[i].ticks / 2;
		run->library->after.irq[KLAT_IRQ_DEVICES][run->cpus[0]] = cases[i].count;
		assert_judged(cases[i].status, cases[i].status == KLAT_OK ? "" : "interrupts from");
	}
}

/* A timer whose device is set 500 us before the deadline, and a median of 2 us. The counter has 2
 * GHz. */
TEST(a_clock_that_a_program_corrects_moves_timers)
{
	static const struct {
		int64_t ppm;
		enum klat_status status;
		const char *reason;
	} cases[] = {
		{ 0, KLAT_OK, "" },
		{ -199, KLAT_OK, "" }, /* can be the quartz */
		{ 202, KLAT_DISTURBED,
		  "by +202 ppm (adjtimex): this moves the expiry by 5.1 % of" },
		{ -390, KLAT_DISTURBED,
		  "by -390 ppm (adjtimex): this moves the expiry by 9.8 % of" },
		{ 412, KLAT_INVALID, "by +412 ppm (adjtimex): this moves the expiry by 10.3 % of" },
	};

	if (klat_timer_follows_clock())
		skip();
	map_500_samples();
	sample_500_times(4000);
	run->library->after.clocks.raw_ns = 1000000000;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		run->library->after.clocks.at_ns = 1000000000 + 1000 * cases[i].ppm;
		*run->outcome = (struct klat_outcome){ KLAT_OK, "" };
		klat_judge_clock_rate(run, 0, 500000);
		assert_int_equal(run->outcome->status, cases[i].status);
		assert_contains(run->outcome->reason, cases[i].reason);
	}
}

/* All samples take 1 ms. The counter has 2 GHz. */
TEST(preemptions_that_take_less_than_a_twentieth_of_a_sample_do_not_disturb_a_run)
{
	static const struct {
		int64_t waited_ns;
		enum klat_status status;
	} cases[] = { { 49999, KLAT_OK }, { 50000, KLAT_DISTURBED }, { 0, KLAT_DISTURBED } };

	map_500_samples();
	sample_500_times(2000000);
	run->workers[2].involuntary = 1;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		run->workers[2].account.waited_ns = cases[i].waited_ns;
		assert_judged(cases[i].status, cases[i].status == KLAT_OK ? "" : "preempted");
	}
}

/* An iteration takes 10 us, and one takes 20 ms. The counter has 2 GHz. */
TEST(short_iterations_of_an_ordinary_thread_do_not_hide_the_turns_of_other_tasks)
{
	int64_t allowed;

	map_500_samples();
	sample_500_times(20000);
	klat_series(run, 0, 0)[7] = 40000000;
	allowed = 4000000 + 500 * klat_observed(run);
	run->workers[2].account.waited_ns = allowed + 1;
	assert_judged(KLAT_OK, "");
	make_ordinary();
	assert_judged(KLAT_DISTURBED, "the reader was kept waiting");
	run->workers[2].account.waited_ns = allowed;
	assert_judged(KLAT_OK, "");
	/* The kernel counts no waits of children that have ended. */
	run->workers[2].children_ns = 1;
	run->workers[2].account.elapsed_ns = allowed + 1;
	assert_judged(KLAT_OK, "");
	run->workers[2].account.elapsed_ns = allowed + 2;
	assert_judged(KLAT_DISTURBED, "the reader was kept waiting");
	/* The long sample has another cause. */
	klat_series(run, 0, 0)[7] = 20000;
	assert_judged(KLAT_OK, "");
}

TEST(a_traced_worker_is_invalid)
{
	run->workers[2].account.traced = true;
	assert_judged(KLAT_INVALID, "another process traces the reader");
}

TEST(a_worker_sleeps_for_99_iterations_of_a_hundred_or_measured_another_event)
{
	slept(494, 494, KLAT_OK, "");
	slept(1000, 0, KLAT_INVALID, ""); /* one does not sleep for another */
	slept(493, 500, KLAT_INVALID, "in 7 of 500 iterations the writer was woken");
}

TEST(on_one_cpu_being_preempted_is_as_good_as_sleeping)
{
	run->workers[0].involuntary = 500;
	run->workers[1].priority = run->workers[1].priority_obtained = 51;
	slept(0, 500, KLAT_INVALID, "");
	run->one_cpu = true;
	slept(0, 500, KLAT_OK, "");
}

static void slept_seldom(enum klat_rule rule, int64_t often, enum klat_status status)
{
	run->end = 500 - run->lead;
	run->workers[2].sleeps = rule;
	run->workers[2].voluntary = often;
	assert_judged(status, "");
}

TEST(a_worker_sleeps_no_more_often_than_stated)
{
	run->workers[2].most_sleeps = 0;
	slept_seldom(KLAT_COUNTED, 25, KLAT_OK);
	slept_seldom(KLAT_COUNTED, 26, KLAT_DISTURBED);
	slept_seldom(KLAT_COUNTED, 250, KLAT_INVALID);
	run->workers[2].most_sleeps = KLAT_ANY_SLEEPS;
	slept_seldom(KLAT_COUNTED, 5000, KLAT_OK);
	slept_seldom(KLAT_RARELY, 5, KLAT_OK);
	slept_seldom(KLAT_RARELY, 6, KLAT_INVALID);
	slept_seldom(KLAT_NEVER, 0, KLAT_OK);
	slept_seldom(KLAT_NEVER, 1, KLAT_INVALID);
	assert_contains(run->outcome->reason,
			"the reader slept although it must not (sleeps: 1, iterations: 500)");
}

TEST(a_wait_whose_event_was_due_before_may_sleep_or_not)
{
	run->workers[2].unneeded_sleeps = 300;
	run->workers[2].most_sleeps = 0;
	slept_seldom(KLAT_MOSTLY, 500, KLAT_OK);
	slept_seldom(KLAT_MOSTLY, 200, KLAT_OK);
	slept_seldom(KLAT_MOSTLY, 190, KLAT_INVALID);
	slept_seldom(KLAT_MOSTLY, 526, KLAT_DISTURBED);
}

TEST(a_semicolon_separates_reasons_and_is_in_none)
{
	klat_disturbed(run, "one; two;");
	klat_disturbed(run, "three");
	assert_string_equal(run->outcome->reason, "one, two,; three");
}

TEST(each_rule_ends_at_its_limit)
{
	static const struct {
		enum klat_rule rule;
		int64_t met, unmet, wanted;
	} limits[] = {
		{ KLAT_EXACTLY, 500, 501, 500 },  { KLAT_EXACTLY, 0, -1, 0 },
		{ KLAT_AT_LEAST, 500, 499, 500 }, { KLAT_AT_MOST, 500, 501, 500 },
		{ KLAT_NEVER, 0, 1, 500 },        { KLAT_MOSTLY, 495, 494, 500 },
		{ KLAT_MOSTLY, 10, 9, 10 },       { KLAT_MOSTLY, 0, -1, 0 },
		{ KLAT_RARELY, 5, 6, 500 },       { KLAT_RARELY, 0, 1, 0 },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(limits); i++) {
		assert_true(klat_is_met(limits[i].rule, limits[i].met, limits[i].wanted));
		assert_false(klat_is_met(limits[i].rule, limits[i].unmet, limits[i].wanted));
	}
	/* More than once in each iteration, and nothing required. */
	assert_true(klat_is_met(KLAT_MOSTLY, 1000, 500));
	assert_true(klat_is_met(KLAT_COUNTED, -1, 500));
}

TEST(a_requirement_is_counted_and_judged)
{
	klat_require(run, { "met", 500, KLAT_MOSTLY, 500, .reason = "not this one" },
		     { NULL, 1, KLAT_NEVER, .reason = "{got} was nameless", .disturbs = true },
		     { "absent", 1, KLAT_NEVER, .reason = "nor this one", .unless = true });
	assert_int_equal(run->outcome->status, KLAT_DISTURBED);
	assert_string_equal(run->outcome->reason, "1 was nameless");
	klat_require(run,
		     { "seen", 3, KLAT_MOSTLY, 500, .reason = "{got} of {wanted} {got}{wanted}" });
	assert_int_equal(run->outcome->status, KLAT_INVALID);
	assert_string_equal(run->outcome->reason, "3 of 500 3500");
	assert_int_equal(run->library->count_count, 2);
	assert_string_equal(run->library->counts[0].name, "met");
	assert_int_equal(run->library->counts[1].value, 3);
}

TEST(interrupt_counters_may_wrap)
{
	run->library->before.irq_present[KLAT_IRQ_TLB] = true;
	run->library->after.irq_present[KLAT_IRQ_TLB] = true;
	run->library->before.irq[KLAT_IRQ_TLB][1] = UINT32_MAX - 1;
	run->library->after.irq[KLAT_IRQ_TLB][1] = 548;
	run->library->before.irq[KLAT_IRQ_TLB][3] = UINT32_MAX;
	run->library->after.irq[KLAT_IRQ_TLB][3] = 2;
	assert_int_equal(klat_interrupts(run, "TLB", 1), 550);
	assert_int_equal(klat_interrupts_elsewhere(run, "TLB"), 3);
	assert_int_equal(klat_interrupts(run, "RES", 1), -1);
}

TEST(a_cpu_that_was_offline_has_no_known_count_of_interrupts)
{
	run->library->before.irq_present[KLAT_IRQ_TLB] = true;
	run->library->after.irq_present[KLAT_IRQ_TLB] = true;
	run->library->before.irq[KLAT_IRQ_TLB][1] = 548;
	run->library->after.irq[KLAT_IRQ_TLB][1] = -1;
	run->library->before.irq[KLAT_IRQ_TLB][3] = -1;
	run->library->after.irq[KLAT_IRQ_TLB][3] = 548;
	run->library->after.irq[KLAT_IRQ_TLB][4] = 2;
	run->library->after.highest_cpu = 4;
	assert_int_equal(klat_interrupts(run, "TLB", 1), -1);
	assert_int_equal(klat_interrupts_elsewhere(run, "TLB"), 2);
}

static void held(int64_t ns)
{
	run->library->common.guest_halt_poll = ns;
	run->library->before.halt_poll_ns = run->library->after.halt_poll_ns = ns;
}

TEST(a_halt_polling_that_somebody_else_set_is_another_event)
{
	held(50000);
	assert_judged(KLAT_OK, "");
	run->library->after.halt_poll_ns = 0;
	assert_judged(KLAT_INVALID, "was 50000 at the start and 0 at the end instead of 50000");
}

TEST(a_halt_polling_that_was_not_there_at_the_start_is_seen)
{
	held(0);
	run->library->before.halt_poll_ns = -1;
	assert_judged(KLAT_INVALID, "guest_halt_poll_ns was -1");
}

TEST(idle_cpus_may_poll_only_where_they_are_told_to)
{
	held(0);
	/* How they idled may be unknown. */
	run->library->before.polls = run->library->after.polls = -1;
	assert_judged(KLAT_OK, "");
	assert_int_equal(run->library->count_count, 0);
	run->warmup = run->library->before.polls = 0;
	run->iterations = run->end = 500;
	run->library->after.polls = 5;
	assert_judged(KLAT_OK, "");
	run->library->after.polls = 6;
	assert_judged(KLAT_INVALID, "polled 6 times");
	held(1);
	run->library->after.polls = 1000;
	run->library->count_count = 0;
	assert_judged(KLAT_OK, "");
	assert_string_equal(run->library->counts[0].name, "idle_polls");
	assert_int_equal(run->library->counts[0].value, 1000);
}

TEST(a_run_that_holds_no_halt_polling_says_nothing_of_it)
{
	run->library->after.polls = run->library->after.halt_poll_ns = 1000;
	assert_judged(KLAT_OK, "");
	assert_int_equal(run->library->count_count, 0);
}
