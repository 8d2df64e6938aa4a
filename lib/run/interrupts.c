/* SPDX-License-Identifier: MIT */
/*
 * The kernel's counts of interrupts. Interrupts by the event are evidence that it took place.
 * Interrupts by devices and other programs, and their softirqs, lengthen samples.
 */
#include "run/run.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const klat_irq_names[KLAT_IRQ_ROWS] = { "RES", "CAL", "TLB", "LOC" };

/* The index of the sum to which this row of /proc/interrupts belongs, or -1. */
static int interrupt_row(const char *line)
{
	const int row = klat_arch_interrupt_row(line);

	/* A device can be the timer of the scheduler's tick. In a guest of Xen, interrupts between
	 * CPUs are those of devices. */
	if (row >= 0 || !isdigit((unsigned char)*line) || strstr(line, "timer") ||
	    strstr(line, "hpet") || strstr(line, "-ipi"))
		return row;
	return KLAT_IRQ_DEVICES;
}

/* Other softirqs are the kernel's own work, for example for its timers. */
static int softirq_row(const char *line)
{
	static const char *const names[] = { "NET_TX:", "NET_RX:", "BLOCK:", "IRQ_POLL:",
					     "TASKLET:" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++)
		if (!strncmp(line, names[i], strlen(names[i])))
			return KLAT_SOFTIRQS;
	return -1;
}

static void add_row(struct klat_snapshot *snapshot, int row, const char *numbers, const int *cpus,
		    int cpu_count)
{
	int64_t *sums = snapshot->irq[row];

	for (int cpu = 0; !snapshot->irq_present[row] && cpu < KLAT_MAX_CPU; cpu++)
		sums[cpu] = -1;
	snapshot->irq_present[row] = true;
	for (int i = 0; i < cpu_count; i++) {
		const int64_t count = klat_next_count(&numbers), sum = sums[cpus[i]];

		sums[cpus[i]] = count < 0 ? -1 : count + (sum > 0 ? sum : 0);
	}
}

/* The sum of a row, whatever it counts, over the CPUs of the run. Big machines have thousands of
 * rows, nearly all of them 0 on these CPUs: those are left out. */
static void add_named_row(struct klat_snapshot *snapshot, const struct klat_run *run,
			  const char *prefix, const char *line, const int *cpus, int cpu_count)
{
	const char *colon = strchr(line, ':'), *numbers = colon;
	struct klat_row row = { 0 };

	if (!run->benchmark->counts_others)
		return;
	for (int i = 0; i < cpu_count; i++) {
		const int64_t count = klat_next_count(&numbers);

		/* ERR and MIS have one number for the machine. */
		if (count < 0)
			return;
		if (klat_place_has(run, cpus[i]))
			row.count += count;
	}
	snprintf(row.name, sizeof(row.name), "%s_%.*s", prefix, (int)(colon - line), line);
	if (row.count && snapshot->row_count < KLAT_MOST_ROWS)
		snapshot->rows[snapshot->row_count] = row;
	snapshot->row_count += row.count != 0;
}

/* The header names the online CPUs ("CPU0 CPU2 …"). Each row has one number per named CPU. Returns
 * a hash (FNV) of the file. */
static uint64_t read_rows(struct klat_snapshot *snapshot, const struct klat_run *run,
			  const char *path, const char *prefix,
			  int (*row_of_line)(const char *line))
{
	int *cpus = malloc(KLAT_MAX_CPU * sizeof(*cpus)), cpu_count = 0;
	char *text = cpus ? klat_read_file(path) : NULL, *rest = text, *line;
	const uint64_t hash = klat_hash(0, text);

	line = strsep(&rest, "\n");
	for (char *word = line; word && (word = strstr(word, "CPU")); word += 3)
		if (cpu_count < KLAT_MAX_CPU && atoi(word + 3) < KLAT_MAX_CPU)
			cpus[cpu_count++] = atoi(word + 3);
	while ((line = strsep(&rest, "\n"))) {
		const char *name = line + strspn(line, " ");
		const int row = row_of_line(name);

		if (!strchr(line, ':'))
			continue;
		if (row >= 0)
			add_row(snapshot, row, strchr(line, ':'), cpus, cpu_count);
		/* The others have columns in the record. */
		if (row < 0 || row >= KLAT_IRQ_ROWS)
			add_named_row(snapshot, run, prefix, name, cpus, cpu_count);
	}
	for (int i = 0; i < cpu_count; i++)
		snapshot->highest_cpu = MAX(snapshot->highest_cpu, cpus[i]);
	free(cpus);
	free(text);
	return hash;
}

void klat_interrupts_take(struct klat_snapshot *snapshot, const struct klat_run *run)
{
	memset(snapshot->irq_present, 0, sizeof(snapshot->irq_present));
	snapshot->row_count = 0;
	snapshot->interrupts_hash =
		read_rows(snapshot, run, "/proc/interrupts", "irq", interrupt_row);
	read_rows(snapshot, run, "/proc/softirqs", "softirq", softirq_row);
}

/* Whether /proc/interrupts is a copy that does not change. The kernel's own does: klat sleeps
 * between two snapshots, and the interrupt of a timer ends each sleep. */
static bool is_frozen(const struct klat_run *run)
{
	const uint64_t hash = run->library->before.interrupts_hash;

	return hash && hash == run->library->after.interrupts_hash;
}

/* -1: unknown */
static int64_t growth(const struct klat_run *run, int row, int cpu)
{
	const struct klat_snapshot *before = &run->library->before, *after = &run->library->after;
	uint32_t difference;

	if ((row != KLAT_SOFTIRQS && is_frozen(run)) || !before->irq_present[row] ||
	    !after->irq_present[row] || before->irq[row][cpu] < 0 || after->irq[row][cpu] < 0)
		return -1;
	/* The kernel's counts have 32 bits. At 1,000 ticks per second they wrap after 50 days. A
	 * count that goes back does not come from the kernel. */
	difference = (uint32_t)(after->irq[row][cpu] - before->irq[row][cpu]);
	return difference <= INT32_MAX ? (int64_t)difference : -1;
}

static int row_of(const char *name)
{
	for (int row = 0; row < KLAT_IRQ_ROWS; row++)
		if (!strcmp(klat_irq_names[row], name))
			return row;
	abort();
}

int64_t klat_interrupts(const struct klat_run *run, const char *row, int cpu)
{
	return growth(run, row_of(row), cpu);
}

void klat_interrupts_count(struct klat_run *run)
{
	const struct klat_snapshot *before = &run->library->before, *after = &run->library->after;
	const int rows = MIN(after->row_count, KLAT_MOST_ROWS);

	if (after->row_count > rows)
		klat_count(run, "rows_left_out", after->row_count - rows);
	for (const struct klat_row *row = after->rows; row < after->rows + rows; row++) {
		int64_t count = row->count;

		for (int i = 0; i < MIN(before->row_count, KLAT_MOST_ROWS); i++)
			if (!strcmp(before->rows[i].name, row->name))
				count -= before->rows[i].count;
		if (count > 0)
			klat_count(run, row->name, count);
	}
}

int64_t klat_interrupts_elsewhere(const struct klat_run *run, const char *row)
{
	int64_t total = 0;

	if (is_frozen(run) || !run->library->after.irq_present[row_of(row)])
		return -1;
	for (int cpu = 0; cpu <= run->library->after.highest_cpu; cpu++) {
		if (!klat_place_has(run, cpu))
			total += MAX(klat_interrupts(run, row, cpu), 0);
	}
	return total;
}

void klat_interrupts_restart(struct klat_run *run)
{
	klat_snapshot_take(&run->library->before, run);
}

/* Function calls by other CPUs that no worker's wakeup explains. Only the wakeups of workers that
 * others wake can be such calls. The event of another worker can be one itself, unless all workers
 * are on one CPU. */
static int64_t other_calls(const struct klat_run *run, int cpu)
{
	int64_t calls = klat_interrupts(run, "CAL", cpu);

	klat_for_each_worker(worker, run)
		if (worker->cpu == cpu && !run->one_cpu)
			calls = worker->woken ? calls - worker->wakeups : INT64_MIN / 2;
	return MAX(calls, 0);
}

/* Interrupts by timers of other programs: all of the CPU without the expected ones. Those are 1,000
 * per second (the highest CONFIG_HZ), the timers of the workers, and 10 for the supervisor's
 * sleeps. A sleep can delay a tick, which is then one more interrupt. */
static int64_t other_timers(const struct klat_run *run, int cpu)
{
	const struct klat_library *library = run->library;
	int64_t expected =
		(library->after.clocks.at_ns - library->before.clocks.at_ns) / 1000000 + 10;

	klat_for_each_worker(worker, run)
		if (worker->cpu == cpu)
			expected += worker->timers * klat_made(run) +
				    2 * (worker->rests + (worker->timers ? worker->wakeups : 0));
	return MAX(klat_interrupts(run, "LOC", cpu) - expected, 0);
}

int64_t klat_other_interrupts(const struct klat_run *run)
{
	bool network = false; /* its interrupts and softirqs are a part of the event */
	int64_t sum = 0;

	klat_for_each_worker(worker, run) {
		/* A network card wakes the worker, and its driver and NAPI can use timers. */
		if (worker->kernel_threads && !worker->woken)
			return 0;
		network |= worker->kernel_threads;
	}
	klat_for_each_cpu(cpu, run) {
		const int64_t timers = other_timers(run, cpu),
			      interrupts = timers + other_calls(run, cpu) +
					   MAX(growth(run, KLAT_IRQ_DEVICES, cpu), 0),
			      softirqs = MAX(growth(run, KLAT_SOFTIRQS, cpu), 0);

		/* The interrupt of a device can cause a softirq. */
		sum += network ? timers : MAX(interrupts, softirqs);
	}
	return sum;
}
