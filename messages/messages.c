/* SPDX-License-Identifier: MIT */
/* Messages to a queue: what can be chosen, the set-up and the evidence. loops.c has the event. */
#include "messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 10000
/* For the program itself, the library and the C library. */
#define OTHER_FILES 32

struct spoke *spokes;

static const struct options defaults = { .threads = 1, .mode = THREADS };

static const struct klat_option options[] = {
	{ .name = "mode",
	  .help = "call: one thread with its own queue, which is never empty; pass-write: the "
		  "same, and each message is also written to an eventfd; pass-epoll: epoll also "
		  "waits for that eventfd; threads: two threads and one message; star: a hub, "
		  "--threads others, and a message for each of them",
	  KLAT_CHOICE(mode, "call", "pass-write", "pass-epoll", "threads", "star") },
	{ .name = "threads",
	  .help = "star: threads besides the hub",
	  KLAT_INTEGER(threads, 1, MAX_THREADS) },
	{ .name = "wake",
	  .help = "threads, star: how an owner waits and is woken",
	  KLAT_CHOICE_OF(wake, wake_names) },
	{ .name = "timer",
	  .help = "per-loop: each pass of a loop arms a timer, under one lock for all threads",
	  KLAT_CHOICE(timer, "none", "per-loop") },
	{ .name = "alloc",
	  .help = "malloc: the sender allocates each message, the receiver frees it",
	  KLAT_CHOICE(alloc, "none", "malloc") },
};

static const struct klat_metric metrics[] = {
	[HOP] = { "hop", "from before a message is made to after it is handled, one direction",
		  true },
};

/* An event library, EVM, on a laptop, unpinned, for 60 s; wall time over messages. */
#define PUBLISHED_COSTS ";wake=eventfd-epoll;timer=per-loop;alloc=malloc"
static const struct klat_published published[] = {
	{ "message_ticks", "mode=call" PUBLISHED_COSTS, 1794, "ns",
	  "EVM, a laptop, unpinned, 60 s: one thread, its own queue" },
	{ "message_ticks", "mode=pass-write" PUBLISHED_COSTS, 2052, "ns",
	  "EVM: the same with an eventfd written; the queue was never empty, epoll never called" },
	{ "message_ticks", "mode=threads" PUBLISHED_COSTS, 5517, "ns",
	  "EVM: two threads, one message bouncing, one-way hops counted" },
	{ "message_ticks", "mode=star;threads=1" PUBLISHED_COSTS, 13726, "ns",
	  "EVM: main and 1 thread, both directions counted" },
	{ "message_ticks", "mode=star;threads=10" PUBLISHED_COSTS, 4984, "ns",
	  "EVM: main and 10 threads, both directions counted" },
	{ "message_ticks", "mode=star;threads=100" PUBLISHED_COSTS, 5264, "ns",
	  "EVM: main and 100 threads, both directions counted" },
	{ "message_ticks", "mode=star;threads=1000" PUBLISHED_COSTS, 5724, "ns",
	  "EVM: main and 1000 threads, both directions counted" },
};

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;

	if (o->threads > 1 && o->mode != STAR)
		return klat_usage(run, "--threads needs --mode star");
	if (is_alone(o) && o->wake != EVENTFD_EPOLL)
		return klat_usage(run, "--wake needs --mode threads or star");
	klat_use_metric(run, HOP, o->threads);
	run->most_workers = o->threads + 1;
	if (is_alone(o))
		run->cpu_count = 1;
	else if (o->wake == SPIN)
		run->cpu_count = o->threads + 1;
	else if (o->mode != STAR || !run->cpus_given || run->cpu_count < 2)
		run->cpu_count = 2;
	run->distinct_cpus = o->wake == SPIN;
	return 0;
}

static int init_owners(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	int err = owner_init(&state->hub, &state->costs);

	if (err || is_alone(o))
		return err;
	spokes = aligned_alloc(KLAT_CACHE_LINE, o->threads * sizeof(*spokes));
	if (!spokes)
		return -ENOMEM;
	memset(spokes, 0, o->threads * sizeof(*spokes));
	for (int64_t t = 0; t < o->threads && !err; t++)
		err = owner_init(&spokes[t].owner, &state->costs);
	return err;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	struct klat_worker *worker;
	int err;

	state->costs = (struct costs){ .wake = o->wake,
				       .timer = o->timer,
				       .alloc = o->alloc,
				       .polls = klat_planted(run, "poll") };
	pthread_mutex_init(&state->costs.timers, NULL);
	err = klat_allow_files(run, (o->threads + !is_alone(o)) * owner_descriptors(&state->costs) +
					    OTHER_FILES);
	if (err)
		return err;
	err = init_owners(run);
	if (err)
		return klat_error(run, -err, "cannot make %lld queues woken by %s: %m",
				  (long long)o->threads + !is_alone(o), wake_names[o->wake]);
	if (is_alone(o)) {
		klat_worker_add(run, "loop", 0, KLAT_HIGH, loner)->sleeps = KLAT_NEVER;
		return 0;
	}
	worker = klat_worker_add(run, "hub", 0, KLAT_HIGH, hub);
	worker->woken = true;
	/* With several threads the next message can come before the hub sleeps. On one CPU no other
	 * thread runs until a thread sleeps. */
	worker->sleeps = o->wake != SPIN && o->threads == 1 ? KLAT_MOSTLY : KLAT_COUNTED;
	for (int64_t t = 0; t < o->threads; t++) {
		worker = klat_worker_add(run, "thread", 1 + t % (run->cpu_count - 1), KLAT_HIGH,
					 spoke_thread);
		worker->woken = true;
		worker->sleeps = o->wake != SPIN && (o->threads == 1 || run->one_cpu)
					 ? KLAT_MOSTLY
					 : KLAT_COUNTED;
	}
	return 0;
}

/* Add up the counts of the spokes, which the supervisor cannot see. */
static void teardown(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;

	state->waited = state->hub.waited;
	state->armed = state->hub.armed;
	for (int64_t t = 0; t < o->threads && spokes; t++) {
		state->cpu_ns += spokes[t].cpu_ns;
		state->handled += spokes[t].owner.handled + run->lead - run->warmup;
		state->waited += spokes[t].owner.waited;
		state->armed += spokes[t].owner.armed;
	}
}

static int64_t slept(const struct klat_run *run)
{
	int64_t times = 0;

	for (int i = 0; i < run->worker_count; i++)
		times += run->workers[i].voluntary;
	return times;
}

static void verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const bool alone = is_alone(o);
	int64_t handled = state->handled ? state->handled : 1,
		timed = run->iterations * (alone ? 1 : 2 * o->threads), all = klat_made(run);
	const struct klat_requirement evidence[] = {
		{ "messages", state->handled, alone ? KLAT_COUNTED : KLAT_EXACTLY,
		  2 * o->threads * klat_observed(run),
		  .reason = "{got} of {wanted} messages were handled" },
		{ NULL, state->mismatches, KLAT_NEVER, state->handled,
		  .reason = "{got} of {wanted} messages were handled out of order" },
		{ "waits", state->waited, alone ? KLAT_EXACTLY : KLAT_COUNTED,
		  o->mode == PASS_EPOLL ? all : 0,
		  .reason = "epoll was called {got} times, not {wanted}" },
		{ NULL, state->unread, KLAT_EXACTLY, all,
		  .reason = "the eventfd was written {got} times for {wanted} messages",
		  .unless = o->mode != PASS_WRITE },
		{ "timers_armed", state->armed, KLAT_AT_LEAST, handled,
		  .reason = "the timer was armed {got} times for {wanted} messages",
		  .unless = !o->timer },
		{ NULL, state->timer_armed, KLAT_EXACTLY, 1,
		  .reason = "no timer was armed at the end", .unless = !o->timer },
	};

	klat_require(run, evidence);
	klat_count(run, "message_ticks", state->ticks / timed);
	klat_count(run, "messages_per_second",
		   state->ticks ? timed * 1e9 / klat_ticks_to_ns(run, state->ticks) : 0);
	klat_count(run, "cpu_ticks", klat_ns_to_ticks(run, state->cpu_ns) / handled);
	if (!alone)
		klat_count(run, "sleeps_per_1000_messages", slept(run) * 1000 / handled);
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
	KLAT_OPTIONS(options),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.needs_frequency = true,
	.faults = { "poll" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};
