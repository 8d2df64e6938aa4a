/* SPDX-License-Identifier: MIT */
/*
 * No event notification. The chain determines which pairs have a byte, and each is handled in its
 * turn. This takes the time of the reads and writes that every backend makes. The difference to
 * another backend is the cost of its event loop.
 */
#include "dispatch.h"

#include <stdlib.h>

struct turns {
	struct pair **now, **next; /* one place for each byte on its way */
	int32_t count;
};

static int open_none(struct loop *loop)
{
	struct turns *turns = calloc(1, sizeof(*turns));

	if (!turns)
		return -ENOMEM;
	loop->own = turns;
	turns->now = calloc(loop->count, sizeof(*turns->now));
	turns->next = calloc(loop->count, sizeof(*turns->next));
	return turns->now && turns->next ? dispatch_open(loop) : -ENOMEM;
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

static int unwatch(struct loop *loop)
{
	(void)loop;
	return 0;
}

static void close_none(struct loop *loop)
{
	struct turns *turns = loop->own;

	dispatch_close(loop);
	if (!turns)
		return;
	free(turns->now);
	free(turns->next);
	free(turns);
}

const struct backend backend_none = {
	.open = open_none,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_none,
	.no_priorities = true,
	.no_batch = true,
};
