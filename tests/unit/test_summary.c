/* SPDX-License-Identifier: MIT */
/* Statistics against the definitions of docs/samples.md. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Below this, 10^6 times the sums of the deviation fit in 128 bits. */
#define EXACT (UINT64_C(1) << 42)

typedef unsigned __int128 u128;

static void check_mean(const uint64_t *samples, int64_t n, u128 milli)
{
	u128 sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (u128)1000 * samples[i];
	assert_true(milli * n <= sum && sum < (milli + 1) * n);
}

/* The square of the deviation is 10^6 (n sum(x^2) - sum(x)^2) / (n (n - 1)). */
static void check_stddev(const uint64_t *samples, int64_t n, u128 milli)
{
	u128 sum = 0, squares = 0, square, divisor = (u128)n * (n - 1);
	uint64_t most = 0;
	long double mean = 0, deviations = 0, wanted;

	for (int64_t i = 0; i < n; i++) {
		sum += samples[i];
		squares += (u128)samples[i] * samples[i];
		mean += (long double)samples[i] / n;
		most |= samples[i];
	}
	if (n == 1) {
		assert_true(milli == 0);
	} else if (most < EXACT) {
		square = 1000000 * (n * squares - sum * sum) / divisor;
		assert_true(milli * milli <= square && square < (milli + 1) * (milli + 1));
	} else {
		for (int64_t i = 0; i < n; i++)
			deviations += (samples[i] - mean) * (samples[i] - mean);
		wanted = 1000 * sqrtl(deviations / (n - 1));
		assert_true(fabsl(milli - wanted) <= 1 + 1e-12L * wanted);
	}
}

/* Rank ceil(q n) without sorting: the smallest sample with at least that many samples not above it.
 */
static uint64_t oracle_quantile(const uint64_t *samples, int64_t n, int percent)
{
	uint64_t best = UINT64_MAX;

	for (int64_t i = 0; i < n; i++) {
		int64_t not_above = 0;

		for (int64_t j = 0; j < n; j++)
			not_above += samples[j] <= samples[i];
		if (not_above * 100 >= n * percent && samples[i] < best)
			best = samples[i];
	}
	return best;
}

static void assert_wide_equal(u128 a, u128 b)
{
	assert_int_equal((uint64_t)(a >> 64), (uint64_t)(b >> 64));
	assert_int_equal((uint64_t)a, (uint64_t)b);
}

static struct klat_summary summary_of(const uint64_t *samples, int64_t n)
{
	uint64_t *copy = malloc(n * sizeof(*copy));
	struct klat_summary summary;

	memcpy(copy, samples, n * sizeof(*copy));
	klat_summarise(copy, n, &summary);
	free(copy);
	return summary;
}

static void check(const uint64_t *samples, int64_t n)
{
	struct klat_summary summary = summary_of(samples, n);

	assert_int_equal(summary.n, n);
	check_mean(samples, n, summary.mean_milli);
	if (summary.stddev_known)
		check_stddev(samples, n, summary.stddev_milli);
	if (summary.p50_known)
		assert_int_equal(summary.p50, oracle_quantile(samples, n, 50));
	if (summary.p90_known)
		assert_int_equal(summary.p90, oracle_quantile(samples, n, 90));
	if (summary.p99_known)
		assert_int_equal(summary.p99, oracle_quantile(samples, n, 99));
	for (int64_t i = 0; i < n; i++)
		assert_true(summary.min <= samples[i] && samples[i] <= summary.max);
	assert_int_equal(summary.min, oracle_quantile(samples, n, 0));
	assert_int_equal(summary.max, oracle_quantile(samples, n, 100));
}

/* The same in each run, so that a failure repeats itself. */
static uint64_t random_bits(void)
{
	static uint64_t seed = 1;

	return klat_draw(&seed);
}

TEST(statistics_are_those_of_the_definitions_for_any_samples)
{
	uint64_t samples[700];

	for (int round = 0; round < 150; round++) {
		int64_t n = 1 + random_bits() % KLAT_ARRAY_SIZE(samples);
		int shift = random_bits() % 64;

		for (int64_t i = 0; i < n; i++)
			samples[i] = random_bits() >> shift;
		check(samples, n);
	}
}

TEST(statistics_are_those_of_the_definitions_where_samples_are_latencies)
{
	uint64_t samples[700];

	for (int round = 0; round < 50; round++) {
		int64_t n = 1 + random_bits() % KLAT_ARRAY_SIZE(samples);
		struct klat_summary summary;

		for (int64_t i = 0; i < n; i++)
			samples[i] = 5000 + random_bits() % 300 +
				     (random_bits() % 50 ? 0 : random_bits() >> 24);
		check(samples, n);
		summary = summary_of(samples, n);
		assert_true(summary.stddev_known);
	}
}

TEST(one_sample_is_its_own_mean_and_has_no_spread)
{
	uint64_t sample = 12345;
	struct klat_summary summary = summary_of(&sample, 1);

	assert_wide_equal(summary.mean_milli, 12345000);
	assert_true(summary.stddev_known);
	assert_wide_equal(summary.stddev_milli, 0);
	assert_int_equal(summary.min, 12345);
	assert_int_equal(summary.max, 12345);
	assert_false(summary.p50_known);
}

TEST(equal_samples_have_no_spread)
{
	uint64_t samples[1000];
	struct klat_summary summary;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(samples); i++)
		samples[i] = UINT64_MAX;
	summary = summary_of(samples, KLAT_ARRAY_SIZE(samples));
	assert_true(summary.stddev_known);
	assert_wide_equal(summary.stddev_milli, 0);
	assert_wide_equal(summary.mean_milli, (u128)UINT64_MAX * 1000);
	assert_int_equal(summary.p99, UINT64_MAX);
}

TEST(a_spread_past_128_bits_is_not_given_rather_than_wrong)
{
	uint64_t samples[] = { 0, UINT64_MAX, 1, UINT64_MAX - 1 };
	/* Their squares add up to 2^128: to nothing, in 128 bits. */
	uint64_t wrapping[] = { 0, UINT64_C(1) << 63, UINT64_C(1) << 63, UINT64_C(1) << 63,
				UINT64_C(1) << 63 };

	check(samples, KLAT_ARRAY_SIZE(samples));
	assert_false(summary_of(samples, KLAT_ARRAY_SIZE(samples)).stddev_known);
	assert_false(summary_of(wrapping, KLAT_ARRAY_SIZE(wrapping)).stddev_known);
}

TEST(a_spread_of_minutes_among_millions_is_given)
{
	const int64_t n = 1000000;
	uint64_t *samples = calloc(n, sizeof(*samples));

	/* 2^38 ticks are a minute and more on any machine. */
	for (int64_t i = 0; i < n; i += 2)
		samples[i] = UINT64_C(1) << 38;
	assert_true(summary_of(samples, n).stddev_known);
	free(samples);
}

TEST(means_and_deviations_are_rounded_down)
{
	uint64_t samples[] = { 1, 1, 2 };
	struct klat_summary summary = summary_of(samples, 3);

	assert_wide_equal(summary.mean_milli, 1333);
	assert_wide_equal(summary.stddev_milli, 577); /* 0.57735 */
}

TEST(a_quantile_needs_five_samples_beyond_it)
{
	static const struct {
		int64_t n;
		bool p50, p90, p99;
	} cases[] = { { 9, false, false, false }, { 10, true, false, false },
		      { 49, true, false, false }, { 50, true, true, false },
		      { 499, true, true, false }, { 500, true, true, true } };
	uint64_t samples[500];

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(samples); i++)
		samples[i] = i;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		struct klat_summary summary = summary_of(samples, cases[i].n);

		assert_int_equal(summary.p50_known, cases[i].p50);
		assert_int_equal(summary.p90_known, cases[i].p90);
		assert_int_equal(summary.p99_known, cases[i].p99);
	}
}

TEST(thousandths_print_with_three_decimals)
{
	char text[48];

	klat_milli_text(1333, text, sizeof(text));
	assert_string_equal(text, "1.333");
	klat_milli_text(5, text, sizeof(text));
	assert_string_equal(text, "0.005");
	klat_milli_text((u128)UINT64_MAX * 1000 + 7, text, sizeof(text));
	assert_string_equal(text, "18446744073709551615.007");
}
