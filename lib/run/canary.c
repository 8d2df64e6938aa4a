/* SPDX-License-Identifier: MIT */
/* A thread that shows whether something stopped the process: see run.h. */
#include "run/run.h"

#include <fcntl.h>
#include <unistd.h>

static void *sleep_until_end(void *argument)
{
	struct klat_canary *canary = argument;
	const int64_t before = klat_thread_usage().ru_nvcsw;
	ssize_t size;
	char byte;

	__atomic_store_n(&canary->tid, gettid(), __ATOMIC_RELEASE);
	/* The freezer of cgroup version 1 interrupts a sleep in read(), but not on a futex. */
	size = read(canary->pipe[0], &byte, 1);
	(void)size;
	canary->sleeps = klat_thread_usage().ru_nvcsw - before;
	return NULL;
}

void klat_canary_start(struct klat_canary *canary, int cpu)
{
	if (pipe2(canary->pipe, O_CLOEXEC))
		return;
	canary->runs = !klat_thread_start(&canary->thread, cpu, sleep_until_end, canary);
	while (canary->runs && !__atomic_load_n(&canary->tid, __ATOMIC_ACQUIRE))
		klat_nap(10000);
}

/* A stop adds two sleeps. A lock of the kernel can add one. */
int64_t klat_canary_end(struct klat_canary *canary)
{
	if (!canary->runs)
		return 0;
	close(canary->pipe[1]);
	pthread_join(canary->thread, NULL);
	return canary->sleeps > 1 ? (canary->sleeps - 1) / 2 : 0;
}
