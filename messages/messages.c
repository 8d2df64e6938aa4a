/* SPDX-License-Identifier: MIT */
/*
 * Messages to a queue whose owner handles them. Timed: a hop, from before the message is made to
 * after it is handled and freed. In one thread that is one sample; between threads a message goes
 * from the hub to a thread and is answered, and with sent and got the hub's stamps, taken and
 * answered the thread's, one hop is ((taken-sent)+(got-answered))/2, in which a constant offset
 * between their CPUs' counters cancels. Not timed: what the thread does between its two stamps.
 *
 * The traps: a queue that is never empty never lets its owner sleep, so that "with a wake-up" is
 * only what a wake-up's system call costs, and the evidence tells how often anybody waited; and a
 * timer that every pass of a loop arms, the lock around it, and the memory of each message cost
 * more than the queue does, so each of them is an option.
 */
#include "klat.h"
#include "owner.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 10000
/* Ticks are known by then; see klat_rest(). */
#define REST_EVERY_MS 40
#define REST_NS 6000000
/* Of the program itself, the library and the C library. */
#define SPARE_DESCRIPTORS 32

enum {
	HOP
};
enum {
	CALL,
	PASS_WRITE,
	PASS_EPOLL,
	THREADS,
	STAR
};

struct options {
	int64_t threads;
	int mode, wake, timer, alloc;
};

/* A thread of the star. Its message is with the hub, with it, or in a queue between. */
struct spoke {
	struct owner owner;
	struct message message; /* where none is allocated */
	uint32_t round;         /* the hub's: which bounce is under way, or next */
	bool held;              /* the hub's: sent when it has rested */
	int64_t cpu_ns;         /* in the timed part */
};

struct state {
	struct costs costs;
	struct owner hub;
	struct message message;
	int64_t cpu_ns;        /* of all threads, observed */
	uint64_t ticks;        /* of the timed part, without rests */
	int64_t handled;       /* observed, by all threads */
	int64_t waited, armed; /* in all */
	int64_t mismatches;    /* messages that were not the one due */
	bool timer_armed;      /* in the end */
	uint64_t unread;       /* pass-write: what the eventfd held in the end */
};

/* Too large for the shared state where there are thousands, and of the measured process alone. */
static struct spoke *spokes;

static const char *const modes[] = { "call", "pass-write", "pass-epoll", "threads", "star", NULL };
static const char *const timers[] = { "none", "per-loop", NULL };
static const char *const allocs[] = { "none", "malloc", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "mode", "call|pass-write|pass-epoll|threads|star",
	  "call: one thread with its own queue, which is never empty; pass-write: an eventfd is "
	  "written for each message, too; pass-epoll: and waited for by epoll; threads: two "
	  "threads and one message; star: a hub, --threads others, a message for each of them",
	  KLAT_CHOICE, AT(mode), 0, 0, modes, false },
	{ "threads", "N", "star: threads besides the hub", KLAT_INTEGER, AT(threads), 1,
	  MAX_THREADS, NULL, false },
	{ "wake", "eventfd-epoll|eventfd-read|futex|cond|pipe|spin",
	  "threads, star: how an owner waits and is woken", KLAT_CHOICE, AT(wake), 0, 0, wake_names,
	  false },
	{ "timer", "none|per-loop",
	  "per-loop: each pass of a loop arms a timer under a process-wide lock", KLAT_CHOICE,
	  AT(timer), 0, 0, timers, false },
	{ "alloc", "none|malloc",
	  "malloc: each message is allocated by its sender, freed where it "
	  "is handled",
	  KLAT_CHOICE, AT(alloc), 0, 0, allocs, false },
};

static const struct options defaults = { .threads = 1, .mode = THREADS };

static const struct klat_metric metrics[] = {
	[HOP] = { "hop", "before a message is made to after it is handled, one direction", true },
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

static bool is_alone(const struct options *o)
{
	return o->mode <= PASS_EPOLL;
}

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;

	if (o->threads > 1 && o->mode != STAR)
		return klat_usage(run, "--threads goes with --mode star");
	if (is_alone(o) && o->wake != EVENTFD_EPOLL)
		return klat_usage(run, "--wake goes with --mode threads or star");
	klat_use_metric(run, HOP, o->threads);
	run->most_workers = o->threads + 1;
	if (is_alone(o))
		run->cpu_count = 1;
	else if (o->wake == SPIN)
		run->cpu_count = o->threads + 1;
	else if (o->mode != STAR || !run->cpus_given || run->cpu_count < 2)
		run->cpu_count = 2;
	if (o->wake == SPIN && run->one_cpu)
		return klat_usage(run, "--wake spin takes a CPU for each thread");
	for (int i = 0; i < run->cpu_count && run->cpus_given && o->wake == SPIN; i++)
		for (int j = 0; j < i; j++)
			if (run->cpus[i] == run->cpus[j])
				return klat_usage(run, "--wake spin takes a CPU for each thread");
	return 0;
}

static bool timer_is_armed(const struct owner *owner)
{
	struct itimerspec left;

	return !timerfd_gettime(owner->timer, &left) && left.it_value.tv_sec;
}

/* One thread, whose own queue holds one message from each send to the next pass of its loop. */
static int loner(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	struct owner *owner = &state->hub;
	uint64_t *hop = klat_series(run, HOP, 0);
	int64_t before = 0;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		struct message *message;
		uint64_t begin;

		if (klat_iteration(worker, i))
			before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		klat_rest(worker);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		message = message_make(&state->costs, &state->message);
		if (!message)
			return -ENOMEM;
		queue_push(&owner->queue, message);
		if (o->mode != CALL)
			err = owner_notify(owner);
		if (!err)
			err = owner_pass(owner);
		if (!err && o->mode == PASS_EPOLL)
			err = owner_wait(owner);
		message_free(&state->costs, queue_take(&owner->queue));
		hop[i] = klat_stamp_end(worker) - begin;
		state->ticks += klat_is_sample(run, i) ? hop[i] : 0;
		state->handled += i >= -run->lead;
		owner->handled++;
	}
	state->cpu_ns = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	state->timer_armed = state->costs.timer && timer_is_armed(owner);
	if (o->mode == PASS_WRITE && !err &&
	    read(owner->fds[0], &state->unread, sizeof(state->unread)) < 0)
		err = -errno;
	return err;
}

/* The hub's side of one bounce. */
static int bounce(struct klat_worker *worker, struct spoke *spoke)
{
	struct state *state = worker->state;
	uint64_t sent = klat_stamp_begin();
	struct message *message = message_make(&state->costs, &spoke->message);

	if (!message)
		return -ENOMEM;
	klat_inject(worker->run, spoke->round - 1 + klat_first(worker->run));
	message->thread = spoke - spokes;
	message->round = spoke->round;
	message->sent = sent;
	return owner_send(&spoke->owner, message);
}

/* Every message is held: nothing is under way that would have to wait for this. */
static int rest_and_release(struct klat_worker *worker)
{
	const struct options *o = worker->run->options;
	struct state *state = worker->state;
	int err = 0;

	state->hub.rested = __atomic_add_fetch(&state->costs.resting, 1, __ATOMIC_RELAXED);
	klat_sleep(worker, REST_NS);
	for (int64_t t = 0; t < o->threads && !err; t++)
		if (spokes[t].held) {
			spokes[t].held = false;
			err = bounce(worker, &spokes[t]);
		}
	return err;
}

/* Take an answer and put the sample down; whose it was. */
static int handle_answer(struct klat_worker *worker, struct spoke **from, uint64_t *got)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct message *message, answer;
	int err = owner_take(&state->hub, &message);

	if (err)
		return err;
	answer = *message;
	message_free(&state->costs, message);
	*got = klat_stamp_end(worker);
	*from = &spokes[answer.thread];
	state->mismatches += answer.round != (*from)->round;
	klat_series(run, HOP, answer.thread)[answer.round - 1 + klat_first(run)] =
		((answer.taken - answer.sent) + (*got - answer.answered)) / 2;
	return 0;
}

/*
 * The hub sends each thread its message, and again whenever it is answered. When it is time to rest
 * it holds what it would send until it has all of them.
 */
static int hub(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	const uint64_t rest_every = REST_EVERY_MS * run->counter_khz;
	/* When it had the last answer of the warm-up, of the timed part, and of all. */
	uint64_t got[3] = { 0 }, awake_since = klat_stamp_begin(), rested = 0;
	const int64_t timed = run->iterations * o->threads;
	int64_t held = 0, left = o->threads, handled = klat_first(run) * o->threads;
	int err = 0;

	for (int64_t t = 0; t < o->threads && !err; t++) {
		spokes[t].round++;
		err = bounce(worker, &spokes[t]);
	}
	while (left && !err) {
		struct spoke *spoke;

		if (handled % o->threads == 0 && klat_iteration(worker, handled / o->threads))
			state->cpu_ns -= klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		handled++;
		err = handle_answer(worker, &spoke, &got[(handled > 0) + (handled > timed)]);
		if (err)
			break;
		if (spoke->round == klat_made(run)) {
			left--;
		} else {
			spoke->round++;
			spoke->held = klat_stamp_begin() - awake_since > rest_every;
			held += spoke->held;
			if (!spoke->held)
				err = bounce(worker, spoke);
		}
		if (held && held == left && !err) {
			uint64_t since = klat_stamp_begin();

			err = rest_and_release(worker);
			held = 0;
			awake_since = klat_stamp_begin();
			rested +=
				klat_is_sample(run, handled / o->threads) ? awake_since - since : 0;
		}
	}
	state->cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	state->ticks = got[1] - got[0] - rested;
	state->handled += handled + run->lead * o->threads;
	state->timer_armed = state->costs.timer && timer_is_armed(&state->hub);
	return err;
}

static int spoke_thread(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct spoke *spoke = &spokes[worker->index];
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		struct message *message, answer;

		if (klat_iteration(worker, i))
			spoke->cpu_ns = -klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		err = owner_take(&spoke->owner, &message);
		if (err)
			break;
		answer = *message;
		message_free(&state->costs, message);
		answer.taken = klat_stamp_end(worker);
		answer.answered = klat_stamp_begin();
		klat_inject(run, i);
		message = message_make(&state->costs, &spoke->message);
		if (!message)
			return -ENOMEM;
		*message = answer;
		err = owner_send(&state->hub, message);
	}
	spoke->cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return err;
}

/* The limit that is asked for is raised as far as an ordinary user may. */
static int allow_descriptors(struct klat_run *run, const struct costs *costs)
{
	const struct options *o = run->options;
	rlim_t needed = (o->threads + !is_alone(o)) * owner_descriptors(costs) + SPARE_DESCRIPTORS;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
		return 0;
	if (limit.rlim_max < needed)
		return klat_skip(run,
				 "--threads %lld takes about %lld descriptors, and %lld are "
				 "allowed: raise the hard limit (ulimit -Hn)%s",
				 (long long)o->threads, (long long)needed,
				 (long long)limit.rlim_max,
				 o->threads > 1 ? ", or take fewer" : "");
	limit.rlim_cur = needed;
	return setrlimit(RLIMIT_NOFILE, &limit)
		       ? klat_error(run, errno, "cannot raise ulimit -n: %s", strerror(errno))
		       : 0;
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
	int err;

	state->costs = (struct costs){ .wake = o->wake,
				       .timer = o->timer,
				       .alloc = o->alloc,
				       .polls = klat_planted(run, "poll") };
	pthread_mutex_init(&state->costs.timers, NULL);
	err = allow_descriptors(run, &state->costs);
	if (err)
		return err;
	err = init_owners(run);
	if (err)
		return klat_error(run, -err, "cannot make %lld queues with %s: %s",
				  (long long)o->threads + !is_alone(o), wake_names[o->wake],
				  strerror(-err));
	if (is_alone(o)) {
		klat_worker_add(run, "loop", 0, KLAT_HIGH, loner);
		return 0;
	}
	klat_worker_add(run, "hub", 0, KLAT_HIGH, hub)->woken = true;
	for (int64_t t = 0; t < o->threads; t++)
		klat_worker_add(run, "thread", 1 + t % (run->cpu_count - 1), KLAT_HIGH,
				spoke_thread)
			->woken = true;
	return 0;
}

/* What the supervisor shall see of the threads. */
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

static void verify_alone(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const struct klat_worker *loop = klat_worker_find(run, "loop", 0);
	int64_t all = klat_made(run);

	if (loop->voluntary)
		klat_invalid(run, "a loop whose queue is never empty slept %lld times",
			     (long long)loop->voluntary);
	if (o->mode == PASS_WRITE && state->unread != (uint64_t)all)
		klat_invalid(run, "the eventfd was written %llu times for %lld messages",
			     (unsigned long long)state->unread, (long long)all);
	if (state->waited != (o->mode == PASS_EPOLL ? all : 0))
		klat_invalid(run, "epoll was called %lld times for %lld messages",
			     (long long)state->waited, (long long)all);
}

static void verify_threads(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	int64_t expected = 2 * o->threads * klat_observed(run);

	if (state->mismatches || state->handled != expected)
		klat_invalid(run, "%lld of %lld messages were handled, %lld out of order",
			     (long long)state->handled, (long long)expected,
			     (long long)state->mismatches);
	/* With more threads than one, a next message may be there before anybody would sleep. On
	 * one CPU nobody else runs until a thread sleeps. */
	if (o->wake != SPIN && (o->threads == 1 || run->one_cpu))
		klat_verify_slept(run, "thread");
	if (o->wake != SPIN && o->threads == 1)
		klat_verify_slept(run, "hub");
}

static int64_t slept(const struct klat_run *run)
{
	int64_t times = 0;

	for (int i = 0; i < run->worker_count; i++)
		times += run->workers[i].voluntary;
	return times;
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	int64_t handled = state->handled ? state->handled : 1,
		timed = run->iterations * (is_alone(o) ? 1 : 2 * o->threads);

	klat_count(run, "messages", state->handled);
	klat_count(run, "message_ticks", state->ticks / timed);
	klat_count(run, "messages_per_second",
		   state->ticks ? timed * run->counter_khz * 1e3 / state->ticks : 0);
	klat_count(run, "cpu_ticks", state->cpu_ns * run->counter_khz / 1e6 / handled);
	klat_count(run, "waits", state->waited);
	if (!is_alone(o))
		klat_count(run, "sleeps_per_1000_messages", slept(run) * 1000 / handled);
	if (o->timer) {
		klat_count(run, "timers_armed", state->armed);
		if (!state->timer_armed || state->armed < handled)
			klat_invalid(run, "the timer was not armed in every pass");
	}
	if (is_alone(o))
		verify_alone(run);
	else
		verify_threads(run);
	return 0;
}

static const struct klat_benchmark messages = {
	.name = "messages",
	.summary = "messages to a queue whose owner handles them",
	.description =
		"A loop owns a queue that any thread may push messages to. In one thread (--mode "
		"call, pass-write, pass-epoll) it sends to itself and takes the message in its "
		"next pass. Between threads it sleeps until a message wakes it: a hub sends each "
		"thread a message, which that one answers, and the answer is followed by the next; "
		"--mode threads is the star of one thread. Timed is a hop: from before the message "
		"is made to after it is handled, between threads the mean of both directions, in "
		"which an offset between two CPUs' counters cancels.\n\n"
		"In the evidence, message_ticks is the time of the run (in one thread, of its "
		"hops) "
		"over its messages, each counted once, where it is handled; messages_per_second "
		"the same the other way "
		"round; cpu_ticks the CPU time of all threads for each. About every 40 ms all "
		"threads rest for 6, with no message under way, which no figure holds.",
	.examples = "messages\ta message between two threads, each asleep in epoll\n"
		    "messages --mode call\ta queue alone\n"
		    "messages --mode pass-write --timer per-loop --alloc malloc\tas published\n"
		    "messages --mode star --threads 100\ta hub and 100 threads",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.needs_frequency = true,
	.faults = { "poll" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};

int main(int argc, char **argv)
{
	return klat_main(&messages, argc, argv);
}
