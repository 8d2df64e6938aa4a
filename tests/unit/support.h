/* SPDX-License-Identifier: MIT */
/* What the unit tests share: a run without a program, a directory of its own, and what was said on
 * stderr. */
#ifndef KLAT_TEST_SUPPORT_H
#define KLAT_TEST_SUPPORT_H

#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A test that support.c's main() runs. A file may define set_up() and tear_down(), which run around
 * each, between the making and the end of `run` and `directory`. */
#define TEST(name)                                                                                 \
	static void name(void **state);                                                            \
	__attribute__((constructor)) static void register_##name(void)                             \
	{                                                                                          \
		test_register(#name, name);                                                        \
	}                                                                                          \
	static void name(void **state __attribute__((unused)))

void test_register(const char *name, CMUnitTestFunction test);
__attribute__((weak)) void set_up(void);
__attribute__((weak)) void tear_down(void);

/* The options of the benchmark below. */
extern struct test_options {
	int64_t count;
	int choice;
	const char *text;
	bool flag;
} options;

enum { TEST_COUNT_MIN = -5, TEST_COUNT_MAX = 1000, TEST_COUNT_DEFAULT = 7 };

/* A benchmark with one option of each type and the metrics "first", "second" (of several series)
 * and "third". */
extern const struct klat_benchmark test_benchmark;

/* Each test has a new run of test_benchmark, as after prepare() on CPUs 1 and 0, with two workers
 * of role "writer" and one "reader"; nothing is measured. */
extern struct klat_run *run;
/* Each test has a new directory below $TMPDIR or /tmp, which is removed with all that is in it. */
extern char *directory;

/* A path that lasts until the end of the block. */
#define test_path(parent, name) klat_path("%s/%s", parent, name)
/* The CPUs of a list. */
klat_cpu_set test_cpu_set(const char *list);

/* malloc'ed, with a closing NUL; fails the test when it cannot be read. */
char *test_read(const char *path, size_t *size);
void test_write(const char *path, const void *data, size_t size);

/* Between the two, file descriptor 2 is captured; the second returns the captured text, malloc'ed.
 */
void test_stderr_begin(void);
char *test_stderr_end(void);
#define assert_contains(text, part)                                                                \
	do {                                                                                       \
		if (!strstr(text, part))                                                           \
			fail_msg("'%s' is not in: %s", part, text);                                \
	} while (0)
#define assert_lacks(text, part) assert_null(strstr(text, part))
/* For checks of times. Other work can fail one try; an error in the code fails all. */
#define assert_true_in_five_tries(expression)                                                      \
	do {                                                                                       \
		bool is_true = false;                                                              \
		for (int i = 0; i < 5 && !is_true; i++)                                            \
			is_true = (expression);                                                    \
		if (!is_true)                                                                      \
			fail_msg("false in all five tries: %s", #expression);                      \
	} while (0)
/* One whole line, not longer than a reader bears, beginning "test: ". */
void assert_one_line(const char *text);

/* Lines of a text; `row` counts from 0, malloc'ed and without its newline. */
int test_line_count(const char *text);
char *test_line(const char *text, int row);

#endif
