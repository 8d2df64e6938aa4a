/* SPDX-License-Identifier: MIT */
/*
 * Keeps the kernel's trace of each slow sample, for `klat explain`. The worker that took the sample
 * stops the tracing before its next iteration, copies the buffers of the run's CPUs, empties them
 * and starts the tracing again. Another thread could not: the workers may hold every CPU.
 */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MOST_KEPT = 100 /* of a run */
};

int klat_slow_metric(const struct klat_run *run)
{
	const char *wanted = run->library->common.trace_metric;

	for (int m = 0; m < run->benchmark->metric_count; m++) {
		const struct klat_metric *metric = &run->benchmark->metrics[m];

		if (run->library->metrics[m].series == 1 && metric->taken_by &&
		    (!wanted || !strcmp(wanted, metric->name)))
			return m;
	}
	return -1;
}

/* A line of the output file. Unlike dprintf(), it allocates nothing. */
static __attribute__((format(printf, 2, 3))) int note(struct klat_slow *slow, const char *format,
						      ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(slow->buffer, sizeof(slow->buffer), format, arguments);
	va_end(arguments);
	return klat_write_whole(slow->output, slow->buffer, length);
}

int klat_slow_watch(struct klat_run *run)
{
	const struct klat_common *common = &run->library->common;
	struct klat_slow *slow = &run->library->slow;
	const struct klat_metric *metric;
	struct klat_worker *worker;

	if (!common->trace_above_ns)
		return 0;
	metric = &run->benchmark->metrics[klat_slow_metric(run)];
	worker = klat_worker_find(run, metric->taken_by, 0);
	if (!worker)
		return klat_error(run, EINVAL, "no %s takes samples of %s in this run",
				  metric->taken_by, metric->name);
	slow->output = open(common->trace_output, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (slow->output < 0)
		return klat_error(run, errno, "cannot open %s: %m", common->trace_output);
	slow->instance = open(common->trace_instance, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (slow->instance < 0)
		return klat_error(run, errno, "cannot open %s: %m", common->trace_instance);
	slow->tracing_on = openat(slow->instance, "tracing_on", O_WRONLY | O_CLOEXEC);
	if (slow->tracing_on < 0)
		return klat_error(run, errno, "cannot open %s/tracing_on: %m",
				  common->trace_instance);
	memset(slow->buffer, 0, sizeof(slow->buffer)); /* no page fault in the timed part */
	slow->limit = klat_ns_to_ticks(run, common->trace_above_ns);
	worker->watched = klat_series(run, klat_slow_metric(run), 0);
	return note(slow, "metric %s\n", metric->name);
}

static int write_text(int file, const char *text)
{
	return klat_write_whole(file, text, strlen(text));
}

/*
 * trace_pipe empties the buffer as it is read. To empty a buffer by opening trace with O_TRUNC
 * waits for a grace period of RCU, which does not end while the workers spin on every CPU.
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
		err = klat_write_whole(slow->output, slow->buffer, size);
	if (!err && size < 0 && errno != EAGAIN)
		err = -errno;
	close(from);
	return err;
}

static int keep(struct klat_worker *worker, struct klat_slow *slow, int64_t index, uint64_t sample)
{
	const struct klat_run *run = worker->run;
	int err = write_text(slow->tracing_on, "0");

	if (!err)
		err = note(slow, "sample %lld %llu %llu %d %d\n", (long long)index,
			   (unsigned long long)(worker->ended - sample),
			   (unsigned long long)worker->ended, worker->cpu, worker->tid);
	for (int p = 0; p < run->cpu_count && !err; p++)
		if (!klat_place_is_repeated(run, p))
			err = copy_trace(slow, run->cpus[p]);
	return err ?: note(slow, "end\n") ?: write_text(slow->tracing_on, "1");
}

void klat_slow_check(struct klat_worker *worker, int64_t i)
{
	struct klat_slow *slow = &worker->run->library->slow;
	uint64_t sample;

	if (!klat_is_sample(worker->run, i - 1))
		return;
	sample = worker->watched[i - 1];
	if (sample <= slow->limit)
		return;
	slow->samples++;
	if (i - 1 < slow->settled)
		slow->after_copy++;
	if (slow->error || slow->kept == MOST_KEPT || i - 1 < slow->settled)
		return;
	klat_rest_begins(worker);
	slow->error = keep(worker, slow, i - 1, sample);
	klat_rest_ends(worker);
	slow->kept += !slow->error;
	/* The copy leaves the caches cold. */
	slow->settled = i + KLAT_LEAD;
	/* The copy took CPU time at the worker's priority. */
	klat_sleep(worker, KLAT_REST_NS);
}

int klat_slow_finish(struct klat_run *run)
{
	struct klat_slow *slow = &run->library->slow;
	int err = 0;

	if (!run->library->common.trace_above_ns)
		return 0;
	if (slow->error)
		return klat_error(run, -slow->error, "cannot keep the trace of a slow sample: %m");
	for (int i = 0; i < run->worker_count && !err; i++)
		err = note(slow, "worker %d %d %s\n", run->workers[i].tid, run->workers[i].cpu,
			   run->workers[i].role);
	return err
		       ?: note(slow, "slow %lld %lld\n", (long long)slow->samples,
			       (long long)slow->after_copy);
}
