/* SPDX-License-Identifier: MIT */
/*
 * A hand-off between two threads: the low one, L, signals the high one, H, and H signals L.
 *
 *     L: start1, signal H, wait for H, end2
 *     H: wait for L, end1, start2, signal L
 *
 * Traps:
 * - L must not pair stamps of different turns. So H stores the number of the turn with its stamps.
 * - A wait without a predicate loses a signal that comes first.
 * - A lock that its owner can take again at once is not handed over: see struct sync_pair.
 */
#include "klat.h"
#include "sync/sync.h"

#include <sched.h>

/* Metrics, and the threads of the pair. */
enum { HANDOFF, ROUND_TRIP, LOCK_UNLOCK };
enum { LOW, HIGH };

static struct options {
	int64_t low_priority;
	int primitive, uncontended, released;
} options = { .low_priority = 19 };

struct state {
	struct sync_pair pair;
	uint64_t end1 KLAT_ALIGNED, start2; /* H's stamps */
	uint32_t turn;                      /* and their iteration */
	int64_t mismatches; /* iterations in which H's stamps were of another turn, or were further
			       apart than L's */
	int64_t contended;  /* timed iterations in which H waited before L unlocked */
};

static const enum sync_kind kinds[] = { SYNC_COND, SYNC_FUTEX, SYNC_MUTEX, SYNC_PI_MUTEX,
					SYNC_POSIX };

static const struct klat_option option_table[] = {
	{ "primitive", "the primitive of the hand-off",
	  KLAT_CHOICE(primitive, "cond", "futex", "mutex", "pi-mutex", "semaphore") },
	{ "contention", "none: one thread locks and unlocks a mutex or pi-mutex",
	  KLAT_CHOICE(uncontended, "contended", "none") },
	{ "signal",
	  "cond: signal while the mutex is held, as POSIX recommends for predictable scheduling, "
	  "or after the unlock",
	  KLAT_CHOICE(released, "held", "released") },
	{ "low-priority", "priority of L; --policy sets H's", KLAT_INTEGER(low_priority, 1, 98) },
};

static const struct klat_metric metrics[] = {
	[HANDOFF] = { "handoff", "one hand-off: mean of L to H and H to L", .path_length = true,
		      KLAT_WINDOWS("low high", "low high"), .mean_of = 2,
		      .untraceable = "a sample is the mean of two directions; explain round_trip" },
	[ROUND_TRIP] = { "round_trip", "L signals H until L has H's reply; both stamps on L's CPU",
			 .path_length = true, KLAT_WITHIN("low", "low") },
	[LOCK_UNLOCK] = { "lock_unlock", "lock and unlock without contention", .path_length = true,
			  KLAT_WITHIN("locker", "locker") },
};

static const struct klat_published published[] = {
	{ "handoff", "primitive=cond", 12459.8, "cycles",
	  "two CPUs, condition variables, mean of 500 runs, sd 195.3; Linux, 2013" },
};

static int low(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *handoff = klat_series(run, HANDOFF, 0),
		 *round_trip = klat_series(run, ROUND_TRIP, 0);

	sync_pair_enter(&state->pair, LOW);
	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		uint32_t turn = i + run->warmup;
		uint64_t start1, end1, start2, end2;

		if (sync_pair_becomes_contended(&state->pair, LOW, turn))
			state->contended += klat_is_sample(run, i);
		start1 = klat_stamp_begin();
		klat_inject(run, i);
		sync_pair_post(&state->pair, LOW, turn);
		sync_pair_wait(&state->pair, LOW, turn);
		end2 = klat_stamp_end(worker);
		end1 = state->end1;
		start2 = state->start2;
		round_trip[i] = end2 - start1;
		handoff[i] = ((end1 - start1) + (end2 - start2)) / 2;
		state->mismatches += state->turn != turn || start2 - end1 >= round_trip[i];
	}
	return 0;
}

static int high(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool late = klat_planted(run, "late");
	const uint32_t behind = klat_planted(run, "stale");
	struct state *state = worker->state;

	sync_pair_enter(&state->pair, HIGH);
	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		uint32_t turn = i + run->warmup;

		/* low looks for a waiter with 10,000 system calls: less than 40 ms at 3 us each. */
		if (__builtin_expect(late, 0))
			klat_sleep(worker, 40000000);
		sync_pair_wait(&state->pair, HIGH, turn);
		state->end1 = klat_stamp_end(worker);
		state->turn = turn - behind;
		state->start2 = klat_stamp_begin();
		klat_inject(run, i);
		sync_pair_post(&state->pair, HIGH, turn);
	}
	return 0;
}

static int locker(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	pthread_mutex_t *lock = ((struct state *)worker->state)->pair.mutexes;
	uint64_t *lock_unlock = klat_series(run, LOCK_UNLOCK, 0);

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		const uint64_t begin = klat_stamp_begin();

		pthread_mutex_lock(lock);
		klat_inject(run, i);
		pthread_mutex_unlock(lock);
		lock_unlock[i] = klat_stamp_end(worker) - begin;
	}
	return 0;
}

/* A thread that is signalled while the mutex is locked can then sleep on the mutex. */
#define PAIR .woken = true, .sleeps = KLAT_MOSTLY, .most_sleeps = 2

static const struct klat_worker pair[] = {
	{ "high", "high thread", high, PAIR },
	{ "low", "low thread", low, .place = 1, .rank = KLAT_LOW, .spins = KLAT_ON_ONE_CPU, PAIR },
};
static const struct klat_worker lone[] = { { "locker", .body = locker, .spins = KLAT_ALWAYS } };

static int configure(struct klat_run *run)
{
	if (options.uncontended && !sync_is_mutex(kinds[options.primitive]))
		return klat_usage(run, "--contention none needs --primitive mutex or pi-mutex");
	klat_use_metric(run, LOCK_UNLOCK, options.uncontended);
	klat_use_metric(run, HANDOFF, !options.uncontended);
	klat_use_metric(run, ROUND_TRIP, !options.uncontended);
	if (options.uncontended)
		klat_use_workers(run, lone);
	else
		run->low_priority = options.low_priority;
	return 0;
}

static int setup(struct klat_run *run)
{
	const enum sync_kind kind = kinds[options.primitive];
	struct state *state = run->state;

	/* The waiter of a priority-inheritance lock spins in the kernel while the owner runs on
	 * another CPU, since Linux 5.15. */
	klat_for_each_worker(worker, run)
		if (kind == SYNC_PI_MUTEX && !run->one_cpu)
			worker->sleeps = KLAT_COUNTED;
	return sync_pair_init(&state->pair, kind, !options.released);
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;

	klat_require(
		run,
		{ "mismatches", state->mismatches, KLAT_NEVER, klat_made(run),
		  "in {got} of {wanted} iterations the two stamps belonged to different hand-offs",
		  .unless = options.uncontended },
		{ "contended", state->contended, KLAT_MOSTLY, run->iterations,
		  "a thread waited for the lock in only {got} of {wanted} iterations",
		  .unless = options.uncontended || !sync_is_mutex(kinds[options.primitive]) });
}

const struct klat_benchmark klat_benchmark = {
	.name = "cv",
	.summary = "condition-variable hand-off between two threads",
	.description =
		"Two threads signal each other: L, of low priority, and H, of high priority. L "
		"signals H and waits; H wakes, signals L and waits again. By default they use two "
		"condition variables, each with a predicate and a mutex. Each thread stamps its "
		"counter before it signals and after its own wait. One hand-off is "
		"((end1-start1)+(end2-start2))/2. L takes start1 and end2, H takes end1 and "
		"start2, so an offset between the two counters cancels. The time between H's two "
		"stamps is not part of the hand-off.\n\n"
		"Three mutexes rotate, so that every lock waits for an unlock. Between two CPUs "
		"the waiter of a pi-mutex spins in the kernel while the owner runs. A hand-off to "
		"a waiter that did not sleep is another event, and much faster. With --contention "
		"none, one thread locks and unlocks a mutex that no other thread uses.",
	.examples = "cv\tcondition variables between two CPUs\n"
		    "cv --primitive pi-mutex --cpus 1,1\tpriority-inheritance mutexes on one CPU\n"
		    "cv --primitive mutex --contention none\tlock and unlock without contention",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(pair),
	KLAT_STATE(struct state),
	.pairs = true,
	.soaks = true,
	.counts_at = offsetof(struct state, mismatches),
	.counts_size = 2 * sizeof(int64_t),
	.policy = SCHED_RR,
	.high_priority = 98,
	.faults = { "stale", "late" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
