/* SPDX-License-Identifier: MIT */
/* The counts of the evidence, the rules by which they are judged, and the verdict of a run. */
#include "run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

int klat_run_judge(struct klat_run *run)
{
	int err = klat_run_summarise(run);

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
