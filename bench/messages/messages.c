/* SPDX-License-Identifier: MIT */
/*
 * Messages to a queue whose owner handles them. In one thread a hop is one sample. Between threads
 * the hub sends a message to a spoke, which answers:
 *
 *     hub:   sent ... got
 *     spoke: taken, answered
 *
 * One hop is ((taken-sent)+(got-answered))/2.
 *
 * Traps:
 * - If a queue is never empty, its owner never sleeps. A wakeup then costs only the system call. So
 *   the evidence counts the waits.
 * - In real loops, a pass arms a timer, takes a lock and allocates memory for each message. These
 *   cost more than the queue. So each is an option.
 */
#include "messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* For the program itself, the library and the C library. */
#define OTHER_FILES 32

struct options options = { .threads = 1, .mode = THREADS };

static bool is_alone(void)
{
	return options.mode <= PASS_EPOLL;
}

static const struct klat_option option_table[] = {
	{ "mode",
	  "call: one thread with its own queue, which is never empty; pass-write: the same, and "
	  "each message is also written to an eventfd; pass-epoll: epoll also waits for that "
	  "eventfd; threads: two threads and one message; star: a hub, --threads others, and a "
	  "message for each of them",
	  KLAT_CHOICE(mode, "call", "pass-write", "pass-epoll", "threads", "star") },
	{ "threads", "star: threads besides the hub", KLAT_INTEGER(threads, 1, 10000) },
	{ "wake", "threads, star: how an owner waits and is woken",
	  KLAT_CHOICE(wake, "eventfd-epoll", "eventfd-read", "futex", "cond", "pipe", "spin",
		      "futex-waitv", "uring-futex", "uring-eventfd", "uring-message") },
	{ "timer", "per-loop: each pass of a loop arms a timer, under one lock for all threads",
	  KLAT_CHOICE(timer, "none", "per-loop") },
	{ "alloc", "malloc: the sender allocates each message, the receiver frees it",
	  KLAT_CHOICE(alloc, "none", "malloc") },
};

static const struct klat_metric metrics[] = {
	[HOP] = { "hop", "from before a message is made to after it is handled, one direction",
		  .path_length = true,
		  KLAT_WINDOWS("loner bounce spoke_thread", "loner handle_answer spoke_thread"),
		  .mean_of = 2, .taken_by = "loop hub",
		  .untraceable = "between threads a sample is the mean of two directions" },
};

/* An event library, EVM, on a laptop, unpinned, for 60 s; wall time over messages. */
#define EVM(params, ns, about)                                                                     \
	{                                                                                          \
		"message_ticks", params ";wake=eventfd-epoll;timer=per-loop;alloc=malloc", ns,     \
			"ns", "EVM" about                                                          \
	}
static const struct klat_published published[] = {
	EVM("mode=call", 1794, ", a laptop, unpinned, 60 s: one thread, its own queue"),
	EVM("mode=pass-write", 2052,
	    ": the same with an eventfd written; the queue was never empty, epoll never called"),
	EVM("mode=threads", 5517, ": two threads, one message bouncing, one-way hops counted"),
	EVM("mode=star;threads=1", 13726, ": main and 1 thread, both directions counted"),
	EVM("mode=star;threads=10", 4984, ": main and 10 threads, both directions counted"),
	EVM("mode=star;threads=100", 5264, ": main and 100 threads, both directions counted"),
	EVM("mode=star;threads=1000", 5724, ": main and 1000 threads, both directions counted"),
};

static int configure(struct klat_run *run)
{
	if (options.threads > 1 && options.mode != STAR)
		return klat_usage(run, "--threads needs --mode star");
	if (options.threads > 1 && run->pairs > 1)
		return klat_usage(run, "--pairs takes no --threads");
	if (is_alone() && options.wake != EVENTFD_EPOLL)
		return klat_usage(run, "--wake needs --mode threads or star");
	/* A post needs the ring of the thread that posts. */
	if (options.threads > 1 && sync_is_uring(owner_kind(options.wake)))
		return klat_usage(run, "--wake uring-... takes no --threads");
	/* Several threads do not stay within one lap of each other. */
	if (run->soak && (is_alone() || options.threads > 1 || options.wake == SPIN))
		return klat_usage(run, "--soak: messages soaks between two threads that sleep: "
				       "--mode threads, with any --wake but spin");
	klat_use_metric(run, HOP, options.threads);
	if (!is_alone())
		klat_cannot_trace(run, HOP);
	run->most_workers = options.threads + 1;
	if (is_alone())
		run->cpu_count = 1;
	else if (options.wake == SPIN)
		run->cpu_count = options.threads + 1;
	else if (options.mode != STAR || !run->cpus_given || run->cpu_count < 2)
		run->cpu_count = 2;
	run->distinct_cpus = options.wake == SPIN;
	return 0;
}

/* The message stays in the thread's own queue until the next pass of the loop. */
static int loner(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct owner *owner = &state->hub;
	uint64_t *hop = klat_series(run, HOP, 0);
	int err = 0;

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		struct message *message;
		uint64_t begin;

		if (klat_observed_from(worker, i))
			owner->counts.cpu_ns = -klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		message = message_make(&state->costs, &state->message);
		if (!message)
			return -ENOMEM;
		queue_push(&owner->queue, message);
		if (options.mode != CALL)
			err = sync_post(&owner->wake);
		err = err ?: owner_pass(owner);
		if (!err && options.mode == PASS_EPOLL)
			err = owner_wait(owner);
		message_free(&state->costs, queue_take(&owner->queue));
		hop[i] = klat_stamp_end(worker) - begin;
		state->ticks += klat_is_sample(run, i) ? hop[i] : 0;
		owner->counts.handled++;
	}
	owner->counts.cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (options.mode == PASS_WRITE && !err &&
	    read(owner->wake.fds[0], &state->unread, sizeof(state->unread)) < 0)
		err = -errno;
	return err;
}

static int init_owners(struct klat_run *run)
{
	struct state *state = run->state;
	int err = owner_init(&state->hub, &state->costs);

	if (err || is_alone())
		return err;
	state->spokes = aligned_alloc(KLAT_CACHE_LINE, options.threads * sizeof(*state->spokes));
	if (!state->spokes)
		return -ENOMEM;
	memset(state->spokes, 0, options.threads * sizeof(*state->spokes));
	for (int64_t t = 0; t < options.threads && !err; t++) {
		state->spokes[t].round = 1;
		err = owner_init(&state->spokes[t].owner, &state->costs);
	}
	return err ?: threads_prepare(state);
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	const int64_t owners = options.threads + !is_alone();
	const char *missing = sync_missing(owner_kind(options.wake));
	int err;

	if (missing)
		return klat_skip(run, "%s", missing);
	state->costs = (struct costs){ .wake = options.wake,
				       .timer = options.timer,
				       .alloc = options.alloc,
				       .polls = klat_planted(run, "poll") };
	pthread_mutex_init(&state->costs.timers, NULL);
	err = klat_allow_files(run, owners * owner_descriptors(&state->costs) + OTHER_FILES);
	if (err)
		return err;
	err = init_owners(run);
	if (err)
		return klat_error(run, -err, "cannot make %lld queues: %m", (long long)owners);
	if (is_alone()) {
		klat_worker_add(run, KLAT_WORKER("loop", .body = loner, .spins = KLAT_ALWAYS,
						 .sleeps = KLAT_NEVER));
		return 0;
	}
	for (int64_t t = 0; t <= options.threads; t++) {
		struct klat_worker *worker = klat_worker_add(
			run, t ? KLAT_WORKER("thread", .body = spoke_thread, .woken = true,
					     .place = 1 + (t - 1) % (run->cpu_count - 1))
			       : KLAT_WORKER("hub", .body = hub, .woken = true));
		/* With several threads the next message can come before the hub sleeps. On one CPU
		 * no other thread runs until a thread sleeps. */
		worker->sleeps =
			options.wake != SPIN && (options.threads == 1 || (t && run->one_cpu))
				? KLAT_MOSTLY
				: KLAT_COUNTED;
		/* The threads share a mutex to arm timers, and can sleep on it. */
		if (worker->sleeps == KLAT_COUNTED && (options.threads > 1 || options.timer))
			worker->most_sleeps = KLAT_ANY_SLEEPS;
	}
	return 0;
}

/* Counts that the supervisor cannot see. */
static void teardown(struct klat_run *run)
{
	struct state *state = run->state;
	struct itimerspec left = { 0 };

	state->counts = state->hub.counts;
	for (int64_t t = 0; t < options.threads && state->spokes; t++)
		klat_add_counts(&state->counts, &state->spokes[t].owner.counts,
				sizeof(state->counts));
	timerfd_gettime(state->hub.timer, &left);
	state->timer_armed = left.it_value.tv_sec;
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	/* The counts of the hub alone, because the others are not shared. */
	const struct counts *counts = run->soak ? &state->hub.counts : &state->counts;
	const int64_t each = is_alone() || run->soak ? 1 : 2 * options.threads,
		      all = klat_made(run), timed = run->iterations * each,
		      handled = counts->handled - (run->warmup - run->lead) * each;
	int64_t slept = 0;

	klat_require(run,
		     /* The hub continues while a soak reads its counts. */
		     { "messages", handled, run->soak ? KLAT_MOSTLY : KLAT_EXACTLY,
		       klat_observed(run) * each,
		       .reason = "{got} of {wanted} messages were handled" },
		     { NULL, state->mismatches, KLAT_NEVER, handled,
		       .reason = "{got} of {wanted} messages were handled out of order" },
		     { "waits", counts->waited, is_alone() ? KLAT_EXACTLY : KLAT_COUNTED,
		       options.mode == PASS_EPOLL ? all : 0,
		       .reason = "epoll was called {got} times, not {wanted}" },
		     { NULL, state->unread, KLAT_EXACTLY, all,
		       "the eventfd was written {got} times for {wanted} messages",
		       .unless = options.mode != PASS_WRITE },
		     { "timers_armed", counts->armed, run->soak ? KLAT_MOSTLY : KLAT_AT_LEAST,
		       handled, "the timer was armed {got} times for {wanted} messages",
		       .unless = !options.timer },
		     { NULL, state->timer_armed, KLAT_EXACTLY, 1, "no timer was armed at the end",
		       .unless = !options.timer || run->soak });
	if (run->soak)
		return;
	klat_count_mean(run, "message_ticks", state->ticks, timed);
	klat_count_mean(run, "cpu_ticks", klat_ns_to_ticks(run, state->counts.cpu_ns), handled);
	klat_count(run, "messages_per_second",
		   state->ticks ? timed * 1e9 / klat_ticks_to_ns(run, state->ticks) : 0);
	klat_for_each_worker(worker, run)
		slept += worker->voluntary;
	if (!is_alone())
		klat_count(run, "sleeps_per_1000_messages", slept * 1000 / handled);
}

const struct klat_benchmark klat_benchmark = {
	.name = "messages",
	.summary = "messages to the queue of an event loop",
	.description =
		"A loop owns a queue, and any thread may push messages to it. In one thread "
		"(--mode call, pass-write, pass-epoll) the loop sends to itself and takes the "
		"message in its next pass. Between threads the loop sleeps until a message wakes "
		"it: a hub sends each thread a message, the thread answers, and the hub sends the "
		"next. --mode threads is a star with one thread. A hop lasts from before the "
		"message is made to after it is handled. Between threads a hop is the mean of both "
		"directions, so an offset between two CPUs' counters cancels.\n\n"
		"In the evidence, message_ticks is the time of the run divided by the number of "
		"handled messages. In one thread it is the time of the hops instead of the run. "
		"messages_per_second is its inverse. cpu_ticks is the CPU time of all threads per "
		"message. About every 40 ms all threads sleep for 6 ms, with no message under way. "
		"No figure includes these sleeps.",
	.examples = "messages\ta message between two threads, each asleep in epoll\n"
		    "messages --mode call\tone thread and its own queue, without a wakeup\n"
		    "messages --mode pass-write --timer per-loop --alloc malloc\tthe published "
		    "workload\n"
		    "messages --mode star --threads 100\ta hub and 100 threads",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.pairs = true,
	.soaks = true,
	.counts_at = offsetof(struct state, hub.counts),
	.counts_size = offsetof(struct state, message) - offsetof(struct state, hub.counts),
	.needs_frequency = true,
	.faults = { "poll" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};
