/* SPDX-License-Identifier: MIT */
/* A hand-off between two threads: what can be chosen, and the evidence. handoff.c has the event. */
#include "cv.h"

#include <sched.h>
#include <string.h>

enum {
	CONTENDED,
	UNCONTENDED
};
enum {
	HELD,
	RELEASED
};

static const char *const primitive_names[] = { "cond",     "futex",     "mutex",
					       "pi-mutex", "semaphore", NULL };
static const char *const contentions[] = { "contended", "none", NULL };
static const char *const signals[] = { "held", "released", NULL };

static const struct options defaults = { .low_priority = 19 };

static const struct klat_option options[] = {
	{ .name = "primitive", .help = "what hands over", KLAT_CHOICE(primitive, primitive_names) },
	{ .name = "contention",
	  .help = "none: one thread locks and unlocks a mutex or pi-mutex",
	  KLAT_CHOICE(contention, contentions) },
	{ .name = "signal",
	  .help = "cond: signal with the mutex held, which POSIX wants for predictable scheduling, "
		  "or after the unlock",
	  KLAT_CHOICE(signal, signals) },
	{ .name = "low-priority",
	  .help = "priority of L; H has that of --policy",
	  KLAT_INTEGER(low_priority, 1, 98) },
};

static const struct klat_metric metrics[] = {
	[HANDOFF] = { "handoff", "one hand-off: mean of L to H and H to L", true },
	[ROUND_TRIP] = { "round_trip", "L signals H until L has H's reply; both stamps on L's CPU",
			 true },
	[LOCK_UNLOCK] = { "lock_unlock", "lock and unlock without contention", true },
};

static const struct klat_published published[] = {
	{ "handoff", "primitive=cond", 12459.8, "cycles",
	  "two CPUs, condition variables, mean of 500 runs, sd 195.3; Linux, 2013" },
};

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;

	if (o->contention == UNCONTENDED) {
		if (!uses_locks(run))
			return klat_usage(
				run, "--contention none goes with --primitive mutex or pi-mutex");
		run->cpu_count = 1;
		klat_use_metric(run, LOCK_UNLOCK, 1);
		return 0;
	}
	run->cpu_count = 2;
	run->low_priority = o->low_priority;
	klat_use_metric(run, HANDOFF, 1);
	klat_use_metric(run, ROUND_TRIP, 1);
	return 0;
}

static int init(struct state *state, const struct options *o)
{
	static const enum sync_kind kinds[] = {
		[COND] = SYNC_COND, [FUTEX] = SYNC_FUTEX, [SEMAPHORE] = SYNC_POSIX
	};
	int err = 0;

	pthread_barrier_init(&state->entered, NULL, 2);
	if (o->primitive == MUTEX || o->primitive == PI_MUTEX)
		return locks_init(&state->locks, o->primitive == PI_MUTEX);
	for (int d = 0; d < 2 && !err; d++) {
		state->signals[d].signals_held = o->signal == HELD;
		err = sync_init(&state->signals[d], kinds[o->primitive], 0);
	}
	return err;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct klat_worker *worker;
	int err = init(run->state, o);

	if (err)
		return klat_error(run, -err, "cannot make a %s: %s", primitive_names[o->primitive],
				  strerror(-err));
	if (o->contention == UNCONTENDED) {
		klat_worker_add(run, "locker", 0, KLAT_HIGH, locker);
		return 0;
	}
	worker = klat_worker_add(run, "high", 0, KLAT_HIGH, high);
	worker->noun = "high thread";
	worker->woken = true;
	worker = klat_worker_add(run, "low", 1, KLAT_LOW, low);
	worker->noun = "low thread";
	worker->woken = true;
	return 0;
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;

	if (o->contention == UNCONTENDED)
		return 0;
	klat_count(run, "mismatches", state->mismatches);
	if (state->mismatches)
		klat_invalid(run,
			     "in %lld iterations the two stamps belonged to different hand-offs",
			     (long long)state->mismatches);
	if (uses_locks(run)) {
		klat_count(run, "contended", state->contended);
		if (!klat_is_enough(state->contended, run->iterations))
			klat_invalid(run, "in %lld of %lld iterations nobody waited for the lock",
				     (long long)(run->iterations - state->contended),
				     (long long)run->iterations);
	}
	/* The waiter of a priority-inheritance lock spins in the kernel while the owner runs on
	 * another CPU. */
	if (o->primitive != PI_MUTEX || run->one_cpu) {
		klat_verify_slept(run, "high");
		klat_verify_slept(run, "low");
	}
	return 0;
}

static const struct klat_benchmark cv = {
	.name = "cv",
	.summary = "condition-variable hand-off between two threads",
	.description =
		"The low thread, L, signals the high one, H, and waits; H wakes, signals L and "
		"waits again. By default they use two condition variables, each with a predicate "
		"and a mutex. Each thread stamps its counter before it signals and after its own "
		"wait. One hand-off is ((end1-start1)+(end2-start2))/2, where start1 and end2 "
		"are L's stamps, end1 and start2 H's: an offset between the two counters "
		"cancels. The time between H's two stamps is not part of it.\n\n"
		"Mutexes are handed over in a rotation of three, so that every lock has to wait "
		"for an unlock. Between two CPUs the waiter of a pi-mutex spins in the kernel "
		"while the owner runs, and may not sleep: that is another event, and much "
		"faster. With --contention none, one thread locks and unlocks a mutex that "
		"nobody else wants.",
	.examples = "cv\tcondition variables between two CPUs\n"
		    "cv --primitive pi-mutex --cpus 1,1\tpriority-inheritance mutexes on one CPU\n"
		    "cv --primitive mutex --contention none\tlock and unlock without contention",
	KLAT_OPTIONS(options),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_RR,
	.high_priority = 98,
	.faults = { "stale", "late" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&cv, argc, argv);
}
