/* SPDX-License-Identifier: MIT */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct test_options defaults = { .count = TEST_COUNT_DEFAULT, .choice = 1 };
struct test_options options;

static const struct klat_option option_table[] = {
	{ "count", "a number with a range", KLAT_INTEGER(count, TEST_COUNT_MIN, TEST_COUNT_MAX) },
	{ "choice", "one of several words", KLAT_CHOICE(choice, "red", "green", "blue") },
	{ "text", "anything", KLAT_TEXT(text), .unrecorded = true, .argument = "TEXT" },
	{ "flag", "on or off", KLAT_FLAG(flag) },
};

static const struct klat_metric metrics[] = {
	{ .name = "first", .summary = "the first metric", .path_length = true },
	{ .name = "second", .summary = "one with several series" },
	{ .name = "third", .summary = "one that is not used by default" },
};

const struct klat_benchmark test_benchmark = {
	.name = "test",
	.summary = "nothing is measured here",
	.description = "A paragraph that is long enough to be wrapped at least once when it is "
		       "printed to a terminal of "
		       "eighty columns.\n\nAnd a second one.",
	.examples = "test\tbare\ntest --flag\twith its flag",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	.faults = { "sleeping" },
};

struct klat_run *run;
char *directory;

static void add_worker(const char *role, int index, int cpu)
{
	run->workers[run->worker_count++] = (struct klat_worker){ .run = run,
								  .role = role,
								  .noun = role,
								  .index = index,
								  .cpu = cpu,
								  .priority = 50,
								  .policy_obtained = SCHED_FIFO,
								  .priority_obtained = 50,
								  .pinned = true,
								  .most_sleeps = KLAT_ANY_SLEEPS,
								  .voluntary = 100 + index,
								  .migrations = 0,
								  .wait_ns = 5,
								  .account.file = -1 };
}

static void make_run(void)
{
	run = calloc(1, sizeof(*run));
	run->benchmark = &test_benchmark;
	run->library = calloc(1, sizeof(*run->library));
	run->outcome = &run->library->outcome;
	run->library->common.dma_latency = run->library->common.guest_halt_poll = -1;
	options = defaults;
	run->pairs = 1;
	run->library->pairs = run;
	run->iterations = 4;
	run->warmup = 3;
	run->lead = 2;
	run->end = run->iterations + 1;
	run->cpu_count = 2;
	run->cpus = malloc(2 * sizeof(*run->cpus));
	run->cpus[0] = 1;
	run->cpus[1] = 0;
	run->workers = aligned_alloc(KLAT_CACHE_LINE, 3 * sizeof(*run->workers));
	add_worker("writer", 0, 1);
	add_worker("writer", 1, 1);
	add_worker("reader", 0, 0);
	run->library->policy = (struct klat_policy){ .policy = SCHED_FIFO, .priority = 50 };
	run->library->placement = "same-llc";
	run->library->before.smi = run->library->after.smi = -1;
	run->library->after.highest_cpu = 3;
	strcpy(run->library->params, "count=7;choice=green");
}

static void free_run(void)
{
	if (run->library->samples)
		munmap(run->library->samples, run->library->samples_size);
	free(run->workers);
	free(run->cpus);
	free(run->library->counts);
	free(run->library);
	free(run);
}

static void make_directory(void)
{
	const char *parent = getenv("TMPDIR");

	assert_true(asprintf(&directory, "%s/klat-unit-XXXXXX",
			     parent && *parent ? parent : "/tmp") > 0);
	assert_non_null(mkdtemp(directory));
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

klat_cpu_set test_cpu_set(const char *list)
{
	int *cpus, count = klat_cpus_parse(list, &cpus);
	klat_cpu_set set = { 0 };

	for (int i = 0; i < count; i++)
		klat_cpu_add(&set, cpus[i]);
	free(cpus);
	return set;
}

char *test_read(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	char *text;

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(fstat(fd, &status), 0);
	text = malloc(status.st_size + 1);
	assert_int_equal(read(fd, text, status.st_size), status.st_size);
	text[status.st_size] = 0;
	if (size)
		*size = status.st_size;
	close(fd);
	return text;
}

void test_write(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

static int saved_stderr = -1, captured = -1;

void test_stderr_begin(void)
{
	fflush(stderr);
	saved_stderr = dup(STDERR_FILENO);
	captured = memfd_create("stderr", MFD_CLOEXEC);
	assert_true(captured >= 0 && saved_stderr >= 0);
	dup2(captured, STDERR_FILENO);
}

char *test_stderr_end(void)
{
	off_t size;
	char *text;

	fflush(stderr);
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	size = lseek(captured, 0, SEEK_END);
	text = malloc(size + 1);
	assert_int_equal(pread(captured, text, size, 0), size);
	text[size] = 0;
	close(captured);
	return text;
}

int test_line_count(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

char *test_line(const char *text, int row)
{
	for (; row; row--) {
		text = strchr(text, '\n');
		assert_non_null(text);
		text++;
	}
	return strndup(text, strcspn(text, "\n"));
}

void assert_one_line(const char *text)
{
	size_t length = strlen(text);

	if (test_line_count(text) != 1 || text[length - 1] != '\n' || strncmp(text, "test: ", 6) ||
	    length > 300)
		fail_msg("not one clear line: '%s'", text);
}

static struct CMUnitTest tests[64];

static int begin(void **state)
{
	(void)state;
	make_run();
	make_directory();
	if (set_up)
		set_up();
	return 0;
}

static int end(void **state)
{
	(void)state;
	if (tear_down)
		tear_down();
	assert_int_equal(nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
	free(directory);
	free_run();
	return 0;
}

void test_register(const char *name, CMUnitTestFunction test)
{
	static size_t count;

	if (count == KLAT_ARRAY_SIZE(tests))
		abort();
	tests[count++] = (struct CMUnitTest){ name, test, begin, end, NULL };
}

int main(void)
{
	/* cmocka passes over the entries without a name. */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
