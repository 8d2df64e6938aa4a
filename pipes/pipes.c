/* SPDX-License-Identifier: MIT */
/*
 * Two pipes between a writer and a reader.
 *
 * Timed: from before the write until the writer has read the reply (round trip), or until the
 * reader has read the bytes (one-way). Not timed: creating the pipes, the sleep before a one-way
 * message.
 *
 * Traps:
 * - The mean of a whole loop hides the distribution. So each round trip has its stamps.
 * - A pipe looks fast if the reader is still awake when the bytes come. So the kernel must have
 *   counted a sleep for each wakeup.
 */
#include "klat.h"
#include "sync/sync.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Metrics and modes. */
enum {
	ROUND_TRIP,
	ONE_WAY
};
enum {
	THREAD,
	PROCESS
};
enum {
	READ,
	EPOLL
};
enum {
	NONE,
	READER,
	WRITER
};

struct options {
	int64_t bytes, gap_us;
	int peer, wait, mode, higher;
	int64_t low_priority;
};

#define MAX_BYTES 65536

struct state {
	uint64_t start KLAT_ALIGNED;
	int there[2], back[2]; /* pipes: writer to reader, reader to writer */
	char bytes[2][MAX_BYTES];
};

static const struct options defaults = { .bytes = 1, .gap_us = 50, .low_priority = 19 };

static const struct klat_option options[] = {
	{ .name = "bytes", .help = "bytes in each message", KLAT_INTEGER(bytes, 1, MAX_BYTES) },
	{ .name = "peer", .help = "what the reader is", KLAT_CHOICE(peer, "thread", "process") },
	{ .name = "wait", .help = "how both sides wait", KLAT_CHOICE(wait, "read", "epoll") },
	{ .name = "mode", .help = "what is timed", KLAT_CHOICE(mode, "round-trip", "one-way") },
	{ .name = "higher",
	  .help = "one-way: the side with the higher priority",
	  KLAT_CHOICE(higher, "none", "reader", "writer") },
	{ .name = "low-priority",
	  .help = "one-way: priority of the other side",
	  KLAT_INTEGER(low_priority, 1, 98) },
	{ .name = "gap",
	  .argument = "US",
	  .help = "one-way: sleep before each message, so that the reader falls asleep",
	  KLAT_INTEGER(gap_us, 0, 1000000) },
};

static const struct klat_metric metrics[] = {
	[ROUND_TRIP] = { "round_trip", "write until the reply is read, on the writer's CPU",
			 .path_length = true, KLAT_WINDOWS("writer", "writer"),
			 .taken_by = "writer" },
	[ONE_WAY] = { "one_way", "write until the reader has the bytes, between two CPUs",
		      .path_length = true, .taken_by = "reader" },
};

static const struct klat_published published[] = {
	{ "round_trip", "bytes=1;mode=round-trip", 8769.87, "cycles",
	  "two CPUs, 1 byte, mean of 500 runs, sd 61.5; Linux, 2013 (its program printed half)" },
};

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;

	if (o->mode == ROUND_TRIP && o->higher != NONE)
		return klat_usage(run, "--higher needs --mode one-way");
	run->cpu_count = 2;
	run->low_priority = o->higher == NONE ? 0 : o->low_priority;
	klat_use_metric(run, o->mode, 1);
	if (o->mode == ONE_WAY)
		klat_bound_offset(run, ONE_WAY);
	return 0;
}

static int transfer_all(ssize_t (*transfer)(int, void *, size_t), int fd, char *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t count = transfer(fd, bytes + done, size - done);

		if (count <= 0)
			return count ? -errno : -EPIPE;
		done += count;
	}
	return 0;
}

static ssize_t write_some(int fd, void *bytes, size_t size)
{
	return write(fd, bytes, size);
}

/* Without epoll (a negative epoll_fd), the read waits. */
static int receive_message(int fd, int epoll_fd, char *bytes, size_t size)
{
	struct epoll_event event;

	if (epoll_fd >= 0 && TEMP_FAILURE_RETRY(epoll_wait(epoll_fd, &event, 1, -1)) < 0)
		return -errno;
	return transfer_all(read, fd, bytes, size);
}

/* 0, or -errno; *epoll_fd is negative with --wait read. */
static int open_epoll(const struct klat_run *run, int fd, int *epoll_fd)
{
	const struct options *o = run->options;

	*epoll_fd = o->wait == EPOLL ? sync_epoll(fd) : -1;
	return o->wait == EPOLL && *epoll_fd < 0 ? *epoll_fd : 0;
}

static int writer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0);
	int epoll_fd, err = open_epoll(run, state->back[0], &epoll_fd);

	for (int64_t i = klat_first(run); klat_goes_on(worker, &i) && !err; i++) {
		uint64_t begin;

		klat_iteration(worker, i);
		/* On one CPU, the two workers together never leave the CPU idle. */
		if (run->one_cpu)
			klat_rest(worker);
		if (o->mode == ONE_WAY && o->gap_us)
			klat_sleep(worker, o->gap_us * 1000);
		begin = klat_stamp_begin();
		state->start = begin;
		err = transfer_all(write_some, state->there[1], state->bytes[0], o->bytes);
		if (!err)
			err = receive_message(state->back[0], epoll_fd, state->bytes[0],
					      o->mode == ONE_WAY ? 1 : o->bytes);
		if (round_trip)
			round_trip[i] = klat_stamp_end(worker) - begin;
	}
	return err;
}

static int reader(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t *one_way = klat_series(run, ONE_WAY, 0);
	int epoll_fd, err = open_epoll(run, state->there[0], &epoll_fd);

	for (int64_t i = klat_first(run); klat_goes_on(worker, &i) && !err; i++) {
		klat_iteration(worker, i);
		err = receive_message(state->there[0], epoll_fd, state->bytes[1], o->bytes);
		klat_inject(run, i);
		if (one_way)
			one_way[i] = klat_stamp_end(worker) - state->start;
		if (!err)
			err = transfer_all(write_some, state->back[1], state->bytes[1],
					   o->mode == ONE_WAY ? 1 : o->bytes);
	}
	return err;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	const int parts = 1 + o->bytes / 4096;
	struct klat_worker *worker;

	if (sync_pipe(run, state->there, o->bytes) || sync_pipe(run, state->back, o->bytes))
		return -EIO;
	worker = klat_worker_add(run, "writer", 0, o->higher == READER ? KLAT_LOW : KLAT_HIGH,
				 writer);
	/* With one-way, half of the writer's wakeups end the gap, and no sample contains its wait
	 * for the reply. */
	worker->woken = o->mode == ROUND_TRIP;
	worker->sleeps = o->mode == ROUND_TRIP ? KLAT_MOSTLY : KLAT_COUNTED;
	/* A message longer than a page is read in parts. */
	worker->most_sleeps = parts;
	worker = klat_worker_add(run, "reader", 1, o->higher == WRITER ? KLAT_LOW : KLAT_HIGH,
				 reader);
	worker->woken = true;
	worker->sleeps = KLAT_MOSTLY;
	worker->most_sleeps = parts;
	worker->process = o->peer == PROCESS;
	return 0;
}

const struct klat_benchmark klat_benchmark = {
	.name = "pipes",
	.summary = "round trip over a pair of pipes between two CPUs",
	.description =
		"A writer sends a message through one pipe, a reader sends it back through "
		"another. Each round trip is timed on the writer's CPU, from before write() to "
		"after read() returns. With --mode one-way the stamps are before the write and "
		"after the reader's read(). They come from the counters of two CPUs. klat bounds "
		"the offset between the two counters before and after the run.\n\n"
		"Between two CPUs a round trip contains two wakeups and, on an idle machine, two "
		"exits from an idle state. On one CPU (--cpus 1,1) it contains two context "
		"switches. Do not compare one with the other, or either with half of a round trip, "
		"which other programs print.",
	.examples =
		"pipes\tthe round trip of one byte between two CPUs\n"
		"pipes --cpus 1,1\tbetween two threads of one CPU\n"
		"pipes --cpus 1,1 --mode one-way --higher reader\tthe reader preempts the writer",
	KLAT_OPTIONS(options),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.soaks = true,
	.configure = configure,
	.setup = setup,
};
