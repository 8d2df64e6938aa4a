/* SPDX-License-Identifier: MIT */
/*
 * A queue to which any thread pushes and from which only its owner takes. Pushed messages form a
 * stack; the owner takes the whole stack and reverses it. The owner never removes a single message
 * from the shared stack, so the ABA problem cannot occur and a push is one compare-and-swap.
 */
#ifndef MESSAGES_QUEUE_H
#define MESSAGES_QUEUE_H

#include "klat.h"

struct message {
	struct message *next;
	int64_t thread; /* the spoke of the star that it goes to and comes from */
	uint32_t round; /* of that spoke, from 1, warm-up included */
	/* Stamps: the hub's before it makes the message, the spoke's after it has handled the
	 * message and before it makes the answer. */
	uint64_t sent, taken, answered;
};

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

#endif
