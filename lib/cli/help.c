/* SPDX-License-Identifier: MIT */
/* The options as --help, man page and shell completion. */
#include "cli/cli.h"

#include <ctype.h>
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

/* The help sentence, then range and default where there are any. */
static void describe(const struct klat_benchmark *benchmark, const struct klat_option *option,
		     bool own, char *text, size_t size)
{
	FILE *out = fmemopen(text, size, "w");

	if (!out) {
		snprintf(text, size, "%s", option->help);
		return;
	}
	fputs(option->help, out);
	if (!strcmp(option->name, "plant")) {
		char faults[256];

		klat_faults_list(benchmark, faults, sizeof(faults));
		fprintf(out, " (%s)", faults);
	} else if (!strcmp(option->name, "iterations") || !strcmp(option->name, "warmup")) {
		fprintf(out, " (%lld to %lld; default %lld)", (long long)option->minimum,
			(long long)option->maximum,
			(long long)(option->name[0] == 'i' ? benchmark->iterations
							   : benchmark->warmup));
	} else if (!strcmp(option->name, "policy")) {
		fprintf(out, " (default %s:%d)", klat_policy_name(benchmark->policy),
			benchmark->high_priority);
	} else if (own && option->type == KLAT_OPTION_INTEGER) {
		int64_t value = *option->integer;

		fprintf(out, " (%lld to %lld", (long long)option->minimum,
			(long long)option->maximum);
		if (value >= option->minimum)
			fprintf(out, "; default %lld", (long long)value);
		fputc(')', out);
	} else if (own && option->type == KLAT_OPTION_CHOICE) {
		fputs(" (default ", out);
		klat_option_print_value(option, option->field, out);
		fputc(')', out);
	}
	fclose(out);
}

/* "  --name argument", a list of words broken after a '|' where it is long. Returns the column. */
static int help_name(const struct klat_option *option, FILE *out)
{
	char argument[256];
	int column;

	klat_option_argument(option, argument, sizeof(argument));
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

static void help_options(const struct klat_benchmark *benchmark, const struct klat_option *options,
			 int count, bool own, FILE *out)
{
	for (int i = 0; i < count; i++) {
		char text[640];
		int column = help_name(&options[i], out);

		if (column > 22) {
			fputc('\n', out);
			column = 0;
		}
		describe(benchmark, &options[i], own, text, sizeof(text));
		klat_print_wrapped(out, text, 24, column);
	}
}

static const char exit_statuses[] =
	"0 measured; 1 failed; 2 usage; 3 measured, but the evidence says that the number is not "
	"to be trusted; "
	"4 skipped, with the reason (too few CPUs, no device, no privilege).";

void klat_options_help(const struct klat_benchmark *benchmark, FILE *out)
{
	int common_count;
	const struct klat_option *common = klat_options_common(&common_count);

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
		fputs("\nOptions of this program:\n", out);
	help_options(benchmark, benchmark->options, benchmark->option_count, true, out);
	fputs("\nOptions of every program:\n", out);
	help_options(benchmark, common, common_count, false, out);
	fputs("\nExit status:\n", out);
	klat_print_wrapped(out, exit_statuses, 2, 0);
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

/* Escape text for troff: backslashes, dots and quotes at the start of a line, and '-', which a user
 * types. */
static void man_text(FILE *out, const char *text)
{
	bool line_begins = true;

	for (; *text; text++) {
		if (line_begins && (*text == '.' || *text == '\''))
			fputs("\\&", out);
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else if (*text == '\n' && text[1] == '\n')
			fputs("\n.PP", out);
		else
			fputc(*text, out);
		line_begins = *text == '\n';
	}
	fputc('\n', out);
}

static void man_options(const struct klat_benchmark *benchmark, const struct klat_option *options,
			int count, bool own, FILE *out)
{
	for (int i = 0; i < count; i++) {
		char text[640], argument[256];

		fputs(".TP\n.B ", out);
		fputs("\\-\\-", out);
		for (const char *c = options[i].name; *c; c++)
			*c == '-' ? fputs("\\-", out) : fputc(*c, out);
		klat_option_argument(&options[i], argument, sizeof(argument));
		if (*argument)
			fprintf(out, " \\fI%s\\fR", argument);
		fputc('\n', out);
		describe(benchmark, &options[i], own, text, sizeof(text));
		man_text(out, text);
	}
}

static bool is_called(const char *line, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(line, name, length) && strchr(" \t\n", line[length]);
}

void klat_options_man(const struct klat_benchmark *benchmark, FILE *out)
{
	int common_count;
	const struct klat_option *common = klat_options_common(&common_count);

	fputs(".TH KLAT\\-", out);
	for (const char *c = benchmark->name; *c; c++)
		fputc(toupper((unsigned char)*c), out);
	fprintf(out, " 1 \"\" \"klat %s\" \"klat\"\n.SH NAME\nklat\\-%s \\- ", KLAT_VERSION,
		benchmark->name);
	man_text(out, benchmark->summary);
	fprintf(out, ".SH SYNOPSIS\n.B klat %s\n[\\fIOPTION\\fR]...\n.SH DESCRIPTION\n",
		benchmark->name);
	man_text(out, benchmark->description);
	fputs(".SH METRICS\n", out);
	for (int i = 0; i < benchmark->metric_count; i++) {
		fprintf(out, ".TP\n.B %s\n", benchmark->metrics[i].name);
		man_text(out, benchmark->metrics[i].summary);
	}
	fputs(".SH OPTIONS\n", out);
	man_options(benchmark, benchmark->options, benchmark->option_count, true, out);
	fputs(".SS \"Options of every program\"\n", out);
	man_options(benchmark, common, common_count, false, out);
	fputs(".SH \"EXIT STATUS\"\n", out);
	man_text(out, exit_statuses);
	if (benchmark->examples) {
		fputs(".SH EXAMPLES\n.nf\n", out);
		for (const char *line = benchmark->examples; *line;) {
			char text[256];
			size_t command = strcspn(line, "\t\n"), whole = strcspn(line, "\n");

			/* Installed, a program is not on the path: klat starts it. */
			snprintf(text, sizeof(text), "%s%.*s",
				 is_called(line, benchmark->name) ? "klat " : "", (int)command,
				 line);
			man_text(out, text);
			if (whole > command) {
				snprintf(text, sizeof(text), "    %.*s", (int)(whole - command - 1),
					 line + command + 1);
				man_text(out, text);
			}
			line += whole + (line[whole] == '\n');
		}
		fputs(".fi\n", out);
	}
	fputs(".SH \"SEE ALSO\"\n.BR klat (1)\n", out);
}

void klat_options_completion(const struct klat_benchmark *benchmark, FILE *out)
{
	int common_count;
	const struct klat_option *common = klat_options_common(&common_count);
	int own = benchmark->option_count, count = own + common_count;

	fprintf(out,
		"_klat_%s()\n{\n\tlocal word=\"${COMP_WORDS[COMP_CWORD]}\" "
		"previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
		"\tcase \"$previous\" in\n",
		benchmark->name);
	for (int i = 0; i < count; i++) {
		const struct klat_option *option =
			i < own ? &benchmark->options[i] : &common[i - own];

		if (option->type == KLAT_OPTION_FLAG)
			continue;
		fprintf(out, "\t--%s) ", option->name);
		if (option->type == KLAT_OPTION_CHOICE) {
			fputs("mapfile -t COMPREPLY < <(compgen -W '", out);
			for (int c = 0; option->choices[c]; c++)
				fprintf(out, "%s%s", c ? " " : "", option->choices[c]);
			fputs("' -- \"$word\")", out);
		} else if (!strcmp(option->name, "policy")) {
			fputs("mapfile -t COMPREPLY < <(compgen -W 'fifo rr other' -- \"$word\")",
			      out);
		} else if (!strcmp(option->name, "record")) {
			fputs("mapfile -t COMPREPLY < <(compgen -d -- \"$word\")", out);
		} else if (!strcmp(option->name, "plant")) {
			fputs("mapfile -t COMPREPLY < <(compgen -W '", out);
			for (size_t f = 0; klat_fault_at(benchmark, f); f++)
				fprintf(out, "%s%s", f ? " " : "", klat_fault_at(benchmark, f));
			fputs("' -- \"$word\")", out);
		} else {
			fputs("COMPREPLY=()", out);
		}
		fputs("; return ;;\n", out);
	}
	fputs("\tesac\n\tmapfile -t COMPREPLY < <(compgen -W '", out);
	for (int i = 0; i < count; i++)
		fprintf(out, "%s--%s", i ? " " : "",
			i < own ? benchmark->options[i].name : common[i - own].name);
	fprintf(out, "' -- \"$word\")\n}\ncomplete -F _klat_%s %s\n", benchmark->name,
		benchmark->name);
}
