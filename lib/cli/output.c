/* SPDX-License-Identifier: MIT */
/* What a program prints: text for people, JSON for programs. Both show what the run holds and
 * compute only nanoseconds. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double to_ns(const struct klat_run *run, double ticks)
{
	return ticks * 1e6 / run->counter_khz;
}

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
		print_statistics(run, summary, to_ns(run, 1), 0, out);
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
				 count->value, to_ns(run, count->value));
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
			fprintf(out, ", here %.0f %s on average", ns ? to_ns(run, mean) : mean,
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
			floor, to_ns(run, floor), to_ns(run, 1), run->counter_khz / 1e3);
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

void klat_output_text(struct klat_run *run, FILE *out)
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

static json_t *statistic(const struct klat_run *run, json_t *object, const char *name, bool known,
			 double value)
{
	char ns[32];

	json_object_set_new(object, name, known ? json_real(value) : json_null());
	if (klat_timed()) {
		snprintf(ns, sizeof(ns), "%s_ns", name);
		json_object_set_new(object, ns, known ? json_real(to_ns(run, value)) : json_null());
	}
	return object;
}

/* Null and n 0 where the metric is not measurable. */
static json_t *metric_object(const struct klat_run *run, int metric)
{
	const struct klat_summary *summary = &run->library->summaries[metric];
	bool known = klat_measurable(run, metric);
	json_t *object = json_pack("{s:s, s:I}", "name", run->benchmark->metrics[metric].name, "n",
				   (json_int_t)summary->n);

	statistic(run, object, "mean", known, (double)summary->mean_milli / 1e3);
	statistic(run, object, "stddev", summary->stddev_known,
		  (double)summary->stddev_milli / 1e3);
	statistic(run, object, "min", known, summary->min);
	statistic(run, object, "p50", summary->p50_known, summary->p50);
	statistic(run, object, "p90", summary->p90_known, summary->p90);
	statistic(run, object, "p99", summary->p99_known, summary->p99);
	statistic(run, object, "max", known, summary->max);
	return object;
}

static json_t *published_object(const struct klat_published *published)
{
	return json_pack("{s:s, s:s, s:f, s:s, s:s}", "metric", published->metric, "params",
			 published->params ? published->params : "", "value", published->value,
			 "unit", published->unit, "about", published->about);
}

static json_t *published_array(const struct klat_run *run)
{
	json_t *array = json_array();
	double value;

	for (int i = 0; i < run->benchmark->published_count; i++)
		if (beside_published(run, &run->benchmark->published[i], &value))
			json_array_append_new(array,
					      published_object(&run->benchmark->published[i]));
	return array;
}

int klat_output_published(const struct klat_benchmark *benchmark, FILE *out)
{
	json_t *array = json_array();
	int err;

	for (int i = 0; i < benchmark->published_count; i++)
		json_array_append_new(array, published_object(&benchmark->published[i]));
	err = json_dumpf(array, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
	fputc('\n', out);
	json_decref(array);
	return err ? -ENOMEM : 0;
}

static json_t *worker_object(const struct klat_worker *worker)
{
	return json_pack(
		"{s:s, s:i, s:i, s:s, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "role",
		worker->role, "index", worker->index, "cpu", worker->cpu, "policy",
		klat_policy_name(worker->policy_obtained), "priority", worker->priority_obtained,
		"pinned", worker->pinned && !worker->strayed, "voluntary",
		(json_int_t)worker->voluntary, "involuntary", (json_int_t)worker->involuntary,
		"minor_faults", (json_int_t)worker->minor_faults, "major_faults",
		(json_int_t)worker->major_faults, "migrations", (json_int_t)worker->migrations,
		"wait_ns", (json_int_t)worker->wait_ns, "floor", (json_int_t)worker->floor);
}

static json_t *evidence_object(struct klat_run *run)
{
	const struct klat_library *library = run->library;
	json_t *evidence = json_object(), *workers = json_array(), *counts = json_object(),
	       *interrupts = json_object();

	for (int i = 0; i < run->worker_count; i++)
		json_array_append_new(workers, worker_object(&run->workers[i]));
	for (int i = 0; i < library->count_count; i++)
		json_object_set_new(counts, library->counts[i].name,
				    json_integer(library->counts[i].value));
	for (int row = 0; row < KLAT_IRQ_ROWS; row++) {
		json_t *cpus = json_object();

		for (int i = 0; i < run->cpu_count && library->after.irq_present[row]; i++) {
			char cpu[16];

			snprintf(cpu, sizeof(cpu), "%d", run->cpus[i]);
			json_object_set_new(cpus, cpu,
					    json_integer(klat_interrupts(run, klat_irq_names[row],
									 run->cpus[i])));
		}
		json_object_set_new(interrupts, klat_irq_names[row], cpus);
	}
	json_object_set_new(evidence, "workers", workers);
	json_object_set_new(evidence, "counts", counts);
	json_object_set_new(evidence, "interrupts", interrupts);
	json_object_set_new(evidence, "smi",
			    library->before.smi < 0
				    ? json_string("unavailable")
				    : json_integer(library->after.smi - library->before.smi));
	json_object_set_new(evidence, "memory_bytes", json_integer(library->measured_memory));
	json_object_set_new(evidence, "sample_bytes", json_integer(library->samples_size));
	return evidence;
}

int klat_output_json(struct klat_run *run, FILE *out)
{
	const struct klat_library *library = run->library;
	bool measured = klat_has_result(run);
	json_t *metrics = json_array(), *cpus = json_array(), *object;
	int err;

	for (int m = 0; m < run->benchmark->metric_count && measured; m++)
		if (library->metrics[m].used)
			json_array_append_new(metrics, metric_object(run, m));
	for (int i = 0; i < run->cpu_count && run->cpus; i++)
		json_array_append_new(cpus, json_integer(run->cpus[i]));
	object = json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:f, s:o, s:s, s:s, s:I, s:o, s:o}",
			   "program", run->benchmark->name, "version", KLAT_VERSION, "parameters",
			   library->params, "cpus", cpus, "placement",
			   library->placement ? library->placement : "", "mode", klat_mode(),
			   "unit", klat_unit(), "tsc_khz", run->counter_khz, "floor",
			   klat_emulated() ? json_null() : json_integer(library->floor), "status",
			   klat_status_name(run->outcome->status), "reason", run->outcome->reason,
			   "elapsed_ns", (json_int_t)library->elapsed_ns, "evidence",
			   measured ? evidence_object(run) : json_object(), "metrics", metrics);
	if (object && library->common.published)
		json_object_set_new(object, "published", published_array(run));
	err = object ? json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : -1;
	fputc('\n', out);
	json_decref(object);
	return err ? -ENOMEM : 0;
}
