/* SPDX-License-Identifier: MIT */
/* The queue and its owner, a loop. */
#ifndef MESSAGES_OWNER_H
#define MESSAGES_OWNER_H

#include "klat.h"
#include "sync/sync.h"

struct message {
	struct message *next;
	int64_t thread; /* the spoke of the star that it goes to and comes from */
	uint32_t round; /* of that spoke, from 1, warm-up included */
	/* Stamps: the hub's before it makes the message, the spoke's after it has handled the
	 * message and before it makes the answer. */
	uint64_t sent, taken, answered;
};

/*
 * A queue to which any thread pushes and from which only its owner takes. Pushed messages form a
 * stack; the owner takes the whole stack and reverses it. The owner never removes a single message
 * from the shared stack, so the ABA problem cannot occur and a push is one compare-and-swap.
 */
struct queue {
	struct message *pushed KLAT_ALIGNED; /* newest first */
	struct message *ready KLAT_ALIGNED;  /* the owner's, oldest first */
};

/* Release: the owner sees what was written to the message. */
static inline void queue_push(struct queue *queue, struct message *message)
{
	struct message *newest = __atomic_load_n(&queue->pushed, __ATOMIC_RELAXED);

	do
		message->next = newest;
	while (!__atomic_compare_exchange_n(&queue->pushed, &newest, message, true,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* Acquire pairs with the release of every push that is taken: they form one release sequence. */
static inline struct message *queue_take(struct queue *queue)
{
	struct message *message = queue->ready;

	if (!message) {
		struct message *newest =
			__atomic_exchange_n(&queue->pushed, NULL, __ATOMIC_ACQUIRE);

		while (newest) {
			struct message *older = newest->next;

			newest->next = message;
			message = newest;
			newest = older;
		}
	}
	if (message)
		queue->ready = message->next;
	return message;
}

/* For the owner. */
static inline bool queue_is_empty(const struct queue *queue)
{
	return !queue->ready && !__atomic_load_n(&queue->pushed, __ATOMIC_RELAXED);
}

enum {
	EVENTFD_EPOLL,
	EVENTFD_READ,
	FUTEX,
	COND,
	PIPE,
	SPIN,
	FUTEX_WAITV,
	URING_FUTEX,
	URING_EVENTFD,
	URING_MESSAGE
};

/* What all owners of a run share. */
struct costs {
	int wake;
	bool timer, alloc;
	bool polls;             /* a planted fault: owners never sleep */
	pthread_mutex_t timers; /* the process-wide lock that arming a timer takes */
	uint32_t resting;       /* the hub increments it so that spinning owners sleep */
};

/* The counts of one owner, or the sums over all. */
struct counts {
	int64_t handled, armed, waited;
	int64_t cpu_ns; /* observed */
};

struct owner {
	struct costs *costs;
	struct queue queue;
	struct sync wake;
	/* The following belong to the owner alone. */
	struct klat_worker *worker;
	int epoll, timer;
	uint32_t rested; /* costs->resting when it slept last */
	struct counts counts;
} KLAT_ALIGNED;

/* The primitive behind --wake. */
enum sync_kind owner_kind(int wake);
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
