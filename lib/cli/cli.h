/* SPDX-License-Identifier: MIT */
/* The command line: options and output. */
#ifndef KLAT_CLI_H
#define KLAT_CLI_H

#include "record/record.h"

#include <sched.h>

/* What a program runs without options. */
static inline int64_t klat_options_iterations(const struct klat_benchmark *benchmark)
{
	return benchmark->iterations ?: 500;
}

static inline int64_t klat_options_warmup(const struct klat_benchmark *benchmark)
{
	return benchmark->warmup ?: 50;
}

/* The priority of a real-time policy that is given without one. */
static inline int klat_options_priority(const struct klat_benchmark *benchmark)
{
	return benchmark->high_priority ?: 50;
}

static inline struct klat_policy klat_options_policy(const struct klat_benchmark *benchmark)
{
	if (benchmark->ordinary)
		return (struct klat_policy){ .policy = SCHED_OTHER };
	return (struct klat_policy){ .policy = benchmark->policy ?: SCHED_FIFO,
				     .priority = klat_options_priority(benchmark) };
}

/* main.c: a run of the benchmark; its exit status. */
int klat_main(const struct klat_benchmark *benchmark, int argc, char **argv);

/* options.c */
/* Parse argv into `common` and the benchmark's options. 0, or -EINVAL after a line on stderr. */
int klat_options_parse(struct klat_run *run, struct klat_common *common, int argc, char **argv);
/* Write "name=value;…" of all options that affect the measurement. 0, or -ENAMETOOLONG. */
int klat_options_params(const struct klat_run *run, const struct klat_common *common, char *text,
			size_t size);

/* The options of every program. Those without help are hidden. */
const struct klat_option *klat_options_common(const struct klat_benchmark *benchmark, int *count);
/* What the option takes, as --help shows it: "" for a flag. */
void klat_option_argument(const struct klat_benchmark *benchmark, const struct klat_option *option,
			  char *text, size_t size);
enum { KLAT_VALUE_SIZE = sizeof(struct klat_policy_text) };
/* The default, as the record's params write it, or "". The text may be in `buffer`. */
const char *klat_option_default(const struct klat_benchmark *benchmark,
				const struct klat_option *option, char buffer[KLAT_VALUE_SIZE]);

/* help.c */
extern const char klat_exit_statuses[];
void klat_help(const struct klat_benchmark *benchmark, FILE *out);
/* The help of one option, with its range and default. */
void klat_option_help(const struct klat_benchmark *benchmark, const struct klat_option *option,
		      char *text, size_t size);
/* Print paragraphs, separated by newlines, in columns `indent` to 79. The cursor is at `column`. */
void klat_print_wrapped(FILE *out, const char *text, int indent, int column);

/* text.c */
void klat_text(struct klat_run *run, FILE *out);

/* progress.c */
/* On a terminal: one line on stderr, over the line before. */
void klat_soak_progress_text(const struct klat_run *run, int64_t seconds);
/* Begin a new line after the progress. */
void klat_soak_progress_end(const struct klat_run *run);
void klat_soak_text(const struct klat_run *run, FILE *out);

/* json.c */
/* Both return 0 or -ENOMEM. */
int klat_json_run(struct klat_run *run, FILE *out);
/* The tables of a benchmark: metrics, options, published figures. */
int klat_json_benchmark(const struct klat_benchmark *benchmark, FILE *out);

#endif
