/* SPDX-License-Identifier: MIT */
/* What is said, recorded and judged in which mode: the linker puts the functions below in place of
 * those that ask the machine. */
#include "support.h"

#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *__wrap_klat_mode(void);
int __wrap_klat_cpus_online(klat_cpu_set *set);

static const char *mode;
static int cpus_online;

const char *__wrap_klat_mode(void)
{
	return mode;
}

int __wrap_klat_cpus_online(klat_cpu_set *set)
{
	memset(set, 0, sizeof(*set));
	set->bits[0] = (1UL << cpus_online) - 1;
	return 0;
}

enum {
	FIRST, /* a path length */
	THIRD = 2
};

void set_up(void)
{
	run->counter_khz = 1000000;
	run->one_cpu = true;
	run->library->counter.invariant = true;
	mode = "counted";
	cpus_online = 1;
}

/* As after a measurement of a path length and of a metric that is none. */
static void measure(void)
{
	const int used[] = { FIRST, THIRD };

	klat_use_metric(run, FIRST, 1);
	klat_use_metric(run, THIRD, 1);
	assert_int_equal(klat_samples_map(run), 0);
	for (size_t m = 0; m < KLAT_ARRAY_SIZE(used); m++) {
		uint64_t sorted[16];

		for (int64_t i = 0; i < run->iterations; i++)
			klat_series(run, used[m], 0)[i] = 1000 * used[m] + 10 + i;
		klat_samples_copy(run, used[m], sorted);
		if (klat_samples_kept(run, used[m]))
			klat_summarise(sorted, klat_samples_kept(run, used[m]),
				       &run->library->summaries[used[m]]);
	}
	run->library->floor = 4;
	run->library->start_ns = 1700000000000000000;
}

TEST(a_path_length_is_measurable_where_one_cpu_is_all_there_is)
{
	assert_true(klat_measurable(run, FIRST));
	assert_false(klat_measurable(run, THIRD));
	run->one_cpu = false;
	assert_false(klat_measurable(run, FIRST));
	run->one_cpu = true;
	/* The others' instructions would count as well. */
	cpus_online = 2;
	assert_false(klat_measurable(run, FIRST));
}

TEST(without_an_emulator_everything_is_measurable)
{
	static const char *const timed[] = { "hardware", "virtual" };

	cpus_online = 2;
	run->one_cpu = false;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(timed); i++) {
		mode = timed[i];
		assert_true(klat_timed());
		assert_true(klat_measurable(run, FIRST) && klat_measurable(run, THIRD));
		assert_string_equal(klat_unit(), "ticks");
	}
}

TEST(an_emulator_without_a_count_measures_nothing)
{
	mode = "emulated";
	assert_false(klat_timed());
	assert_false(klat_measurable(run, FIRST) || klat_measurable(run, THIRD));
	assert_string_equal(klat_unit(), "ticks");
	mode = "counted";
	assert_false(klat_timed());
	assert_string_equal(klat_unit(), "instructions");
}

/* From the column `first_sample` to `floor`. */
static void assert_row(const char *rows, int row, const char *figures)
{
	char *line = test_line(rows, row);

	assert_contains(line, figures);
	free(line);
}

TEST(a_row_without_a_number_keeps_name_status_and_evidence)
{
	char *rows;

	measure();
	klat_count(run, "delivered", 79);
	rows = klat_record_rows(run, 7);
	assert_int_equal(test_line_count(rows), 2);
	assert_row(rows, 0, ",first,instructions,ok,,7,4,11.500,1.290,10,,,,13,4,1;0,");
	assert_row(rows, 1, ",third,instructions,ok,,,0,,,,,,,,,1;0,");
	assert_row(rows, 1, ",delivered=79,");
	free(rows);
}

TEST(a_count_that_is_a_figure_is_kept_only_where_it_means_something)
{
	klat_count(run, "gap_ticks", 5);
	assert_int_equal(run->library->count_count, 1);
	mode = "emulated";
	klat_count(run, "gap_ticks", 5);
	klat_count(run, "items_per_second", 5);
	assert_int_equal(run->library->count_count, 1);
	klat_count(run, "delivered", 5);
	assert_int_equal(run->library->count_count, 2);
}

TEST(samples_of_what_is_not_measurable_are_not_written)
{
	int session = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t *kept;
	size_t size;

	run->library->common.record = directory;
	measure();
	assert_int_equal(klat_record_append(run, session), 0);
	kept = (uint64_t *)test_read(test_path(directory, "samples/test.u64"), &size);
	assert_int_equal(size, 4 * sizeof(*kept));
	for (int i = 0; i < 4; i++)
		assert_int_equal(kept[i], 10 + i);
	free(kept);
	close(session);
}

TEST(a_run_without_numbers_leaves_the_samples_as_they_are)
{
	const char *samples = test_path(directory, "samples"),
		   *file = test_path(directory, "samples/test.u64");
	int session = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat status;

	mode = "emulated";
	run->library->common.record = directory;
	measure();
	assert_int_equal(klat_record_append(run, session), 0);
	assert_int_equal(stat(samples, &status), -1);

	/* Nor are those of earlier runs taken back where the rows cannot be written. */
	assert_int_equal(mkdir(samples, 0777), 0);
	test_write(file, "12345678", 8);
	assert_int_equal(unlinkat(session, "runs.csv", 0), 0);
	assert_int_equal(mkdirat(session, "runs.csv", 0777), 0);
	test_stderr_begin();
	assert_true(klat_record_append(run, session) < 0);
	free(test_stderr_end());
	assert_int_equal(stat(file, &status), 0);
	assert_int_equal(status.st_size, 8);
	close(session);
}

static char *text_of(void (*print)(struct klat_run *run, FILE *out))
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	print(run, out);
	fclose(out);
	return text;
}

TEST(the_text_names_what_is_not_measurable_and_shows_no_time)
{
	char *text;

	measure();
	text = text_of(klat_text);
	assert_contains(text, "\nthird: not measurable in this mode\n");
	assert_contains(text, "instructions        11.5");
	assert_lacks(text, "\nns ");
	assert_lacks(text, "ticks");
	free(text);
	mode = "emulated";
	text = text_of(klat_text);
	assert_contains(text, "\nfirst: not measurable in this mode\n");
	assert_contains(text, "\nthird: not measurable in this mode\n");
	assert_lacks(text, "average");
	assert_lacks(text, "timer floor");
	free(text);
}

/* Samples of 10 to 13 ticks of 1 ns, and a floor of 4. */
TEST(the_text_shows_the_step_and_no_digits_below_it)
{
	const char *fine = " 12          1         10        n/a        n/a         13\n";
	const char *coarse = " 12          1         10        n/a        n/a         10\n";
	char *text;

	mode = "hardware";
	measure();
	run->library->counter.quantum = 1;
	text = text_of(klat_text);
	assert_contains(text, fine);
	assert_contains(text, "\ntimer floor 4 ticks (4 ns); 1 tick = 1.0000 ns (");
	free(text);
	run->library->counter.quantum = 42;
	text = text_of(klat_text);
	assert_contains(text, coarse);
	assert_contains(text, "\ntimer floor 4 ticks (0 ns), step 42 ticks (42 ns)\n"
			      "1 tick = 1.0000 ns (");
	free(text);
	/* A step that is far below the floor is not shown. */
	run->library->floor = 420;
	text = text_of(klat_text);
	assert_lacks(text, "step");
	free(text);
}

/* Counts are whole ticks. Here a tick is 16 ns: 16.2 ticks are 259 ns. */
TEST(a_mean_of_ticks_is_shown_without_digits_below_a_tick)
{
	static const struct klat_published published[] = {
		{ "long_ticks", NULL, 520, "ns", "of a machine" },
		{ "short_ticks", NULL, 55, "ns", "of another" },
	};
	struct klat_benchmark benchmark = test_benchmark;
	char *text;

	mode = "hardware";
	measure();
	run->counter_khz = 62500;
	run->library->counter.quantum = 1;
	run->library->common.published = true;
	benchmark.published = published;
	benchmark.published_count = KLAT_ARRAY_SIZE(published);
	run->benchmark = &benchmark;
	klat_count_mean(run, "long_ticks", 1620, 100);
	klat_count_mean(run, "short_ticks", 40, 100);
	text = text_of(klat_text);
	assert_contains(text, "long_ticks 16 (260 ns)");
	assert_contains(text, "\nlong 520 ns, here 260 ns on average\n");
	assert_contains(text, "\nshort 55 ns, here less than 1 tick (16 ns) on average\n");
	free(text);
}

static void print_json(struct klat_run *of, FILE *out)
{
	klat_json_run(of, out);
}

TEST(json_gives_what_is_not_measurable_as_null)
{
	char *text;
	json_t *json, *metrics;
	const char *key;
	json_t *value;

	measure();
	text = text_of(print_json);
	json = json_loads(text, 0, NULL);
	free(text);
	metrics = json_object_get(json, "metrics");
	assert_int_equal(json_array_size(metrics), 2);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(metrics, 0), "n")), 4);
	assert_null(json_object_get(json_array_get(metrics, 0), "mean_ns"));
	assert_int_equal(json_integer_value(json_object_get(json, "floor")), 4);
	json_object_foreach(json_array_get(metrics, 1), key, value) {
		if (!strcmp(key, "name"))
			assert_string_equal(json_string_value(value), "third");
		else if (!strcmp(key, "n"))
			assert_int_equal(json_integer_value(value), 0);
		else
			assert_true(json_is_null(value));
	}
	json_decref(json);
	mode = "emulated";
	text = text_of(print_json);
	json = json_loads(text, 0, NULL);
	free(text);
	assert_true(json_is_null(json_object_get(json, "floor")));
	json_decref(json);
}

static void assert_judged(enum klat_status status)
{
	run->outcome->status = KLAT_OK;
	run->outcome->reason[0] = 0;
	klat_evidence_judge(run);
	if (run->outcome->status != status)
		fail_msg("%s: %s", klat_status_name(run->outcome->status), run->outcome->reason);
}

TEST(no_emulated_counter_has_to_be_invariant)
{
	run->library->counter.invariant = false;
	assert_judged(KLAT_OK);
	mode = "emulated";
	assert_judged(KLAT_OK);
	mode = "virtual";
	assert_judged(KLAT_INVALID);
}

TEST(no_length_of_time_is_held_against_an_emulated_run)
{
	run->workers[2].account.waited_ns = 1000000000;
	assert_judged(KLAT_OK);
	run->workers[2].involuntary = 1;
	assert_judged(KLAT_DISTURBED);
	mode = "emulated";
	assert_judged(KLAT_OK);
	mode = "virtual";
	assert_judged(KLAT_DISTURBED);
	mode = "emulated";
	/* Where a thread was is no matter of time. */
	run->workers[2].migrations = 1;
	assert_judged(KLAT_INVALID);
}

TEST(throttling_is_looked_for_in_what_was_measured)
{
	measure();
	run->library->summaries[THIRD].max = 1000000000;
	assert_judged(KLAT_OK);
	run->library->summaries[FIRST].max = 1000000000;
	assert_judged(KLAT_DISTURBED);
	mode = "emulated";
	assert_judged(KLAT_OK);
}

static int64_t rest_after(int64_t spun_ms)
{
	struct klat_worker worker = { .priority = 50 };
	int64_t begin;

	klat_rest(&worker);
	worker.spin_began -= spun_ms * 1000000;
	begin = klat_now_ns();
	klat_rest(&worker);
	assert_int_equal(worker.rests, 1);
	return (klat_now_ns() - begin) / 1000000;
}

TEST(in_an_emulator_the_rest_grows_with_what_went_by)
{
	mode = "emulated";
	assert_true(rest_after(400) >= 60);
}
