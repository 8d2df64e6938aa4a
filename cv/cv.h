/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the threads share, and the threads. */
#ifndef CV_CV_H
#define CV_CV_H

#include "locks.h"
#include "sync/sync.h"

enum {
	HANDOFF,
	ROUND_TRIP,
	LOCK_UNLOCK
};
enum {
	COND,
	FUTEX,
	MUTEX,
	PI_MUTEX,
	SEMAPHORE
};
struct options {
	int64_t low_priority;
	int primitive, contention, signal;
};

struct state {
	struct sync signals[2]; /* by direction */
	struct locks locks;
	pthread_barrier_t entered;
	uint64_t end1 KLAT_ALIGNED, start2; /* H's stamps */
	uint32_t turn;                      /* and their iteration */
	int64_t mismatches; /* iterations in which H's stamps were of another turn, or were further
			       apart than L's */
	int64_t contended;  /* timed iterations in which H waited before L unlocked */
};

static inline bool uses_locks(const struct klat_run *run)
{
	const struct options *o = run->options;

	return o->primitive == MUTEX || o->primitive == PI_MUTEX;
}

int low(struct klat_worker *worker);
int high(struct klat_worker *worker);
/* Locks and unlocks without contention. */
int locker(struct klat_worker *worker);

#endif
