/* SPDX-License-Identifier: MIT */
/* Options: those of every program, the program's own, and their values as the record's params. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The defaults. -1: not given. */
static const struct klat_common options = { .pairs = 1,
					    .iterations = -1,
					    .warmup = -1,
					    .dma_latency = -1,
					    .guest_halt_poll = -1,
					    .seed = -1,
					    .segment_s = 60,
					    .trace_bytes = INT64_MAX };

static const char *const library_faults[] = { "unpinned", "policy", "fault", "edges", NULL };

static const struct klat_option common_options[] = {
	/* First: only some programs have it. */
	{ "pairs", "run this many pairs at once, each on its own CPUs",
	  KLAT_INTEGER(pairs, 1, KLAT_MAX_CPU) },
	{ "cpus",
	  "a CPU for each role, as in 2,3 or 4-7; a repeated number puts two roles on one CPU; "
	  "\"one\" puts all roles on one CPU that klat chooses",
	  KLAT_TEXT(cpus), .argument = "LIST" },
	{ "iterations", "timed iterations", KLAT_INTEGER(iterations, 1, 10000000) },
	{ "warmup", "iterations before the timed ones; 0 counts as 1",
	  KLAT_INTEGER(warmup, 0, 10000000) },
	{ "policy",
	  "scheduling policy; fifo and rr may have a priority, as in fifo:50 (1 to 99); timer also "
	  "takes deadline:RUNTIME:PERIOD, as in deadline:200us:1ms. If the kernel refuses it, the "
	  "run fails. If the kernel refuses the default, the run warns and uses SCHED_OTHER",
	  KLAT_TEXT(policy), .argument = "fifo|rr|other|batch" },
	{ "dma-latency",
	  "during the run, hold this latency in /dev/cpu_dma_latency; 0 keeps CPUs out of idle "
	  "states",
	  KLAT_INTEGER(dma_latency, 0, 1000000000), .argument = "US" },
	{ "guest-halt-poll",
	  "in a guest, during the run: set haltpoll's guest_halt_poll_ns, for how long an idle CPU "
	  "polls before it halts",
	  KLAT_INTEGER(guest_halt_poll, 0, 10000000), .argument = "NS" },
	{ "soak", "measure for S seconds instead of a number of iterations; needs --record",
	  KLAT_INTEGER(soak_s, 1, 100000000), .argument = "S" },
	{ "segment", "with --soak: record the samples every S seconds, as a run",
	  KLAT_INTEGER(segment_s, 1, 86400), .argument = "S" },
	{ "limit", "with --soak: count the samples above NS ns, and keep their times",
	  KLAT_INTEGER(limit_ns, 1, 10000000000), .argument = "NS" },
	{ "stop-above", "with --limit: end the soak at the first sample above the limit",
	  KLAT_FLAG(stop_above) },
	{ "record", "append the run to the session in this directory, or start one there",
	  KLAT_TEXT(record), .argument = "DIR" },
	{ "label",
	  "with --record: name of the kernel under test, if this run starts the session (default: "
	  "the kernel's release)",
	  KLAT_TEXT(label), .argument = "NAME" },
	{ "seed", "with --record: seed of the plan", KLAT_INTEGER(seed, 0, INT64_MAX) },
	{ "run", "with --record: number of this run", KLAT_INTEGER(run, 0, INT64_MAX) },
	{ "order", "with --record: position of this run in the plan",
	  KLAT_INTEGER(order, 0, INT64_MAX) },
	{ "csv", "print the rows of the record instead of the summary", KLAT_FLAG(csv) },
	{ "json", "print a JSON object instead of the summary", KLAT_FLAG(json) },
	{ "published", "also print published figures of the same event", KLAT_FLAG(published) },
	{ "under-load",
	  "a load runs on purpose: frequent interrupts and waits do not disturb the run",
	  KLAT_FLAG(under_load) },
	{ "quiet", "print only warnings and errors", KLAT_FLAG(quiet) },
	{ "inject",
	  "self-test: spin this long between the stamps of half of the iterations, those whose "
	  "number in binary has an odd count of ones",
	  KLAT_INTEGER(inject_ns, 1, 100000000), .argument = "NS" },
	{ "plant", "self-test: spoil the measurement on purpose; the evidence has to refute it",
	  KLAT_TEXT(plant), .choices = library_faults },
	{ "version", "print the version and exit", KLAT_FLAG(version) },
	{ "help", "print this help and exit; the same as -h", KLAT_FLAG(help) },
	/* For the build and for klat's own commands. */
	{ "print-benchmark", KLAT_FLAG(print_benchmark) },
	{ "check-for", KLAT_TEXT(check_for) },
	{ "together", KLAT_INTEGER(together, 2, KLAT_MAX_CPU) },
	{ "trace-above", KLAT_INTEGER(trace_above_ns, 1, 10000000000) },
	{ "trace-metric", KLAT_TEXT(trace_metric) },
	{ "trace-instance", KLAT_TEXT(trace_instance) },
	{ "trace-output", KLAT_TEXT(trace_output) },
	{ "trace-bytes", KLAT_INTEGER(trace_bytes, 0, INT64_MAX) },
};

const struct klat_option *klat_options_common(const struct klat_benchmark *benchmark, int *count)
{
	*count = KLAT_ARRAY_SIZE(common_options) - !benchmark->pairs;
	return common_options + !benchmark->pairs;
}

/* Option `index` of the program's table, followed by the common one. */
static const struct klat_option *option_at(const struct klat_benchmark *benchmark, int index)
{
	int count, common = index - benchmark->option_count;

	return common < 0 ? &benchmark->options[index]
			  : &klat_options_common(benchmark, &count)[common];
}

/* A word that the option takes, or NULL after the last one. --plant takes the faults of the
 * library, followed by those of the program. */
static const char *word_at(const struct klat_benchmark *benchmark, const struct klat_option *option,
			   size_t index)
{
	size_t own = index - (KLAT_ARRAY_SIZE(library_faults) - 1);

	if (option->choices != library_faults || index < KLAT_ARRAY_SIZE(library_faults) - 1)
		return option->choices ? option->choices[index] : NULL;
	return own < KLAT_ARRAY_SIZE(benchmark->faults) ? benchmark->faults[own] : NULL;
}

void klat_option_argument(const struct klat_benchmark *benchmark, const struct klat_option *option,
			  char *text, size_t size)
{
	const char *word = option->type == KLAT_OPTION_INTEGER ? "N" : "";
	size_t length = 0;

	snprintf(text, size, "%s", option->argument ? option->argument : word);
	for (size_t i = 0; (word = word_at(benchmark, option, i)) && length < size; i++)
		length += snprintf(text + length, size - length, "%s%s", i ? "|" : "", word);
}

/* The index of `text` among the option's words, or -EINVAL. */
static int find_word(const struct klat_run *run, const struct klat_option *option, const char *text)
{
	char words[512];
	const char *word;

	for (int i = 0; (word = word_at(run->benchmark, option, i)); i++)
		if (!strcmp(word, text))
			return i;
	klat_option_argument(run->benchmark, option, words, sizeof(words));
	klat_warn(run, "--%s takes %s, not '%s'", option->name, words, text);
	return -EINVAL;
}

static int set_value(const struct klat_run *run, const struct klat_option *option, void *field,
		     const char *text)
{
	int64_t number;
	int word = option->choices ? find_word(run, option, text) : 0;

	if (word < 0)
		return word;
	switch (option->type) {
	case KLAT_OPTION_FLAG:
		*(bool *)field = true;
		return 0;
	case KLAT_OPTION_TEXT:
		*(const char **)field = text;
		return 0;
	case KLAT_OPTION_INTEGER:
		if (!klat_parse_number(text, option->minimum, option->maximum, &number)) {
			klat_warn(run, KLAT_NOT_A_NUMBER, option->name, (long long)option->minimum,
				  (long long)option->maximum, text);
			return -EINVAL;
		}
		*(int64_t *)field = number;
		return 0;
	case KLAT_OPTION_CHOICE:
		*(int *)field = word;
		return 0;
	}
	return -EINVAL;
}

/* Where `common` has the value of a common option. */
static void *field_of(const struct klat_option *option, struct klat_common *common)
{
	return (char *)common + ((const char *)option->field - (const char *)&options);
}

static int set_option(struct klat_run *run, struct klat_common *common, int index, const char *text)
{
	const struct klat_benchmark *benchmark = run->benchmark;
	const struct klat_option *option = option_at(benchmark, index);
	void *field =
		index < benchmark->option_count ? (void *)option->field : field_of(option, common);

	return set_value(run, option, field, text);
}

/* Options that need or exclude each other. */
static int check_common(const struct klat_run *run, const struct klat_common *common)
{
	const struct {
		bool wrong;
		const char *message;
	} checks[] = {
		{ common->csv && common->json, "--csv and --json exclude each other" },
		{ common->trace_above_ns && !(common->trace_instance && common->trace_output),
		  "--trace-above needs --trace-instance and --trace-output" },
		{ common->soak_s &&
			  (!common->record || run->iterations_given || common->csv || common->json),
		  "--soak needs --record, and excludes --iterations, --csv and --json" },
		{ common->pairs > 1 && (common->soak_s || common->trace_above_ns),
		  "--soak and klat explain measure one pair: leave out --pairs" },
		{ common->together && !(common->soak_s && common->cpus),
		  "--together needs --soak and --cpus" },
		{ !common->soak_s && common->limit_ns, "--limit needs --soak" },
		{ common->soak_s && common->trace_above_ns && !common->stop_above,
		  "--trace-above in a soak needs --stop-above" },
		{ !common->limit_ns && common->stop_above, "--stop-above needs --limit" },
		{ common->dma_latency == 0 && common->guest_halt_poll >= 0,
		  "--guest-halt-poll has no effect with --dma-latency 0" },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(checks); i++)
		if (checks[i].wrong) {
			klat_warn(run, "%s", checks[i].message);
			return -EINVAL;
		}
	return 0;
}

int klat_options_parse(struct klat_run *run, struct klat_common *common, int argc, char **argv)
{
	const struct klat_benchmark *benchmark = run->benchmark;
	int at, code, index, count, err = -EINVAL;
	struct option *table;

	klat_options_common(benchmark, &count);
	count += benchmark->option_count;
	table = calloc(count + 1, sizeof(*table));
	if (!table) {
		klat_warn(run, "out of memory");
		return -EINVAL;
	}
	for (int i = 0; i < count; i++) {
		table[i].name = option_at(benchmark, i)->name;
		table[i].has_arg = option_at(benchmark, i)->type == KLAT_OPTION_FLAG
					   ? no_argument
					   : required_argument;
	}
	*common = options;
	opterr = 0;
	optind = 1;
	while (at = optind, (code = getopt_long(argc, argv, "+:h", table, &index)) != -1) {
		/* getopt_long() also takes abbreviated names. A session checks options by their
		 * full names. */
		if (!code && strlen(table[index].name) != strcspn(argv[at] + 2, "="))
			code = '?';
		if (code == ':' || code == '?') {
			klat_warn(run,
				  code == ':' ? "%s needs a value; see --help"
					      : "unknown or misused option '%s'; see --help",
				  argv[at]);
			goto out;
		}
		if (code == 'h')
			common->help = true;
		else if (set_option(run, common, index, optarg))
			goto out;
	}
	if (optind < argc) {
		klat_warn(run, "unexpected argument '%s'; see --help", argv[optind]);
		goto out;
	}
	run->iterations_given = common->iterations >= 0;
	run->iterations =
		run->iterations_given ? common->iterations : klat_options_iterations(benchmark);
	run->pairs = common->pairs;
	run->soak = common->soak_s;
	run->warmup_given = common->warmup >= 0;
	run->warmup = run->warmup_given ? common->warmup : klat_options_warmup(benchmark);
	err = check_common(run, common);
out:
	free(table);
	return err;
}

/* The value in `field`, as the record's params have it. An integer is written to `buffer`. */
static const char *value_text(const struct klat_option *option, const void *field,
			      char buffer[KLAT_VALUE_SIZE])
{
	switch (option->type) {
	case KLAT_OPTION_INTEGER:
		snprintf(buffer, KLAT_VALUE_SIZE, "%lld", (long long)*(const int64_t *)field);
		return buffer;
	case KLAT_OPTION_CHOICE:
		return option->choices[*(const int *)field];
	case KLAT_OPTION_TEXT:
		return *(const char *const *)field ? *(const char *const *)field : "";
	case KLAT_OPTION_FLAG:
		break;
	}
	return *(const bool *)field ? "yes" : "no";
}

const char *klat_option_default(const struct klat_benchmark *benchmark,
				const struct klat_option *option, char buffer[KLAT_VALUE_SIZE])
{
	const int64_t iterations = klat_options_iterations(benchmark),
		      warmup = klat_options_warmup(benchmark);
	const struct klat_policy policy = klat_options_policy(benchmark);
	const void *field = option->field;

	if (field == &options.policy) {
		snprintf(buffer, KLAT_VALUE_SIZE, "%s", klat_policy_text(&policy).text);
		return buffer;
	}
	if (field == &options.iterations)
		field = &iterations;
	else if (field == &options.warmup)
		field = &warmup;
	/* A number below the range stands for none. */
	if (option->type == KLAT_OPTION_INTEGER && *(const int64_t *)field < option->minimum)
		return "";
	return value_text(option, field, buffer);
}

int klat_options_params(const struct klat_run *run, const struct klat_common *common, char *text,
			size_t size)
{
	const struct klat_benchmark *benchmark = run->benchmark;
	FILE *out = fmemopen(text, size, "w");
	const char *separator = "";
	char buffer[KLAT_VALUE_SIZE];
	long length;

	if (!out)
		return -errno;
	for (int i = 0; i < benchmark->option_count; i++) {
		const struct klat_option *option = &benchmark->options[i];

		if (option->unrecorded)
			continue;
		fprintf(out, "%s%s=%s", separator, option->name,
			value_text(option, option->field, buffer));
		separator = ";";
	}
	if (benchmark->pairs) {
		fprintf(out, "%spairs=%lld", separator, (long long)common->pairs);
		separator = ";";
	}
	if (common->soak_s)
		fprintf(out, "%ssoak=%lld", separator, (long long)common->segment_s);
	else
		fprintf(out, "%siterations=%lld", separator, (long long)run->iterations);
	fprintf(out, ";warmup=%lld", (long long)run->warmup);
	if (common->together)
		fprintf(out, ";together=%lld;cpus=%s", (long long)common->together, common->cpus);
	if (common->dma_latency >= 0)
		fprintf(out, ";dma-latency=%lld", (long long)common->dma_latency);
	if (common->guest_halt_poll >= 0)
		fprintf(out, ";guest-halt-poll=%lld", (long long)common->guest_halt_poll);
	if (common->inject_ns)
		fprintf(out, ";inject=%lld", (long long)common->inject_ns);
	if (common->trace_above_ns)
		fprintf(out, ";traced=%lld", (long long)common->trace_above_ns);
	if (common->plant)
		fprintf(out, ";plant=%s", common->plant);
	length = ftell(out);
	if (fclose(out) || length < 0 || (size_t)length >= size)
		return -ENAMETOOLONG;
	return 0;
}
