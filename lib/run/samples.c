/* SPDX-License-Identifier: MIT */
/* Sample buffers: one shared, locked, node-local mapping for all metrics of a run. */
#include "run/run.h"

#include <errno.h>
#include <numa.h>
#include <string.h>
#include <sys/mman.h>

void klat_use_metric(struct klat_run *run, int metric, int64_t series)
{
	struct klat_series *used = &run->library->metrics[metric];

	run->library->metrics_used += !used->used && series > 0;
	used->used = series > 0;
	used->of_pair = series;
	used->series = series * run->pairs;
}

void klat_use_default_metrics(struct klat_run *run)
{
	if (run->library->metrics_used)
		return;
	for (int m = 0; m < run->benchmark->metric_count; m++)
		klat_use_metric(run, m, 1);
}

void klat_cannot_trace(struct klat_run *run, int metric)
{
	run->library->metrics[metric].untraceable = true;
}

int klat_samples_map(struct klat_run *run)
{
	struct klat_library *library = run->library;
	size_t total = 0;
	uint64_t *next;
	int node;

	klat_for_each_metric(m, run)
		total += library->metrics[m].series * klat_made(run);
	library->samples_size = total * sizeof(uint64_t);
	if (!total)
		return 0;
	library->samples = mmap(NULL, library->samples_size, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (library->samples == MAP_FAILED)
		return klat_error(
			run, errno,
			"cannot map %zu bytes of sample buffer: %m; use fewer --iterations",
			library->samples_size);
	node = numa_available() < 0 ? -1 : klat_cpu_node(run->cpus[0]);
	if (node >= 0 && numa_max_node() > 0)
		numa_tonode_memory(library->samples, library->samples_size, node);
	/* The first touch places the pages and keeps faults out of the timed part. */
	memset(library->samples, 0, library->samples_size);
	next = library->samples;
	klat_for_each_metric(m, run) {
		library->metrics[m].base = next + run->warmup;
		library->metrics[m].stride = klat_made(run);
		next += library->metrics[m].series * klat_made(run);
	}
	return 0;
}

uint64_t *klat_series(const struct klat_run *run, int metric, int64_t series)
{
	const struct klat_series *of = &run->library->metrics[metric];

	return of->used ? of->base + (run->pair * of->of_pair + series) * of->stride : NULL;
}

int64_t klat_samples_count(const struct klat_run *run, int metric)
{
	const struct klat_series *of = &run->library->metrics[metric];

	if (of->used && run->library->soak.histograms)
		return run->library->soak.histograms[metric].n;
	return of->used ? of->series * run->iterations : 0;
}

int64_t klat_samples_kept(const struct klat_run *run, int metric)
{
	return klat_measurable(run, metric) ? klat_samples_count(run, metric) : 0;
}

void klat_samples_copy(const struct klat_run *run, int metric, uint64_t *out)
{
	for (int64_t s = 0; s < run->library->metrics[metric].series; s++)
		memcpy(out + s * run->iterations, klat_series(run, metric, s),
		       run->iterations * sizeof(*out));
}
