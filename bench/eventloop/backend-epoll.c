/* SPDX-License-Identifier: MIT */
/*
 * epoll in its three modes. Level-triggered, it reports a descriptor as long as the descriptor is
 * readable. With EPOLLONESHOT it reports a descriptor once; arming it again is a system call for
 * each event, as in loops that hand events to several threads. Edge-triggered, it reports the
 * arrival of a byte, and the handler has to read all bytes.
 */
#include "dispatch.h"

#include <sys/epoll.h>

/* The rest waits for the next pass. */
#define MOST_EVENTS 4096

struct epoll {
	int fd, limit;
};

static int open_epoll(struct loop *loop)
{
	struct epoll *epoll = loop->own;

	epoll->limit = loop->batch ? loop->batch : MOST_EVENTS;
	if (epoll->limit > loop->count)
		epoll->limit = loop->count;
	epoll->fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll->fd < 0 ? -errno : dispatch_open(loop);
}

static int watch(struct loop *loop)
{
	struct epoll *epoll = loop->own;
	const uint32_t mode = loop->backend == &backend_epoll_oneshot ? EPOLLONESHOT
			      : loop->backend == &backend_epoll_edge  ? EPOLLET
								      : 0;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		struct epoll_event event = { .events = EPOLLIN | mode, .data.ptr = pair };

		if (epoll_ctl(epoll->fd, EPOLL_CTL_ADD, pair->in, &event))
			return -errno;
	}
	dispatch_watch(loop);
	return 0;
}

static int pass(struct loop *loop)
{
	struct epoll *epoll = loop->own;
	const struct epoll_event *events = loop->each;
	int count = epoll_wait(epoll->fd, loop->each, epoll->limit, 0);

	if (count < 0)
		return -errno;
	dispatch_begin(loop);
	for (int i = 0; i < count; i++)
		dispatch_ready(loop, events[i].data.ptr);
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

#define EPOLL                                                                                      \
	.own = sizeof(struct epoll), .each = sizeof(struct epoll_event), .open = open_epoll,       \
	.watch = watch, .pass = pass, .unwatch = unwatch

const struct backend backend_epoll = { EPOLL };
const struct backend backend_epoll_oneshot = { EPOLL, .handled = arm_again };
const struct backend backend_epoll_edge = { EPOLL, .takes_all = true };
