/* SPDX-License-Identifier: MIT */
/* The owner of a queue: the loop that handles what is pushed there, and what wakes it. */
#ifndef MESSAGES_OWNER_H
#define MESSAGES_OWNER_H

#include "queue.h"

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
	bool timer, alloc, polls; /* polls: a planted fault, owners that never sleep */
	pthread_mutex_t timers;   /* the process-wide lock that arming a timer takes */
	uint32_t resting;         /* raised by one that rests and has those who spin rest, too */
};

struct owner {
	struct costs *costs;
	struct queue queue;
	int fds[2]; /* to read from and write to; the same for an eventfd */
	int epoll, timer;
	uint32_t notified KLAT_ALIGNED, sleeping; /* futex */
	pthread_mutex_t mutex KLAT_ALIGNED;
	pthread_cond_t cond;
	bool pending;
	uint32_t rested;
	/* Counts, by the owner alone. */
	int64_t armed, waited, handled;
} KLAT_ALIGNED;

extern const char *const wake_names[];

/* Descriptors that an owner takes. */
int owner_descriptors(const struct costs *costs);
/* 0, or -errno. The descriptors end with the process. */
int owner_init(struct owner *owner, struct costs *costs);

/* Hand a message over and wake the owner. */
int owner_send(struct owner *owner, struct message *message);
/* Only the latter. */
int owner_notify(struct owner *owner);

/* What a pass of the loop does besides waiting: arm a timer, where there is one. */
int owner_pass(struct owner *owner);
/* Wait until somebody has notified the owner since it last returned from here. */
int owner_wait(struct owner *owner);
/* Passes of the loop until there is a message. */
int owner_take(struct owner *owner, struct message **message);

/* The memory of a message: made anew, or `reused` where nothing is allocated. */
struct message *message_make(const struct costs *costs, struct message *reused);
void message_free(const struct costs *costs, struct message *message);

#endif
