/* SPDX-License-Identifier: MIT */
/*
 * bracket CPU ROUNDS: what klat's own stamps cost, in ticks, each against its bare counterpart in the same process, in turns. Prints one
 * line a round: median empty bracket, median bare pair, and for whole loops ticks per iteration with a sample recorded and without.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 100000

static uint64_t samples[COUNT + 1];

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t median(void)
{
	qsort(samples, COUNT, sizeof(*samples), compare);
	return samples[COUNT / 2];
}

static uint64_t klat_bracket(struct klat_worker *worker)
{
	for (int i = 0; i < COUNT; i++) {
		uint64_t begin = klat_tsc_begin();

		samples[i] = klat_tsc_end(worker) - begin;
	}
	return median();
}

static inline uint64_t bare_begin(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static inline uint64_t bare_end(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high) : : "memory", "ecx");
	return (uint64_t)high << 32 | low;
}

static uint64_t bare_bracket(void)
{
	for (int i = 0; i < COUNT; i++) {
		uint64_t begin = bare_begin();

		samples[i] = bare_end() - begin;
	}
	return median();
}

/* As in a benchmark's body; from 1, for at 0 the evidence is taken. */
static double recorded(struct klat_worker *worker)
{
	uint64_t start = bare_begin();

	for (int64_t i = 1; i <= COUNT; i++) {
		uint64_t begin;

		klat_iteration(worker, i);
		begin = klat_tsc_begin();
		samples[i] = klat_tsc_end(worker) - begin;
	}
	return (double)(bare_end() - start) / COUNT;
}

static double unrecorded(void)
{
	uint64_t start = bare_begin();

	for (int64_t i = 1; i <= COUNT; i++) {
		uint64_t begin = bare_begin(), end = bare_end();

		__asm__ volatile("" : : "r"(begin), "r"(end));
	}
	return (double)(bare_end() - start) / COUNT;
}

int main(int argc, char **argv)
{
	struct klat_worker worker = { 0 };
	struct klat_tsc tsc;

	if (argc != 3 || klat_cpu_pin(atoi(argv[1]))) {
		fputs("usage: bracket CPU ROUNDS\n", stderr);
		return 2;
	}
	klat_tsc_calibrate(&tsc);
	__rdtscp(&worker.aux);
	memset(samples, 1, sizeof(samples));
	printf("%.3f\n", tsc.khz);
	for (int round = atoi(argv[2]); round > 0; round--) {
		uint64_t ours = klat_bracket(&worker), bare = bare_bracket();
		double with = recorded(&worker), without = unrecorded();

		printf("%llu %llu %.4f %.4f\n", (unsigned long long)ours, (unsigned long long)bare, with, without);
	}
	return worker.strayed ? 1 : 0;
}
