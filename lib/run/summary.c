/* SPDX-License-Identifier: MIT */
/* Statistics of one run in exact integers, so that any reader of the samples gets the same digits.
 */
#include "run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef unsigned __int128 u128;

/* floor(sqrt(value)). sqrtl() alone rounds. */
static u128 integer_sqrt(u128 value)
{
	u128 root = sqrtl(value);

	while (root > UINT64_MAX || root * root > value)
		root--;
	while (root < UINT64_MAX && (root + 1) * (root + 1) <= value)
		root++;
	return root;
}

/*
 * isqrt(floor(10^6 A / B)) with A = nQ - S^2 and B = n (n - 1). 10^6 A may exceed 128 bits, so the
 * quotient and the remainder of A / B are multiplied separately. A is the same if all samples are
 * shifted, so the minimum is subtracted from them. False if A exceeds 128 bits.
 */
static bool stddev_milli(const struct klat_pair *pairs, int64_t count, int64_t n, u128 *milli)
{
	u128 sum = 0, squares = 0, a, s2, divisor, scaled, fraction;

	*milli = 0;
	if (n < 2)
		return true;
	for (int64_t i = 0; i < count; i++) {
		u128 x = pairs[i].value - pairs[0].value, square;

		sum += x * pairs[i].count;
		if (__builtin_mul_overflow(x * x, (u128)pairs[i].count, &square) ||
		    __builtin_add_overflow(squares, square, &squares))
			return false;
	}
	if (__builtin_mul_overflow((u128)n, squares, &a) || __builtin_mul_overflow(sum, sum, &s2))
		return false;
	a -= s2;
	divisor = (u128)n * (n - 1);
	fraction = a % divisor * 1000000 / divisor;
	if (__builtin_mul_overflow(a / divisor, (u128)1000000, &scaled) ||
	    __builtin_add_overflow(scaled, fraction, &scaled))
		return false;
	*milli = integer_sqrt(scaled);
	return true;
}

/* The sample of rank ceil(n percent / 100): the inverse of the empirical distribution (Hyndman and
 * Fan 1996, type 1). */
static bool quantile(const struct klat_pair *pairs, int64_t n, int percent, uint64_t *value)
{
	uint64_t rank = (n * percent + 99) / 100, below = 0;

	if (n * (100 - percent) < 500)
		return false;
	while (below + pairs->count < rank)
		below += pairs++->count;
	*value = pairs->value;
	return true;
}

void klat_summarise_pairs(const struct klat_pair *pairs, int64_t count,
			  struct klat_summary *summary)
{
	u128 sum = 0;
	int64_t n = 0;

	for (int64_t i = 0; i < count; i++) {
		sum += (u128)pairs[i].value * pairs[i].count;
		n += pairs[i].count;
	}
	*summary = (struct klat_summary){ .n = n,
					  .min = pairs[0].value,
					  .max = pairs[count - 1].value };
	summary->mean_milli = 1000 * sum / n;
	summary->stddev_known = stddev_milli(pairs, count, n, &summary->stddev_milli);
	summary->p50_known = quantile(pairs, n, 50, &summary->p50);
	summary->p90_known = quantile(pairs, n, 90, &summary->p90);
	summary->p99_known = quantile(pairs, n, 99, &summary->p99);
}

int klat_summarise(uint64_t *samples, int64_t n, struct klat_summary *summary)
{
	struct klat_pair *pairs = malloc(n * sizeof(*pairs));
	int64_t count = 0;

	if (!pairs)
		return -ENOMEM;
	qsort(samples, n, sizeof(*samples), klat_compare_values);
	for (int64_t i = 0; i < n; i++)
		if (count && pairs[count - 1].value == samples[i])
			pairs[count - 1].count++;
		else
			pairs[count++] = (struct klat_pair){ samples[i], 1 };
	klat_summarise_pairs(pairs, count, summary);
	free(pairs);
	return 0;
}

int klat_run_summarise(struct klat_run *run)
{
	struct klat_library *library = run->library;

	klat_for_each_metric(m, run) {
		int64_t count = klat_samples_kept(run, m);
		uint64_t *sorted;

		if (!count)
			continue;
		if (library->soak.lap) {
			struct klat_histogram *histogram = &library->soak.histograms[m];

			klat_histogram_sort(histogram);
			klat_summarise_pairs(histogram->pairs, histogram->distinct,
					     &library->summaries[m]);
			continue;
		}
		sorted = malloc(count * sizeof(*sorted));
		if (!sorted)
			return klat_error(run, ENOMEM, "out of memory for %lld samples",
					  (long long)count);
		klat_samples_copy(run, m, sorted);
		if (klat_summarise(sorted, count, &library->summaries[m]))
			return klat_error(run, ENOMEM, "out of memory for %lld samples",
					  (long long)count);
		free(sorted);
	}
	klat_for_each_worker(worker, run)
		library->floor = MAX(library->floor, worker->floor);
	return 0;
}

void klat_milli_text(u128 milli, char *text, size_t size)
{
	snprintf(text, size, "%llu.%03u", (unsigned long long)(milli / 1000),
		 (unsigned int)(milli % 1000));
}
