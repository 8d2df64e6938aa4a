/* SPDX-License-Identifier: MIT */
/* The histogram of a soak, compared with a list of all its samples. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 100000
#define LIMIT 999000

static struct klat_histogram histogram;
static uint64_t values[SAMPLES];

void set_up(void)
{
	assert_int_equal(klat_histogram_make(&histogram, 1 << 21), 0);
}

void tear_down(void)
{
	klat_histogram_free(&histogram);
}

static int descending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x < y) - (x > y);
}

/* Add SAMPLES samples with `distinct` different values, in random order. */
static void fill(uint64_t seed, uint64_t distinct)
{
	for (int i = 0; i < SAMPLES; i++) {
		values[i] = klat_draw(&seed) % distinct * (1000000 / distinct);
		klat_histogram_add(&histogram,
				   &(struct klat_kept){ .index = i, .value = values[i] }, LIMIT);
	}
}

TEST(counts_every_value)
{
	uint64_t last = 0;
	int64_t sum = 0;

	fill(1, 1000);
	klat_histogram_sort(&histogram);
	assert_int_equal(histogram.distinct, 1000);
	for (int64_t i = 0; i < histogram.distinct; i++) {
		uint64_t wanted = 0;

		for (int s = 0; s < SAMPLES; s++)
			wanted += values[s] == histogram.pairs[i].value;
		assert_true(!i || histogram.pairs[i].value > last);
		assert_int_equal(histogram.pairs[i].count, wanted);
		last = histogram.pairs[i].value;
		sum += histogram.pairs[i].count;
	}
	assert_int_equal(sum, SAMPLES);
	assert_int_equal(histogram.n, SAMPLES);
}

TEST(keeps_the_longest_with_their_places)
{
	uint64_t kept[KLAT_LONGEST];

	fill(2, 1000000);
	assert_int_equal(histogram.kept_count, KLAT_LONGEST);
	for (int k = 0; k < KLAT_LONGEST; k++) {
		assert_int_equal(histogram.kept[k].value, values[histogram.kept[k].index]);
		kept[k] = histogram.kept[k].value;
	}
	qsort(kept, KLAT_LONGEST, sizeof(*kept), descending);
	qsort(values, SAMPLES, sizeof(*values), descending);
	assert_memory_equal(kept, values, sizeof(kept));
	assert_int_equal(histogram.totals.worst.value, values[0]);
}

/* A later segment keeps only samples that are above the limit or among the longest of the soak. */
TEST(the_longest_are_those_of_the_soak)
{
	int64_t above = 0, first;

	fill(3, 1000000);
	first = histogram.totals.above;
	klat_histogram_clear(&histogram);
	assert_int_equal(histogram.kept_count, 0);
	fill(4, 1000000);
	for (int i = 0; i < SAMPLES; i++)
		above += values[i] > LIMIT;
	assert_in_range(histogram.kept_count, above, KLAT_LONGEST - 1);
	assert_int_equal(histogram.above, above);
	assert_int_equal(histogram.totals.above, first + above);
	assert_int_equal(histogram.totals.n, 2 * SAMPLES);
	assert_int_equal(histogram.unkept, 0);
}

TEST(a_segment_that_does_not_count_leaves_nothing_in_the_figures_of_the_soak)
{
	struct klat_totals totals;
	uint64_t smallest;

	for (int i = 0; i < KLAT_LONGEST / 2; i++)
		klat_histogram_add(&histogram, &(struct klat_kept){ .index = i, .value = 100 + i },
				   LIMIT);
	klat_histogram_clear(&histogram);
	totals = histogram.totals;
	for (int i = 0; i < KLAT_LONGEST; i++)
		klat_histogram_add(
			&histogram,
			&(struct klat_kept){ .index = KLAT_LONGEST + i, .value = LIMIT + 1 },
			LIMIT);
	klat_histogram_forget(&histogram, KLAT_LONGEST);
	klat_histogram_clear(&histogram);
	assert_memory_equal(&histogram.totals, &totals, sizeof(totals));
	assert_true(histogram.longest_count < KLAT_LONGEST);
	smallest = histogram.longest_count ? histogram.longest[0].value : 0;
	for (int64_t k = 0; k < histogram.longest_count; k++) {
		assert_true(histogram.longest[k].index < KLAT_LONGEST);
		assert_true(histogram.longest[k].value >= smallest);
	}
	/* Its long samples do not keep out the shorter ones of the next segment. */
	klat_histogram_add(&histogram, &(struct klat_kept){ .index = 1 << 20, .value = 5 }, LIMIT);
	assert_int_equal(histogram.kept_count, 1);
}

/* A row of the record has no room for 2^32 samples. */
TEST(is_full_before_the_row_is)
{
	histogram.n = (INT64_C(1) << 31) - 1;
	assert_false(klat_histogram_is_full(&histogram));
	klat_histogram_add(&histogram, &(struct klat_kept){ .value = 1 }, LIMIT);
	assert_true(klat_histogram_is_full(&histogram));
}

TEST(counts_what_it_has_no_room_for)
{
	for (int i = 0; i < 2 * KLAT_LONGEST; i++)
		klat_histogram_add(&histogram,
				   &(struct klat_kept){ .index = i, .value = LIMIT + 1 + i },
				   LIMIT);
	assert_int_equal(histogram.kept_count, KLAT_LONGEST);
	assert_int_equal(histogram.unkept, KLAT_LONGEST);
	for (int k = 0; k < KLAT_LONGEST; k++)
		assert_true(histogram.kept[k].index >= KLAT_LONGEST);
}

TEST(the_slowest_and_the_fastest_worker_of_a_soak_count)
{
	run->library->soak.lap = run->iterations = 12;
	run->workers[0].iteration = 11;
	run->workers[1].laps = 2;
	run->workers[1].iteration = 7;
	assert_int_equal(klat_soak_progress(run), 0);
	assert_int_equal(klat_soak_farthest(run), 31);
}

TEST(a_lap_that_begins_between_two_loads_is_no_step_back)
{
	struct klat_soak *soak = &run->library->soak;

	soak->lap = run->iterations = 12;
	run->worker_count = 1;
	run->workers[0].laps = 2;
	run->workers[0].iteration = 11;
	assert_int_equal(klat_soak_progress(run), 35);
	run->workers[0].iteration = 0; /* laps is 3 since the load */
	assert_int_equal(klat_soak_progress(run), 36);
	assert_int_equal(klat_soak_farthest(run), 36);
}
