/* SPDX-License-Identifier: MIT */
/* Part of klat.h: the options of a program. */
#ifndef KLAT_OPTION_H
#define KLAT_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum klat_option_type {
	KLAT_OPTION_INTEGER, /* checked against minimum and maximum */
	KLAT_OPTION_CHOICE,  /* an index into choices */
	KLAT_OPTION_TEXT,    /* NULL when not given */
	KLAT_OPTION_FLAG,
};

/*
 * One row gives parsing with range checks, --help, the man page's OPTIONS and shell completion:
 *
 *     { "gap", "sleep before each message", KLAT_INTEGER(gap_us, 0, 1000000), .argument = "US" },
 *
 * One of the macros below says what the option takes, and names the field of `options`, a struct of
 * the program, that holds the value. The struct is initialised with the defaults. It is complete
 * before the measured process begins.
 */
struct klat_option {
	const char *name;
	const char *help;
	const char *argument; /* as --help shows it; by default N, or the choices */
	bool unrecorded; /* does not affect the measurement, and is not in the record's params */

	enum klat_option_type type;
	union { /* the field in `options` */
		const void *field;
		const int64_t *integer;
		const int *choice;
		const char *const *text;
		const bool *flag;
	};
	int64_t minimum, maximum;
	const char *const *choices; /* NULL-terminated */
};

#define KLAT_INTEGER(name, least, most)                                                            \
	.type = KLAT_OPTION_INTEGER, .integer = &options.name, .minimum = (least), .maximum = (most)
/* The words are the choices in the order of their values, or KLAT_CHOICE_OF's array of them. */
#define KLAT_CHOICE(name, ...) KLAT_CHOICE_OF(name, ((const char *const[]){ __VA_ARGS__, NULL }))
#define KLAT_CHOICE_OF(name, words)                                                                \
	.type = KLAT_OPTION_CHOICE, .choice = &options.name, .choices = (words)
#define KLAT_TEXT(name) .type = KLAT_OPTION_TEXT, .text = &options.name
#define KLAT_FLAG(name) .type = KLAT_OPTION_FLAG, .flag = &options.name

#endif
