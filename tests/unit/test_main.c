/* SPDX-License-Identifier: MIT */
/* What klat_main() and the library's accounts make of a benchmark that does not behave. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int setup_result, verified;

static int configure(struct klat_run *run)
{
	run->cpu_count = 1;
	klat_use_metric(run, 0, 1);
	return 0;
}

static int body(struct klat_worker *worker)
{
	uint64_t *samples = klat_series(worker->run, 0, 0);

	for (int64_t i = klat_first(worker->run); i < klat_end(worker->run); i++) {
		klat_iteration(worker, i);
		samples[i] = 100;
	}
	return 0;
}

static int set_up_run(struct klat_run *run)
{
	klat_worker_add(run, KLAT_WORKER("worker", .body = body));
	return setup_result;
}

static void verify(struct klat_run *run)
{
	(void)run;
	verified++;
}

/* Runs it, with stdout thrown away; what it said on stderr, malloc'ed. */
static char *run_program(int *status)
{
	struct klat_benchmark benchmark = test_benchmark;
	char *words[] = { "test", "--policy", "other", "--iterations", "10", "--quiet", NULL };

	benchmark.configure = configure;
	benchmark.setup = set_up_run;
	benchmark.verify = verify;
	verified = 0;
	test_stderr_begin();
	*status = klat_main(&benchmark, KLAT_ARRAY_SIZE(words) - 1, words);
	return test_stderr_end();
}

static void assert_failed_with(const char *reason)
{
	char *said;
	int status;

	said = run_program(&status);
	if (!strstr(said, reason))
		fail_msg("stderr: %s", said);
	assert_int_equal(status, 1);
	free(said);
}

TEST(a_setup_that_fails_without_a_reason_is_an_error)
{
	setup_result = -ENOSPC;
	assert_failed_with("test: error: setup() failed: No space left on device\n");
	assert_int_equal(verified, 0);
	setup_result = 0;
}

TEST(a_skip_does_not_mask_an_error)
{
	struct klat_run *run = test_run();

	klat_error(run, EIO, "it broke");
	klat_skip(run, "it is not there");
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	assert_string_equal(run->outcome->reason, "it broke");
	test_run_free(run);
}

TEST(an_error_masks_a_skip)
{
	struct klat_run *run = test_run();

	klat_skip(run, "it is not there");
	klat_error(run, EIO, "it broke");
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	assert_string_equal(run->outcome->reason, "it broke");
	test_run_free(run);
}
