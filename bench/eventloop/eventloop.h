/* SPDX-License-Identifier: MIT */
/*
 * eventloop.h - what the benchmark and its backends share.
 *
 * A byte that arrives at a pair makes its descriptor readable. The backend finds the descriptor and
 * handles the byte, which writes one to the next pair. Every backend makes the same reads and
 * writes with the functions below. Backends differ in how they find readable descriptors.
 */
#ifndef EVENTLOOP_H
#define EVENTLOOP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Priorities of watchers; 0 is the most urgent. libev has this many. */
#define LEVELS 5
/* Size of a read if the backend has to read all bytes. */
#define MOST_TAKEN 64

enum descriptor {
	SOCKETPAIR,
	PIPE,
	EVENTFD,
};

struct pair {
	int in, out;      /* `in` is watched; for an eventfd both are the same */
	uint8_t tag;      /* the byte that belongs here */
	int level;        /* priority */
	int32_t first;    /* bytes written to it at the start of a round */
	int32_t forwards; /* bytes that it still has to pass on in this round */
	int32_t reads;    /* bytes that it has read in this round */
	int32_t planned;  /* bytes to read in this round */
	int32_t kept;     /* of these, the bytes that it does not pass on */
	int32_t taken;    /* bytes that the backend has read by itself */
	int32_t entry;    /* of its timer: see dispatch.h */
	int64_t deadline;
	struct loop *loop;
};

/* What happened in a round, or in all of them. */
struct tally {
	int64_t reads, writes;  /* bytes */
	int64_t passes, empty;  /* `empty`: passes that found nothing */
	int64_t rearmed, fired; /* timers */
	int64_t spurious;       /* reported as readable, but there was nothing to read */
	int64_t wrong_bytes;    /* read where another belongs */
	int64_t wrong_pairs;    /* read another number of bytes than planned */
	int64_t disordered;     /* handled after a less urgent one of the same pass */
};

struct backend;
struct dispatch;

struct loop {
	const struct backend *backend;
	void *own, *each;          /* the backend's state, and an array with one element a pair */
	struct dispatch *dispatch; /* of backends without a library */
	struct pair *pairs, *end;
	int count, batch; /* pairs; most events handled in a pass, 0 for no limit */
	enum descriptor descriptor;
	bool has_timers, has_priorities;
	bool takes_all; /* a read takes all bytes, else one */

	const uint32_t *draws; /* nanoseconds below a second, drawn before the round */
	uint32_t draw, draw_mask;

	int error; /* the first of the round, -errno */
	int last_level;
	struct tally tally;
};

/*
 * `in` of a pair is nonblocking unless the backend reads by itself. Functions return 0 or -errno.
 * watch() starts to watch every pair and sets the timers. pass() asks once, without waiting, which
 * pairs are readable, and handles these in order of priority. unwatch() ends the watches. The end
 * of the process releases what open() makes.
 */
struct backend {
	size_t own,
		each; /* bytes of loop->own and of an element of loop->each, zeroed for open() */
	int (*open)(struct loop *loop);
	int (*watch)(struct loop *loop);
	int (*pass)(struct loop *loop);
	int (*unwatch)(struct loop *loop);
	/* Own backends only: after a pair was handled. */
	void (*handled)(struct loop *loop, struct pair *pair);
	bool takes_all;               /* reports arrivals only: a handler has to read all bytes */
	bool reads;                   /* reads the bytes itself */
	bool no_priorities, no_batch; /* the backend has no such feature */
	bool polls_on;      /* a pass may ask the kernel several times: no order to check */
	int most_pairs;     /* 0 for no limit of its own */
	const char *denied; /* the message if the kernel refuses to open it */
};

/* Those whose library was missing when klat was built are NULL. */
extern const struct backend backend_none, backend_epoll, backend_epoll_oneshot, backend_epoll_edge,
	backend_poll, backend_select;
#define MAY_BE_LEFT_OUT __attribute__((weak))
extern const struct backend backend_libev MAY_BE_LEFT_OUT, backend_libevent MAY_BE_LEFT_OUT,
	backend_libuv MAY_BE_LEFT_OUT, backend_io_uring_poll MAY_BE_LEFT_OUT,
	backend_io_uring_read MAY_BE_LEFT_OUT, backend_dasynq MAY_BE_LEFT_OUT;

static inline struct pair *loop_next(const struct loop *loop, const struct pair *pair)
{
	return pair + 1 == loop->end ? loop->pairs : (struct pair *)pair + 1;
}

/* The timeout of a timer in ns: 10 to 11 seconds, as published. */
static inline int64_t loop_draw(struct loop *loop)
{
	loop->tally.rearmed++;
	return INT64_C(10000000000) + loop->draws[loop->draw++ & loop->draw_mask];
}

static inline void loop_failed(struct loop *loop, int error)
{
	if (!loop->error)
		loop->error = -error;
}

/* Write the byte that belongs to a pair. */
static inline void loop_send(struct loop *loop, const struct pair *pair)
{
	static const uint64_t one = 1;
	bool event = loop->descriptor == EVENTFD;
	ssize_t size = event ? sizeof(one) : sizeof(pair->tag);

	if (write(pair->out, event ? (const void *)&one : &pair->tag, size) != size)
		loop_failed(loop, errno);
	else
		loop->tally.writes++;
}

/* The number of bytes read from a pair. Counts those that belong elsewhere. */
static inline int32_t loop_count_bytes(struct loop *loop, const struct pair *pair,
				       const void *bytes, ssize_t size)
{
	if (loop->descriptor == EVENTFD)
		return *(const uint64_t *)bytes;
	for (ssize_t i = 0; i < size; i++)
		loop->tally.wrong_bytes += ((const uint8_t *)bytes)[i] != pair->tag;
	return size;
}

/* Pass on bytes that a pair received. */
static inline void loop_pass_on(struct loop *loop, struct pair *pair, int32_t count)
{
	loop->tally.reads += count;
	pair->reads += count;
	for (; count > 0 && pair->forwards > 0; count--) {
		pair->forwards--;
		loop_send(loop, loop_next(loop, pair));
	}
}

static inline void loop_check_order(struct loop *loop, const struct pair *pair)
{
	if (!loop->has_priorities)
		return;
	loop->tally.disordered += pair->level < loop->last_level;
	loop->last_level = pair->level;
}

/* The work of every callback, except for its timer. */
static inline void loop_handle(struct loop *loop, struct pair *pair)
{
	uint64_t bytes[MOST_TAKEN / sizeof(uint64_t)];
	size_t size = loop->descriptor == EVENTFD ? sizeof(uint64_t)
		      : loop->takes_all           ? sizeof(bytes)
						  : 1;
	ssize_t got;

	loop_check_order(loop, pair);
	do {
		got = read(pair->in, bytes, size);
		if (got > 0)
			loop_pass_on(loop, pair, loop_count_bytes(loop, pair, bytes, got));
		else if (got < 0 && errno == EAGAIN)
			loop->tally.spurious++;
		else
			loop_failed(loop, got ? errno : EPIPE);
	} while (got == (ssize_t)sizeof(bytes));
}

#ifdef __cplusplus
}
#endif
#endif
