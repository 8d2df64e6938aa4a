/* SPDX-License-Identifier: MIT */
/* What the threads of a run share. */
#ifndef MESSAGES_H
#define MESSAGES_H

#include "owner.h"

enum { HOP };
enum { CALL, PASS_WRITE, PASS_EPOLL, THREADS, STAR };

extern struct options {
	int64_t threads;
	int mode, wake, timer, alloc;
} options;

/* A thread of the star. The hub and the spoke exchange one message. */
struct spoke {
	struct owner owner;
	struct message message; /* with --alloc none */
	uint32_t round;         /* in the hub's struct: the current round, or the next one */
};

struct state {
	struct costs costs;
	struct owner hub;
	int64_t mismatches; /* answers that belong to another round */
	struct message message;
	/* Not in shared memory: there can be thousands, and only the measured process needs them.
	 */
	struct spoke *spokes;
	pthread_barrier_t begun;
	struct counts counts; /* sums over all threads */
	uint64_t ticks;       /* length of the timed part, without the hub's sleeps */
	bool timer_armed;     /* the timer is armed at the end of the run */
	uint64_t unread;      /* pass-write: the eventfd's count at the end of the run */
};

/* threads.c */
/* Make what the threads need before they start. */
int threads_prepare(struct state *state);
/* The bodies. */
int hub(struct klat_worker *worker);
int spoke_thread(struct klat_worker *worker);

#endif
