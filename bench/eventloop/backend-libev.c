/* SPDX-License-Identifier: MIT */
/*
 * libev over epoll. It tells the kernel about a new watcher in its next pass, and never about an
 * ended one: it ignores the descriptor if the kernel reports it, and finds the descriptor
 * registered when it is watched again. So a round begins and ends with a pass, and new descriptors
 * cost more.
 */
#include "eventloop.h"

#include <ev.h>

struct watcher {
	ev_io io;
	ev_timer timer;
};

static struct watcher *watcher_of(const struct pair *pair)
{
	return (struct watcher *)pair->loop->each + (pair - pair->loop->pairs);
}

static void set_timer(struct loop *loop, struct watcher *watcher)
{
	watcher->timer.repeat = loop_draw(loop) / 1e9;
	ev_timer_again(loop->own, &watcher->timer);
}

static void on_readable(struct ev_loop *ev, ev_io *io, int events)
{
	struct pair *pair = io->data;

	(void)ev;
	(void)events;
	if (pair->loop->has_timers)
		set_timer(pair->loop, (struct watcher *)io);
	loop_handle(pair->loop, pair);
}

static void on_timer(struct ev_loop *ev, ev_timer *timer, int events)
{
	(void)ev;
	(void)events;
	((struct loop *)timer->data)->tally.fired++;
}

static int open_libev(struct loop *loop)
{
	loop->own = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	return loop->own ? 0 : -ENOMEM;
}

static int pass(struct loop *loop)
{
	ev_run(loop->own, EVRUN_NOWAIT);
	return 0;
}

static int watch(struct loop *loop)
{
	ev_now_update(loop->own);
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		struct watcher *watcher = watcher_of(pair);

		ev_io_init(&watcher->io, on_readable, pair->in, EV_READ);
		watcher->io.data = pair;
		if (loop->has_priorities)
			ev_set_priority(&watcher->io, EV_MAXPRI - pair->level);
		ev_io_start(loop->own, &watcher->io);
		if (!loop->has_timers)
			continue;
		ev_init(&watcher->timer, on_timer);
		watcher->timer.data = loop;
		set_timer(loop, watcher);
	}
	return 0;
}

static int unwatch(struct loop *loop)
{
	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		ev_io_stop(loop->own, &watcher_of(pair)->io);
		if (loop->has_timers)
			ev_timer_stop(loop->own, &watcher_of(pair)->timer);
	}
	return pass(loop);
}

const struct backend backend_libev = {
	.each = sizeof(struct watcher),
	.open = open_libev,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.no_batch = true,
};
