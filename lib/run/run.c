/* SPDX-License-Identifier: MIT */
/* What a run was asked for, and what it counted. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool klat_planted(const struct klat_run *run, const char *fault)
{
	const char *planted = run->library->common.plant;

	return planted && !strcmp(planted, fault);
}

uint64_t klat_seed(const struct klat_run *run)
{
	const struct klat_common *common = &run->library->common;
	uint64_t seed = common->seed;

	return klat_draw(&seed) + common->run;
}

void klat_bound_offset(struct klat_run *run, int metric)
{
	run->library->offset_wanted = true;
	run->library->offset_metric = metric;
}

void klat_count(struct klat_run *run, const char *name, int64_t value)
{
	struct klat_library *library = run->library;
	size_t length = strlen(name);
	bool figure = strstr(name, "_per_") || (length > 6 && !strcmp(name + length - 6, "_ticks"));
	struct klat_count *grown;

	if (figure && !klat_figures(run))
		return;
	grown = realloc(library->counts, (library->count_count + 1) * sizeof(*grown));
	if (!grown) {
		klat_error(run, ENOMEM, "out of memory for the evidence");
		return;
	}
	library->counts = grown;
	library->counts[library->count_count++] = (struct klat_count){ name, value };
}
