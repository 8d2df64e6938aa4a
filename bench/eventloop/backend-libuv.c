/* SPDX-License-Identifier: MIT */
/*
 * libuv over epoll. libuv watches a foreign descriptor with a poll handle, which is started and
 * closed in every round. Its timers count milliseconds.
 */
#include "eventloop.h"

#include <stdlib.h>
#include <uv.h>

struct watcher {
	uv_poll_t io;
	uv_timer_t timer;
};

struct libuv {
	uv_loop_t loop;
	bool begun;
	struct watcher *watchers;
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
	struct libuv *libuv = calloc(1, sizeof(*libuv));
	int err;

	if (!libuv)
		return -ENOMEM;
	loop->own = libuv;
	libuv->watchers = calloc(loop->count, sizeof(*libuv->watchers));
	if (!libuv->watchers)
		return -ENOMEM;
	err = uv_loop_init(&libuv->loop);
	libuv->begun = !err;
	return err;
}

static int watch(struct loop *loop)
{
	struct libuv *libuv = loop->own;
	int err = 0;

	uv_update_time(&libuv->loop);
	for (struct pair *pair = loop->pairs; pair < loop->end && !err; pair++) {
		struct watcher *watcher = &libuv->watchers[pair - loop->pairs];

		err = uv_poll_init(&libuv->loop, &watcher->io, pair->in);
		watcher->io.data = pair;
		err = err ?: uv_poll_start(&watcher->io, UV_READABLE, on_readable);
		if (err || !loop->has_timers)
			continue;
		uv_timer_init(&libuv->loop, &watcher->timer);
		watcher->timer.data = loop;
		err = set_timer(loop, watcher);
	}
	return err;
}

static int pass(struct loop *loop)
{
	uv_run(&((struct libuv *)loop->own)->loop, UV_RUN_NOWAIT);
	return 0;
}

static int unwatch(struct loop *loop)
{
	struct libuv *libuv = loop->own;

	for (int i = 0; i < loop->count; i++) {
		uv_close((uv_handle_t *)&libuv->watchers[i].io, NULL);
		if (loop->has_timers)
			uv_close((uv_handle_t *)&libuv->watchers[i].timer, NULL);
	}
	return pass(loop);
}

static void close_libuv(struct loop *loop)
{
	struct libuv *libuv = loop->own;

	if (!libuv)
		return;
	if (libuv->begun)
		uv_loop_close(&libuv->loop);
	free(libuv->watchers);
	free(libuv);
}

const struct backend backend_libuv = {
	.open = open_libuv,
	.watch = watch,
	.pass = pass,
	.unwatch = unwatch,
	.close = close_libuv,
	.no_priorities = true,
	.no_batch = true,
};
