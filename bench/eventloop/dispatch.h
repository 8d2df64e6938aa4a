/* SPDX-License-Identifier: MIT */
/* Shared by the backends without a library: timers, and the order by priority. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include "base/clock.h"
#include "eventloop.h"

/*
 * One timer for each pair, in a heap with four branches (Knuth, TAOCP 3, 5.2.3, exercise 28): it
 * has three levels where a binary heap has six. An entry holds a time at or before the pair's
 * deadline. A timer that is set to a later time leaves its entry alone; the entry moves when it
 * comes to the top. So a callback that defers its own timeout, as most do, costs one store.
 */
struct timers {
	struct entry {
		int64_t time;
		struct pair *pair;
	} * heap;
	int32_t count;
};

/* Make an entry earlier: see timers_set(). */
void timers_advance(struct timers *timers, struct pair *pair, int64_t deadline);

static inline void timers_set(struct timers *timers, struct pair *pair, int64_t deadline)
{
	pair->deadline = deadline;
	if (deadline < timers->heap[pair->entry].time)
		timers_advance(timers, pair, deadline);
}

struct dispatch {
	struct timers timers;
	int64_t now; /* start of this pass */
	struct pair **waiting[LEVELS];
	int32_t counts[LEVELS];
};

int dispatch_open(struct loop *loop);
/* For watch(): set the timers. */
void dispatch_watch(struct loop *loop);
/* unwatch() of a backend without watches in the kernel. */
int dispatch_unwatch(struct loop *loop);
/* After the last dispatch_ready() of a pass: handle what waits for its priority, then timers. */
void dispatch_end(struct loop *loop);

/* Event loops read the clock once a pass. */
static inline void dispatch_begin(struct loop *loop)
{
	if (loop->has_timers)
		loop->dispatch->now = klat_now_ns();
}

static inline void dispatch_handle(struct loop *loop, struct pair *pair)
{
	struct dispatch *dispatch = loop->dispatch;

	if (loop->has_timers)
		timers_set(&dispatch->timers, pair, dispatch->now + loop_draw(loop));
	if (loop->backend->reads) {
		loop_check_order(loop, pair);
		loop_pass_on(loop, pair, pair->taken);
	} else {
		loop_handle(loop, pair);
	}
	if (loop->backend->handled)
		loop->backend->handled(loop, pair);
}

/* A pair was found readable. */
static inline void dispatch_ready(struct loop *loop, struct pair *pair)
{
	struct dispatch *dispatch = loop->dispatch;

	if (loop->has_priorities)
		dispatch->waiting[pair->level][dispatch->counts[pair->level]++] = pair;
	else
		dispatch_handle(loop, pair);
}

#endif
