/* SPDX-License-Identifier: MIT */
/*
 * Other work on the CPUs of the run: the busy time of these CPUs, less the CPU time of the run's
 * own threads and processes. See docs/record.md.
 */
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sum the `wanted` numbers (bit 0: the first) in the lines "cpu3 0 25 …" of the run's CPUs. -1 if
 * one of them is offline: it has no line. */
static int64_t sum_over_cpus(const struct klat_run *run, char *text, unsigned int wanted)
{
	char *line, *word;
	int64_t sum = 0;
	int missing = 0;

	for (int i = 0; i < run->cpu_count; i++)
		missing += !klat_place_is_repeated(run, i);

	while ((line = strsep(&text, "\n"))) {
		int cpu;

		if (sscanf(line, "cpu%d", &cpu) != 1 || !klat_place_has(run, cpu))
			continue;
		missing--;
		strsep(&line, " ");
		for (unsigned int bit = 1; (word = strsep(&line, " ")); bit <<= 1)
			sum += wanted & bit ? strtoll(word, NULL, 10) : 0;
	}
	return missing ? -1 : sum;
}

/* The seventh number is the time that tasks ran, in ns: Documentation/scheduler/sched-stats.rst. */
#define SCHEDSTAT_RUNNING (1U << 6)
/* user, nice, system, irq and softirq, in clock ticks: proc(5). */
#define STAT_BUSY (1U << 0 | 1U << 1 | 1U << 2 | 1U << 5 | 1U << 6)

/* -1 if the kernel does not count it, or a CPU is offline. */
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
	return sum < 0 ? -1 : sum * *step_ns;
}

static int64_t own_ns(const struct klat_run *run)
{
	clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
	int64_t sum;

	/* In a soak, the supervisor reads the clock of the measured process. */
	if (run->library->soak.pid)
		clock_getcpuclockid(run->library->soak.pid, &clock);
	sum = klat_clock_ns(clock);
	for (int i = 0; i < run->worker_count; i++)
		if (run->workers[i].process && !clock_getcpuclockid(run->workers[i].tid, &clock))
			sum += klat_clock_ns(clock);
	return sum;
}

void klat_busy_take(struct klat_busy *busy, const struct klat_run *run)
{
	/* The kernel counts a task's time when the task leaves the CPU. */
	klat_nap(1000);
	busy->at_ns = klat_now_ns();
	busy->own_ns = own_ns(run);
	busy->busy_ns = busy_ns(run, &busy->step_ns);
}

void klat_busy_count(struct klat_run *run)
{
	const struct klat_busy *before = &run->library->busy_before,
			       *after = &run->library->busy_after;
	int cpus = 0;

	if (!klat_timed() || !after->at_ns || before->busy_ns < 0 || after->busy_ns < 0)
		return;
	for (int i = 0; i < run->cpu_count; i++)
		cpus += !klat_place_is_repeated(run, i);
	klat_count(run, "cpu_us", (after->at_ns - before->at_ns) * cpus / 1000);
	klat_count(run, "other_busy_us",
		   (after->busy_ns - before->busy_ns - (after->own_ns - before->own_ns)) / 1000);
	klat_count(run, "other_busy_error_us", ceil(after->step_ns / 1e3 * sqrt(cpus)));
}
