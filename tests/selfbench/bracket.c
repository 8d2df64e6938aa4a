/* SPDX-License-Identifier: MIT */
/*
 * bracket CPU ROUNDS: what klat's own stamps cost, in ticks, each against its bare counterpart in
 * the same process, in turns. Prints the counter's kHz, then one line a round: empty bracket, bare
 * pair, and for whole loops ticks per iteration with a sample recorded and without.
 */
#include "run/run.h"

#include "bare.h"

#include <stdlib.h>
#include <string.h>

#define COUNT 100000

static uint64_t samples[COUNT + 1];

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Of the middle half: as robust as the median, and not held to whole quanta of the counter. */
static double mean_of_middle(void)
{
	uint64_t sum = 0;

	qsort(samples, COUNT, sizeof(*samples), compare);
	for (int i = COUNT / 4; i < 3 * COUNT / 4; i++)
		sum += samples[i];
	return sum / (COUNT / 2.0);
}

static double klat_bracket(struct klat_worker *worker)
{
	for (int i = 0; i < COUNT; i++) {
		uint64_t begin = klat_stamp_begin();

		samples[i] = klat_stamp_end(worker) - begin;
	}
	return mean_of_middle();
}

static double bare_bracket(void)
{
	for (int i = 0; i < COUNT; i++) {
		uint64_t begin = bare_begin();

		samples[i] = bare_end() - begin;
	}
	return mean_of_middle();
}

/* As in a benchmark's body; from 1, for at 0 the evidence is taken. */
static double recorded(struct klat_worker *worker)
{
	uint64_t start = bare_begin();

	for (int64_t i = 1; i <= COUNT; i++) {
		uint64_t begin;

		klat_iteration(worker, i);
		begin = klat_stamp_begin();
		samples[i] = klat_stamp_end(worker) - begin;
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
	struct klat_counter tsc;

	if (argc != 3 || klat_cpu_pin(atoi(argv[1]))) {
		fputs("usage: bracket CPU ROUNDS\n", stderr);
		return 2;
	}
	klat_counter_calibrate(&tsc);
	klat_arch_stamp_end(&worker.cpu_identity);
	memset(samples, 1, sizeof(samples));
	printf("%.3f\n", tsc.khz);
	for (int round = atoi(argv[2]); round > 0; round--) {
		double ours = klat_bracket(&worker), bare = bare_bracket();
		double with = recorded(&worker), without = unrecorded();

		printf("%.4f %.4f %.4f %.4f\n", ours, bare, with, without);
	}
	return worker.strayed ? 1 : 0;
}
