/* SPDX-License-Identifier: MIT */
/* --help. */
#include "cli/cli.h"

#include <string.h>

void klat_print_wrapped(FILE *out, const char *text, int indent, int column)
{
	while (*text) {
		size_t word = strcspn(text, " \n");

		if (column > indent && column + 1 + (int)word > 79) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			fputc(' ', out);
			column++;
		} else if (column < indent) {
			fprintf(out, "%*s", indent - column, "");
			column = indent;
		}
		fwrite(text, 1, word, out);
		column += word;
		text += word;
		if (*text == '\n') {
			fprintf(out, "\n%s", text[1] == '\n' ? "\n" : "");
			text += strspn(text, "\n");
			column = 0;
		}
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

void klat_option_help(const struct klat_benchmark *benchmark, const struct klat_option *option,
		      char *text, size_t size)
{
	char range[64] = "", buffer[KLAT_VALUE_SIZE];
	const char *value = klat_option_default(benchmark, option, buffer);
	bool shown = *value && option->type != KLAT_OPTION_FLAG;

	if (option->type == KLAT_OPTION_INTEGER && option->maximum < INT64_MAX)
		snprintf(range, sizeof(range), "%lld to %lld", (long long)option->minimum,
			 (long long)option->maximum);
	snprintf(text, size, "%s%s%s%s%s%s%s", option->help, *range || shown ? " (" : "", range,
		 *range && shown ? "; " : "", shown ? "default " : "", shown ? value : "",
		 *range || shown ? ")" : "");
}

/* Prints "  --name argument". A long list of words is broken after a '|'. Returns the column. */
static int print_name(const struct klat_benchmark *benchmark, const struct klat_option *option,
		      FILE *out)
{
	char argument[512];
	int column;

	klat_option_argument(benchmark, option, argument, sizeof(argument));
	column = fprintf(out, "  --%s%s", option->name, *argument ? " " : "");
	for (const char *word = argument; *word;) {
		int length = strcspn(word, "|");

		length += word[length] == '|';
		if (column + length > 79)
			column = fprintf(out, "\n%12s", "") - 1;
		column += fprintf(out, "%.*s", length, word);
		word += length;
	}
	return column;
}

static void print_options(const struct klat_benchmark *benchmark, const char *title,
			  const struct klat_option *options, int count, FILE *out)
{
	fprintf(out, "\n%s:\n", title);
	for (int i = 0; i < count && options[i].help; i++) {
		char text[640];
		int column = print_name(benchmark, &options[i], out);

		if (column > 22) {
			fputc('\n', out);
			column = 0;
		}
		klat_option_help(benchmark, &options[i], text, sizeof(text));
		klat_print_wrapped(out, text, 24, column);
	}
}

const char klat_exit_statuses[] =
	"0 measured; 1 failed; 2 wrong command line or full disk; 3 measured, but the evidence "
	"refutes the result; 4 skipped: the reason is on standard error (too few CPUs, no device, "
	"no privilege).";

void klat_help(const struct klat_benchmark *benchmark, FILE *out)
{
	int common_count;
	const struct klat_option *common = klat_options_common(benchmark, &common_count);

	fprintf(out, "Usage: %s [OPTION]...\n", benchmark->name);
	klat_print_wrapped(out, benchmark->summary, 0, 0);
	fputc('\n', out);
	klat_print_wrapped(out, benchmark->description, 0, 0);
	fputs("\nMetrics:\n", out);
	for (int i = 0; i < benchmark->metric_count; i++) {
		int column = fprintf(out, "  %s", benchmark->metrics[i].name);

		klat_print_wrapped(out, benchmark->metrics[i].summary, 24, column);
	}
	if (benchmark->option_count)
		print_options(benchmark, "Options of this program", benchmark->options,
			      benchmark->option_count, out);
	print_options(benchmark, "Options of every program", common, common_count, out);
	fputs("\nExit status:\n", out);
	klat_print_wrapped(out, klat_exit_statuses, 2, 0);
	if (benchmark->examples) {
		fputs("\nExamples:\n", out);
		for (const char *line = benchmark->examples; *line;) {
			size_t command = strcspn(line, "\t\n"), whole = strcspn(line, "\n");

			fprintf(out, "  %.*s\n", (int)command, line);
			if (whole > command)
				fprintf(out, "      %.*s\n", (int)(whole - command - 1),
					line + command + 1);
			line += whole + (line[whole] == '\n');
		}
	}
}
