/* SPDX-License-Identifier: MIT */
/* A thread that shows whether something stopped the process: see run.h. */
#include "run/run.h"

#include <fcntl.h>
#include <unistd.h>

static void *sleep_until_end(void *argument)
{
	struct klat_stop_detector *detector = argument;
	const int64_t before = klat_thread_usage().ru_nvcsw;
	ssize_t size;
	char byte;

	__atomic_store_n(&detector->tid, gettid(), __ATOMIC_RELEASE);
	/* The freezer of cgroup version 1 interrupts a sleep in read(), but not on a futex. */
	size = read(detector->pipe[0], &byte, 1);
	(void)size;
	detector->sleeps = klat_thread_usage().ru_nvcsw - before;
	return NULL;
}

void klat_stop_detector_start(struct klat_stop_detector *detector, int cpu)
{
	if (pipe2(detector->pipe, O_CLOEXEC))
		return;
	detector->runs = !klat_thread_start(&detector->thread, cpu, sleep_until_end, detector);
	while (detector->runs && !__atomic_load_n(&detector->tid, __ATOMIC_ACQUIRE))
		klat_nap(10000);
}

/* A stop adds two sleeps. A lock of the kernel can add one. */
int64_t klat_stop_detector_end(struct klat_stop_detector *detector)
{
	if (!detector->runs)
		return 0;
	close(detector->pipe[1]);
	pthread_join(detector->thread, NULL);
	return detector->sleeps > 1 ? (detector->sleeps - 1) / 2 : 0;
}
