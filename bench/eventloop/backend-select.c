/* SPDX-License-Identifier: MIT */
/* select(): like poll(), with sets of bits for descriptors below FD_SETSIZE (1,024). */
#include "dispatch.h"

#include <sys/select.h>

struct selected {
	fd_set watched;
	int above; /* the highest descriptor, plus one */
	int from;
};

static int watch(struct loop *loop)
{
	struct selected *selected = loop->own;

	FD_ZERO(&selected->watched);
	selected->above = 0;
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		if (pair->in >= FD_SETSIZE)
			return -EMFILE;
		FD_SET(pair->in, &selected->watched);
		if (pair->in >= selected->above)
			selected->above = pair->in + 1;
	}
	dispatch_watch(loop);
	return 0;
}

static int pass(struct loop *loop)
{
	static const struct timeval at_once;
	struct selected *selected = loop->own;
	struct timeval timeout = at_once;
	fd_set readable = selected->watched;
	int left = select(selected->above, &readable, NULL, NULL, &timeout), at = selected->from;

	if (left < 0)
		return -errno;
	if (loop->batch && left > loop->batch)
		left = loop->batch;
	dispatch_begin(loop);
	for (; left; at = at + 1 == loop->count ? 0 : at + 1) {
		if (!FD_ISSET(loop->pairs[at].in, &readable))
			continue;
		left--;
		dispatch_ready(loop, &loop->pairs[at]);
	}
	if (loop->batch)
		selected->from = at;
	dispatch_end(loop);
	return 0;
}

const struct backend backend_select = {
	.own = sizeof(struct selected),
	.open = dispatch_open,
	.watch = watch,
	.pass = pass,
	.unwatch = dispatch_unwatch,
	/* Besides standard streams and what the program itself holds open. */
	.most_pairs = FD_SETSIZE - 16,
};
