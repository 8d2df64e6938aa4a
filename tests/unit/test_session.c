/* SPDX-License-Identifier: MIT */
/* session.json: who begins it describes it, who joins it must be of the same boot, build, schema
 * and label. */
#include "support.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[KLAT_PATH_SIZE]; /* of the session in `directory` */

void set_up(void)
{
	snprintf(path, sizeof(path), "%s/session.json", directory);
	run->library->common.record = directory;
	run->library->common.seed = -1;
}

static void begin(void)
{
	int session = klat_session_join(run);

	assert_true(session >= 0);
	close(session);
}

static json_t *load(void)
{
	json_t *json = json_load_file(path, 0, NULL);

	assert_non_null(json);
	return json;
}

static void save(json_t *json)
{
	assert_int_equal(json_dump_file(json, path, 0), 0);
	json_decref(json);
}

/* As another process would come to the session. */
static int join(void)
{
	const struct klat_common common = run->library->common;
	int session;

	memset(run->library, 0, sizeof(*run->library));
	run->library->common = common;
	session = klat_session_join(run);
	if (session >= 0) {
		close(session);
		return 0;
	}
	return session;
}

/* Refused with a reason of one line that says `word` and the directory, the session left alone. */
static void assert_refused(const char *word)
{
	size_t size_before, size;
	char *before = test_read(path, &size_before), *now;

	assert_true(join() < 0);
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	if (!strstr(run->outcome->reason, word) || !strstr(run->outcome->reason, directory) ||
	    strchr(run->outcome->reason, '\n'))
		fail_msg("reason: %s", run->outcome->reason);
	now = test_read(path, &size);
	assert_int_equal(size, size_before);
	assert_memory_equal(now, before, size);
	free(before);
	free(now);
}

TEST(a_new_session_is_described_in_full)
{
	static const char *const texts[] = { "klat_version",   "klat_commit",  "label",
					     "created",        "boot_id",      "kernel_release",
					     "kernel_version", "architecture", "preemption",
					     "mode",           "unit" };
	json_t *json, *tsc;
	struct stat status;

	begin();
	json = load();
	assert_int_equal(json_integer_value(json_object_get(json, "schema")), KLAT_SCHEMA);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(texts); i++)
		if (!json_string_value(json_object_get(json, texts[i])))
			fail_msg("no %s", texts[i]);
	assert_true(json_is_null(json_object_get(json, "seed")));
	assert_int_equal(json_integer_value(json_object_get(json, "cpus_online")),
			 sysconf(_SC_NPROCESSORS_ONLN));
	tsc = json_object_get(json, "tsc");
	assert_true(json_number_value(json_object_get(tsc, "khz")) > 0);
	assert_true(json_integer_value(json_object_get(tsc, "quantum")) >= 1);
	assert_true(json_is_boolean(json_object_get(tsc, "invariant")));
	assert_int_equal(strlen(json_string_value(
				 json_object_get(json_object_get(json, "programs"), "test"))),
			 64);
	assert_int_equal(stat(test_path(directory, "environment/proc/cmdline"), &status), 0);
	json_decref(json);
}

TEST(missing_directories_are_made)
{
	const char *deep = test_path(directory, "some/label/time");
	struct stat status;

	run->library->common.record = deep;
	begin();
	assert_int_equal(stat(test_path(deep, "session.json"), &status), 0);
}

TEST(joining_takes_over_the_calibration)
{
	json_t *json;

	begin();
	json = load();
	json_object_set_new(json_object_get(json, "tsc"), "khz", json_real(1234567.5));
	json_object_set_new(json_object_get(json, "tsc"), "invariant", json_false());
	json_object_set_new(json_object_get(json, "tsc"), "independent", json_true());
	save(json);
	assert_int_equal(join(), 0);
	assert_true(run->library->counter.khz == 1234567.5);
	assert_false(run->library->counter.invariant);
	assert_true(run->library->counter.independent);
}

TEST(another_program_adds_its_hash_and_keeps_the_rest)
{
	json_t *json, *programs;

	begin();
	json = load();
	programs = json_object_get(json, "programs");
	json_object_del(programs, "test");
	json_object_set_new(programs, "elder", json_string("0123"));
	json_object_set_new(json, "kept", json_string("word"));
	save(json);
	assert_int_equal(join(), 0);
	json = load();
	programs = json_object_get(json, "programs");
	assert_string_equal(json_string_value(json_object_get(programs, "elder")), "0123");
	assert_non_null(json_object_get(programs, "test"));
	assert_string_equal(json_string_value(json_object_get(json, "kept")), "word");
	json_decref(json);
}

static void set_and_refuse(const char *key, json_t *value, const char *word)
{
	json_t *json;

	assert_non_null(value);
	if (access(path, F_OK))
		begin();
	json = load();
	json_object_set_new(json, key, value);
	save(json);
	assert_refused(word);
}

static void change(const char *key, const char *name, const char *value)
{
	json_t *json;

	begin();
	json = load();
	assert_non_null(json_object_get(json_object_get(json, key), name));
	json_object_set_new(json_object_get(json, key), name, json_string(value));
	save(json);
}

TEST(a_process_that_inherited_something_else_is_refused)
{
	change("inherited", "nice", "7");
	assert_refused("inherited nice 7");
}

TEST(a_program_with_other_libraries_is_refused)
{
	change("libraries", "test", "libc.so.6 0123456789abcdef");
	assert_refused("runs of test with other libraries");
}

TEST(a_session_that_does_not_record_what_was_inherited_can_be_joined)
{
	json_t *json;

	begin();
	json = load();
	json_object_del(json, "inherited");
	json_object_del(json, "libraries");
	save(json);
	assert_int_equal(join(), 0);
}

TEST(a_session_that_does_not_fit_is_refused)
{
	static const struct {
		const char *key, *value, *word;
	} rows[] = {
		{ "boot_id", "\"00000000-0000-0000-0000-000000000000\"", "boot" },
		{ "boot_id", "null", "boot" },
		{ "schema", "1000", "schema" },
		{ "programs", "null", "names no programs" },
		{ "tsc", "{}", "calibration" },
		{ "tsc", "{\"khz\": 0, \"quantum\": 1}", "calibration" },
		{ "tsc", "{\"khz\": -2e6, \"quantum\": 1}", "calibration" },
		{ "tsc", "{\"khz\": 1e300, \"quantum\": 1}", "calibration" },
		{ "tsc", "{\"khz\": \"2e6\", \"quantum\": 1}", "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 0}", "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 9223372036854775807}", "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 1.5}", "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 1, \"second_khz\": 1e300}", "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 1, \"uncertainty_ppm\": 1e300}",
		  "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 1, \"difference_ppm\": -1e300}",
		  "calibration" },
		{ "tsc", "{\"khz\": 2e6, \"quantum\": 1, \"second_method\": \"a\\nb\"}",
		  "calibration" },
	};
	char *session;
	size_t size;

	begin();
	session = test_read(path, &size);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(rows); i++) {
		test_write(path, session, size);
		set_and_refuse(rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL),
			       rows[i].word);
	}
	free(session);
}

TEST(a_number_of_too_many_digits_is_refused)
{
	char text[500];

	snprintf(text, sizeof(text), "{\"tsc\": {\"khz\": %0400d}}", 1);
	text[sizeof("{\"tsc\": {\"khz\": ") - 1] = '1';
	test_write(path, text, strlen(text));
	assert_refused("session.json");
}

TEST(a_session_of_more_than_a_mebibyte_is_refused)
{
	char *text = malloc(1 << 21);

	memset(text, ' ', 1 << 21);
	memcpy(text, "{}", 2);
	test_write(path, text, 1 << 21);
	free(text);
	assert_refused(strerror(EFBIG));
}

TEST(another_build_is_refused)
{
	set_and_refuse("programs", json_pack("{s:s}", "test", "0123"), "another build of test");
}

TEST(another_label_is_refused_and_the_same_is_not)
{
	run->library->common.label = "stock";
	begin();
	assert_int_equal(join(), 0);
	run->library->common.label = NULL;
	assert_int_equal(join(), 0);
	run->library->common.label = "rt";
	assert_refused("label 'stock', not 'rt'");
}

TEST(what_is_no_json_is_refused)
{
	test_write(path, "{ torn", 6);
	assert_refused("session.json");
	test_write(path, "", 0);
	assert_refused("session.json");
	test_write(path, "[]", 2);
	assert_refused("schema");
}

TEST(a_label_that_is_no_text_is_refused)
{
	run->library->common.label = "\xff\xfe";
	assert_true(join() < 0);
	assert_contains(run->outcome->reason, "UTF-8");
}

TEST(a_label_that_changes_the_direction_of_text_is_refused)
{
	static const char *const labels[] = { "\u061c",   "a\u200e", "\u200fa", "\u202a",
					      "a\u202eb", "\u2066",  "\u2069" };
	static const char *const others[] = { "\u061b", "\u200d", "\u2010", "\u2029",
					      "\u202f", "\u2065", "\u206a" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(labels); i++) {
		run->library->common.label = labels[i];
		assert_true(join() < 0);
		assert_contains(run->outcome->reason, "direction");
	}
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(others); i++) {
		run->library->common.label = others[i];
		assert_true(join() >= 0);
		assert_int_equal(unlink(path), 0);
	}
}

TEST(any_valid_text_is_a_label)
{
	static const char label[] = "6.1 \"rt\", näher\n\t\\";
	json_t *json;

	run->library->common.label = label;
	begin();
	json = load();
	assert_string_equal(json_string_value(json_object_get(json, "label")), label);
	json_decref(json);
}

TEST(a_directory_that_cannot_be_made_is_refused)
{
	static const char *const names[] = { "", "/proc/nowhere/session", "/dev/null",
					     "/dev/null/below" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++) {
		run->library->common.record = names[i];
		if (join() >= 0)
			fail_msg("'%s' was taken", names[i]);
		assert_int_equal(run->outcome->status, KLAT_ERROR);
	}
}
