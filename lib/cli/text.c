/* SPDX-License-Identifier: MIT */
/* A run as text. It shows what the run holds and computes only nanoseconds. */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Prints "1,0". Three or more consecutive CPUs are a range: "2-80". */
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

	klat_for_each_worker(worker, run->library->pairs) {
		if (!strcmp(worker->role, last) && worker->priority_obtained == priority)
			continue;
		last = worker->role;
		priority = worker->priority_obtained;
		fprintf(out, "%s%s %s", worker > run->workers ? ", " : "", worker->role,
			klat_policy_obtained(worker).text);
	}
}

/* The column is ten characters wide. A large number has no room for decimals. Above 2^53 a double
 * has no exact last digit. */
static void print_column(FILE *out, bool known, double value, int decimals)
{
	if (value >= 1e7)
		decimals = 0;
	if (known && value > 0x1p53)
		fprintf(out, " %10.5g", value);
	else if (known)
		fprintf(out, " %10.*f", decimals, value);
	else
		fprintf(out, " %10s", "n/a");
}

/* Samples are rounded to the decade of the counter's step, as in klat.report.text.numbers, and
 * counts to the decade of a tick. A step of 9.9998 ns is one of 10. */
static double decade_of(const struct klat_run *run, int64_t step)
{
	return pow(10, fmax(0, floor(log10(klat_ticks_to_ns(run, step) * 1.05))));
}

static double rounded(double value, double decade)
{
	return rint(value / decade) * decade;
}

/* A count that is a time, without digits below a tick: counts are whole ticks. */
static double time_of_count(const struct klat_run *run, int64_t ticks)
{
	return rounded(klat_ticks_to_ns(run, ticks), decade_of(run, 1));
}

/* A mean of many samples resolves more than a step. */
static void print_statistics(FILE *out, const char *unit, const struct klat_summary *summary,
			     double factor, int decimals, double decade)
{
	fprintf(out, "%-13s", unit);
	print_column(out, true, (double)summary->mean_milli / 1e3 * factor, decimals);
	print_column(out, summary->stddev_known, (double)summary->stddev_milli / 1e3 * factor,
		     decimals);
	print_column(out, true, rounded(summary->min * factor, decade), 0);
	print_column(out, summary->p50_known, rounded(summary->p50 * factor, decade), 0);
	print_column(out, summary->p99_known, rounded(summary->p99 * factor, decade), 0);
	print_column(out, true, rounded(summary->max * factor, decade), 0);
	fputc('\n', out);
}

static void print_metric(const struct klat_run *run, int metric, FILE *out)
{
	const struct klat_metric *table = &run->benchmark->metrics[metric];
	const struct klat_summary *summary = &run->library->summaries[metric];
	char records[32];

	if (!klat_measurable(run, metric)) {
		fprintf(out, "\n%s: not measurable in this mode\n", table->name);
		return;
	}
	snprintf(records, sizeof(records), "%" PRId64 " records", summary->n);
	fprintf(out, "\n%s: %s\n%-16s %7s %10s %10s %10s %10s %10s\n", table->name, table->summary,
		records, "average", "stdev", "min", "p50", "p99", "max");
	print_statistics(out, klat_unit(), summary, 1, 1, 1);
	if (klat_timed())
		print_statistics(out, "ns", summary, klat_ticks_to_ns(run, 1), 0,
				 decade_of(run, run->library->counter.quantum));
}

/* Prints a word after the separator, or on a new line if it would pass column 79. Returns the
 * column after it. */
static int print_word(FILE *out, int column, const char *separator, const char *word, int length,
		      int indent)
{
	if (column + (int)strlen(separator) + length > 79)
		return fprintf(out, "\n%*s%.*s", indent, "", length, word) - 1;
	return column + fprintf(out, "%s%.*s", column ? separator : "", length, word);
}

static void print_params(const char *params, FILE *out)
{
	for (int column = 0; *params;) {
		int length = strcspn(params, ";");

		column = print_word(out, column, " ", params, length, 0);
		params += length + (params[length] == ';');
	}
	fputc('\n', out);
}

/* Whether the count is a time: see klat_count(). */
static bool is_time(const char *count)
{
	size_t length = strlen(count);

	return length > 6 && !strcmp(count + length - 6, "_ticks");
}

static void print_evidence(const struct klat_run *run, FILE *out)
{
	int column = fprintf(out, "evidence: %s", klat_status_name(run->outcome->status));
	char text[96];

	klat_for_each_worker(worker, run->library->pairs) {
		/* The first of a role stands for all. The record has them all. */
		if (worker->index)
			continue;
		snprintf(text, sizeof(text),
			 "%s slept %" PRId64 ", preempted %" PRId64 ", faults %" PRId64,
			 worker->role, worker->voluntary, worker->involuntary,
			 worker->minor_faults + worker->major_faults - worker->expected_faults);
		column = print_word(out, column, "; ", text, strlen(text), 2);
	}
	for (int i = 0; i < run->library->count_count; i++) {
		const struct klat_count *count = &run->library->counts[i];
		int length = snprintf(text, sizeof(text), "%s %" PRId64, count->name, count->value);

		if (is_time(count->name) && klat_timed())
			snprintf(text + length, sizeof(text) - length, " (%.0f ns)",
				 time_of_count(run, count->value));
		column = print_word(out, column, "; ", text, strlen(text), 2);
	}
	fputc('\n', out);
}

/* Whether `params` has each "name=value" of `wanted`. */
static bool has_params(const char *params, const char *wanted)
{
	char all[sizeof(((struct klat_library *)0)->params) + 2], pair[128];

	snprintf(all, sizeof(all), ";%s;", params);
	for (int length; *wanted; wanted += length + (wanted[length] == ';')) {
		length = strcspn(wanted, ";");
		snprintf(pair, sizeof(pair), ";%.*s;", length, wanted);
		if (!strstr(all, pair))
			return false;
	}
	return true;
}

/*
 * The run's value for the published figure: the mean of a metric in ticks, NAN if it is not
 * measurable, or a count. False if the run has neither or its params are different.
 */
static bool find_value(const struct klat_run *run, const struct klat_published *published,
		       double *value)
{
	const struct klat_library *library = run->library;

	if (published->params && !has_params(library->params, published->params))
		return false;
	klat_for_each_metric(m, run)
		if (!strcmp(run->benchmark->metrics[m].name, published->metric)) {
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

static void print_here(const struct klat_run *run, const struct klat_published *published,
		       double value, FILE *out)
{
	bool ns = !strcmp(published->unit, "ns"), count = is_time(published->metric);

	if (isnan(value) || (ns && !klat_timed()))
		return;
	if (!ns)
		fprintf(out, ", here %.0f %s on average", value, klat_unit());
	else if (count && value == 0)
		fprintf(out, ", here less than 1 tick (%.0f ns) on average",
			klat_ticks_to_ns(run, 1));
	else
		fprintf(out, ", here %.0f ns on average",
			count ? time_of_count(run, value) : klat_ticks_to_ns(run, value));
}

static void print_published(const struct klat_run *run, FILE *out)
{
	const struct klat_benchmark *benchmark = run->benchmark;
	bool any = false;

	fputs("\npublished figures, of other machines\n", out);
	for (int i = 0; i < benchmark->published_count; i++) {
		const struct klat_published *published = &benchmark->published[i];
		double value;
		int length = strlen(published->metric);

		if (!find_value(run, published, &value))
			continue;
		any = true;
		/* The name of a count that is a time ends in another unit. */
		if (!strcmp(published->unit, "ns") && is_time(published->metric))
			length -= strlen("_ticks");
		fprintf(out, "%.*s %.0f %s", length, published->metric, published->value,
			published->unit);
		print_here(run, published, value, out);
		fputc('\n', out);
		klat_print_wrapped(out, published->about, 2, 0);
	}
	if (!any)
		fputs("  none for this metric with these options\n", out);
}

static void print_timed_floor(const struct klat_run *run, FILE *out)
{
	const uint64_t floor = run->library->floor, step = run->library->counter.quantum;

	fprintf(out, "\ntimer floor %" PRIu64 " ticks (%.0f ns)", floor,
		rounded(klat_ticks_to_ns(run, floor),
			decade_of(run, run->library->counter.quantum)));
	/* A step far below the floor changes no figure. */
	if (step > 1 && 10 * step > floor)
		fprintf(out, ", step %" PRIu64 " ticks (%.0f ns)\n", step,
			klat_ticks_to_ns(run, step));
	else
		fputs("; ", out);
	fprintf(out, "1 tick = %.4f ns (%.3f MHz)\n", klat_ticks_to_ns(run, 1),
		run->counter_khz / 1e3);
}

static void print_floor(const struct klat_run *run, FILE *out)
{
	if (klat_timed())
		print_timed_floor(run, out);
	else if (klat_counted())
		fprintf(out,
			"\ntimer floor %" PRIu64
			" instructions; counted mode: path lengths on one CPU, no times\n",
			run->library->floor);
	else
		fputs("\nemulated mode: the counter measures no time; only the evidence counts\n",
		      out);
}

/* The frequency's error is an error of all times in ns. */
static void print_cross_check(const struct klat_counter *counter, FILE *out)
{
	if (!counter->second_khz)
		fputs("counter frequency: from the kernel's clock only\n", out);
	else if (!counter->independent)
		fprintf(out, "counter frequency: not checked; %s is not independent\n",
			counter->second_method);
	else
		fprintf(out, "counter frequency: %s differs by %.0f ppm%s\n",
			counter->second_method, fabs(counter->difference_ppm),
			fabs(counter->difference_ppm) > 50 ? ", more than the 50 allowed" : "");
}

void klat_text(struct klat_run *run, FILE *out)
{
	const struct klat_library *library = run->library;

	fprintf(out, "%s: %s\nCPUs ", run->benchmark->name, run->benchmark->summary);
	print_cpus(run, out);
	fprintf(out, " (%s); ", library->placement);
	print_policies(run, out);
	fputc('\n', out);
	print_params(library->params, out);
	klat_for_each_metric(m, run)
		print_metric(run, m, out);
	if (library->common.published)
		print_published(run, out);
	print_floor(run, out);
	print_evidence(run, out);
	if (klat_timed())
		print_cross_check(&library->counter, out);
}
