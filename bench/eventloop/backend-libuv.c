/* SPDX-License-Identifier: MIT */
/*
 * libuv over epoll. libuv watches a foreign descriptor with a poll handle, which is started and
 * closed in every round. Its timers count milliseconds.
 */
#include "eventloop.h"

#include <uv.h>

struct watcher {
	uv_poll_t io;
	uv_timer_t timer;
};

static void on_timer(uv_timer_t *timer)
{
	((struct loop *)timer->data)->tally.fired++;
}

static int set_timer(struct loop *loop, struct watcher *watcher)
{
	return uv_timer_start(&watcher->timer, on_timer, loop_draw(loop) / 1000000, 0);
}

static void on_readable(uv_poll_t *io, int status, int events)
{
	struct pair *pair = io->data;
	struct loop *loop = pair->loop;

	(void)events;
	if (status)
		loop_failed(loop, -status);
	if (loop->has_timers)
		set_timer(loop, (struct watcher *)io);
	loop_handle(loop, pair);
}

static int open_libuv(struct loop *loop)
{
	return uv_loop_init(loop->own);
}

static int watch(struct loop *loop)
{
	struct watcher *watcher = loop->each;
	int err = 0;

	uv_update_time(loop->own);
	for (struct pair *pair = loop->pairs; pair < loop->end && !err; pair++, watcher++) {
		err = uv_poll_init(loop->own, &watcher->io, pair->in);
		watcher->io.data = pair;
		err = err ?: uv_poll_start(&watcher->io, UV_READABLE, on_readable);
		if (err || !loop->has_timers)
			continue;
		uv_timer_init(loop->own, &watcher->timer);
		watcher->timer.data = loop;
		err = set_timer(loop, watcher);
	}
	return err;
}

static int pass(struct loop *loop)
{
	uv_run(loop->own, UV_RUN_NOWAIT);
	return 0;
}

static int unwatch(struct loop *loop)
{
	struct watcher *watchers = loop->each;

	for (int i = 0; i < loop->count; i++) {
		uv_close((uv_handle_t *)&watchers[i].io, NULL);
		if (loop->has_timers)
			uv_close((uv_handle_t *)&watchers[i].timer, NULL);
	}
	return pass(loop);
}

const struct backend backend_libuv = {
	.own = sizeof(uv_loop_t),
	.each = sizeof(struct watcher),
	.open = open_libuv,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.no_priorities = true,
	.no_batch = true,
};
