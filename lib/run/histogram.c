/* SPDX-License-Identifier: MIT */
/*
 * The samples of a segment of a soak, in bounded memory: the exact count of each value, and the
 * longest samples whole.
 */
#include "run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Multiplicative hashing (Knuth 1973, 6.4): the golden ratio of 2^64. */
#define GOLDEN_RATIO 0x9e3779b97f4a7c15

int klat_histogram_make(struct klat_histogram *histogram, int64_t capacity)
{
	*histogram = (struct klat_histogram){ .capacity = capacity };
	histogram->pairs = calloc(capacity, sizeof(*histogram->pairs));
	histogram->longest = calloc(KLAT_LONGEST, sizeof(*histogram->longest));
	histogram->kept = calloc(KLAT_LONGEST, sizeof(*histogram->kept));
	return histogram->pairs && histogram->longest && histogram->kept ? 0 : -ENOMEM;
}

void klat_histogram_free(struct klat_histogram *histogram)
{
	free(histogram->pairs);
	free(histogram->longest);
	free(histogram->kept);
}

/* Heaps have their smallest value first. */
static void sift_down(struct klat_kept *heap, int64_t count)
{
	struct klat_kept moved = heap[0];
	int64_t at = 0;

	for (int64_t child = 1; child < count; child = 2 * at + 1) {
		child += child + 1 < count && heap[child + 1].value < heap[child].value;
		if (moved.value <= heap[child].value)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moved;
}

static void sift_up(struct klat_kept *heap, int64_t at)
{
	struct klat_kept moved = heap[at];

	for (; at && heap[(at - 1) / 2].value > moved.value; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = moved;
}

/* Add `sample` to a heap of at most KLAT_LONGEST. Returns the sample that has no room: `sample`
 * itself, or a copy in `removed` of the smallest one. NULL if all have room. */
static const struct klat_kept *add(struct klat_kept *heap, int64_t *count,
				   const struct klat_kept *sample, struct klat_kept *removed)
{
	if (*count < KLAT_LONGEST) {
		heap[*count] = *sample;
		sift_up(heap, (*count)++);
		return NULL;
	}
	if (sample->value <= heap[0].value)
		return sample;
	*removed = heap[0];
	heap[0] = *sample;
	sift_down(heap, *count);
	return removed;
}

/* A row of the record has less than 2^32 samples. */
bool klat_histogram_is_full(const struct klat_histogram *histogram)
{
	return histogram->distinct > histogram->capacity / 4 * 3 || histogram->n >= INT64_C(1)
											    << 31;
}

void klat_histogram_add(struct klat_histogram *histogram, const struct klat_kept *sample,
			uint64_t limit)
{
	const uint64_t value = sample->value;
	const struct klat_kept *lost;
	struct klat_kept removed;
	int64_t at = (value * GOLDEN_RATIO >> 32) % histogram->capacity;

	while (histogram->pairs[at].count && histogram->pairs[at].value != value)
		at = (at + 1) % histogram->capacity;
	histogram->distinct += !histogram->pairs[at].count;
	histogram->pairs[at].value = value;
	histogram->pairs[at].count++;
	histogram->n++;
	histogram->above += value > limit;
	histogram->totals.n++;
	histogram->totals.above += value > limit;
	if (value > histogram->totals.worst.value)
		histogram->totals.worst = *sample;
	if (add(histogram->longest, &histogram->longest_count, sample, &removed) != sample ||
	    value > limit) {
		lost = add(histogram->kept, &histogram->kept_count, sample, &removed);
		histogram->unkept += lost && lost->value > limit;
	}
}

void klat_histogram_sort(struct klat_histogram *histogram)
{
	int64_t used = 0;

	for (int64_t at = 0; at < histogram->capacity; at++)
		if (histogram->pairs[at].count)
			histogram->pairs[used++] = histogram->pairs[at];
	qsort(histogram->pairs, used, sizeof(*histogram->pairs), klat_compare_values);
}

void klat_histogram_clear(struct klat_histogram *histogram)
{
	memset(histogram->pairs, 0, histogram->capacity * sizeof(*histogram->pairs));
	histogram->distinct = histogram->n = histogram->above = histogram->kept_count =
		histogram->unkept = 0;
	histogram->totals_before = histogram->totals;
}

void klat_histogram_forget(struct klat_histogram *histogram, int64_t first)
{
	const int64_t count = histogram->longest_count;

	histogram->longest_count = 0;
	for (int64_t k = 0; k < count; k++)
		if (histogram->longest[k].index < first) {
			histogram->longest[histogram->longest_count] = histogram->longest[k];
			sift_up(histogram->longest, histogram->longest_count++);
		}
	histogram->totals = histogram->totals_before;
}
