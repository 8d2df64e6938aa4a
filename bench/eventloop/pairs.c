/* SPDX-License-Identifier: MIT */
#include "pairs.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static int make(const struct loop *loop, int fds[2])
{
	switch (loop->descriptor) {
	case SOCKETPAIR:
		return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
	case PIPE:
		return pipe2(fds, O_NONBLOCK | O_CLOEXEC);
	default:
		/* A read of a semaphore takes one, as a read of one byte does. */
		fds[0] = fds[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC |
						     (loop->takes_all ? 0 : EFD_SEMAPHORE));
		return fds[0] < 0 ? -1 : 0;
	}
}

/*
 * The watched ends have the lowest numbers, because select() takes none above 1,023. The ends for
 * writing have numbers above. A backend that reads by itself needs blocking descriptors.
 */
static int open_pair(struct loop *loop, struct pair *pair)
{
	int fds[2], moved;

	if (make(loop, fds))
		return -errno;
	pair->in = fds[0];
	pair->out = fds[1];
	if (loop->backend->reads && fcntl(pair->in, F_SETFL, 0))
		return -errno;
	if (pair->in == pair->out)
		return 0;
	moved = fcntl(pair->out, F_DUPFD_CLOEXEC, loop->count + OTHER_FILES / 2);
	if (moved < 0)
		return -errno;
	close(pair->out);
	pair->out = moved;
	return 0;
}

int pairs_open(struct loop *loop)
{
	int err = 0;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++)
		pair->in = pair->out = -1;
	for (struct pair *pair = loop->pairs; pair < loop->end && !err; pair++)
		err = open_pair(loop, pair);
	return err;
}

void pairs_close(struct loop *loop)
{
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		if (pair->out >= 0 && pair->out != pair->in)
			close(pair->out);
		if (pair->in >= 0)
			close(pair->in);
		pair->in = pair->out = -1;
	}
}

/* `hops` further pairs, from the one at `from` on, read a byte each; the last of them keeps it. */
static void plan_byte(struct loop *loop, int64_t from, int64_t hops)
{
	int64_t last = (from + hops - 1) % loop->count;

	loop->pairs[from].first++;
	for (int64_t i = 0; i < hops % loop->count; i++)
		loop->pairs[(from + i) % loop->count].planned++;
	for (int64_t i = 0; i < loop->count && hops >= loop->count; i++)
		loop->pairs[i].planned += hops / loop->count;
	loop->pairs[last].kept++;
}

void pairs_plan(struct loop *loop, int64_t active, int64_t writes)
{
	int64_t apart = loop->count / active;

	for (int i = 0; i < loop->count; i++) {
		loop->pairs[i].loop = loop;
		/* Neighbours differ. */
		loop->pairs[i].tag = i % 251;
	}
	for (int64_t i = 0; i < active; i++)
		plan_byte(loop, i * apart, writes / active + (i < writes % active));
}

void pairs_begin(struct loop *loop)
{
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		pair->reads = 0;
		pair->forwards = pair->planned - pair->kept;
	}
}

int64_t pairs_off_plan(const struct loop *loop)
{
	int64_t off = 0;

	for (const struct pair *pair = loop->pairs; pair < loop->end; pair++)
		off += pair->reads != pair->planned;
	return off;
}
