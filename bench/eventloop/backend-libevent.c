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

struct watcher {
	struct event io, timer;
};

static struct watcher *watcher_of(const struct pair *pair)
{
	return (struct watcher *)pair->loop->each + (pair - pair->loop->pairs);
}

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

	(void)fd;
	(void)events;
	if (loop->has_timers && set_timer(loop, watcher_of(pair)))
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
	struct event_config *config = event_config_new();

	if (!config)
		return -ENOMEM;
	/* EVENT_NOEPOLL and the like choose another backend. */
	event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
	if (loop->batch)
		event_config_set_max_dispatch_interval(config, NULL, loop->batch, 0);
	loop->own = event_base_new_with_config(config);
	event_config_free(config);
	if (!loop->own)
		return -ENOMEM;
	if (loop->has_priorities && event_base_priority_init(loop->own, LEVELS))
		return -EINVAL;
	return 0;
}

static int watch(struct loop *loop)
{
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		struct watcher *watcher = watcher_of(pair);

		event_assign(&watcher->io, loop->own, pair->in, EV_READ | EV_PERSIST, on_readable,
			     pair);
		if (loop->has_priorities)
			event_priority_set(&watcher->io, pair->level);
		if (event_add(&watcher->io, NULL))
			return -EIO;
		if (!loop->has_timers)
			continue;
		evtimer_assign(&watcher->timer, loop->own, on_timer, loop);
		if (set_timer(loop, watcher))
			return -EIO;
	}
	return 0;
}

static int pass(struct loop *loop)
{
	return event_base_loop(loop->own, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0 ? -EIO : 0;
}

static int unwatch(struct loop *loop)
{
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		event_del(&watcher_of(pair)->io);
		if (loop->has_timers)
			event_del(&watcher_of(pair)->timer);
	}
	return 0;
}

const struct backend backend_libevent = {
	.each = sizeof(struct watcher),
	.open = open_libevent,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.polls_on = true,
};
