/* SPDX-License-Identifier: MIT */
/* The command line: options and output. */
#ifndef KLAT_CLI_H
#define KLAT_CLI_H

#include "record/record.h"

/* options.c */
/* Parse argv into `common` and run->options. 0, or -EINVAL after a line on stderr. */
int klat_options_parse(struct klat_run *run, struct klat_common *common, int argc, char **argv);
/* "name=value;…" of all that shapes the measurement. 0, or -ENAMETOOLONG. */
int klat_options_params(const struct klat_run *run, const struct klat_common *common, char *text,
			size_t size);

/* The options of every program. */
const struct klat_option *klat_options_common(int *count);
/* What the option takes, as --help shows it: "" for a flag. */
void klat_option_argument(const struct klat_option *option, char *text, size_t size);
/* `field` is where the value is. */
void klat_option_print_value(const struct klat_option *option, const void *field, FILE *out);
/* The faults of --plant: the library's, then the program's. NULL after the last. */
const char *klat_fault_at(const struct klat_benchmark *benchmark, size_t index);
/* "unpinned, policy, …" */
void klat_faults_list(const struct klat_benchmark *benchmark, char *text, size_t size);

/* help.c */
void klat_options_help(const struct klat_benchmark *benchmark, FILE *out);
void klat_options_man(const struct klat_benchmark *benchmark, FILE *out);
void klat_options_completion(const struct klat_benchmark *benchmark, FILE *out);
/* Paragraphs of `text` (separated by newlines) wrapped into columns `indent` to 79, starting where
 * the cursor is: at `column`. */
void klat_print_wrapped(FILE *out, const char *text, int indent, int column);
/* check.c: the options are checked for a machine that is not this one, and nothing is measured.
 * `machine` is "MODE:CPUS". 0, or -EINVAL after a line on stderr. */
int klat_check_for(const struct klat_run *run, const char *machine);

/* output.c */
void klat_output_text(struct klat_run *run, FILE *out);
int klat_output_json(struct klat_run *run, FILE *out);
/* The table of published figures, whatever the options. */
int klat_output_published(const struct klat_benchmark *benchmark, FILE *out);

#endif
