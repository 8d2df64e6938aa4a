/* SPDX-License-Identifier: MIT */
#include "dispatch.h"

#include <stdlib.h>

#define BRANCHES 4

static void place(struct timers *timers, int32_t at, struct entry entry)
{
	timers->heap[at] = entry;
	entry.pair->entry = at;
}

static void move_up(struct timers *timers, int32_t at, struct entry entry)
{
	while (at > 0) {
		int32_t parent = (at - 1) / BRANCHES;

		if (timers->heap[parent].time <= entry.time)
			break;
		place(timers, at, timers->heap[parent]);
		at = parent;
	}
	place(timers, at, entry);
}

static void move_down(struct timers *timers, int32_t at, struct entry entry)
{
	for (;;) {
		int32_t first = at * BRANCHES + 1, end = first + BRANCHES, least = first;

		if (end > timers->count)
			end = timers->count;
		for (int32_t child = first + 1; child < end; child++)
			if (timers->heap[child].time < timers->heap[least].time)
				least = child;
		if (first >= end || timers->heap[least].time >= entry.time)
			break;
		place(timers, at, timers->heap[least]);
		at = least;
	}
	place(timers, at, entry);
}

static void timers_add(struct timers *timers, struct pair *pair, int64_t deadline)
{
	pair->deadline = deadline;
	move_up(timers, timers->count++, (struct entry){ deadline, pair });
}

void timers_advance(struct timers *timers, struct pair *pair, int64_t deadline)
{
	move_up(timers, pair->entry, (struct entry){ deadline, pair });
}

/* A pair whose deadline has passed, with its entry still in the heap, or NULL. */
static struct pair *timers_expired(struct timers *timers, int64_t now)
{
	while (timers->count && timers->heap[0].time <= now) {
		struct pair *pair = timers->heap[0].pair;

		if (pair->deadline <= now)
			return pair;
		move_down(timers, 0, (struct entry){ pair->deadline, pair });
	}
	return NULL;
}

int dispatch_open(struct loop *loop)
{
	struct dispatch *dispatch = calloc(1, sizeof(*dispatch));
	int err = 0;

	if (!dispatch)
		return -ENOMEM;
	loop->dispatch = dispatch;
	if (loop->has_timers) {
		dispatch->timers.heap = calloc(loop->count, sizeof(*dispatch->timers.heap));
		err = dispatch->timers.heap ? 0 : -ENOMEM;
	}
	for (int level = 0; level < LEVELS && loop->has_priorities && !err; level++) {
		/* As many as io_uring's completion queue can hold: before Linux 6.1 a polled pair
		 * may complete more than once before a pass. */
		dispatch->waiting[level] = calloc(4 * loop->count + 2048, sizeof(struct pair *));
		err = dispatch->waiting[level] ? 0 : -ENOMEM;
	}
	return err;
}

void dispatch_watch(struct loop *loop)
{
	struct dispatch *dispatch = loop->dispatch;

	if (!loop->has_timers)
		return;
	dispatch->timers.count = 0;
	dispatch->now = klat_now_ns();
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++)
		timers_add(&dispatch->timers, pair, dispatch->now + loop_draw(loop));
}

int dispatch_unwatch(struct loop *loop)
{
	(void)loop;
	return 0;
}

void dispatch_end(struct loop *loop)
{
	struct dispatch *dispatch = loop->dispatch;
	struct pair *pair;

	for (int level = 0; level < LEVELS && loop->has_priorities; level++) {
		for (int32_t i = 0; i < dispatch->counts[level]; i++)
			dispatch_handle(loop, dispatch->waiting[level][i]);
		dispatch->counts[level] = 0;
	}
	while (loop->has_timers && (pair = timers_expired(&dispatch->timers, dispatch->now))) {
		loop->tally.fired++;
		timers_set(&dispatch->timers, pair, dispatch->now + loop_draw(loop));
	}
}
