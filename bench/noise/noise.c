/* SPDX-License-Identifier: MIT */
/*
 * What the kernel and the machine take from threads that ask for nothing: on each CPU a thread
 * spins and reads its counter.
 *
 * Timed: the gaps between two readings. A sample is of a window of --window: the longest gap, and
 * the sum of all gaps that are as long as --threshold.
 * Not timed: the rests between windows.
 *
 * Traps:
 * - The mean of all gaps falls if a kernel adds short ones. So each sample is of a window.
 * - A slow loop sees gaps everywhere. So the time of its steps is evidence.
 * - A gap that the loop leaves out looks like silence. So steps and gaps must add up.
 */
#include "klat.h"

#include <math.h>
#include <stdlib.h>
#include <sys/param.h>
#include <unistd.h>

enum { GAP, LOST };
enum { MOST_CPUS = 1024, LENGTHS = 4 };

static struct options {
	int64_t window_us, threshold_ns;
} options = { .window_us = 20000, .threshold_ns = 1000 };

/* Sums over the windows with a sample, in ticks. Gaps are those from the threshold on. */
struct spinner {
	int64_t windows, steps, gaps, readings, gap_count;
	int64_t lengths[LENGTHS]; /* the number of gaps from 1 us, 10 us, 100 us and 1 ms on */
	int64_t elapsed;          /* with the rests and the warm-up */
} KLAT_ALIGNED;

struct state {
	struct spinner spinners[MOST_CPUS];
};

static const struct klat_option option_table[] = {
	{ "window", "the time of a sample", KLAT_INTEGER(window_us, 100, 20000), .argument = "US" },
	{ "threshold", "from this length on, a gap is lost time",
	  KLAT_INTEGER(threshold_ns, 1, 10000000), .argument = "NS" },
};

static const struct klat_metric metrics[] = {
	[GAP] = { "gap", "longest time between two readings of the counter in a window",
		  .path_length = true, .taken_by = "spinner", .gaps = true },
	[LOST] = { "lost", "time that a window lost in gaps from --threshold on",
		   .path_length = true, .taken_by = "spinner",
		   .untraceable = "it is the time of many gaps; explain gap" },
};

static int configure(struct klat_run *run)
{
	run->distinct_cpus = true;
	if (!run->cpus_given)
		run->cpu_count = 1;
	if (run->cpu_count > MOST_CPUS)
		return klat_usage(run, "--cpus takes at most %d CPUs", MOST_CPUS);
	if (run->soak && run->cpu_count > 1)
		return klat_usage(
			run, "--soak: noise needs one CPU, because spinners of several CPUs do "
			     "not stay together; klat soak noise --threads all runs one "
			     "program on each CPU");
	klat_use_metric(run, GAP, run->cpu_count);
	/* A limit of a soak is for gaps. */
	if (!run->soak)
		klat_use_metric(run, LOST, run->cpu_count);
	return 0;
}

/* Spin for a window. Returns the longest gap, which ended at `*ended`. */
static uint64_t watch(struct klat_worker *worker, int64_t i, bool blind, struct spinner *sums,
		      uint64_t *ended)
{
	const uint64_t window = klat_ns_to_ticks(worker->run, 1000 * options.window_us),
		       threshold = klat_ns_to_ticks(worker->run, options.threshold_ns),
		       us = klat_ns_to_ticks(worker->run, 1000);
	uint64_t begin = klat_stamp_end(worker), last = begin, longest = 0, steps = 0, readings = 0;
	struct spinner here = { 0 }; /* a reader of the sums sees whole windows */

	klat_inject(worker->run, i);
	do {
		const uint64_t now = klat_stamp_end(worker), step = now - last;

		last = now;
		readings++;
		if (step > longest) {
			longest = step;
			*ended = now;
		}
		if (__builtin_expect(step < threshold, 1)) {
			steps += step;
			continue;
		}
		klat_note_gap(worker, step);
		here.gaps += blind ? 0 : step;
		here.gap_count++;
		for (uint64_t l = 0, length = us; l < LENGTHS; l++, length *= 10)
			here.lengths[l] += step >= length;
	} while (last - begin < window);
	here.windows = last - begin;
	here.steps = steps;
	here.readings = readings;
	klat_add_counts(sums, &here, sizeof(here));
	return longest;
}

static int spin(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool sleeps = klat_planted(run, "sleep"), blind = klat_planted(run, "blind");
	struct state *state = worker->state;
	struct spinner *total = &state->spinners[worker->index], untimed = { 0 };
	uint64_t *gap = klat_series(run, GAP, worker->index),
		 *lost = klat_series(run, LOST, worker->index), last = klat_ticks();

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		struct spinner *sums = klat_is_sample(run, i) ? total : &untimed;
		const int64_t before = sums->gaps;
		uint64_t ended = 0;

		gap[i] = watch(worker, i, blind, sums, &ended);
		if (lost)
			lost[i] = sums->gaps - before;
		total->elapsed += worker->ended - last;
		last = worker->ended;
		klat_sample_ended(worker, gap, ended);
		if (sleeps)
			usleep(100);
	}
	return 0;
}

static int setup(struct klat_run *run)
{
	for (int cpu = 0; cpu < run->cpu_count; cpu++)
		klat_worker_add(run, KLAT_WORKER("spinner", .body = spin, .place = cpu,
						 .spins = KLAT_ALWAYS, .sleeps = KLAT_NEVER));
	return 0;
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	struct spinner sum = { 0 };
	const int64_t window = klat_ns_to_ticks(run, 1000 * options.window_us);
	int64_t ticks = 0, step;

	for (int i = 0; i < run->cpu_count; i++) {
		const int64_t interrupts = klat_interrupts(run, "LOC", run->cpus[i]);

		klat_add_counts(&sum, &state->spinners[i], sizeof(sum));
		ticks = ticks < 0 || interrupts < 0 ? -1 : ticks + interrupts;
	}
	step = sum.steps / MAX(sum.readings - sum.gap_count, 1);
	klat_count(run, "lost_per_million", llround(1e6 * sum.gaps / MAX(sum.windows, 1)));
	if (ticks >= 0)
		klat_count_mean(run, "timer_interrupts_per_second", 1000 * run->counter_khz * ticks,
				sum.elapsed);
	klat_require(
		run, { "window_ms", .got = (int64_t)(sum.windows / run->counter_khz) },
		{ "gaps", .got = sum.gap_count }, { "from_1_us", .got = sum.lengths[0] },
		{ "from_10_us", .got = sum.lengths[1] }, { "from_100_us", .got = sum.lengths[2] },
		{ "from_1_ms", .got = sum.lengths[3] }, { "step_ticks", .got = step },
		/* A reading of a soak can be in the middle of an addition. */
		{ NULL, llabs(sum.windows - sum.steps - sum.gaps), KLAT_AT_MOST,
		  run->soak ? window : 0,
		  .reason = "the sum of steps and gaps differs from the windows by {got} ticks" },
		{ NULL, 2 * sum.gap_count, KLAT_AT_MOST, sum.readings,
		  .reason = "most steps of the loop are as long as --threshold" });
}

const struct klat_benchmark klat_benchmark = {
	.name = "noise",
	.summary = "what the kernel and the machine take from a spinning thread",
	.description =
		"A thread on each CPU of --cpus spins and reads its counter. Whatever the kernel, "
		"the hypervisor or the firmware does on that CPU is a gap between two readings. "
		"Each sample is of a window of --window: gap is its longest gap, and lost is the "
		"time of all its gaps from --threshold on. Between some windows a real-time thread "
		"rests, because Linux stops one that never sleeps.\n\n"
		"Other tasks and interrupts are what is measured, so they do not disturb the run; "
		"stolen time and SMIs do. The evidence counts gaps from --threshold on, and those "
		"from 1 us, 10 us, 100 us and 1 ms on; the timer's interrupts in a second (few on "
		"a CPU of nohz_full); and each other row of /proc/interrupts and /proc/softirqs "
		"that grew. klat explain noise names the causes of the gaps.",
	.examples = "noise\tone CPU\n"
		    "noise --cpus 0,1\ta thread on each of these CPUs\n"
		    "noise --policy other\tan ordinary thread, which others preempt",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_STATE(struct state),
	.soaks = true,
	.iterations = 50,
	.warmup = 4,
	.counts_size = sizeof(struct state),
	.needs_frequency = true,
	.counts_others = true,
	.faults = { "blind", "sleep" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
