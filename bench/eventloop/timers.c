/* SPDX-License-Identifier: MIT */
#include "timers.h"

#include <stdlib.h>

#define BRANCHES 4

int timers_open(struct timers *timers, int32_t most)
{
	timers->count = 0;
	timers->heap = calloc(most, sizeof(*timers->heap));
	return timers->heap ? 0 : -ENOMEM;
}

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

void timers_add(struct timers *timers, struct pair *pair, int64_t deadline)
{
	pair->deadline = deadline;
	move_up(timers, timers->count++, (struct entry){ deadline, pair });
}

void timers_advance(struct timers *timers, struct pair *pair, int64_t deadline)
{
	move_up(timers, pair->entry, (struct entry){ deadline, pair });
}

struct pair *timers_expired(struct timers *timers, int64_t now)
{
	while (timers->count && timers->heap[0].time <= now) {
		struct pair *pair = timers->heap[0].pair;

		if (pair->deadline <= now)
			return pair;
		move_down(timers, 0, (struct entry){ pair->deadline, pair });
	}
	return NULL;
}
