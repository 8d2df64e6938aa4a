/* SPDX-License-Identifier: MIT */
/*
 * One timer for each pair, in a heap with four branches (Knuth, TAOCP 3, 5.2.3, exercise 28): it
 * has three levels where a binary heap has six. An entry holds a time at or before the pair's
 * deadline. A timer that is set to a later time leaves its entry alone; the entry moves when it
 * comes to the top. So a callback that defers its own timeout, as most do, costs one store.
 */
#ifndef TIMERS_H
#define TIMERS_H

#include "eventloop.h"

struct timers {
	struct entry {
		int64_t time;
		struct pair *pair;
	} * heap;
	int32_t count;
};

int timers_open(struct timers *timers, int32_t most);
/* Add a timer, or make an entry earlier: see timers_set(). */
void timers_add(struct timers *timers, struct pair *pair, int64_t deadline);
void timers_advance(struct timers *timers, struct pair *pair, int64_t deadline);
/* A pair whose deadline has passed, with its entry still in the heap, or NULL. */
struct pair *timers_expired(struct timers *timers, int64_t now);

static inline void timers_set(struct timers *timers, struct pair *pair, int64_t deadline)
{
	pair->deadline = deadline;
	if (deadline < timers->heap[pair->entry].time)
		timers_advance(timers, pair, deadline);
}

#endif
