/* SPDX-License-Identifier: MIT */
/* The counts of the evidence, the rules by which they are judged, and the verdict of a run. */
#include "run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool ends_in(const char *name, const char *end)
{
	const size_t length = strlen(name), size = strlen(end);

	return length > size && !strcmp(name + length - size, end);
}

static bool is_figure(const char *name)
{
	return strstr(name, "_per_") || ends_in(name, "_ticks");
}

void klat_count(struct klat_run *run, const char *name, int64_t value)
{
	struct klat_library *library = run->library;
	struct klat_count *grown;

	if (is_figure(name) && !klat_figures(run))
		return;
	for (int i = 0; i < library->count_count && run->pairs > 1; i++)
		if (!strcmp(library->counts[i].name, name)) {
			library->counts[i].value += value;
			return;
		}
	grown = realloc(library->counts, (library->count_count + 1) * sizeof(*grown));
	if (!grown) {
		klat_error(run, ENOMEM, "out of memory for the evidence");
		return;
	}
	library->counts = grown;
	library->counts[library->count_count++] = (struct klat_count){ name, value };
}

void klat_count_mean(struct klat_run *run, const char *name, int64_t total, int64_t parts)
{
	klat_count(run, name, llround((double)total / parts));
}

void klat_add_counts(void *sum, const void *counts, size_t size)
{
	for (size_t i = 0; i < size / sizeof(int64_t); i++)
		((int64_t *)sum)[i] += ((const int64_t *)counts)[i];
}

bool klat_is_met(enum klat_rule rule, int64_t got, int64_t wanted)
{
	switch (rule) {
	case KLAT_EXACTLY:
		return got == wanted;
	case KLAT_AT_LEAST:
		return got >= wanted;
	case KLAT_AT_MOST:
		return got <= wanted;
	case KLAT_NEVER:
		return got == 0;
	case KLAT_MOSTLY:
		return got * 100 >= wanted * 99;
	case KLAT_RARELY:
		return got * 100 <= wanted;
	case KLAT_COUNTED:
		break;
	}
	return true;
}

static void set_unmet(struct klat_run *run, const struct klat_requirement *row)
{
	char *reason = strdupa(row->reason), *rest = reason, *piece, text[KLAT_REASON_SIZE] = "";
	size_t length = 0;

	while ((piece = strsep(&rest, "{}")) && length < sizeof(text)) {
		bool got = !strcmp(piece, "got"), wanted = !strcmp(piece, "wanted");

		length += got || wanted
				  ? snprintf(text + length, sizeof(text) - length, "%lld",
					     (long long)(got ? row->got : row->wanted))
				  : snprintf(text + length, sizeof(text) - length, "%s", piece);
	}
	if (row->disturbs)
		klat_disturbed(run, "%s", text);
	else
		klat_invalid(run, "%s", text);
}

void klat_require_all(struct klat_run *run, const struct klat_requirement *table, size_t count)
{
	for (const struct klat_requirement *row = table; row < table + count; row++) {
		if (row->unless)
			continue;
		/* A negative count is unknown. */
		if (row->name && row->got >= 0)
			klat_count(run, row->name, row->got);
		if (!klat_is_met(row->rule, row->got, row->wanted))
			set_unmet(run, row);
	}
}

void klat_judge_pairs(struct klat_run *run, void (*judge)(struct klat_run *pair))
{
	klat_for_each_pair(pair, run) {
		struct klat_outcome outcome = { KLAT_OK, "" };

		if (pair != run)
			pair->outcome = &outcome;
		judge(pair);
		if (outcome.status == KLAT_DISTURBED)
			klat_disturbed(run, "pair %d: %s", pair->pair + 1, outcome.reason);
		else if (outcome.status == KLAT_INVALID)
			klat_invalid(run, "pair %d: %s", pair->pair + 1, outcome.reason);
		else if (outcome.status)
			*run->outcome = outcome;
	}
}

/* The iterations of all pairs in a second of the observed part, without sleeps between them. */
static void count_rate(struct klat_run *run)
{
	double rate = 0;

	klat_for_each_pair(pair, run) {
		int64_t ns = INT64_MAX;

		klat_for_each_worker(worker, pair)
			ns = MIN(ns, worker->account.elapsed_ns - worker->slept_ns);
		rate += klat_observed(pair) * 1e9 / MAX(ns, 1);
	}
	if (run->benchmark->pairs && !run->soak)
		klat_count(run, "iterations_per_second", llround(rate));
}

int klat_run_judge(struct klat_run *run)
{
	struct klat_library *library = run->library;
	int err = klat_run_summarise(run);

	if (err)
		return err;
	klat_count(run, "locked", !library->lock_error);
	klat_for_each_pair(pair, run)
		klat_count(pair, "observed", klat_observed(pair));
	klat_evidence_judge(run);
	klat_offsets_judge(run);
	if (run->benchmark->verify)
		klat_judge_pairs(run, run->benchmark->verify);
	count_rate(run);
	/* Times and ratios of the pairs were added up, as counts and rates are. */
	for (int i = 0; i < library->count_count; i++)
		if (is_figure(library->counts[i].name) &&
		    !ends_in(library->counts[i].name, "_per_second"))
			library->counts[i].value =
				llround((double)library->counts[i].value / run->pairs);
	return 0;
}
