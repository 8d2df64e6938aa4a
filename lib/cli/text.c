/* SPDX-License-Identifier: MIT */
/* A run as text. It shows what the run holds and computes only nanoseconds. */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *relation_text(const char *relation)
{
	static const char *const texts[][2] = {
		{ "one-cpu", "one CPU" },
		{ "same-core", "siblings of one core" },
		{ "same-llc", "same last-level cache" },
		{ "same-node", "same NUMA node" },
		{ "cross-node", "across NUMA nodes" },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(texts); i++)
		if (!strcmp(texts[i][0], relation))
			return texts[i][1];
	return relation;
}

/* "1,0"; a long consecutive run is shortened to "2-80". */
static void print_cpus(const struct klat_run *run, FILE *out)
{
	for (int i = 0; i < run->cpu_count;) {
		int end = i;

		while (end + 1 < run->cpu_count && run->cpus[end + 1] == run->cpus[end] + 1)
			end++;
		if (end - i < 2)
			end = i;
		fprintf(out, "%s%d", i ? "," : "", run->cpus[i]);
		if (end > i)
			fprintf(out, "-%d", run->cpus[end]);
		i = end + 1;
	}
}

static void print_policies(const struct klat_run *run, FILE *out)
{
	const char *last = "";
	int priority = -1;

	for (int i = 0; i < run->worker_count; i++) {
		const struct klat_worker *worker = &run->workers[i];

		if (!strcmp(worker->role, last) && worker->priority_obtained == priority)
			continue;
		last = worker->role;
		priority = worker->priority_obtained;
		fprintf(out, "%s%s %s:%d", i ? ", " : "", worker->role,
			klat_policy_name(worker->policy_obtained), priority);
	}
}

/* Ten columns, in which a time of many digits has no room for decimals, nor any use for them. */
static void print_column(FILE *out, bool known, double value, int decimals)
{
	if (value >= 1e7)
		decimals = 0;
	if (known)
		fprintf(out, " %10.*f", decimals, value);
	else
		fprintf(out, " %10s", "n/a");
}

static void print_statistics(const struct klat_run *run, const struct klat_summary *summary,
			     double factor, int decimals, FILE *out)
{
	(void)run;
	print_column(out, true, (double)summary->mean_milli / 1e3 * factor, decimals);
	print_column(out, summary->stddev_known, (double)summary->stddev_milli / 1e3 * factor,
		     decimals);
	print_column(out, true, summary->min * factor, decimals ? decimals - 1 : 0);
	print_column(out, summary->p50_known, summary->p50 * factor, decimals ? decimals - 1 : 0);
	print_column(out, summary->p99_known, summary->p99 * factor, decimals ? decimals - 1 : 0);
	print_column(out, true, summary->max * factor, decimals ? decimals - 1 : 0);
	fputc('\n', out);
}

static void print_metric(const struct klat_run *run, int metric, FILE *out)
{
	const struct klat_summary *summary = &run->library->summaries[metric];
	int column;

	if (!klat_measurable(run, metric)) {
		fprintf(out, "\n%s: not measurable in this mode\n",
			run->benchmark->metrics[metric].name);
		return;
	}
	fprintf(out, "\n%s: %s\n", run->benchmark->metrics[metric].name,
		run->benchmark->metrics[metric].summary);
	column = fprintf(out, "%" PRId64 " records", summary->n);
	/* The first column of figures ends in column 24. */
	fprintf(out, " %*s %10s %10s %10s %10s %10s\n", 23 - column, "average", "stdev", "min",
		"p50", "p99", "max");
	fprintf(out, "%-13s", klat_unit());
	print_statistics(run, summary, 1, 1, out);
	if (klat_timed()) {
		fprintf(out, "%-13s", "ns");
		print_statistics(run, summary, klat_ns(run, 1), 0, out);
	}
}

/* One of several pieces, on the next line where column 79 would be passed; the column after it. */
static int print_piece(FILE *out, int column, const char *separator, const char *text, int length,
		       int indent)
{
	if (column + (int)strlen(separator) + length > 79)
		return fprintf(out, "\n%*s%.*s", indent, "", length, text) - 1;
	return column + fprintf(out, "%s%.*s", separator, length, text);
}

static void print_params(const char *params, FILE *out)
{
	int column = 0;

	while (*params) {
		int length = strcspn(params, ";");

		column = print_piece(out, column, column ? " " : "", params, length, 0);
		params += length;
		params += *params == ';';
	}
	fputc('\n', out);
}

/* Of a count that is a figure, see klat_count(). */
static bool is_time(const char *count)
{
	size_t length = strlen(count);

	return length > 6 && !strcmp(count + length - 6, "_ticks");
}

/* Names and numbers. */
static void print_counts(const struct klat_run *run, FILE *out)
{
	int column = fprintf(out, "evidence: %s", klat_status_name(run->outcome->status));

	for (int i = 0; i < run->worker_count; i++) {
		const struct klat_worker *worker = &run->workers[i];
		char text[96];

		/* One responder stands for the crowd; the record has them all. */
		if (worker->index)
			continue;
		snprintf(text, sizeof(text),
			 "%s slept %" PRId64 ", preempted %" PRId64 ", faults %" PRId64,
			 worker->role, worker->voluntary, worker->involuntary,
			 worker->minor_faults + worker->major_faults - worker->expected_faults);
		column = print_piece(out, column, "; ", text, strlen(text), 2);
	}
	for (int i = 0; i < run->library->count_count; i++) {
		const struct klat_count *count = &run->library->counts[i];
		char text[96];

		if (is_time(count->name) && klat_timed())
			snprintf(text, sizeof(text), "%s %" PRId64 " (%.0f ns)", count->name,
				 count->value, klat_ns(run, count->value));
		else
			snprintf(text, sizeof(text), "%s %" PRId64, count->name, count->value);
		column = print_piece(out, column, "; ", text, strlen(text), 2);
	}
	fputc('\n', out);
}

/* Whether each "name=value" of `wanted` is one of `params`. */
static bool params_hold(const char *params, const char *wanted)
{
	while (*wanted) {
		size_t length = strcspn(wanted, ";");
		const char *at = params;

		while (*at && (strncmp(at, wanted, length) || (at[length] && at[length] != ';'))) {
			at += strcspn(at, ";");
			at += *at == ';';
		}
		if (!*at)
			return false;
		wanted += length;
		wanted += *wanted == ';';
	}
	return true;
}

/*
 * What stands in this run beside a published figure: the mean of a metric, or a count; in ticks, or
 * as it is where that is no time; NAN where it is not measurable. False where there is no such
 * thing in it.
 */
static bool beside_published(const struct klat_run *run, const struct klat_published *published,
			     double *value)
{
	const struct klat_library *library = run->library;

	if (published->params && !params_hold(library->params, published->params))
		return false;
	for (int m = 0; m < run->benchmark->metric_count; m++)
		if (library->metrics[m].used &&
		    !strcmp(run->benchmark->metrics[m].name, published->metric)) {
			*value = klat_measurable(run, m)
					 ? (double)library->summaries[m].mean_milli / 1e3
					 : NAN;
			return true;
		}
	for (int i = 0; i < library->count_count; i++)
		if (!strcmp(library->counts[i].name, published->metric)) {
			*value = library->counts[i].value;
			return true;
		}
	return false;
}

static int name_length(const char *count, bool ns)
{
	return strlen(count) - (ns && is_time(count) ? strlen("_ticks") : 0);
}

static void print_published(const struct klat_run *run, FILE *out)
{
	const struct klat_benchmark *benchmark = run->benchmark;
	bool any = false;

	fputs("\npublished, on other machines: context and no target\n", out);
	for (int i = 0; i < benchmark->published_count; i++) {
		const struct klat_published *published = &benchmark->published[i];
		bool ns = !strcmp(published->unit, "ns");
		double mean;

		if (!beside_published(run, published, &mean))
			continue;
		any = true;
		/* Without the unit in a count's name, where another stands beside it. */
		fprintf(out, "%.*s %.0f %s", name_length(published->metric, ns), published->metric,
			published->value, published->unit);
		if (!isnan(mean) && (!ns || klat_timed()))
			fprintf(out, ", here %.0f %s on average", ns ? klat_ns(run, mean) : mean,
				ns ? "ns" : klat_unit());
		fputc('\n', out);
		klat_print_wrapped(out, published->about, 2, 0);
	}
	if (!any)
		fputs("  none for this metric with these options\n", out);
}

static void print_floor(const struct klat_run *run, FILE *out)
{
	uint64_t floor = run->library->floor;

	if (klat_timed())
		fprintf(out,
			"\ntimer floor %" PRIu64 " ticks (%.0f ns); 1 tick = %.4f ns (%.3f MHz)\n",
			floor, klat_ns(run, floor), klat_ns(run, 1), run->counter_khz / 1e3);
	else if (klat_counted())
		fprintf(out,
			"\ntimer floor %" PRIu64 " instructions; counted mode: path lengths on one "
			"CPU, no times\n",
			floor);
	else
		fputs("\nemulated mode: the counter tells no time, and only the evidence counts\n",
		      out);
}

/* Nanoseconds are as good as the counter's frequency. */
static void print_cross_check(const struct klat_counter *tsc, FILE *out)
{
	if (!tsc->second_khz)
		fputs("counter's frequency: from the kernel's clock alone\n", out);
	else if (!tsc->independent)
		fprintf(out, "counter's frequency: not checked; %s is not independent\n",
			tsc->second_method);
	else
		fprintf(out, "counter's frequency: %s differs by %.0f ppm%s\n", tsc->second_method,
			fabs(tsc->difference_ppm),
			fabs(tsc->difference_ppm) > 50 ? ", more than the 50 allowed" : "");
}

void klat_text(struct klat_run *run, FILE *out)
{
	const struct klat_library *library = run->library;

	fprintf(out, "%s: %s\nCPUs ", run->benchmark->name, run->benchmark->summary);
	print_cpus(run, out);
	fprintf(out, " (%s); ", relation_text(library->placement));
	print_policies(run, out);
	fputc('\n', out);
	print_params(library->params, out);
	for (int m = 0; m < run->benchmark->metric_count; m++)
		if (library->metrics[m].used)
			print_metric(run, m, out);
	if (library->common.published)
		print_published(run, out);
	print_floor(run, out);
	print_counts(run, out);
	if (klat_timed())
		print_cross_check(&library->counter, out);
}
