/* SPDX-License-Identifier: MIT */
/* The counter: nothing here asserts a time, only that measures of the same thing agree. */
#include "pause.h"
#include "support.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct klat_policy fair = { .policy = SCHED_OTHER };

static int allowed(int *cpus, int most)
{
	klat_cpu_set set;
	int count = 0;

	assert_int_equal(klat_cpus_allowed(&set), 0);
	for (int cpu = 0; cpu < KLAT_MAX_CPU && count < most; cpu++)
		if (klat_cpu_in(&set, cpu))
			cpus[count++] = cpu;
	return count;
}

TEST(the_floor_is_positive_and_in_whole_steps)
{
	struct klat_worker worker = { 0 };
	const int64_t quantum = klat_counter_quantum();
	uint64_t floor, steps;

	klat_arch_stamp_end(&worker.cpu_identity);
	floor = klat_counter_floor(&worker);
	assert_true(quantum >= 1);
	assert_true(floor > 0);
	/* The quantum is the step, rounded up. */
	steps = (floor + quantum - 1) / quantum;
	assert_true(floor >= steps * (quantum - 1));
}

TEST(the_step_is_found_in_the_gaps_between_readings)
{
	static struct {
		uint64_t gaps[6];
		int64_t step;
	} cases[] = {
		{ { 24, 26, 22, 25, 24, 5031 }, 1 }, /* faster than readings */
		{ { 60, 80, 60, 100, 60, 6020 }, 20 },
		{ { 0, 1, 0, 1, 1, 2 }, 1 }, /* slower than readings */
		{ { 0, 10, 0, 0, 10, 30 }, 10 },
		{ { 0, 41, 42, 0, 83, 42 }, 42 }, /* 24 MHz in ns */
		{ { 0, 42, 0, 42, 125, 42 }, 42 },
		{ { 42, 84, 83, 41, 83, 5000 }, 42 },
		{ { 0, 0, 0, 0, 0, 0 }, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(klat_counter_step(cases[i].gaps, 6), cases[i].step);
}

static uint64_t simulated_reading(double now, double step)
{
	return floor(now / step) * step + 1e-6; /* for the error of the product */
}

/* The step of a simulated counter. Two readings take `cost` ticks. Between them are delays of whole
 * turns, up to about twice the shortest gap, and up to 2 turns more. Now and then an interrupt
 * comes. */
static int64_t simulated_step(double step, double cost, double turn)
{
	uint64_t gaps[1000], seed = 1;
	const double most = (2 * floor(cost / step) * step + 16) / turn;
	double now = 1e6;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(gaps); i++) {
		const uint64_t begin = simulated_reading(now, step);

		now += cost + turn * floor(most * i / KLAT_ARRAY_SIZE(gaps));
		now += turn * (klat_draw(&seed) % 1000) / 500;
		if (i % 211 == 0)
			now += 5000;
		gaps[i] = simulated_reading(now, step) - begin;
		now += 1000 + klat_draw(&seed) % 1000;
	}
	return klat_counter_step(gaps, KLAT_ARRAY_SIZE(gaps));
}

/* In MHz, of a counter that is scaled to ns. */
static const double clocks[] = { 1.92,   6.144, 10, 13, 19.2, 24,   25,  26,  27,
				 32.768, 38.4,  40, 48, 54,   62.5, 100, 125, 200 };
/* In ticks, also of a time-stamp counter. */
static const double whole_steps[] = { 1, 2, 3, 7, 20, 26, 34 };
static const double costs[] = { 0.4, 1,  3,    4.2, 5,  6.3, 8,   10.5, 14,   20,
				26,  30, 41.7, 55,  70, 130, 400, 2500, 12000 };
static const double turns[] = { 0.01, 0.06, 0.3, 0.55, 1, 1.7 };

TEST(a_step_of_whole_ticks_does_not_depend_on_the_cost_of_a_reading)
{
	for (size_t c = 0; c < KLAT_ARRAY_SIZE(costs); c++)
		for (size_t t = 0; t < KLAT_ARRAY_SIZE(turns); t++)
			for (size_t i = 0; i < KLAT_ARRAY_SIZE(whole_steps); i++)
				assert_int_equal(simulated_step(whole_steps[i], costs[c], turns[t]),
						 whole_steps[i]);
}

TEST(another_step_does_not_depend_on_the_cost_of_a_reading)
{
	for (size_t c = 0; c < KLAT_ARRAY_SIZE(costs); c++)
		for (size_t t = 0; t < KLAT_ARRAY_SIZE(turns); t++)
			for (size_t i = 0; i < KLAT_ARRAY_SIZE(clocks); i++) {
				const double step = 1000 / clocks[i],
					     most = costs[c] > 400 ? 1.1 * step : step;
				const int64_t found = simulated_step(step, costs[c], turns[t]);

				assert_in_range(found, floor(step), ceil(most));
			}
}

TEST(stamps_do_not_run_backwards)
{
	struct klat_worker worker = { 0 };
	uint64_t last = klat_stamp_begin();

	for (int i = 0; i < 100000; i++) {
		uint64_t now = i & 1 ? klat_stamp_begin() : klat_stamp_end(&worker);

		assert_true(now >= last);
		last = now;
	}
}

TEST(a_stamp_on_another_cpu_shows)
{
	struct klat_worker worker = { 0 };

	klat_arch_stamp_end(&worker.cpu_identity);
	worker.cpu_identity++; /* as if it were pinned to a neighbour */
	klat_stamp_end(&worker);
	assert_int_not_equal(worker.strayed, 0);
}

/* The median excess over what was asked, the empty bracket taken off. */
static double excess_of_spins(uint64_t shorter)
{
	static uint64_t brackets[2001], empty[2001];
	const size_t count = KLAT_ARRAY_SIZE(brackets);

	for (size_t i = 0; i < count; i++) {
		uint64_t begin = klat_stamp_begin();

		empty[i] = klat_stamp_begin() - begin;
		begin = klat_stamp_begin();
		klat_spin(3000 + i % 100 - shorter);
		brackets[i] = klat_stamp_begin() - begin - i % 100;
	}
	qsort(brackets, count, sizeof(*brackets), klat_compare_values);
	qsort(empty, count, sizeof(*empty), klat_compare_values);
	return (double)brackets[count / 2] - empty[count / 2] - 3000;
}

static bool is_excess_corrected(void)
{
	const double as_is = excess_of_spins(0), corrected = excess_of_spins(klat_spin_excess());

	return as_is > 0 && fabs(corrected) <= as_is / 2;
}

TEST(a_spin_less_its_excess_lasts_as_long_as_was_asked)
{
	assert_true_in_five_tries(is_excess_corrected());
}

/* How many of 4,000 pauses end in each quarter of a step of 4,000 ticks that a wait ended at. */
static void quarters_of_a_step(uint64_t turns, int ended[4])
{
	const struct klat_pause pause = { .turns = turns };
	const uint64_t step = 4000;
	uint64_t seed = 1;

	for (int i = 0; i < 4000; i++) {
		uint64_t begin;

		while (klat_ticks() % step > step / 20)
			;
		begin = klat_ticks() / step * step;
		klat_pause(&pause, &seed);
		ended[(klat_ticks() - begin) % step * 4 / step]++;
	}
}

static bool is_spread_over_a_step(void)
{
	int ended[4] = { 0 };
	bool is_even = true;

	quarters_of_a_step(klat_turns_within(2 * 4000, 4000), ended);
	for (int i = 0; i < 4; i++)
		is_even &= abs(ended[i] - 1000) <= 400;
	return is_even;
}

TEST(a_pause_on_a_coarse_counter_ends_anywhere_within_a_step)
{
	int fine[4] = { 0 };

	quarters_of_a_step(0, fine);
	assert_true(fine[0] > 3600);
	assert_true_in_five_tries(is_spread_over_a_step());
}

/* Against two clock readings of the test's own, 100 ms apart. */
TEST(calibration_agrees_with_another_measure_within_50_ppm)
{
	struct klat_counter tsc;
	double khz = 0, best = 1e9;

	klat_counter_calibrate(&tsc);
	assert_true(tsc.khz > 0);
	assert_true(tsc.uncertainty_ppm > 0);
	assert_int_equal(tsc.invariant, klat_arch_counter_invariant());
	/* A disturbed reading can only widen its bracket: keep the tightest of several. */
	for (int attempt = 0; attempt < 3; attempt++) {
		uint64_t before = klat_stamp_begin(), middle_first, middle_last, after;
		int64_t first = klat_clock_ns(CLOCK_MONOTONIC_RAW), last;
		double width;

		middle_first = klat_stamp_begin();
		klat_nap(100000000);
		middle_last = klat_stamp_begin();
		last = klat_clock_ns(CLOCK_MONOTONIC_RAW);
		after = klat_stamp_begin();
		width = (middle_first - before) + (after - middle_last);
		if (width < best) {
			best = width;
			khz = 1e6 *
			      (middle_last / 2.0 + after / 2.0 - before / 2.0 -
			       middle_first / 2.0) /
			      (last - first);
		}
	}
	assert_true(fabs(tsc.khz / khz - 1) < 50e-6);
}

TEST(a_cpu_has_no_offset_to_itself)
{
	struct klat_offset offset = KLAT_ANY_OFFSET;
	int cpu;

	assert_int_equal(allowed(&cpu, 1), 1);
	assert_int_equal(klat_counter_narrow_offset(cpu, cpu, &fair, &offset), 0);
	assert_int_equal(offset.low, 0);
	assert_int_equal(offset.high, 0);
}

TEST(an_offset_between_two_cpus_is_bounded)
{
	struct klat_offset there = KLAT_ANY_OFFSET, back = KLAT_ANY_OFFSET;
	int cpus[2];

	if (allowed(cpus, 2) < 2)
		skip();
	assert_int_equal(klat_counter_narrow_offset(cpus[0], cpus[1], &fair, &there), 0);
	assert_int_equal(klat_counter_narrow_offset(cpus[1], cpus[0], &fair, &back), 0);
	/* Equal bounds would say that the line crossed in no time. */
	assert_true(there.low < there.high && back.low < back.high);
	/* One is the negative of the other. */
	assert_true(there.low <= -back.low && -back.high <= there.high);
}

TEST(an_offset_that_changed_leaves_none_possible)
{
	struct klat_offset offsets[2] = { { 0, 0 }, { INT64_MIN, -1000000 } };
	int cpus[2];

	if (allowed(cpus, 2) < 2)
		skip();
	assert_int_equal(klat_counter_narrow_offset(cpus[0], cpus[1], &fair, &offsets[1]), 0);
	assert_true(offsets[1].low > offsets[1].high);
	assert_true(klat_counter_offset_bound(offsets, 2) == UINT64_MAX);
}

TEST(the_bound_is_of_the_two_counters_that_are_farthest_apart)
{
	const struct klat_offset offsets[] = { { 0, 0 }, { -50, 30 }, { 400, 500 }, { -70, 10 } };

	assert_int_equal(klat_counter_offset_bound(offsets, 1), 0);
	assert_int_equal(klat_counter_offset_bound(offsets, 2), 50);
	assert_int_equal(klat_counter_offset_bound(offsets, 3), 550);
	assert_int_equal(klat_counter_offset_bound(offsets, 4), 570);
}

TEST(the_offset_of_a_cpu_that_is_not_there_is_an_error)
{
	struct klat_offset offset = KLAT_ANY_OFFSET;
	int cpu;

	assert_int_equal(allowed(&cpu, 1), 1);
	assert_true(klat_counter_narrow_offset(cpu, 8190, &fair, &offset) < 0);
}

TEST(a_run_is_invalid_if_its_counters_may_differ_by_more_than_a_tenth_of_the_median)
{
	static const struct {
		int64_t offset;
		uint64_t median;
		enum klat_status status;
	} cases[] = {
		{ 50, 500, KLAT_OK },
		{ 51, 500, KLAT_INVALID },
		{ 51, 519, KLAT_OK },
		/* Ten times this offset has more than 64 bits. */
		{ INT64_C(1900000000000000000), UINT64_C(1900000000000000000), KLAT_INVALID },
	};
	struct klat_offset offsets[2] = { { 0, 0 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct klat_summary *summary = &run->library->summaries[0];

		*run->outcome = (struct klat_outcome){ KLAT_OK, "" };
		offsets[1].low = offsets[1].high = cases[i].offset;
		run->library->offsets = offsets;
		summary->p50_known = true;
		summary->p50 = summary->max = cases[i].median;
		klat_offsets_judge(run);
		assert_int_equal(run->outcome->status, cases[i].status);
	}
}
