/* SPDX-License-Identifier: MIT */
/*
 * Other work on the CPUs of the run: the busy time of these CPUs, less the CPU time of the run's
 * own threads and processes. See docs/runs.md.
 */
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The seventh number of /proc/schedstat is the time that tasks ran, in ns:
 * Documentation/scheduler/sched-stats.rst. */
static int64_t schedstat_ns(const char *line, int *cpu)
{
	const char *at = line + 3;
	int64_t ns = -1;

	if (strncmp(line, "cpu", 3))
		return -1;
	*cpu = klat_next_count(&at);
	for (int i = 0; i < 7; i++)
		ns = klat_next_count(&at);
	return ns;
}

/* Clock ticks, by /proc/stat: see proc(5). */
static int64_t stat_ticks(const char *line, int *cpu)
{
	int64_t times[KLAT_STAT_TIMES];

	return klat_stat_line(line, cpu, times)
		       ? times[0] + times[1] + times[2] + times[5] + times[6]
		       : -1;
}

/* The sum over the run's CPUs of the values that `read_line` returns. -1 if a CPU has no such line:
 * it is offline, or the kernel does not count. */
static int64_t sum_over_cpus(const struct klat_run *run, char *text,
			     int64_t (*read_line)(const char *line, int *cpu))
{
	const char *line;
	int64_t sum = 0;
	int missing = 0;

	for (int i = 0; i < run->cpu_count; i++)
		missing += !klat_place_is_repeated(run, i);

	while ((line = strsep(&text, "\n"))) {
		int cpu;
		int64_t value = read_line(line, &cpu);

		if (value < 0 || !klat_place_has(run, cpu))
			continue;
		missing--;
		sum += value;
	}
	return missing ? -1 : sum;
}

static int64_t busy_ns(const struct klat_run *run, int64_t *step_ns)
{
	char *text = klat_read_file("/proc/schedstat");
	int64_t sum = text ? sum_over_cpus(run, text, schedstat_ns) : -1;

	free(text);
	*step_ns = 1;
	if (sum >= 0)
		return sum;
	text = klat_read_stat();
	sum = text ? sum_over_cpus(run, text, stat_ticks) : -1;
	free(text);
	*step_ns = 1000000000 / sysconf(_SC_CLK_TCK);
	return sum < 0 ? -1 : sum * *step_ns;
}

/* -1 if the clock of a process cannot be read. */
static int64_t own_ns(const struct klat_run *run)
{
	clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
	int64_t sum;

	/* In a soak, the supervisor reads the clock of the measured process. */
	if (run->library->soak.pid)
		clock_getcpuclockid(run->library->soak.pid, &clock);
	sum = klat_clock_ns(clock);
	if (!sum)
		return -1;
	klat_for_each_worker(worker, run) {
		if (worker->process && !clock_getcpuclockid(worker->tid, &clock))
			sum += klat_clock_ns(clock);
		sum += worker->children_ns;
	}
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
	int64_t cpu_us, other_us, error_us, margin_us;
	int cpus = 0;

	if (!klat_timed() || !after->at_ns)
		return;
	for (int i = 0; i < run->cpu_count; i++)
		cpus += !klat_place_is_repeated(run, i);
	cpu_us = (after->at_ns - before->at_ns) * cpus / 1000;
	other_us = (after->busy_ns - before->busy_ns - (after->own_ns - before->own_ns)) / 1000;
	error_us = ceil(after->step_ns / 1e3 * sqrt(cpus));
	/* More than four errors and 5 % is impossible: the kernel does not maintain these counts.
	 */
	margin_us = 4 * error_us + cpu_us / 20;
	if (before->busy_ns < 0 || after->busy_ns < 0 || before->own_ns < 0 || after->own_ns < 0 ||
	    before->step_ns != after->step_ns || other_us < -margin_us ||
	    other_us > cpu_us + margin_us) {
		klat_count(run, "other_busy_unknown", 1);
		return;
	}
	klat_count(run, "cpu_us", cpu_us);
	klat_count(run, "other_busy_us", other_us);
	klat_count(run, "other_busy_error_us", error_us);
}
