/* SPDX-License-Identifier: MIT */
/*
 * Keeps the kernel's trace of each slow sample, for `klat explain`. The worker that took the sample
 * does this before its next iteration: it stops the tracing, copies and empties the buffers of the
 * run's CPUs, and starts the tracing again. Another thread might get no CPU: the workers may occupy
 * every CPU.
 */
#include "run/run.h"

#include "arch/isa.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MOST_KEPT = 100 /* traces of one run */
};

/* The reason why klat cannot explain the metric, or NULL. */
static const char *why_untraceable(const struct klat_run *run, int m)
{
	const struct klat_series *of = &run->library->metrics[m];
	const struct klat_metric *metric = &run->benchmark->metrics[m];

	if (!of->used)
		return "this run does not measure it";
	if (of->series != 1)
		return "each iteration has several samples";
	return metric->taken_by && !of->untraceable ? NULL : metric->untraceable;
}

int klat_slow_choose(struct klat_run *run)
{
	const char *wanted = run->library->common.trace_metric, *name = wanted, *why = NULL;

	for (int m = 0; m < run->benchmark->metric_count; m++) {
		const char *own = run->benchmark->metrics[m].name, *reason;

		if (wanted ? strcmp(wanted, own) : !run->library->metrics[m].used)
			continue;
		reason = why_untraceable(run, m);
		run->library->slow.metric = m;
		if (!reason)
			return 0;
		if (!why)
			name = own;
		why = why ?: reason;
	}
	return klat_usage(run, "klat explain cannot explain %s: %s", name,
			  why ?: "there is no such metric");
}

int klat_slow_possible(struct klat_run *run)
{
	if (!run->library->common.trace_above_ns || klat_arch_counter_traced())
		return 0;
	return klat_skip(run, "the kernel has no trace clock that reads the counter of this build");
}

static int put(struct klat_slow *slow, const char *data, size_t size)
{
	slow->written += size;
	return klat_write_whole(slow->output, data, size);
}

/* Writes a line to the output file. Unlike dprintf(), it allocates nothing. */
static __attribute__((format(printf, 2, 3))) int note(struct klat_slow *slow, const char *format,
						      ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(slow->buffer, sizeof(slow->buffer), format, arguments);
	va_end(arguments);
	return put(slow, slow->buffer, length);
}

static int write_text(int file, const char *text)
{
	return klat_write_whole(file, text, strlen(text));
}

static int keeping(struct klat_run *run, int err)
{
	return err ? klat_error(run, -err, "cannot keep the traces of slow samples in %s: %m",
				run->library->common.trace_output)
		   : 0;
}

int klat_slow_watch(struct klat_run *run)
{
	/* O_NONBLOCK: a FIFO without a reader would block. */
	const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	const struct klat_common *common = &run->library->common;
	struct klat_slow *slow = &run->library->slow;
	const struct klat_metric *metric;
	struct klat_worker *worker;

	if (!common->trace_above_ns)
		return 0;
	metric = &run->benchmark->metrics[slow->metric];
	worker = klat_worker_of(run, slow->metric, 0);
	if (!worker)
		return klat_error(run, EINVAL, "no worker takes %s", metric->name);
	slow->output = open(common->trace_output, flags);
	if (slow->output < 0)
		return klat_error(run, errno, "cannot open %s: %m", common->trace_output);
	slow->instance = open(common->trace_instance, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (slow->instance < 0)
		return klat_error(run, errno, "cannot open %s: %m", common->trace_instance);
	slow->tracing_on = openat(slow->instance, "tracing_on", O_WRONLY | O_CLOEXEC);
	if (slow->tracing_on < 0)
		return klat_error(run, errno, "cannot open %s/tracing_on: %m",
				  common->trace_instance);
	/* no page fault in the timed part */
	memset(slow->gaps, 0, sizeof(slow->gaps));
	memset(slow->buffer, 0, sizeof(slow->buffer));
	slow->limit = klat_ns_to_ticks(run, common->trace_above_ns);
	worker->watched = klat_series(run, slow->metric, 0);
	/* If an earlier run was killed during a copy, the tracing is still off. */
	return keeping(run, write_text(slow->tracing_on, "1")
				    ?: note(slow, "metric %s\nsettle %d\n%s", metric->name,
					    KLAT_LEAD, metric->gaps ? "gaps\n" : ""));
}

/*
 * Reading trace_pipe also empties the buffer. Opening `trace` with O_TRUNC empties it, too, but
 * waits for an RCU grace period. This period does not end while the workers spin on every CPU.
 */
static int copy_trace(struct klat_slow *slow, int cpu)
{
	char name[48];
	ssize_t size;
	int from, err = note(slow, "trace %d\n", cpu);

	snprintf(name, sizeof(name), "per_cpu/cpu%d/trace_pipe", cpu);
	from = openat(slow->instance, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (from < 0)
		return -errno;
	while (!err && (size = read(from, slow->buffer, sizeof(slow->buffer))) > 0)
		err = put(slow, slow->buffer, size);
	if (!err && size < 0 && errno != EAGAIN)
		err = -errno;
	close(from);
	return err;
}

void klat_note_gap(struct klat_worker *worker, uint64_t length)
{
	struct klat_slow *slow = &worker->run->library->slow;

	if (!worker->watched || length <= slow->limit ||
	    slow->gap_count == KLAT_ARRAY_SIZE(slow->gaps))
		return;
	slow->gaps[slow->gap_count].begin = worker->ended - length;
	slow->gaps[slow->gap_count++].end = worker->ended;
}

static int keep(struct klat_worker *worker, struct klat_slow *slow, int64_t index, uint64_t sample)
{
	const struct klat_run *run = worker->run;
	int err = write_text(slow->tracing_on, "0");

	if (!err)
		err = note(slow, "sample %lld %llu %llu %d %d\n", (long long)index,
			   (unsigned long long)(worker->ended - sample),
			   (unsigned long long)worker->ended, worker->cpu, worker->tid);
	klat_for_each_cpu(cpu, run)
		err = err ?: copy_trace(slow, cpu);
	err = err ?: note(slow, "end\n");
	for (int gap = 0; gap < slow->gap_count; gap++)
		err = err
			      ?: note(slow, "gap %llu %llu\n",
				      (unsigned long long)slow->gaps[gap].begin,
				      (unsigned long long)slow->gaps[gap].end);
	return err ?: write_text(slow->tracing_on, "1");
}

void klat_slow_keep_last(struct klat_worker *worker, int64_t index, uint64_t sample)
{
	struct klat_run *run = worker->run;
	struct klat_slow *slow = &run->library->slow;

	if (!run->library->common.trace_above_ns)
		return;
	slow->checked = index + 1;
	slow->samples = slow->kept = 1;
	slow->error = keep(worker, slow, index, sample);
	klat_slow_finish(run);
}

void klat_slow_check(struct klat_worker *worker, int64_t i)
{
	struct klat_slow *slow = &worker->run->library->slow;
	uint64_t sample;

	if (worker->run->library->soak.lap) {
		klat_soak_check(worker, i);
		return;
	}
	/* The body may have checked sample i - 1 already. */
	if (!klat_is_sample(worker->run, i - 1) || i <= slow->next)
		return;
	slow->next = i;
	slow->checked++;
	sample = worker->watched[i - 1];
	if (sample <= slow->limit)
		return;
	slow->samples++;
	if (i - 1 < slow->settled)
		slow->after_copy++;
	/* The last trace may exceed the limit on bytes. */
	if (slow->error || slow->kept >= MOST_KEPT || i - 1 < slow->settled ||
	    slow->written >= worker->run->library->common.trace_bytes)
		return;
	klat_rest_begins(worker);
	slow->error = keep(worker, slow, i - 1, sample);
	klat_rest_ends(worker);
	slow->kept += !slow->error;
	/* The copy leaves the caches cold, so the next samples are slower. */
	slow->settled = i + KLAT_LEAD;
	/* The copy took CPU time at the worker's priority, which real-time throttling counts. */
	klat_sleep(worker, KLAT_REST_NS);
	/* During the copy, another worker can end the next wait of this worker. This worker then
	 * does not sleep. */
	worker->unneeded_sleeps++;
}

int klat_slow_finish(struct klat_run *run)
{
	struct klat_slow *slow = &run->library->slow;
	int err = slow->error;

	if (!run->library->common.trace_above_ns)
		return 0;
	klat_for_each_worker(worker, run)
		err = err
			      ?: note(slow, "worker %d %d %s\n", worker->tid, worker->cpu,
				      worker->role);
	if (!err)
		err = note(slow, "slow %lld %lld %lld\n", (long long)slow->checked,
			   (long long)slow->samples, (long long)slow->after_copy);
	return keeping(run, err);
}
