/* SPDX-License-Identifier: MIT */
#include "dispatch.h"

#include <stdlib.h>

int dispatch_open(struct loop *loop)
{
	struct dispatch *dispatch = calloc(1, sizeof(*dispatch));
	int err = 0;

	if (!dispatch)
		return -ENOMEM;
	loop->dispatch = dispatch;
	if (loop->has_timers)
		err = timers_open(&dispatch->timers, loop->count);
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
