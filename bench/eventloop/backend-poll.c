/* SPDX-License-Identifier: MIT */
/*
 * poll(): each call passes every descriptor to the kernel, which looks at all of them. With a limit
 * on the events of a pass, the next pass starts after the last pair that was handled, so none
 * starves.
 */
#include "dispatch.h"

#include <poll.h>
#include <stdlib.h>

struct polled {
	int from;
	struct pollfd *fds;
};

static int open_poll(struct loop *loop)
{
	struct polled *polled = calloc(1, sizeof(*polled));

	if (!polled)
		return -ENOMEM;
	loop->own = polled;
	polled->fds = calloc(loop->count, sizeof(*polled->fds));
	return polled->fds ? dispatch_open(loop) : -ENOMEM;
}

static int watch(struct loop *loop)
{
	struct polled *polled = loop->own;

	for (int i = 0; i < loop->count; i++)
		polled->fds[i] = (struct pollfd){ .fd = loop->pairs[i].in, .events = POLLIN };
	dispatch_watch(loop);
	return 0;
}

static int pass(struct loop *loop)
{
	struct polled *polled = loop->own;
	int left = poll(polled->fds, loop->count, 0), at = polled->from;

	if (left < 0)
		return -errno;
	if (loop->batch && left > loop->batch)
		left = loop->batch;
	dispatch_begin(loop);
	for (; left; at = at + 1 == loop->count ? 0 : at + 1) {
		if (!polled->fds[at].revents)
			continue;
		left--;
		dispatch_ready(loop, &loop->pairs[at]);
	}
	if (loop->batch)
		polled->from = at;
	dispatch_end(loop);
	return 0;
}

static int unwatch(struct loop *loop)
{
	(void)loop;
	return 0;
}

static void close_poll(struct loop *loop)
{
	struct polled *polled = loop->own;

	dispatch_close(loop);
	if (polled)
		free(polled->fds);
	free(polled);
}

const struct backend backend_poll = {
	.open = open_poll,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_poll,
};
