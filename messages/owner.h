/* SPDX-License-Identifier: MIT */
/* The owner of a queue: the loop that handles its messages, and how it waits and is woken. */
#ifndef MESSAGES_OWNER_H
#define MESSAGES_OWNER_H

#include "queue.h"
#include "sync/sync.h"

enum {
	EVENTFD_EPOLL,
	EVENTFD_READ,
	FUTEX,
	COND,
	PIPE,
	SPIN
};

/* What all owners of a run share. */
struct costs {
	int wake;
	bool timer, alloc;
	bool polls;             /* a planted fault: owners never sleep */
	pthread_mutex_t timers; /* the process-wide lock that arming a timer takes */
	uint32_t resting;       /* the hub increments it so that spinning owners sleep */
};

struct owner {
	struct costs *costs;
	struct queue queue;
	struct sync wake;
	/* The following belong to the owner alone. */
	struct klat_worker *worker;
	int epoll, timer;
	uint32_t rested; /* costs->resting when it slept last */
	int64_t armed, waited, handled;
} KLAT_ALIGNED;

extern const char *const wake_names[];

/* How many descriptors an owner needs. */
int owner_descriptors(const struct costs *costs);
/* 0 or -errno. The descriptors end with the process. */
int owner_init(struct owner *owner, struct costs *costs);

/* Push a message and wake the owner. */
int owner_send(struct owner *owner, struct message *message);

/* A pass of the loop without its wait: arm the timer if there is one. */
int owner_pass(struct owner *owner);
/* Wait until another thread has sent since the last call. */
int owner_wait(struct owner *owner);
/* Run passes of the loop until there is a message. */
int owner_take(struct owner *owner, struct message **message);

/* A message: allocated, or `reused` with --alloc none. */
struct message *message_make(const struct costs *costs, struct message *reused);
void message_free(const struct costs *costs, struct message *message);

#endif
