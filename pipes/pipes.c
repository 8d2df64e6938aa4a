/* SPDX-License-Identifier: MIT */
/*
 * Two pipes between a writer and a reader. Timed, on every iteration: from before the write to
 * after the answer is read (round trip), or until the reader has the bytes (one-way). Not timed:
 * making the pipes, the wait before the next one-way message. The trap: dividing a whole loop by
 * its count hides the distribution, and a reader that is still awake when the bytes come makes the
 * pipe look fast; so each round trip is stamped, and who is woken in it must be seen to have slept.
 */
#include "klat.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

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

static const char *const peers[] = { "thread", "process", NULL };
static const char *const waits[] = { "read", "epoll", NULL };
static const char *const modes[] = { "round-trip", "one-way", NULL };
static const char *const sides[] = { "none", "reader", "writer", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "bytes", "N", "bytes in each message", KLAT_INTEGER, AT(bytes), 1, MAX_BYTES, NULL,
	  false },
	{ "peer", "thread|process", "what the reader is", KLAT_CHOICE, AT(peer), 0, 0, peers,
	  false },
	{ "wait", "read|epoll", "how both sides wait", KLAT_CHOICE, AT(wait), 0, 0, waits, false },
	{ "mode", "round-trip|one-way", "what is timed", KLAT_CHOICE, AT(mode), 0, 0, modes,
	  false },
	{ "higher", "none|reader|writer", "one-way: the side with the higher priority", KLAT_CHOICE,
	  AT(higher), 0, 0, sides, false },
	{ "low-priority", "N", "one-way: priority of the other side", KLAT_INTEGER,
	  AT(low_priority), 1, 98, NULL, false },
	{ "gap", "US", "one-way: rest before each message, for the reader to fall asleep",
	  KLAT_INTEGER, AT(gap_us), 0, 1000000, NULL, false },
};

static const struct options defaults = { .bytes = 1, .gap_us = 50, .low_priority = 19 };

static const struct klat_metric metrics[] = {
	[ROUND_TRIP] = { "round_trip", "write to answer read, on the writer's CPU", true },
	[ONE_WAY] = { "one_way", "before the write to bytes read, writer's CPU to reader's", true },
};

static const struct klat_published published[] = {
	{ "round_trip", "bytes=1;mode=round-trip", 8769.87, "cycles",
	  "two CPUs, 1 byte, mean of 500 runs, sd 61.5; Linux, 2013 (its program printed half)" },
};

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;

	if (o->mode == 0 && o->higher != NONE)
		return klat_usage(run, "--higher goes with --mode one-way");
	run->cpu_count = 2;
	run->low_priority = o->higher == NONE ? 0 : o->low_priority;
	klat_use_metric(run, o->mode == 0 ? ROUND_TRIP : ONE_WAY, 1);
	if (o->mode == 1)
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

static int send_message(int fd, char *bytes, size_t size)
{
	return transfer_all(write_some, fd, bytes, size);
}

/* `epoll_fd` is negative when the wait is the read itself. */
static int receive_message(int fd, int epoll_fd, char *bytes, size_t size)
{
	struct epoll_event event;

	if (epoll_fd >= 0 && epoll_wait(epoll_fd, &event, 1, -1) < 0)
		return -errno;
	return transfer_all(read, fd, bytes, size);
}

static int make_epoll(const struct klat_run *run, int fd, int *epoll_fd)
{
	const struct options *o = run->options;
	struct epoll_event event = { .events = EPOLLIN };

	*epoll_fd = -1;
	if (o->wait == READ)
		return 0;
	*epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return *epoll_fd < 0 || epoll_ctl(*epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int writer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0);
	int epoll_fd, err = make_epoll(run, state->back[0], &epoll_fd);

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		uint64_t begin;

		klat_iteration(worker, i);
		/* Two threads that only wait for each other leave their one CPU no idle time. */
		if (run->one_cpu)
			klat_rest(worker);
		if (o->mode == 1 && o->gap_us)
			klat_sleep(worker, o->gap_us * 1000);
		begin = klat_stamp_begin();
		state->start = begin;
		err = send_message(state->there[1], state->bytes[0], o->bytes);
		if (!err)
			err = receive_message(state->back[0], epoll_fd, state->bytes[0],
					      o->mode == 1 ? 1 : o->bytes);
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
	int epoll_fd, err = make_epoll(run, state->there[0], &epoll_fd);

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		klat_iteration(worker, i);
		err = receive_message(state->there[0], epoll_fd, state->bytes[1], o->bytes);
		klat_inject(run, i);
		if (one_way)
			one_way[i] = klat_stamp_end(worker) - state->start;
		if (!err)
			err = send_message(state->back[1], state->bytes[1],
					   o->mode == 1 ? 1 : o->bytes);
	}
	return err;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;

	if (pipe(state->there) || pipe(state->back))
		return klat_error(run, errno, "cannot make a pipe: %s", strerror(errno));
	struct klat_worker *worker;

	worker = klat_worker_add(run, "writer", 0, o->higher == READER ? KLAT_LOW : KLAT_HIGH,
				 writer);
	/* One way, the gap ends half of its sleeps. */
	worker->woken = o->mode == 0;
	worker = klat_worker_add(run, "reader", 1, o->higher == WRITER ? KLAT_LOW : KLAT_HIGH,
				 reader);
	worker->woken = true;
	worker->process = o->peer == PROCESS;
	return 0;
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;

	klat_verify_slept(run, "reader");
	/* One way, the writer's wait for the answer is in no sample. */
	if (o->mode == 0)
		klat_verify_slept(run, "writer");
	return 0;
}

static const struct klat_benchmark pipes = {
	.name = "pipes",
	.summary = "round trip over a pair of pipes between two CPUs",
	.description = "A writer sends a message through one pipe, a reader sends it back through "
		       "another. Each round trip is timed "
		       "on the writer's CPU, from before write() to after read() returns; with "
		       "--mode one-way, from before the "
		       "write to after the reader's read(), whose two stamps come from two "
		       "counters, so that their offset is bounded "
		       "before and after.\n\n"
		       "Between two CPUs a round trip holds two wake-ups and, on an idle machine, "
		       "two exits from an idle state; on "
		       "one CPU (--cpus 1,1) it holds two context switches. The figures are not "
		       "comparable with each other, nor with "
		       "half of a round trip, which others print.",
	.examples =
		"pipes\tthe round trip of one byte between two CPUs\n"
		"pipes --cpus 1,1\tbetween two threads of one CPU\n"
		"pipes --cpus 1,1 --mode one-way --higher reader\tthe reader preempts the writer",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&pipes, argc, argv);
}
