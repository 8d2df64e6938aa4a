/* SPDX-License-Identifier: MIT */
/*
 * A priority inversion on one CPU, and its cure. The spinner is above all owners, below the highest
 * thread, and runnable throughout:
 *
 *     lowest:   lock 0; wake links 1, 2, ... in turn; wake the spinner; RELEASED; unlock 0
 *     link k:   lock k; lock k - 1 (waits); unlock both
 *     spinner:  wake the highest; spin until the highest has its lock, for --spin at most
 *     highest:  CALLED; lock depth - 1 (waits); ACQUIRED; unlock
 *
 * Timed: acquire, CALLED to ACQUIRED, and its last part, release, RELEASED to ACQUIRED. Not timed:
 * the building of the chain. Traps:
 * - A free mutex looks fast. So RELEASED must be between the other two, and the kernel must have
 *   counted two sleeps of the highest and of each link: for its turn, and for its mutex.
 * - An owner that would run anyway needs no inheritance. So the spinner must be in its spin at
 *   CALLED, and the kernel must have preempted it for each sample. The count of its loop shows
 *   whether it ran before ACQUIRED: never with inheritance, always without.
 * The mutexes are pthread's: programs use them, and one attribute chooses the protocol.
 */
#include "inherit.h"

enum { ACQUIRE, RELEASE }; /* metrics */
enum { LOWEST_PRIORITY = 19 };

struct options options = { .depth = 1, .spin_us = 200 };

static const struct klat_option option_table[] = {
	{ "depth", "mutexes in the chain from the lowest thread to the highest",
	  KLAT_INTEGER(depth, 1, MAX_DEPTH) },
	{ "protocol", "of the mutexes; none shows the inversion",
	  KLAT_CHOICE(none, "inherit", "none") },
	{ "spin", "none: how long the spinner keeps the lowest thread from running",
	  KLAT_INTEGER(spin_us, 1, 20000), .argument = "US" },
};

static const struct klat_metric metrics[] = {
	[ACQUIRE] = { "acquire", "the highest's call to lock until it has the lock",
		      .path_length = true, KLAT_WITHIN("highest", "highest") },
	[RELEASE] = { "release", "the lowest's call to unlock until the highest has its lock",
		      .path_length = true, KLAT_WINDOWS("lowest", "highest"),
		      .taken_by = "highest" },
};

static inline uint64_t get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static int highest(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *acquire = klat_series(run, ACQUIRE, 0), *release = klat_series(run, RELEASE, 0);
	pthread_mutex_t *mutex = &state->mutexes[options.depth - 1];
	uint64_t spins, called, acquired;

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		sync_post(&state->turns[LOWEST]);
		sync_wait(&state->turns[HIGHEST]);
		spins = get(&state->spins);
		state->unopposed += !get(&state->spinning);
		called = klat_stamp_begin();
		pthread_mutex_lock(mutex);
		acquired = klat_stamp_end(worker);
		acquire[i] = acquired - called;
		release[i] = acquired - state->released;
		state->disordered += state->released - called >= acquire[i];
		state->unexpected += (get(&state->spins) != spins) != options.none;
		set(&state->acquired, 1);
		pthread_mutex_unlock(mutex);
	}
	return 0;
}

static int spinner(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool absent = klat_planted(run, "unopposed");
	struct state *state = worker->state;
	uint64_t begin, spins = 0;

	for (int64_t i = klat_first(run); !absent && klat_next(worker, &i); i++) {
		sync_wait(&state->turns[SPINNER]);
		set(&state->acquired, 0);
		set(&state->spinning, 1);
		sync_post(&state->turns[HIGHEST]);
		begin = klat_ticks();
		do
			set(&state->spins, ++spins);
		while (!get(&state->acquired) && klat_ticks() - begin < state->spin);
		set(&state->spinning, 0);
	}
	return 0;
}

static const struct klat_worker workers[] = {
	[HIGHEST] = { "highest", "highest thread", .body = highest, .sleeps = KLAT_MOSTLY,
		      .most_sleeps = 2 },
	[SPINNER] = { "spinner", .body = spinner, .rank = KLAT_LOW, .sleeps = KLAT_MOSTLY },
	[LOWEST] = { "lowest", "lowest thread", .body = lowest, .spins = KLAT_ALWAYS },
};

static int configure(struct klat_run *run)
{
	run->low_priority = LOWEST_PRIORITY + options.depth; /* the spinner's */
	run->most_workers = LINK + options.depth - 1;
	return 0;
}

static int setup(struct klat_run *run)
{
	const bool plain = options.none || klat_planted(run, "plain");
	struct state *state = run->state;
	int err = 0;

	if (!run->workers[HIGHEST].priority)
		return klat_skip(
			run, "needs a real-time policy (run as root, or raise RLIMIT_RTPRIO): an "
			     "ordinary policy has no priorities to invert");
	run->workers[LOWEST].priority = LOWEST_PRIORITY;
	for (int k = 1; k < options.depth; k++)
		klat_worker_add(run, KLAT_WORKER("link", .body = link_in_chain,
						 .sleeps = KLAT_MOSTLY, .most_sleeps = 2))
			->priority = LOWEST_PRIORITY + k;
	klat_for_each_worker(worker, run)
		err = err ?: sync_init(&state->turns[worker - run->workers], SYNC_FUTEX, 0);
	for (int i = 0; i <= MAX_DEPTH && !err; i++)
		err = sync_mutex_init(&state->mutexes[i], plain ? SYNC_MUTEX : SYNC_PI_MUTEX);
	state->spin = klat_ns_to_ticks(run, options.spin_us * 1000);
	if (err == -ENOTSUP)
		return klat_skip(run, "this kernel has no priority-inheritance futexes");
	return err ? klat_error(run, -err, "cannot make a mutex: %m") : 0;
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const int64_t observed = klat_observed(run), made = klat_made(run);
	int64_t waits = INT64_MAX;

	klat_for_each_worker(worker, run)
		if (worker->most_sleeps == 2 && worker->voluntary < waits)
			waits = worker->voluntary;
	klat_require(run,
		     { "disordered", state->disordered, KLAT_NEVER, made,
		       .reason = "in {got} of {wanted} iterations the lock was free" },
		     { "unopposed", state->unopposed, KLAT_NEVER, made,
		       .reason = "in {got} of {wanted} iterations the spinner was not runnable" },
		     { "unexpected", state->unexpected, KLAT_NEVER, made,
		       .reason = options.none
					 ? "in {got} of {wanted} iterations the spinner did not run"
					 : "in {got} of {wanted} iterations the spinner ran before "
					   "the highest thread had the lock" },
		     { NULL, waits, KLAT_MOSTLY, 2 * observed,
		       .reason = "a thread of the chain slept {got} times, not {wanted}" },
		     { "preemptions", run->workers[SPINNER].involuntary, KLAT_MOSTLY, observed,
		       .reason = "the spinner was preempted {got} times in {wanted} iterations" });
}

const struct klat_benchmark klat_benchmark = {
	.name = "inherit",
	.summary = "a lock whose owner inherits the priority of its waiter",
	.description =
		"Threads of one CPU: the lowest owns a mutex, and the highest waits for it, with "
		"--depth through further owners. A spinner of a priority between them is runnable "
		"throughout. acquire is from the highest's call to lock until it has the lock: the "
		"kernel raises the owners' priority, the lowest thread runs and unlocks, each "
		"owner hands over. release begins at the lowest thread's unlock. With --protocol "
		"none acquire contains the whole spin.\n\n"
		"Evidence: call, release and acquisition are in this order; the kernel counted the "
		"sleeps of each waiting thread and the preemptions of the spinner; the spinner ran "
		"before the acquisition only with --protocol none.",
	.examples = "inherit\tone mutex\n"
		    "inherit --depth 10\ta chain of ten\n"
		    "inherit --protocol none --spin 1000\tan inversion of a millisecond",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.soaks = true,
	.counts_at = offsetof(struct state, disordered),
	.counts_size = 3 * sizeof(int64_t),
	.needs_frequency = true,
	.faults = { "free", "unopposed", "plain" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
