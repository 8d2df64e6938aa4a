/* SPDX-License-Identifier: MIT */
/*
 * io_uring in two modes. A multishot poll request for each pair reports every arrival, and the
 * handler reads all bytes. Or a read request for each pair returns its byte and is then submitted
 * again. New requests go to the kernel with the call that asks for completions, one system call a
 * pass.
 */
#include "dispatch.h"

#include "prefault.h"

#include <liburing.h>
#include <poll.h>
#include <string.h>

#define MOST_REQUESTS 1024

static int open_uring(struct loop *loop)
{
	/* Completions only when asked for, if the kernel has that (6.1). */
	static const unsigned ways[] = { IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
					 IORING_SETUP_COOP_TASKRUN, 0 };
	int err = -EINVAL;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && err == -EINVAL; i++) {
		struct io_uring_params params = { .flags = ways[i] | IORING_SETUP_CQSIZE,
						  .cq_entries = 2 * loop->count + MOST_REQUESTS };

		err = io_uring_queue_init_params(MOST_REQUESTS, loop->own, &params);
	}
	if (!err)
		klat_prefault();
	return err ?: dispatch_open(loop);
}

/* A request to fill in. If the queue is full, submit it first. */
static int request(struct io_uring *ring, struct io_uring_sqe **sqe)
{
	int err = 0;

	while (!(*sqe = io_uring_get_sqe(ring)) && err >= 0)
		err = io_uring_submit(ring);
	return *sqe ? 0 : err;
}

static uint64_t *buffer_of(const struct loop *loop, const struct pair *pair)
{
	return (uint64_t *)loop->each + (pair - loop->pairs);
}

/* Ask for a pair's next arrival, or byte. */
static int ask(struct loop *loop, struct pair *pair)
{
	struct io_uring *ring = loop->own;
	struct io_uring_sqe *sqe;
	int err = request(ring, &sqe);

	if (err)
		return err;
	if (loop->backend->reads)
		io_uring_prep_read(sqe, pair->in, buffer_of(loop, pair),
				   loop->descriptor == EVENTFD ? sizeof(uint64_t) : 1, -1);
	else
		io_uring_prep_poll_multishot(sqe, pair->in, POLLIN);
	io_uring_sqe_set_data(sqe, pair);
	return 0;
}

static int watch(struct loop *loop)
{
	struct io_uring *ring = loop->own;
	int err = 0;

	for (struct pair *pair = loop->pairs; pair < loop->end && !err; pair++)
		err = ask(loop, pair);
	err = err ?: io_uring_submit(ring);
	dispatch_watch(loop);
	return err < 0 ? err : 0;
}

static void completed(struct loop *loop, const struct io_uring_cqe *cqe)
{
	struct pair *pair = io_uring_cqe_get_data(cqe);
	int err = 0;

	if (cqe->res <= 0) {
		loop_failed(loop, cqe->res ? -cqe->res : EPIPE);
		return;
	}
	if (loop->backend->reads)
		pair->taken = loop_count_bytes(loop, pair, buffer_of(loop, pair), cqe->res);
	dispatch_ready(loop, pair);
	/* The kernel may end a multishot poll request. */
	if (!loop->backend->reads && !(cqe->flags & IORING_CQE_F_MORE))
		err = ask(loop, pair);
	if (err)
		loop_failed(loop, -err);
}

static void read_again(struct loop *loop, struct pair *pair)
{
	int err = ask(loop, pair);

	if (err)
		loop_failed(loop, -err);
}

static int pass(struct loop *loop)
{
	struct io_uring *ring = loop->own;
	unsigned ready, head, count = 0;
	struct io_uring_cqe *cqe;
	int err = io_uring_submit_and_get_events(ring);

	if (err < 0)
		return err;
	ready = io_uring_cq_ready(ring);
	if (loop->batch && ready > (unsigned)loop->batch)
		ready = loop->batch;
	dispatch_begin(loop);
	io_uring_for_each_cqe(ring, head, cqe) {
		if (count == ready)
			break;
		count++;
		completed(loop, cqe);
	}
	io_uring_cq_advance(ring, count);
	dispatch_end(loop);
	return 0;
}

/* Both the request and its cancellation complete. */
static int unwatch(struct loop *loop)
{
	struct io_uring *ring = loop->own;
	int left = 2 * loop->count;

	for (struct pair *pair = loop->pairs; pair < loop->end; pair++) {
		struct io_uring_sqe *sqe;
		int err = request(ring, &sqe);

		if (err)
			return err;
		io_uring_prep_cancel(sqe, pair, 0);
		io_uring_sqe_set_data(sqe, NULL);
	}
	while (left > 0) {
		struct __kernel_timespec limit = { .tv_sec = 2 };
		struct io_uring_cqe *cqe;
		int err = io_uring_submit_and_wait_timeout(ring, &cqe, 1, &limit, NULL);
		unsigned count;

		if (err < 0 && err != -EINTR)
			return err;
		count = io_uring_cq_ready(ring);
		io_uring_cq_advance(ring, count);
		left -= count;
	}
	return 0;
}

#define URING                                                                                      \
	.own = sizeof(struct io_uring), .each = sizeof(uint64_t), .open = open_uring,              \
	.watch = watch, .pass = pass, .unwatch = unwatch, .most_pairs = 30000,                     \
	.denied = "it takes Linux 5.13, and neither sysctl kernel.io_uring_disabled nor a "        \
		  "container's seccomp filter may forbid it"

const struct backend backend_io_uring_poll = { URING, .takes_all = true };
const struct backend backend_io_uring_read = { URING, .handled = read_again, .reads = true };
