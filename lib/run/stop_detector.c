/* SPDX-License-Identifier: MIT */
/* A thread that shows whether something stopped the process: see run.h. */
#include "run/run.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { NAP_NS = 10000, MOST_NAPS = 10000 };

static void *sleep_until_end(void *argument)
{
	struct klat_stop_detector *detector = argument;
	ssize_t size;
	char byte;

	detector->status = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
	detector->before = klat_thread_usage().ru_nvcsw;
	klat_task_path(detector->task);
	__atomic_store_n(&detector->started, true, __ATOMIC_RELEASE);
	/* The freezer of cgroup version 1 interrupts a sleep in read(), but not on a futex. */
	size = read(detector->pipe[0], &byte, 1);
	(void)size;
	return NULL;
}

/* The number of the thread's sleeps. `*asleep`: whether the thread sleeps now. */
static int64_t sleeps_of(const struct klat_stop_detector *detector, bool *asleep)
{
	char text[8192];
	ssize_t size = pread(detector->status, text, sizeof(text) - 1, 0);

	text[size > 0 ? size : 0] = 0;
	*asleep = strstr(text, "\nState:\tS");
	return klat_count_after(text, "\nvoluntary_ctxt_switches");
}

/* Waits until the thread sleeps in the read, because the sleep itself is no stop: a soak reads the
 * count at any time. A kernel that does not count shows 0 for ever. */
void klat_stop_detector_start(struct klat_stop_detector *detector, int cpu)
{
	bool asleep;

	if (pipe2(detector->pipe, O_CLOEXEC))
		return;
	detector->runs = !klat_thread_start(&detector->thread, cpu, sleep_until_end, detector);
	while (detector->runs && !__atomic_load_n(&detector->started, __ATOMIC_ACQUIRE))
		klat_nap(NAP_NS);
	for (int naps = 0;
	     detector->runs && naps < MOST_NAPS && sleeps_of(detector, &asleep) == detector->before;
	     naps++)
		klat_nap(NAP_NS);
}

int64_t klat_stop_detector_sleeps(const struct klat_run *run)
{
	return klat_task_count(run->library->stop_detector.task, "status",
			       "\nvoluntary_ctxt_switches");
}

/* A stop adds two sleeps. A lock of the kernel can add one. The count is read while the thread
 * still sleeps: on a PREEMPT_RT kernel, waking up adds sleeps on locks. Beside a hog, the thread
 * can take long to sleep again after a stop. */
void klat_stop_detector_end(struct klat_run *run)
{
	struct klat_library *library = run->library;
	struct klat_stop_detector *detector = &library->stop_detector;
	int64_t sleeps;
	bool asleep;

	if (!detector->runs)
		return;
	sleeps = sleeps_of(detector, &asleep) - detector->before;
	for (int naps = 0; !asleep && naps < MOST_NAPS; naps++) {
		klat_nap(NAP_NS);
		sleeps = sleeps_of(detector, &asleep) - detector->before;
	}
	close(detector->pipe[1]);
	pthread_join(detector->thread, NULL);
	if (detector->status >= 0)
		close(detector->status);
	if (sleeps > 1)
		library->stops += (sleeps - 1) / 2;
	if (library->stops)
		klat_clocks_wait(&library->before.clocks, &library->after.clocks);
}
