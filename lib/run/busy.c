/* SPDX-License-Identifier: MIT */
/*
 * Other work on the CPUs of the run: the busy time of these CPUs, less the CPU time of the run's
 * own threads and processes. See docs/record.md.
 */
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_used(const struct klat_run *run, int cpu)
{
	for (int i = 0; i < run->cpu_count; i++)
		if (run->cpus[i] == cpu)
			return true;
	return false;
}

static int count_used(const struct klat_run *run)
{
	int count = 0;

	for (int i = 0; i < run->cpu_count; i++) {
		bool repeated = false;

		for (int j = 0; j < i; j++)
			repeated = repeated || run->cpus[j] == run->cpus[i];
		count += !repeated;
	}
	return count;
}

/* "cpu3 " and its numbers, of which those `wanted` (bit 0 is the first) are added up. */
static int64_t sum_of(const char *line, unsigned int wanted)
{
	char *at = strchr(line, ' ');
	int64_t sum = 0;

	for (int i = 0; at && i < 16; i++) {
		char *end;
		int64_t number = strtoll(at, &end, 10);

		if (end == at)
			break;
		sum += wanted >> i & 1 ? number : 0;
		at = end;
	}
	return sum;
}

static int64_t sum_over_cpus(const struct klat_run *run, char *text, unsigned int wanted)
{
	char *save;
	int64_t sum = 0;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		int cpu;

		if (sscanf(line, "cpu%d", &cpu) == 1 && is_used(run, cpu))
			sum += sum_of(line, wanted);
	}
	return sum;
}

/* Documentation/scheduler/sched-stats.rst: the seventh number is the time of tasks, nanoseconds. */
#define SCHEDSTAT_RUNNING (1U << 6)
/* proc(5): user, nice, system, irq, softirq, in clock ticks. */
#define STAT_BUSY (1U << 0 | 1U << 1 | 1U << 2 | 1U << 5 | 1U << 6)

/* -1 where the kernel does not give it. */
static int64_t busy_ns(const struct klat_run *run, int64_t *step_ns)
{
	char *text = klat_read_file("/proc/schedstat");
	int64_t sum;

	*step_ns = text ? 1 : 1000000000 / sysconf(_SC_CLK_TCK);
	if (!text)
		text = klat_read_file("/proc/stat");
	if (!text)
		return -1;
	sum = sum_over_cpus(run, text, *step_ns == 1 ? SCHEDSTAT_RUNNING : STAT_BUSY);
	free(text);
	return sum * *step_ns;
}

static int64_t own_ns(const struct klat_run *run)
{
	int64_t sum = klat_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	clockid_t clock;

	for (int i = 0; i < run->worker_count; i++)
		if (run->workers[i].process && !clock_getcpuclockid(run->workers[i].tid, &clock))
			sum += klat_clock_ns(clock);
	return sum;
}

void klat_busy_take(struct klat_busy *busy, const struct klat_run *run)
{
	/* The kernel adds a task's time when it leaves the CPU, so this thread does. */
	klat_nap(1000);
	busy->at_ns = klat_now_ns();
	busy->own_ns = own_ns(run);
	busy->busy_ns = busy_ns(run, &busy->step_ns);
}

void klat_busy_count(struct klat_run *run)
{
	const struct klat_busy *before = &run->library->busy_before,
			       *after = &run->library->busy_after;
	int cpus = count_used(run);

	if (!klat_timed() || !after->at_ns || before->busy_ns < 0 || after->busy_ns < 0)
		return;
	klat_count(run, "cpu_us", (after->at_ns - before->at_ns) * cpus / 1000);
	klat_count(run, "other_busy_us",
		   (after->busy_ns - before->busy_ns - (after->own_ns - before->own_ns)) / 1000);
	klat_count(run, "other_busy_error_us", ceil(after->step_ns / 1e3 * sqrt(cpus)));
}
