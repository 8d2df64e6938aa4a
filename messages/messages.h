/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the threads share, and the threads. */
#ifndef MESSAGES_MESSAGES_H
#define MESSAGES_MESSAGES_H

#include "owner.h"

enum {
	HOP
};
enum {
	CALL,
	PASS_WRITE,
	PASS_EPOLL,
	THREADS,
	STAR
};

struct options {
	int64_t threads;
	int mode, wake, timer, alloc;
};

/* A thread of the star. The hub and the spoke exchange one message. */
struct spoke {
	struct owner owner;
	struct message message; /* with --alloc none */
	/* The hub's: the round that is under way or next, and whether it waits for the hub's sleep.
	 */
	uint32_t round;
	bool held;
	int64_t cpu_ns; /* in the timed part */
};

struct state {
	struct costs costs;
	struct owner hub;
	struct message message;
	int64_t cpu_ns;        /* of all threads, observed */
	uint64_t ticks;        /* of the timed part, without the hub's sleeps */
	int64_t handled;       /* observed, by all threads */
	int64_t waited, armed; /* in all */
	int64_t mismatches;    /* answers of another round than the one under way */
	bool timer_armed;      /* in the end */
	uint64_t unread;       /* pass-write: the count of the eventfd in the end */
};

/* Not in the shared state: there can be thousands, and only the measured process needs them. */
extern struct spoke *spokes;

static inline bool is_alone(const struct options *o)
{
	return o->mode <= PASS_EPOLL;
}

/* One thread with its own queue. */
int loner(struct klat_worker *worker);
int hub(struct klat_worker *worker);
int spoke_thread(struct klat_worker *worker);

#endif
