/* SPDX-License-Identifier: MIT */
/* What inherit.c and owners.c share. */
#ifndef INHERIT_INHERIT_H
#define INHERIT_INHERIT_H

#include "klat.h"
#include "sync/sync.h"

enum { HIGHEST, SPINNER, LOWEST, LINK }; /* workers; link k has index k - 1 */
enum { MAX_DEPTH = 30 };

extern struct options {
	int64_t depth, spin_us;
	int none;
} options;

struct state {
	struct sync turns[LINK + MAX_DEPTH];    /* by worker */
	pthread_mutex_t mutexes[MAX_DEPTH + 1]; /* the last is for a planted fault */
	uint64_t released, spin;                /* the stamp; --spin in ticks */
	uint64_t spinning, acquired, spins;
	int64_t disordered; /* iterations in which the lock was free */
	int64_t unopposed;  /* in which the spinner was not runnable */
	int64_t unexpected; /* in which it ran before `acquired`; without inheritance: did not run
			     */
};

/* Bodies of the owners. */
int link_in_chain(struct klat_worker *worker);
int lowest(struct klat_worker *worker);

#endif
