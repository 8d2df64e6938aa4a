/* SPDX-License-Identifier: MIT */
/*
 * epoll in its three modes. Level-triggered, it reports a descriptor as long as the descriptor is
 * readable. With EPOLLONESHOT it reports a descriptor once; arming it again is a system call for
 * each event, as in loops that hand events to several threads. Edge-triggered, it reports the
 * arrival of a byte, and the handler has to read all bytes.
 */
#include "dispatch.h"

#include <stdlib.h>
#include <sys/epoll.h>

/* The rest waits for the next pass. */
#define MOST_EVENTS 4096

struct epoll {
	int fd, limit;
	struct epoll_event *events;
};

static uint32_t flags_of(const struct loop *loop)
{
	return loop->backend == &backend_epoll_oneshot ? EPOLLIN | EPOLLONESHOT
	       : loop->backend == &backend_epoll_edge  ? EPOLLIN | EPOLLET
						       : EPOLLIN;
}

static int open_epoll(struct loop *loop)
{
	struct epoll *epoll = calloc(1, sizeof(*epoll));

	if (!epoll)
		return -ENOMEM;
	loop->own = epoll;
	epoll->limit = loop->batch                 ? loop->batch
		       : loop->count < MOST_EVENTS ? loop->count
						   : MOST_EVENTS;
	epoll->fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll->fd < 0)
		return -errno;
	epoll->events = calloc(epoll->limit, sizeof(*epoll->events));
	return epoll->events ? dispatch_open(loop) : -ENOMEM;
}

static int watch(struct loop *loop)
{
	struct epoll *epoll = loop->own;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		struct epoll_event event = { .events = flags_of(loop), .data.ptr = pair };

		if (epoll_ctl(epoll->fd, EPOLL_CTL_ADD, pair->in, &event))
			return -errno;
	}
	dispatch_watch(loop);
	return 0;
}

static int pass(struct loop *loop)
{
	struct epoll *epoll = loop->own;
	int count = epoll_wait(epoll->fd, epoll->events, epoll->limit, 0);

	if (count < 0)
		return -errno;
	dispatch_begin(loop);
	for (int i = 0; i < count; i++)
		dispatch_ready(loop, epoll->events[i].data.ptr);
	dispatch_end(loop);
	return 0;
}

static void arm_again(struct loop *loop, struct pair *pair)
{
	struct epoll *epoll = loop->own;
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.ptr = pair };

	if (epoll_ctl(epoll->fd, EPOLL_CTL_MOD, pair->in, &event))
		loop_failed(loop, errno);
}

static int unwatch(struct loop *loop)
{
	struct epoll *epoll = loop->own;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++)
		if (epoll_ctl(epoll->fd, EPOLL_CTL_DEL, pair->in, NULL))
			return -errno;
	return 0;
}

static void close_epoll(struct loop *loop)
{
	struct epoll *epoll = loop->own;

	dispatch_close(loop);
	if (!epoll)
		return;
	if (epoll->fd >= 0)
		close(epoll->fd);
	free(epoll->events);
	free(epoll);
}

const struct backend backend_epoll = {
	.open = open_epoll,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_epoll,
};

const struct backend backend_epoll_oneshot = {
	.open = open_epoll,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_epoll,
	.handled = arm_again,
};

const struct backend backend_epoll_edge = {
	.open = open_epoll,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_epoll,
	.takes_all = true,
};
