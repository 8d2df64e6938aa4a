/* SPDX-License-Identifier: MIT */
/*
 * A queue that any thread may push to and its owner alone takes from: a stack that is taken whole
 * and turned around. Taking all of it leaves nothing that could come back under the owner's hands,
 * so one compare-and-swap is enough to push.
 */
#ifndef MESSAGES_QUEUE_H
#define MESSAGES_QUEUE_H

#include "klat.h"

struct message {
	struct message *next;
	int64_t thread; /* of the star; whose bounce this is */
	uint32_t round; /* of that thread, from 1, warm-up included */
	/* Stamps: before it was made, after it was handled, before the answer was made. The first
	 * is the hub's, the others are the thread's. */
	uint64_t sent, taken, answered;
};

struct queue {
	struct message *pushed KLAT_ALIGNED; /* newest first */
	struct message *ready KLAT_ALIGNED;  /* the owner's, oldest first */
};

/* Release: who takes the message sees what was written to it. */
static inline void queue_push(struct queue *queue, struct message *message)
{
	struct message *newest = __atomic_load_n(&queue->pushed, __ATOMIC_RELAXED);

	do
		message->next = newest;
	while (!__atomic_compare_exchange_n(&queue->pushed, &newest, message, true,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* Acquire, for the release of every push that is taken: they form one release sequence. */
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

/* For the owner, who has taken all that was ready. */
static inline bool queue_is_empty(const struct queue *queue)
{
	return !queue->ready && !__atomic_load_n(&queue->pushed, __ATOMIC_SEQ_CST);
}

#endif
