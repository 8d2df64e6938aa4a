/* SPDX-License-Identifier: MIT */
/* A fixed amount of work, and hogs: threads that work without an end beside the workers. */
#ifndef KLAT_WORK_H
#define KLAT_WORK_H

#include "klat.h"

/* Each round needs the result of the one before, so the compiler and the CPU execute them all, one
 * after another. A spin until a point in time would hide interruptions; this work does not. */
static inline uint64_t klat_burn(uint64_t rounds, uint64_t seed)
{
	while (rounds--) {
		seed = seed * UINT64_C(6364136223846793005) + 1;
		__asm__ volatile("" : "+r"(seed));
	}
	return seed;
}

/* For a body, before its iterations: the rounds of klat_burn() that take `ns` on its CPU. */
uint64_t klat_burn_rounds(struct klat_worker *worker, int64_t ns);

enum klat_hog_kind {
	KLAT_HOG_USER,    /* only instructions of user mode */
	KLAT_HOG_SYSCALL, /* short system calls, one after another */
	KLAT_HOG_FAULT,   /* maps pages, touches them, unmaps them */
	KLAT_HOG_ASLEEP,  /* a planted fault: it sleeps */
};

/*
 * A busy thread under an ordinary policy, or SCHED_IDLE. It never sleeps, and ends with the
 * measured process. It is in the memory that the processes of the run share.
 */
struct klat_hog {
	enum klat_hog_kind kind;
	int policy, nice; /* nice 0: as inherited */
	/* The library's. */
	pthread_t thread;
	bool started;
	int refused;    /* errno: it did not get its priority, or memory */
	int64_t cpu_ns; /* the CPU time that it got until klat_hogs_read() */
} KLAT_ALIGNED;

/* For setup(). Returns 0, or -errno after klat_error() or klat_skip(). */
int klat_hog_start(struct klat_run *run, struct klat_hog *hog, int cpu);
/* For a body, before its iterations: sleep until each hog has run. 0 or -errno. */
int klat_hogs_await(struct klat_worker *worker, const struct klat_hog *hogs, int count);
/* The CPU time of all of them until now, for the measured process. */
int64_t klat_hogs_ns(const struct klat_hog *hogs, int count);
/* For teardown(): store the CPU time of each. */
void klat_hogs_read(struct klat_hog *hogs, int count);
/* For verify(): each hog ran, at its priority. Hogs that were not started do not count. */
void klat_hogs_require(struct klat_run *run, const struct klat_hog *hogs, int count);
/* For verify(): hogs that ran for `ns` in the observed part of this worker had what the workers of
 * its CPU left. So the CPU was not idle, and no other tasks ran there. Not required of a real-time
 * worker, which preempts other tasks as it preempts hogs. */
void klat_hogs_require_remainder(struct klat_run *run, const struct klat_worker *worker,
				 int64_t ns);

#endif
