/* SPDX-License-Identifier: MIT */
/* What klat_main() and the library's accounts make of a benchmark that does not behave. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>

static int verified;

static int configure(struct klat_run *of)
{
	of->cpu_count = 1;
	klat_use_metric(of, 0, 1);
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

static int set_up_run(struct klat_run *of)
{
	klat_worker_add(of, KLAT_WORKER("worker", .body = body));
	return -ENOSPC;
}

static void verify(struct klat_run *of)
{
	(void)of;
	verified++;
}

TEST(a_setup_that_fails_without_a_reason_is_an_error)
{
	struct klat_benchmark benchmark = test_benchmark;
	char *words[] = { "test", "--policy", "other", "--iterations", "10", "--quiet", NULL },
	     *said;
	int status;

	benchmark.configure = configure;
	benchmark.setup = set_up_run;
	benchmark.verify = verify;
	test_stderr_begin();
	status = klat_main(&benchmark, KLAT_ARRAY_SIZE(words) - 1, words);
	said = test_stderr_end();
	assert_contains(said, "test: error: setup() failed: No space left on device\n");
	assert_int_equal(status, 1);
	assert_int_equal(verified, 0);
	free(said);
}

TEST(a_skip_does_not_mask_an_error)
{
	klat_error(run, EIO, "it broke");
	klat_skip(run, "it is not there");
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	assert_string_equal(run->outcome->reason, "it broke");
}

TEST(an_error_masks_a_skip)
{
	klat_skip(run, "it is not there");
	klat_error(run, EIO, "it broke");
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	assert_string_equal(run->outcome->reason, "it broke");
}
