/* SPDX-License-Identifier: MIT */
/* Statistics against the definitions of docs/record.md, worked out in 512-bit integers by
 * schoolbook methods. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#define LIMBS 16

/* Little-endian, base 2^32. */
struct big {
	uint32_t limb[LIMBS];
};

static struct big big_of(uint64_t value)
{
	return (struct big){ { value, value >> 32 } };
}

static int big_compare(struct big a, struct big b)
{
	for (int i = LIMBS - 1; i >= 0; i--)
		if (a.limb[i] != b.limb[i])
			return a.limb[i] < b.limb[i] ? -1 : 1;
	return 0;
}

static struct big big_add(struct big a, struct big b)
{
	uint64_t carry = 0;

	for (int i = 0; i < LIMBS; i++) {
		carry += (uint64_t)a.limb[i] + b.limb[i];
		a.limb[i] = carry;
		carry >>= 32;
	}
	assert_int_equal(carry, 0);
	return a;
}

static struct big big_subtract(struct big a, struct big b)
{
	int64_t borrow = 0;

	for (int i = 0; i < LIMBS; i++) {
		borrow += (int64_t)a.limb[i] - b.limb[i];
		a.limb[i] = borrow;
		borrow >>= 32;
	}
	assert_int_equal(borrow, 0);
	return a;
}

static struct big big_multiply(struct big a, struct big b)
{
	struct big product = { 0 };

	for (int i = 0; i < LIMBS; i++) {
		uint64_t carry = 0;

		for (int j = 0; i + j < LIMBS; j++) {
			carry += (uint64_t)a.limb[i] * b.limb[j] + product.limb[i + j];
			product.limb[i + j] = carry;
			carry >>= 32;
		}
		assert_int_equal(carry, 0);
	}
	return product;
}

static struct big big_bit(int bit)
{
	struct big value = { 0 };

	value.limb[bit / 32] = 1u << bit % 32;
	return value;
}

/* The largest x with x * divisor <= a. */
static struct big big_divide(struct big a, struct big divisor)
{
	struct big x = { 0 };

	for (int bit = 240; bit >= 0; bit--) {
		struct big next = big_add(x, big_bit(bit));

		if (big_compare(big_multiply(next, divisor), a) <= 0)
			x = next;
	}
	return x;
}

static struct big big_sqrt(struct big a)
{
	struct big x = { 0 };

	for (int bit = 200; bit >= 0; bit--) {
		struct big next = big_add(x, big_bit(bit));

		if (big_compare(big_multiply(next, next), a) <= 0)
			x = next;
	}
	return x;
}

static unsigned __int128 big_value(struct big a)
{
	for (int i = 4; i < LIMBS; i++)
		assert_int_equal(a.limb[i], 0);
	return (unsigned __int128)a.limb[3] << 96 | (unsigned __int128)a.limb[2] << 64 |
	       (uint64_t)a.limb[1] << 32 | a.limb[0];
}

static unsigned __int128 oracle_mean(const uint64_t *samples, int64_t n)
{
	struct big sum = { 0 };

	for (int64_t i = 0; i < n; i++)
		sum = big_add(sum, big_of(samples[i]));
	return big_value(big_divide(big_multiply(sum, big_of(1000)), big_of(n)));
}

static unsigned __int128 oracle_stddev(const uint64_t *samples, int64_t n)
{
	struct big sum = { 0 }, squares = { 0 }, a;

	if (n == 1)
		return 0;
	for (int64_t i = 0; i < n; i++) {
		sum = big_add(sum, big_of(samples[i]));
		squares = big_add(squares, big_multiply(big_of(samples[i]), big_of(samples[i])));
	}
	a = big_subtract(big_multiply(big_of(n), squares), big_multiply(sum, sum));
	a = big_multiply(a, big_of(1000000));
	return big_value(big_sqrt(big_divide(a, big_multiply(big_of(n), big_of(n - 1)))));
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

static void assert_wide_equal(unsigned __int128 a, unsigned __int128 b)
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
	assert_wide_equal(summary.mean_milli, oracle_mean(samples, n));
	if (summary.stddev_known)
		assert_wide_equal(summary.stddev_milli, oracle_stddev(samples, n));
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

/* xorshift64*, so that a failure repeats itself. */
static uint64_t random_bits(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * UINT64_C(2685821657736338717);
}

TEST(statistics_equal_big_integers_for_any_samples)
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

TEST(statistics_equal_big_integers_where_samples_are_latencies)
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
	assert_wide_equal(summary.mean_milli, (unsigned __int128)UINT64_MAX * 1000);
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
	klat_milli_text((unsigned __int128)UINT64_MAX * 1000 + 7, text, sizeof(text));
	assert_string_equal(text, "18446744073709551615.007");
}
