/* SPDX-License-Identifier: MIT */
/*
 * poll(): each call passes every descriptor to the kernel, which looks at all of them. With a limit
 * on the events of a pass, the next pass starts after the last pair that was handled, so none
 * starves.
 */
#include "dispatch.h"

#include <poll.h>

static int watch(struct loop *loop)
{
	struct pollfd *fds = loop->each;

	for (int i = 0; i < loop->count; i++)
		fds[i] = (struct pollfd){ .fd = loop->pairs[i].in, .events = POLLIN };
	dispatch_watch(loop);
	return 0;
}

static int pass(struct loop *loop)
{
	const struct pollfd *fds = loop->each;
	int *from = loop->own, left = poll(loop->each, loop->count, 0), at = *from;

	if (left < 0)
		return -errno;
	if (loop->batch && left > loop->batch)
		left = loop->batch;
	dispatch_begin(loop);
	for (; left; at = at + 1 == loop->count ? 0 : at + 1) {
		if (!fds[at].revents)
			continue;
		left--;
		dispatch_ready(loop, &loop->pairs[at]);
	}
	if (loop->batch)
		*from = at;
	dispatch_end(loop);
	return 0;
}

const struct backend backend_poll = {
	.own = sizeof(int), /* the pair to start with */
	.each = sizeof(struct pollfd),
	.open = dispatch_open,
	.watch = watch,
	.pass = pass,
	.unwatch = dispatch_unwatch,
};
