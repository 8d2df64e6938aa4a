/* SPDX-License-Identifier: MIT */
/* Where samples lie: the warm-up below index 0, series apart, and out of it in the order the record
 * wants. */
#include "support.h"

#include "prefault.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void map(void)
{
	klat_use_metric(run, 0, 1);
	klat_use_metric(run, 1, 3);
	assert_int_equal(klat_samples_map(run), 0);
}

/* Every element of every series, warm-up included, gets a value of its own. */
static uint64_t value_of(int metric, int64_t series, int64_t i)
{
	return metric * 10000 + series * 100 + 50 + i;
}

static void fill(void)
{
	for (int metric = 0; metric < 2; metric++)
		for (int64_t s = 0; s < (metric ? 3 : 1); s++)
			for (int64_t i = klat_first(run); i < klat_end(run); i++)
				klat_series(run, metric, s)[i] = value_of(metric, s, i);
}

TEST(series_warm_up_and_tail_do_not_overlap)
{
	map();
	fill();
	for (int metric = 0; metric < 2; metric++)
		for (int64_t s = 0; s < (metric ? 3 : 1); s++)
			for (int64_t i = klat_first(run); i < klat_end(run); i++)
				assert_int_equal(klat_series(run, metric, s)[i],
						 value_of(metric, s, i));
}

TEST(the_buffer_holds_all_and_nothing_more)
{
	map();
	assert_int_equal(run->library->samples_size, (1 + 3) * (3 + 4 + 1) * 8);
	assert_ptr_equal(klat_series(run, 0, 0) + klat_first(run), run->library->samples);
	assert_ptr_equal(klat_series(run, 1, 2) + klat_end(run),
			 run->library->samples + run->library->samples_size / 8);
}

TEST(copies_are_series_after_series_without_warm_up_and_tail)
{
	uint64_t copy[12];

	map();
	fill();
	assert_int_equal(klat_samples_count(run, 0), 4);
	assert_int_equal(klat_samples_count(run, 1), 12);
	klat_samples_copy(run, 1, copy);
	for (int64_t s = 0; s < 3; s++)
		for (int64_t i = 0; i < 4; i++)
			assert_int_equal(copy[s * 4 + i], value_of(1, s, i));
}

TEST(a_metric_that_is_not_used_has_no_samples)
{
	map();
	assert_null(klat_series(run, 2, 0));
	assert_int_equal(klat_samples_count(run, 2), 0);
	assert_int_equal(run->library->metrics_used, 2);
}

TEST(using_a_metric_twice_counts_it_once)
{
	klat_use_metric(run, 0, 1);
	klat_use_metric(run, 0, 2);
	assert_int_equal(run->library->metrics_used, 1);
	assert_int_equal(klat_samples_count(run, 0), 8);
}

TEST(a_buffer_that_cannot_be_had_is_an_error_with_its_cure)
{
	run->end = run->iterations = INT64_C(1) << 48;
	klat_use_metric(run, 0, 1);
	assert_true(klat_samples_map(run) < 0);
	assert_int_equal(run->outcome->status, KLAT_ERROR);
	assert_contains(run->outcome->reason, "--iterations");
	run->library->samples = NULL;
}

enum { PAGES = 200 };

/* The page faults of a forked process at its first writes to shared pages. */
static int faults_of_a_fork(char *shared, bool prefaulted)
{
	struct rusage before, after;
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (prefaulted)
			klat_prefault();
		getrusage(RUSAGE_SELF, &before);
		for (int page = 0; page < PAGES; page++)
			shared[page * 4096]++;
		getrusage(RUSAGE_SELF, &after);
		_exit(after.ru_minflt - before.ru_minflt);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

/* qemu-user has faults of its own. */
TEST(shared_memory_takes_no_fault_at_the_first_write)
{
	const size_t size = PAGES * 4096;
	char *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(shared, MAP_FAILED);
	assert_true(faults_of_a_fork(shared, false) >= PAGES);
	assert_true(faults_of_a_fork(shared, true) < PAGES / 4);
	assert_int_equal(shared[0], 2);
	munmap(shared, size);
}
