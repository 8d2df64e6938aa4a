/* SPDX-License-Identifier: MIT */
/* The summary and the verdict of a run that has been measured. */
#include "run/run.h"

#include <errno.h>
#include <stdlib.h>

static int summarise(struct klat_run *run)
{
	struct klat_library *library = run->library;

	for (int m = 0; m < run->benchmark->metric_count; m++) {
		int64_t count = klat_samples_kept(run, m);
		uint64_t *sorted;

		if (!count)
			continue;
		if (library->soak.lap) {
			struct klat_histogram *histogram = &library->soak.histograms[m];

			klat_histogram_sort(histogram);
			klat_summarise_pairs(histogram->pairs, histogram->distinct,
					     &library->summaries[m]);
			continue;
		}
		sorted = malloc(count * sizeof(*sorted));
		if (!sorted)
			return klat_error(run, ENOMEM, "out of memory for %lld samples",
					  (long long)count);
		klat_samples_copy(run, m, sorted);
		if (klat_summarise(sorted, count, &library->summaries[m]))
			return klat_error(run, ENOMEM, "out of memory for %lld samples",
					  (long long)count);
		free(sorted);
	}
	for (int i = 0; i < run->worker_count; i++)
		if (run->workers[i].floor > library->floor)
			library->floor = run->workers[i].floor;
	return 0;
}

int klat_run_judge(struct klat_run *run)
{
	int err = summarise(run);

	if (err)
		return err;
	klat_count(run, "locked", run->library->memory_locked);
	klat_count(run, "observed", klat_observed(run));
	klat_evidence_judge(run);
	klat_offsets_judge(run);
	if (run->benchmark->verify)
		run->benchmark->verify(run);
	return 0;
}
