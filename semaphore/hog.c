/* SPDX-License-Identifier: MIT */
#include "hog.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STACK_SIZE (64 << 10)

static int be_lowly(int kind)
{
	const struct sched_param param = { 0 };

	if (kind == HOG_IDLE)
		return sched_setscheduler(0, SCHED_IDLE, &param) ? errno : 0;
	return setpriority(PRIO_PROCESS, gettid(), 19) ? errno : 0;
}

static void *hog_main(void *argument)
{
	struct hog *hog = argument;

	hog->error = be_lowly(hog->kind);
	while (!hog->error && !__atomic_load_n(&hog->stop, __ATOMIC_RELAXED))
		;
	hog->cpu_ns = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

int hog_start(struct klat_run *run, struct hog *hog, int kind, int cpu)
{
	pthread_attr_t attributes;
	/* A cpu_set_t holds only 1024 CPUs. */
	unsigned long set[8192 / 64] = { 0 };
	int err;

	set[cpu / 64] |= 1UL << cpu % 64;
	hog->kind = kind;
	hog->cpu = cpu;
	pthread_attr_init(&attributes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
#endif
	err = pthread_attr_setaffinity_np(&attributes, sizeof(set), (const cpu_set_t *)set);
	if (!err)
		err = pthread_create(&hog->thread, &attributes, hog_main, hog);
	pthread_attr_destroy(&attributes);
	if (err)
		return klat_cannot_start(run, err, "a hog");
	hog->started = true;
	return 0;
}

void hog_end(struct hog *hog)
{
	if (!hog->started)
		return;
	__atomic_store_n(&hog->stop, 1, __ATOMIC_RELAXED);
	pthread_join(hog->thread, NULL);
}
