/* SPDX-License-Identifier: MIT */
/* The stop detector, preempted before its read. */
#include "base/base.h"

#include <unistd.h>

static ssize_t late_read(int file, void *data, size_t size)
{
	const int64_t end = klat_now_ns() + 20000000;

	while (klat_now_ns() < end)
		;
	return read(file, data, size);
}

#define read late_read
#include "run/stop_detector.c"
#undef read

#include "support.h"

TEST(its_sleep_begins_before_a_soak_can_read_the_count)
{
	struct klat_stop_detector *detector = &run->library->stop_detector;
	bool asleep;

	klat_stop_detector_start(detector, 0);
	assert_true(sleeps_of(detector, &asleep) > detector->before && asleep);
	klat_stop_detector_end(run);
	assert_int_equal(run->library->stops, 0);
}
