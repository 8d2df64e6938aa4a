/* SPDX-License-Identifier: MIT */
/*
 * No event notification. The chain determines which pairs have a byte, and each is handled in its
 * turn. This takes the time of the reads and writes that every backend makes. The difference to
 * another backend is the cost of its event loop.
 */
#include "dispatch.h"

struct turns {
	struct pair **now, **next; /* one place for each byte on its way */
	int32_t count;
};

static int open_none(struct loop *loop)
{
	struct turns *turns = loop->own;

	turns->now = loop->each;
	turns->next = turns->now + loop->count;
	return dispatch_open(loop);
}

static int watch(struct loop *loop)
{
	struct turns *turns = loop->own;

	turns->count = 0;
	dispatch_watch(loop);
	return 0;
}

static void begin_with_the_first(struct loop *loop)
{
	struct turns *turns = loop->own;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++)
		for (int32_t i = 0; i < pair->first; i++)
			turns->now[turns->count++] = pair;
}

static int pass(struct loop *loop)
{
	struct turns *turns = loop->own;
	struct pair **handled = turns->now;
	int32_t count;

	if (!loop->tally.reads && loop->tally.writes)
		begin_with_the_first(loop);
	count = turns->count;
	turns->count = 0;
	dispatch_begin(loop);
	for (int32_t i = 0; i < count; i++) {
		int64_t writes = loop->tally.writes;

		dispatch_handle(loop, handled[i]);
		if (loop->tally.writes > writes)
			turns->next[turns->count++] = loop_next(loop, handled[i]);
	}
	dispatch_end(loop);
	turns->now = turns->next;
	turns->next = handled;
	return 0;
}

const struct backend backend_none = {
	.own = sizeof(struct turns),
	.each = 2 * sizeof(struct pair *),
	.open = open_none,
	.watch = watch,
	.pass = pass,
	.unwatch = dispatch_unwatch,
	.no_priorities = true,
	.no_batch = true,
};
