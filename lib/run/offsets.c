/* SPDX-License-Identifier: MIT */
/* How far apart the counters of the run's CPUs can be. */
#include "run/run.h"

#include <errno.h>
#include <stdlib.h>

void klat_bound_offset(struct klat_run *run, int metric)
{
	run->library->offset_wanted = true;
	run->library->offset_metric = metric;
}

int klat_offsets_narrow(struct klat_run *run)
{
	struct klat_library *library = run->library;

	if (!library->offset_wanted || !klat_measurable(run, library->offset_metric))
		return 0;
	if (!library->offsets) {
		library->offsets = malloc(run->cpu_count * sizeof(*library->offsets));
		if (!library->offsets)
			return klat_error(run, ENOMEM, "out of memory");
		for (int i = 0; i < run->cpu_count; i++)
			library->offsets[i] = KLAT_ANY_OFFSET;
	}
	for (int i = 0; i < run->cpu_count; i++) {
		int err = klat_counter_narrow_offset(run->cpus[0], run->cpus[i], &library->policy,
						     &library->offsets[i]);

		if (err == -EAGAIN)
			return klat_cannot_start(run, -err,
						 "the threads that compare the counters");
		if (err)
			return klat_error(run, -err,
					  "cannot compare the counters of CPUs %d and %d: %m",
					  run->cpus[0], run->cpus[i]);
	}
	return 0;
}

void klat_offsets_judge(struct klat_run *run)
{
	struct klat_library *library = run->library;
	const struct klat_summary *summary = &library->summaries[library->offset_metric];
	uint64_t bound;

	if (!library->offsets)
		return;
	bound = klat_counter_offset_bound(library->offsets, run->cpu_count);
	if (bound == UINT64_MAX) {
		klat_invalid(run, "the counters of the CPUs did not keep their offset");
		return;
	}
	klat_count(run, "offset_bound", bound);
	/* A counter that lags by more than the latency makes the difference negative. */
	if (summary->max > INT64_MAX)
		klat_invalid(run, "a sample ends before it starts: the counters of the CPUs differ "
				  "by more than the latency");
	/* Too few samples for a median: their mean. */
	else if (bound > (summary->p50_known ? summary->p50 : summary->mean_milli / 1000) / 10)
		klat_invalid(run,
			     "the counters of the CPUs may differ by %llu ticks, more than a tenth "
			     "of the median",
			     (unsigned long long)bound);
}
