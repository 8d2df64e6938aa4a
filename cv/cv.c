/* SPDX-License-Identifier: MIT */
/*
 * A hand-off between two threads: L lets H go, H lets L go. start1 and end2 are taken by L, end1
 * and start2 by H, each start before the side lets the other go, each end when the wait is over and
 * every lock that it took is free again. One hand-off is
 * ((end1-start1)+(end2-start2))/2, in which a constant offset between the two CPUs' counters
 * cancels. Not timed: what H does between its two stamps. With its stamps H notes their turn: L
 * pairs no stamps of different turns. The traps: a wait without a predicate loses the wake-up that
 * comes first, and a lock that its releaser can take again at once hands nothing over.
 */
#include "klat.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	HANDOFF,
	ROUND_TRIP,
	LOCK_UNLOCK
};
enum {
	CONTENDED,
	UNCONTENDED
};
enum {
	TO_HIGH,
	TO_LOW
};

struct options {
	int64_t low_priority;
	int primitive, contention, signal;
};

struct slot {
	pthread_mutex_t mutex KLAT_ALIGNED;
	pthread_cond_t cond;
	bool flag;
	uint32_t futex KLAT_ALIGNED;
	sem_t semaphore KLAT_ALIGNED;
} KLAT_ALIGNED;

struct state {
	struct slot slots[2]; /* by direction */
	pthread_mutex_t locks[3];
	sem_t low_entered, high_entered;
	uint64_t end1 KLAT_ALIGNED, start2; /* H's stamps */
	uint32_t turn;                      /* and their iteration */
	int64_t mismatches; /* iterations in which H's stamps were not of this turn, or were
			       further apart than L's */
	int64_t contended;  /* timed iterations in which H was seen to wait for L's lock before L
			       freed it */
};

/*
 * give() lets the waiter of a direction go, take() is that wait. For the locks, of which there are
 * three, `turn` counts iterations: L starts with 0 and 2, H with 1; in each turn L frees one that H
 * waits for and then waits for the one that H holds, so that every lock is handed over, and none is
 * free for its releaser to take back.
 */
struct primitive {
	int (*init)(struct state *state);
	void (*enter)(struct state *state, int side);
	void (*give)(struct klat_run *run, int direction, uint32_t turn);
	void (*take)(struct klat_run *run, int direction, uint32_t turn);
};

static const char *const primitive_names[] = { "cond",     "futex",     "mutex",
					       "pi-mutex", "semaphore", NULL };
enum {
	COND,
	FUTEX,
	MUTEX,
	PI_MUTEX,
	SEMAPHORE
};
static const char *const contentions[] = { "contended", "none", NULL };
static const char *const signals[] = { "held", "released", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "primitive", "cond|futex|mutex|pi-mutex|semaphore", "what hands over", KLAT_CHOICE,
	  AT(primitive), 0, 0, primitive_names, false },
	{ "contention", "contended|none", "none: one thread takes and frees a mutex or pi-mutex",
	  KLAT_CHOICE, AT(contention), 0, 0, contentions, false },
	{ "signal", "held|released",
	  "cond: signal with the mutex held, as POSIX wants for predictable scheduling, or after",
	  KLAT_CHOICE, AT(signal), 0, 0, signals, false },
	{ "low-priority", "N", "priority of L; H has that of --policy", KLAT_INTEGER,
	  AT(low_priority), 1, 98, NULL, false },
};

static const struct options defaults = { .low_priority = 19 };

static const struct klat_metric metrics[] = {
	[HANDOFF] = { "handoff", "one hand-off: mean of L to H and H to L", true },
	[ROUND_TRIP] = { "round_trip", "L lets H go until L goes on, on L's CPU", true },
	[LOCK_UNLOCK] = { "lock_unlock", "taking and freeing a lock that nobody else wants", true },
};

static const struct klat_published published[] = {
	{ "handoff", "primitive=cond", 12459.8, "cycles",
	  "two CPUs, condition variables, mean of 500 runs, sd 195.3; Linux, 2013" },
};

static int init_cond(struct state *state)
{
	int err = 0;

	for (int d = 0; d < 2 && !err; d++) {
		err = pthread_mutex_init(&state->slots[d].mutex, NULL);
		if (!err)
			err = pthread_cond_init(&state->slots[d].cond, NULL);
	}
	return err;
}

static void give_cond(struct klat_run *run, int direction, uint32_t turn)
{
	const struct options *o = run->options;
	struct slot *slot = &((struct state *)run->state)->slots[direction];

	(void)turn;
	pthread_mutex_lock(&slot->mutex);
	slot->flag = true;
	if (o->signal == 0)
		pthread_cond_signal(&slot->cond);
	pthread_mutex_unlock(&slot->mutex);
	if (o->signal != 0)
		pthread_cond_signal(&slot->cond);
}

static void take_cond(struct klat_run *run, int direction, uint32_t turn)
{
	struct slot *slot = &((struct state *)run->state)->slots[direction];

	(void)turn;
	pthread_mutex_lock(&slot->mutex);
	while (!slot->flag)
		pthread_cond_wait(&slot->cond, &slot->mutex);
	slot->flag = false;
	pthread_mutex_unlock(&slot->mutex);
}

static void give_futex(struct klat_run *run, int direction, uint32_t turn)
{
	struct slot *slot = &((struct state *)run->state)->slots[direction];

	(void)turn;
	__atomic_store_n(&slot->futex, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &slot->futex, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void take_futex(struct klat_run *run, int direction, uint32_t turn)
{
	struct slot *slot = &((struct state *)run->state)->slots[direction];

	(void)turn;
	while (!__atomic_exchange_n(&slot->futex, 0, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &slot->futex, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static int init_semaphore(struct state *state)
{
	for (int d = 0; d < 2; d++)
		if (sem_init(&state->slots[d].semaphore, 0, 0))
			return errno;
	return 0;
}

static void give_semaphore(struct klat_run *run, int direction, uint32_t turn)
{
	(void)turn;
	sem_post(&((struct state *)run->state)->slots[direction].semaphore);
}

static void take_semaphore(struct klat_run *run, int direction, uint32_t turn)
{
	(void)turn;
	while (sem_wait(&((struct state *)run->state)->slots[direction].semaphore))
		;
}

static int init_locks(struct state *state, int protocol)
{
	pthread_mutexattr_t attributes;
	int err = pthread_mutexattr_init(&attributes);

	if (!err)
		err = pthread_mutexattr_setprotocol(&attributes, protocol);
	for (int i = 0; i < 3 && !err; i++)
		err = pthread_mutex_init(&state->locks[i], &attributes);
	pthread_mutexattr_destroy(&attributes);
	return err;
}

static int init_mutex(struct state *state)
{
	return init_locks(state, PTHREAD_PRIO_NONE);
}

static int init_pi_mutex(struct state *state)
{
	return init_locks(state, PTHREAD_PRIO_INHERIT);
}

static void enter_lock(struct state *state, int side)
{
	if (side == TO_LOW) {
		pthread_mutex_lock(&state->locks[0]);
		pthread_mutex_lock(&state->locks[2]);
	} else {
		pthread_mutex_lock(&state->locks[1]);
	}
}

/* L frees 0, 2, 1, 0, … and waits for the next one up. */
static pthread_mutex_t *lock_of(struct klat_run *run, int direction, uint32_t turn)
{
	return &((struct state *)run->state)->locks[(2 * (turn % 3) + direction) % 3];
}

static void give_lock(struct klat_run *run, int direction, uint32_t turn)
{
	pthread_mutex_unlock(lock_of(run, direction, turn));
}

static void take_lock(struct klat_run *run, int direction, uint32_t turn)
{
	pthread_mutex_lock(lock_of(run, direction, turn));
}

/*
 * Whether a thread waits for the lock. The futex word does not show it: an owner that had to wait
 * itself, as each owner here, leaves "may have waiters" set, by glibc (2) or by the kernel
 * (FUTEX_WAITERS). So ask the kernel. For a normal mutex, move one waiter from its queue to the
 * same queue: the call returns how many it moved. For a priority-inheritance lock, wake one: the
 * call fails if there is a waiter.
 */
static bool has_waiter(pthread_mutex_t *lock, bool inherits)
{
	int *word = &lock->__data.__lock;

	if (inherits)
		return syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1) < 0 && errno == EINVAL;
	return syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 1, word, 2) == 1;
}

/* Whether H waits for the lock that L is about to free. Gives it about a millisecond to get there.
 */
static bool becomes_contended(struct klat_run *run, uint32_t turn)
{
	const struct options *o = run->options;
	pthread_mutex_t *lock = lock_of(run, TO_HIGH, turn);

	for (int tries = 0; tries < 10000; tries++)
		if (has_waiter(lock, o->primitive == PI_MUTEX))
			return true;
	return false;
}

static const struct primitive primitives[] = {
	[COND] = { init_cond, NULL, give_cond, take_cond },
	[FUTEX] = { NULL, NULL, give_futex, take_futex },
	[MUTEX] = { init_mutex, enter_lock, give_lock, take_lock },
	[PI_MUTEX] = { init_pi_mutex, enter_lock, give_lock, take_lock },
	[SEMAPHORE] = { init_semaphore, NULL, give_semaphore, take_semaphore },
};

static const struct primitive *primitive_of(const struct klat_run *run)
{
	return &primitives[((const struct options *)run->options)->primitive];
}

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;
	bool lock = o->primitive == MUTEX || o->primitive == PI_MUTEX;

	if (o->contention == UNCONTENDED) {
		if (!lock)
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

static int low(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const struct primitive *primitive = primitive_of(run);
	struct state *state = worker->state;
	uint64_t *handoff = klat_series(run, HANDOFF, 0),
		 *round_trip = klat_series(run, ROUND_TRIP, 0);

	if (primitive->enter)
		primitive->enter(state, TO_LOW);
	sem_post(&state->low_entered);
	while (sem_wait(&state->high_entered))
		;
	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint32_t turn = i + run->warmup;
		uint64_t start1, end1, start2, end2;

		klat_iteration(worker, i);
		/* Two threads that only wait for each other leave their one CPU no idle time. */
		if (run->one_cpu)
			klat_rest(worker);
		if (primitive->enter && becomes_contended(run, turn) && klat_is_sample(run, i))
			state->contended++;
		start1 = klat_stamp_begin();
		klat_inject(run, i);
		primitive->give(run, TO_HIGH, turn);
		primitive->take(run, TO_LOW, turn);
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
	struct klat_run *run = worker->run;
	const struct primitive *primitive = primitive_of(run);
	const uint32_t behind = klat_planted(run, "stale");
	const bool late = klat_planted(run, "late");
	struct state *state = worker->state;

	while (sem_wait(&state->low_entered))
		;
	if (primitive->enter)
		primitive->enter(state, TO_HIGH);
	sem_post(&state->high_entered);
	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint32_t turn = i + run->warmup;

		klat_iteration(worker, i);
		if (__builtin_expect(late, 0))
			klat_sleep(worker, 5000000);
		primitive->take(run, TO_HIGH, turn);
		state->end1 = klat_stamp_end(worker);
		state->turn = turn - behind;
		state->start2 = klat_stamp_begin();
		klat_inject(run, i);
		primitive->give(run, TO_LOW, turn);
	}
	return 0;
}

static int locker(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	pthread_mutex_t *lock = ((struct state *)worker->state)->locks;
	uint64_t *lock_unlock = klat_series(run, LOCK_UNLOCK, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint64_t begin;

		klat_iteration(worker, i);
		klat_rest(worker);
		begin = klat_stamp_begin();
		pthread_mutex_lock(lock);
		klat_inject(run, i);
		pthread_mutex_unlock(lock);
		lock_unlock[i] = klat_stamp_end(worker) - begin;
	}
	return 0;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct primitive *primitive = primitive_of(run);
	struct state *state = run->state;
	int err = primitive->init ? primitive->init(state) : 0;

	if (!err && (sem_init(&state->low_entered, 0, 0) || sem_init(&state->high_entered, 0, 0)))
		err = errno;
	if (err)
		return klat_error(run, err, "cannot make a %s: %s", primitive_names[o->primitive],
				  strerror(err));
	if (o->contention == UNCONTENDED) {
		klat_worker_add(run, "locker", 0, KLAT_HIGH, locker);
		return 0;
	}
	klat_worker_add(run, "high", 0, KLAT_HIGH, high)->woken = true;
	klat_worker_add(run, "low", 1, KLAT_LOW, low)->woken = true;
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
	if (primitive_of(run)->enter) {
		klat_count(run, "contended", state->contended);
		if (!klat_is_enough(state->contended, run->iterations))
			klat_invalid(run, "the lock was free in some hand-offs");
	}
	/* The kernel lets the waiter of a priority-inheritance lock spin while the owner runs on
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
		"L (low priority) lets H (high priority) go and waits; H goes on, lets L go and "
		"waits again: two condition "
		"variables with predicates and two mutexes, or another primitive. Each side stamps "
		"its counter before it lets "
		"the other go and after its own wait; one hand-off is "
		"((end1-start1)+(end2-start2))/2, where start1 and end2 are "
		"L's, end1 and start2 H's, so that an offset between the two counters cancels. The "
		"time that H takes between "
		"its own stamps is not in it.\n\n"
		"Mutexes are handed over in a rotation of three, so that every acquisition waits "
		"for a release. Between two CPUs "
		"the waiter of a pi-mutex spins in the kernel while the owner runs, and need not "
		"sleep: far fewer "
		"nanoseconds, and another event. With "
		"--contention none, one thread takes and frees a lock that nobody else wants.",
	.examples = "cv\tcondition variables between two CPUs\n"
		    "cv --primitive pi-mutex --cpus 1,1\tpriority-inheritance mutexes on one CPU\n"
		    "cv --primitive mutex --contention none\tthe cost of an uncontended lock and "
		    "unlock",
	KLAT_OPTIONS(options, defaults),
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
