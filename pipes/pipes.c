/* SPDX-License-Identifier: MIT */
/*
 * Two pipes between a writer and a reader. Not timed: the sleep before a one-way message. Traps:
 * - The mean of a whole loop hides the distribution. So each round trip has its stamps.
 * - A pipe looks fast if the reader is still awake when the bytes come. So the kernel must have
 *   counted a sleep for each wakeup.
 */
#include "klat.h"
#include "sync/sync.h"

enum { ROUND_TRIP, ONE_WAY }; /* metrics and modes */
enum { WRITER, READER };
enum { MAX_BYTES = 65536 };

static struct options {
	int64_t bytes, gap_us, low;
	int process, epoll, mode, higher;
} options = { .bytes = 1, .gap_us = 50, .low = 19 };

/* By worker: the pipe that it writes to, and its message. */
struct state {
	uint64_t start KLAT_ALIGNED;
	struct sync_pipe pipes[2];
	char bytes[2][MAX_BYTES];
};

static const struct klat_option option_table[] = {
	{ "bytes", "bytes in each message", KLAT_INTEGER(bytes, 1, MAX_BYTES) },
	{ "peer", "what the reader is", KLAT_CHOICE(process, "thread", "process") },
	{ "wait", "how both sides wait", KLAT_CHOICE(epoll, "read", "epoll") },
	{ "mode", "what is timed", KLAT_CHOICE(mode, "round-trip", "one-way") },
	{ "higher", "one-way: the side with the higher priority",
	  KLAT_CHOICE(higher, "none", "reader", "writer") },
	{ "low-priority", "one-way: priority of the other side", KLAT_INTEGER(low, 1, 98) },
	{ "gap", "one-way: sleep before each message, so that the reader falls asleep",
	  KLAT_INTEGER(gap_us, 0, 1000000), .argument = "US" },
};

static const struct klat_metric metrics[] = {
	[ROUND_TRIP] = { "round_trip", "write until the reply is read, on the writer's CPU",
			 .path_length = true, KLAT_WITHIN("writer", "writer") },
	[ONE_WAY] = { "one_way", "write until the reader has the bytes, between two CPUs",
		      .path_length = true, .taken_by = "reader" },
};

static const struct klat_published published[] = {
	{ "round_trip", "bytes=1;mode=round-trip", 8769.87, "cycles",
	  "two CPUs, 1 byte, mean of 500 runs, sd 61.5; Linux, 2013 (its program printed half)" },
};

static int configure(struct klat_run *run)
{
	if (options.mode == ROUND_TRIP && options.higher)
		return klat_usage(run, "--higher needs --mode one-way");
	run->low_priority = options.higher ? options.low : 0;
	klat_use_metric(run, options.mode, 1);
	if (options.mode == ONE_WAY)
		klat_bound_offset(run, ONE_WAY);
	return 0;
}

static int writer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const size_t size = options.bytes, reply = options.mode == ONE_WAY ? 1 : size;
	struct state *state = worker->state;
	uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0);
	int err = 0;

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		uint64_t begin;

		if (options.mode == ONE_WAY && options.gap_us)
			klat_sleep(worker, options.gap_us * 1000);
		begin = state->start = klat_stamp_begin();
		err = sync_pipe_put(&state->pipes[WRITER], state->bytes[WRITER], size)
			      ?: sync_pipe_take(&state->pipes[READER], state->bytes[WRITER], reply);
		if (round_trip)
			round_trip[i] = klat_stamp_end(worker) - begin;
	}
	return err;
}

static int reader(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const size_t size = options.bytes, reply = options.mode == ONE_WAY ? 1 : size;
	struct state *state = worker->state;
	uint64_t *one_way = klat_series(run, ONE_WAY, 0);
	int err = 0;

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		err = sync_pipe_take(&state->pipes[WRITER], state->bytes[READER], size);
		klat_inject(run, i);
		if (one_way)
			one_way[i] = klat_stamp_end(worker) - state->start;
		err = err ?: sync_pipe_put(&state->pipes[READER], state->bytes[READER], reply);
	}
	return err;
}

static int setup(struct klat_run *run)
{
	struct klat_worker *writer = &run->workers[WRITER], *reader = &run->workers[READER];
	struct state *state = run->state;

	/* A message longer than a page is read in parts. */
	writer->most_sleeps = reader->most_sleeps = 1 + options.bytes / 4096;
	reader->process = options.process;
	/* The gap also wakes the writer, and no sample contains its wait for the reply. */
	if (options.mode == ONE_WAY) {
		writer->woken = false;
		writer->sleeps = KLAT_COUNTED;
	}
	if (options.higher)
		(options.higher == 1 ? writer : reader)->rank = KLAT_LOW;
	return sync_pipes(run, state->pipes, options.bytes, options.epoll);
}

static const struct klat_worker workers[] = {
	[WRITER] = { "writer", .body = writer, .woken = true, .sleeps = KLAT_MOSTLY,
		     .spins = KLAT_ON_ONE_CPU },
	[READER] = { "reader", .body = reader, .place = 1, .woken = true, .sleeps = KLAT_MOSTLY },
};

const struct klat_benchmark klat_benchmark = {
	.name = "pipes",
	.summary = "round trip over a pair of pipes between two CPUs",
	.description =
		"A writer sends a message through one pipe, a reader sends it back through "
		"another. Each round trip is timed on the writer's CPU, from before write() to "
		"after read() returns. With --mode one-way the stamps come from the counters of "
		"two CPUs. klat bounds the offset between them before and after the run.\n\n"
		"Between two CPUs a round trip contains two wakeups and, on an idle machine, two "
		"exits from an idle state. On one CPU (--cpus 1,1) it contains two context "
		"switches. Do not compare one with the other, or either with half of a round trip, "
		"which other programs print.",
	.examples =
		"pipes\tthe round trip of one byte between two CPUs\n"
		"pipes --cpus 1,1\tbetween two threads of one CPU\n"
		"pipes --cpus 1,1 --mode one-way --higher reader\tthe reader preempts the writer",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.pairs = true,
	.soaks = true,
	.configure = configure,
	.setup = setup,
};
