/* SPDX-License-Identifier: MIT */
/*
 * libevent over epoll, with its core library. Each timer is a separate event: a timeout on the
 * event of the descriptor would be set twice in each callback, by the library and by this backend.
 * libevent handles the most urgent events and asks the kernel again before the others, until none
 * are left.
 */
#include "eventloop.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

struct watcher {
	struct event io, timer;
};

struct libevent {
	struct event_base *base;
	struct watcher *watchers;
};

static int set_timer(struct loop *loop, struct watcher *watcher)
{
	int64_t us = loop_draw(loop) / 1000;
	const struct timeval timeout = { us / 1000000, us % 1000000 };

	return event_add(&watcher->timer, &timeout);
}

static void on_readable(evutil_socket_t fd, short events, void *argument)
{
	struct pair *pair = argument;
	struct loop *loop = pair->loop;
	struct libevent *libevent = loop->own;

	(void)fd;
	(void)events;
	if (loop->has_timers && set_timer(loop, &libevent->watchers[pair - loop->pairs]))
		loop_failed(loop, EIO);
	loop_handle(loop, pair);
}

static void on_timer(evutil_socket_t fd, short events, void *loop)
{
	(void)fd;
	(void)events;
	((struct loop *)loop)->tally.fired++;
}

static int open_libevent(struct loop *loop)
{
	struct libevent *libevent = calloc(1, sizeof(*libevent));
	struct event_config *config = event_config_new();

	loop->own = libevent;
	if (!libevent || !config) {
		event_config_free(config);
		return -ENOMEM;
	}
	/* EVENT_NOEPOLL and the like choose another backend. */
	event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
	if (loop->batch)
		event_config_set_max_dispatch_interval(config, NULL, loop->batch, 0);
	libevent->watchers = calloc(loop->count, sizeof(*libevent->watchers));
	libevent->base = event_base_new_with_config(config);
	event_config_free(config);
	if (!libevent->watchers || !libevent->base)
		return -ENOMEM;
	if (loop->has_priorities && event_base_priority_init(libevent->base, LEVELS))
		return -EINVAL;
	return 0;
}

static int watch(struct loop *loop)
{
	struct libevent *libevent = loop->own;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		struct watcher *watcher = &libevent->watchers[pair - loop->pairs];

		event_assign(&watcher->io, libevent->base, pair->in, EV_READ | EV_PERSIST,
			     on_readable, pair);
		if (loop->has_priorities)
			event_priority_set(&watcher->io, pair->level);
		if (event_add(&watcher->io, NULL))
			return -EIO;
		if (!loop->has_timers)
			continue;
		evtimer_assign(&watcher->timer, libevent->base, on_timer, loop);
		if (set_timer(loop, watcher))
			return -EIO;
	}
	return 0;
}

static int pass(struct loop *loop)
{
	struct libevent *libevent = loop->own;

	return event_base_loop(libevent->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0 ? -EIO : 0;
}

static int unwatch(struct loop *loop)
{
	struct libevent *libevent = loop->own;

	for (int i = 0; i < loop->count; i++) {
		event_del(&libevent->watchers[i].io);
		if (loop->has_timers)
			event_del(&libevent->watchers[i].timer);
	}
	return 0;
}

static void close_libevent(struct loop *loop)
{
	struct libevent *libevent = loop->own;

	if (!libevent)
		return;
	if (libevent->base)
		event_base_free(libevent->base);
	free(libevent->watchers);
	free(libevent);
}

const struct backend backend_libevent = {
	.open = open_libevent,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_libevent,
	.polls_on = true,
};
