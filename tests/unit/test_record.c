/* SPDX-License-Identifier: MIT */
/* runs.csv and samples/: what docs/record.md promises of every append, also of the one that fails.
 */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sha256.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_COLUMNS 64

static int session;

void set_up(void)
{
	session = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	run->library->common.record = directory;
}

void tear_down(void)
{
	close(session);
}

/* As after a measurement of two metrics, the second with three series. */
static void measure(void)
{
	klat_use_metric(run, 0, 1);
	klat_use_metric(run, 1, 3);
	assert_int_equal(klat_samples_map(run), 0);
	for (int metric = 0; metric < 2; metric++) {
		int64_t count = klat_samples_count(run, metric);
		uint64_t sorted[16];

		for (int64_t s = 0; s < count / run->iterations; s++)
			for (int64_t i = klat_first(run); i < klat_end(run); i++)
				klat_series(run, metric, s)[i] =
					!klat_is_sample(run, i) ? 999999
								: 1000 * metric + 100 * s + i;
		klat_samples_copy(run, metric, sorted);
		klat_summarise(sorted, count, &run->library->summaries[metric]);
	}
	run->library->floor = 36;
	run->library->start_ns = 1700000000000000000;
	run->library->elapsed_ns = 123456;
}

/* RFC 4180: the columns of one row, malloc'ed each; returns their count. */
static int split(const char *row, char **columns)
{
	int count = 0;

	for (;;) {
		char *column = calloc(1, strlen(row) + 1), *end = column;
		bool quoted = *row == '"';

		assert_true(count < MAX_COLUMNS);
		columns[count++] = column;
		row += quoted;
		while (*row && (quoted ? !(row[0] == '"' && row[1] != '"') : *row != ',')) {
			assert_true(quoted || *row != '"');
			row += quoted && *row == '"';
			*end++ = *row++;
		}
		row += quoted;
		if (!*row)
			return count;
		assert_int_equal(*row, ',');
		row++;
	}
}

static void free_columns(char **columns, int count)
{
	while (count)
		free(columns[--count]);
}

/* The named column of a row, malloc'ed. */
static char *column(const char *row, const char *name)
{
	char *header = test_line(klat_record_header, 0), *names[MAX_COLUMNS], *columns[MAX_COLUMNS],
	     *found = NULL;
	int count = split(header, names);

	assert_int_equal(split(row, columns), count);
	for (int i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			found = strdup(columns[i]);
	free_columns(names, count);
	free_columns(columns, count);
	free(header);
	assert_non_null(found);
	return found;
}

static void assert_column(const char *row, const char *name, const char *wanted)
{
	char *value = column(row, name);

	if (strcmp(value, wanted))
		fail_msg("%s is '%s', not '%s'", name, value, wanted);
	free(value);
}

static void assert_rows_are_whole(const char *rows)
{
	char *header = test_line(klat_record_header, 0), *columns[MAX_COLUMNS];
	int width = split(header, columns);

	free_columns(columns, width);
	free(header);
	assert_int_equal(rows[strlen(rows) - 1], '\n');
	for (int i = 0; i < test_line_count(rows); i++) {
		char *row = test_line(rows, i), hash[SHA256_DIGEST_STRING_LENGTH],
		     *check = strrchr(row, ',');
		int count = split(row, columns);

		assert_int_equal(count, width);
		free_columns(columns, count);
		SHA256Data((const uint8_t *)row, check - row, hash);
		assert_int_equal(strlen(check + 1), 16);
		assert_memory_equal(check + 1, hash, 16);
		free(row);
	}
}

/* Names of columns with their values, to { NULL, NULL }. */
typedef const char *const columns_of_row[2];

/* Row `number` of `count` rows, whose first sample is the 1000th. */
static void assert_row_columns(int number, int count, const columns_of_row *wanted)
{
	char *rows = klat_record_rows(run, 1000), *row = test_line(rows, number);

	assert_int_equal(test_line_count(rows), count);
	assert_rows_are_whole(rows);
	for (; (*wanted)[0]; wanted++)
		assert_column(row, (*wanted)[0], (*wanted)[1]);
	free(row);
	free(rows);
}

#define assert_row(number, count, ...)                                                             \
	assert_row_columns(number, count, (columns_of_row[]){ __VA_ARGS__, { NULL, NULL } })

#define OF_BOTH_METRICS                                                                            \
	{ "benchmark", "test" }, { "status", "ok" }, { "reason", "" }, { "rows", "2" },            \
		{ "floor", "36" }, { "cpus", "1;0" }, { "placement", "same-llc" },                 \
		{ "start_ns", "1700000000000000000" },                                             \
	{                                                                                          \
		"elapsed_ns", "123456"                                                             \
	}

TEST(a_measured_run_has_a_row_for_each_metric_used)
{
	measure();
	assert_row(0, 2, OF_BOTH_METRICS, { "metric", "first" }, { "first_sample", "1000" },
		   { "n", "4" }, { "mean", "1.500" }, { "stddev", "1.290" }, { "min", "0" },
		   { "p50", "" }, { "max", "3" });
	assert_row(1, 2, OF_BOTH_METRICS, { "metric", "second" }, { "first_sample", "1004" },
		   { "n", "12" }, { "min", "1000" }, { "p50", "1101" }, { "max", "1203" });
}

TEST(workers_of_a_role_are_added_up_and_the_unknown_is_empty)
{
	run->workers[1].migrations = -1;
	measure();
	assert_row(0, 2, { "policy", "writer=fifo:50;reader=fifo:50" },
		   { "voluntary", "writer=201;reader=100" }, { "wait_ns", "writer=10;reader=5" },
		   { "migrations", "" }, { "smi", "" }, { "irq_res", "" });
}

TEST(interrupts_are_given_by_cpu_used_and_added_up_elsewhere)
{
	struct klat_library *library = run->library;

	library->before.irq_present[KLAT_IRQ_TLB] = library->after.irq_present[KLAT_IRQ_TLB] = true;
	for (int cpu = 0; cpu < 4; cpu++) {
		library->before.irq[KLAT_IRQ_TLB][cpu] = 100;
		library->after.irq[KLAT_IRQ_TLB][cpu] = 100 + 10 * cpu;
	}
	library->before.smi = 3;
	library->after.smi = 5;
	library->after.steal[0] = 2 * sysconf(_SC_CLK_TCK);
	klat_count(run, "delivered", 7);
	klat_count(run, "expected", 8);
	measure();
	assert_row(0, 2, { "irq_tlb", "1=10;0=0;other=50" }, { "smi", "2" }, { "steal_ms", "2000" },
		   { "evidence", "delivered=7;expected=8" });
}

TEST(however_many_counts_there_are_all_are_in_the_evidence)
{
	char names[100][40], wanted[100 * 64] = "";
	size_t length = 0;

	measure();
	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), "a_count_with_a_rather_long_name_%d", i);
		klat_count(run, names[i], INT64_MIN);
		length += snprintf(wanted + length, sizeof(wanted) - length, "%s%s=%lld",
				   i ? ";" : "", names[i], (long long)INT64_MIN);
	}
	assert_row(0, 2, { "evidence", wanted });
}

static void check_unmeasured(const char *status)
{
	assert_row(0, 1, { "status", status }, { "metric", "" }, { "first_sample", "" },
		   { "n", "0" }, { "floor", "" }, { "policy", "" }, { "evidence", "" },
		   { "rows", "1" });
}

TEST(a_skipped_run_is_one_row_of_the_same_width)
{
	klat_skip(run, "no %s", "device");
	check_unmeasured("skipped");
}

TEST(a_failed_run_is_one_row_of_the_same_width)
{
	measure();
	klat_error(run, EIO, "broken");
	check_unmeasured("error");
}

TEST(a_skip_before_placement_has_no_cpus)
{
	free(run->cpus);
	run->cpus = NULL;
	run->library->placement = NULL;
	klat_skip(run, "too few");
	check_unmeasured("skipped");
}

TEST(fields_are_quoted_where_they_must_be)
{
	klat_invalid(run, "a, \"b\"\nand c");
	strcpy(run->library->params, "text=x,\"y\"");
	measure();
	assert_row(0, 2, { "reason", "a, \"b\" and c" }, { "params", "text=x,\"y\"" });
}

static void append(void)
{
	assert_int_equal(klat_record_append(run, session), 0);
}

static char *runs(size_t *size)
{
	return test_read(test_path(directory, "runs.csv"), size);
}

static char *samples(size_t *size)
{
	return test_read(test_path(directory, "samples/test.u64"), size);
}

TEST(appending_begins_with_the_header_and_continues_after_it)
{
	char *text, *row;
	size_t size;

	measure();
	append();
	append();
	text = runs(NULL);
	assert_memory_equal(text, klat_record_header, strlen(klat_record_header));
	assert_int_equal(test_line_count(text), 1 + 4);
	assert_rows_are_whole(text + strlen(klat_record_header));
	row = test_line(text, 3);
	assert_column(row, "first_sample", "16");
	free(row);
	free(text);
	text = samples(&size);
	assert_int_equal(size, 2 * 16 * 8);
	for (int i = 0; i < 4; i++)
		assert_int_equal(((uint64_t *)text)[i], i);
	assert_int_equal(((uint64_t *)text)[16 + 4 + 8], 1200);
	free(text);
}

TEST(a_torn_tail_gets_a_line_of_its_own)
{
	static const char torn[] = "24755ccd,0,test,half a ro";
	char *text, *row;

	assert_true(asprintf(&text, "%s%s", klat_record_header, torn) > 0);
	test_write(test_path(directory, "runs.csv"), text, strlen(text));
	free(text);
	measure();
	append();
	text = runs(NULL);
	assert_int_equal(test_line_count(text), 1 + 1 + 2);
	row = test_line(text, 1);
	assert_string_equal(row, torn);
	free(row);
	row = test_line(text, 2);
	assert_column(row, "metric", "first");
	free(row);
	free(text);
}

TEST(part_of_a_sample_is_passed_over)
{
	char *text, *row;
	size_t size;

	assert_int_equal(mkdirat(session, "samples", 0700), 0);
	test_write(test_path(directory, "samples/test.u64"), "elevenbytes", 11);
	measure();
	append();
	text = runs(NULL);
	row = test_line(text, 1);
	assert_column(row, "first_sample", "2");
	free(row);
	free(text);
	text = samples(&size);
	assert_int_equal(size, 16 + 16 * 8);
	assert_int_equal(((uint64_t *)text)[2], 0);
	assert_int_equal(((uint64_t *)text)[3], 1);
	free(text);
}

/* No file may grow past `limit` meanwhile: a write first stops short there, then fails, as on a
 * full disk. */
static int append_limited(rlim_t limit)
{
	struct rlimit before, now;
	int err;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	now = (struct rlimit){ limit, before.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
	err = klat_record_append(run, session);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_DFL);
	return err;
}

static void check_full_disk(bool amid_a_row)
{
	char *runs_before, *samples_before, *now;
	size_t runs_size, samples_size, size;

	measure();
	append();
	runs_before = runs(&runs_size);
	samples_before = samples(&samples_size);
	assert_true(runs_size > 2 * samples_size);
	assert_true(append_limited(amid_a_row ? runs_size + 100 : samples_size + 20) < 0);
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	assert_contains(run->outcome->reason, strerror(EFBIG));
	now = runs(&size);
	assert_int_equal(size, runs_size);
	assert_memory_equal(now, runs_before, size);
	free(now);
	now = samples(&size);
	assert_int_equal(size, samples_size);
	assert_memory_equal(now, samples_before, size);
	free(now);
	free(runs_before);
	free(samples_before);
	*run->outcome = (struct klat_outcome){ KLAT_OK, "" };
	append();
	now = runs(NULL);
	assert_int_equal(test_line_count(now), 1 + 4);
	assert_rows_are_whole(now + strlen(klat_record_header));
	free(now);
}

TEST(a_disk_full_amid_samples_leaves_both_files_as_they_were)
{
	check_full_disk(false);
}

TEST(a_disk_full_amid_a_row_leaves_both_files_as_they_were)
{
	check_full_disk(true);
}

TEST(a_session_that_is_no_directory_is_an_error)
{
	assert_int_equal(mkdirat(session, "runs.csv", 0700), 0);
	measure();
	assert_true(klat_record_append(run, session) < 0);
	assert_contains(run->outcome->reason, directory);
}
