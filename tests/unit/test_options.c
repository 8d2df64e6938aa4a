/* SPDX-License-Identifier: MIT */
/* The option table: parsing, the params of the record, help and JSON. */
#include "support.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGUMENTS 8

/* parse() fills `run` and `common`. `said` is its output on stderr. */
static struct klat_common common;
static char *said;

void tear_down(void)
{
	free(said);
	said = NULL;
}

static int parse_list(const char *const *arguments)
{
	char *argv[MAX_ARGUMENTS + 2] = { (char *)"test" };
	int argc = 1, err;

	for (; *arguments; arguments++) {
		assert_true(argc <= MAX_ARGUMENTS);
		argv[argc++] = (char *)*arguments;
	}
	free(said);
	test_stderr_begin();
	err = klat_options_parse(run, &common, argc, argv);
	said = test_stderr_end();
	return err;
}

#define parse(...) parse_list((const char *const[]){ __VA_ARGS__, NULL })

#define assert_refused(...)                                                                        \
	do {                                                                                       \
		assert_int_equal(parse(__VA_ARGS__), -EINVAL);                                     \
		assert_one_line(said);                                                             \
	} while (0)

#define assert_taken(...)                                                                          \
	do {                                                                                       \
		assert_int_equal(parse(__VA_ARGS__), 0);                                           \
		assert_string_equal(said, "");                                                     \
	} while (0)

TEST(without_arguments_defaults_hold)
{
	const char *none[] = { NULL };

	assert_int_equal(parse_list(none), 0);
	assert_int_equal(options.count, TEST_COUNT_DEFAULT);
	assert_int_equal(options.choice, 1);
	assert_null(options.text);
	assert_false(options.flag);
	assert_int_equal(run->iterations, 500);
	assert_int_equal(run->warmup, 50);
	assert_int_equal(common.dma_latency, -1);
	assert_int_equal(common.guest_halt_poll, -1);
	assert_int_equal(common.seed, -1);
	assert_false(common.json);
}

TEST(each_type_is_taken)
{
	assert_taken("--count", "12", "--choice", "blue", "--text", "a b", "--flag");
	assert_int_equal(options.count, 12);
	assert_int_equal(options.choice, 2);
	assert_string_equal(options.text, "a b");
	assert_true(options.flag);
	assert_taken("--count=-3", "--choice=red", "--text=");
	assert_int_equal(options.count, -3);
	assert_int_equal(options.choice, 0);
	assert_string_equal(options.text, "");
}

TEST(the_ends_of_a_range_are_in_it)
{
	assert_taken("--count", "-5");
	assert_int_equal(options.count, TEST_COUNT_MIN);
	assert_taken("--count", "1000");
	assert_int_equal(options.count, TEST_COUNT_MAX);
	assert_refused("--count", "-6");
	assert_refused("--count", "1001");
	assert_refused("--iterations", "0");
	assert_refused("--warmup", "-1");
}

TEST(a_range_error_names_option_value_and_range)
{
	assert_refused("--count", "1001");
	assert_contains(said, "--count");
	assert_contains(said, "1001");
	assert_contains(said, "-5 to 1000");
}

TEST(what_is_no_number_is_refused)
{
	static const char *const texts[] = { "",     "x",   "1x",  "1 ", " 1",    "+1",
					     "0x10", "1.0", "1e3", "--", "1,000", "１",
					     "-",    "\n1", "1\n", "1-", "\t1",   "nan" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(texts); i++) {
		assert_refused("--count", texts[i]);
		assert_refused("--iterations", texts[i]);
	}
	assert_int_equal(options.count, TEST_COUNT_DEFAULT);
}

TEST(numbers_past_64_bits_are_out_of_range)
{
	assert_refused("--count", "9223372036854775808");
	assert_refused("--count", "-99999999999999999999999999");
	assert_refused("--seed", "9223372036854775808");
	assert_taken("--seed", "9223372036854775807");
	assert_int_equal(common.seed, INT64_MAX);
}

TEST(a_word_must_be_one_of_the_choices_whole)
{
	assert_refused("--choice", "purple");
	assert_refused("--choice", "gree");
	assert_refused("--choice", "Green");
	assert_refused("--choice", "");
	assert_refused("--choice", "green ");
	assert_contains(said, "red|green|blue");
}

TEST(the_last_of_duplicates_counts)
{
	assert_taken("--count", "1", "--count", "2");
	assert_int_equal(options.count, 2);
	assert_refused("--count", "1", "--count", "x");
}

TEST(an_abbreviation_is_refused)
{
	assert_refused("--cou", "3");
	assert_contains(said, "unknown or misused option '--cou'");
	assert_refused("--iter=9");
	assert_contains(said, "'--iter=9'");
	assert_refused("--hel");
	assert_refused("--c", "3");  /* count, choice, cpus, csv */
	assert_refused("--p", "rr"); /* policy, plant */
	assert_taken("--count=3", "--iterations", "9");
	assert_int_equal(options.count, 3);
	assert_int_equal(run->iterations, 9);
}

TEST(unknown_options_and_arguments_are_refused_by_name)
{
	assert_refused("--bogus");
	assert_contains(said, "--bogus");
	assert_refused("--bogus=1");
	assert_refused("-x");
	assert_contains(said, "-x");
	assert_refused("-xyz");
	assert_refused("stray");
	assert_contains(said, "stray");
	assert_refused("--flag", "stray");
	assert_refused("--", "stray");
	assert_refused("");
	assert_refused("-");
	assert_taken("--");
}

TEST(a_missing_value_is_an_error_that_names_the_option)
{
	assert_refused("--count");
	assert_contains(said, "--count");
	assert_refused("--flag", "--record");
	assert_contains(said, "--record");
}

TEST(a_flag_takes_no_value)
{
	assert_refused("--flag=yes");
	assert_refused("--json=1");
}

TEST(csv_and_json_exclude_each_other)
{
	assert_refused("--csv", "--json");
	assert_taken("--csv");
	assert_true(common.csv);
}

TEST(only_faults_that_exist_are_planted)
{
	assert_taken("--plant", "unpinned");
	assert_taken("--plant", "policy");
	assert_taken("--plant", "fault");
	assert_taken("--plant", "sleeping");
	assert_refused("--plant", "other");
	assert_contains(said, "sleeping");
	assert_refused("--plant", "");
}

static char *params(void)
{
	static char text[1024];

	assert_int_equal(klat_options_params(run, &common, text, sizeof(text)), 0);
	return text;
}

TEST(params_hold_all_that_shapes_the_measurement)
{
	assert_taken("--flag", "--text", "unrecorded", "--record", "elsewhere");
	assert_string_equal(params(), "count=7;choice=green;flag=yes;iterations=500;warmup=50");
	assert_taken("--count=-1", "--iterations=9", "--dma-latency=1", "--guest-halt-poll=0",
		     "--inject=5", "--plant=fault");
	assert_string_equal(params(),
			    "count=-1;choice=green;flag=yes;iterations=9;warmup=50;dma-latency=1;"
			    "guest-halt-poll=0;inject=5;plant=fault");
}

TEST(params_that_do_not_fit_are_an_error)
{
	char text[20];

	assert_taken("--flag");
	assert_int_equal(klat_options_params(run, &common, text, sizeof(text)), -ENAMETOOLONG);
}

static void print_json(const struct klat_benchmark *benchmark, FILE *out)
{
	assert_int_equal(klat_json_benchmark(benchmark, out), 0);
}

static char *printed(void (*print)(const struct klat_benchmark *, FILE *))
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	print(&test_benchmark, out);
	fclose(out);
	return text;
}

TEST(help_fits_79_columns)
{
	char *help = printed(klat_help);

	for (int i = 0; i < test_line_count(help); i++) {
		char *line = test_line(help, i);

		if (strlen(line) > 79)
			fail_msg("%zu columns: %s", strlen(line), line);
		if (*line && line[strlen(line) - 1] == ' ')
			fail_msg("trailing space: '%s'", line);
		free(line);
	}
	free(help);
}

TEST(help_has_ranges_defaults_and_words)
{
	char *help = printed(klat_help);

	assert_contains(help, "(-5 to 1000; default 7)");
	assert_contains(help, "(default green)");
	assert_contains(help, "(default fifo:50)");
	assert_contains(help, "sleeping");
	assert_lacks(help, "print-benchmark");
	free(help);
}

TEST(json_describes_the_options_that_help_shows)
{
	char *text = printed(print_json), *help = printed(klat_help);
	json_t *json = json_loads(text, 0, NULL), *option;
	size_t i;

	assert_non_null(json);
	option = json_array_get(json_object_get(json, "options"), 1);
	assert_string_equal(json_string_value(json_object_get(option, "name")), "choice");
	assert_string_equal(json_string_value(json_object_get(option, "argument")),
			    "red|green|blue");
	assert_string_equal(json_string_value(json_object_get(option, "default")), "green");
	json_array_extend(json_object_get(json, "options"),
			  json_object_get(json, "common_options"));
	json_array_foreach(json_object_get(json, "options"), i, option) {
		char name[64];

		snprintf(name, sizeof(name), "\n  --%s",
			 json_string_value(json_object_get(option, "name")));
		assert_contains(help, name);
	}
	json_decref(json);
	free(text);
	free(help);
}
