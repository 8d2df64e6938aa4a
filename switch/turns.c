/* SPDX-License-Identifier: MIT */
/*
 * Two threads, or two processes, that take turns on one CPU. Timed in every iteration: one switch,
 * from a stamp of the side that leaves the CPU to the first stamp of the side that runs next. With
 * --by yield a side calls sched_yield(), after which the equal of a real-time class runs. With --by
 * futex it wakes the other side and waits. The next switch goes the other way. Not timed: the time
 * between two switches.
 *
 * The traps: half of a round trip hides a difference between its two directions, and a yield that
 * returns without switching looks like a fast switch. So the kernel must have counted a switch for
 * each sample. And the kernel looks up a private futex on another path than a shared one, so
 * threads use the shared one too: the two peers differ in the address space alone.
 */
#include "switch.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The two sides. Only the first rests; the second then sleeps. */
enum {
	FIRST,
	SECOND
};

/* Shared, not FUTEX_PRIVATE_FLAG, for threads too. */
static void wake(struct state *state)
{
	syscall(SYS_futex, &state->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_for_turn(struct state *state, uint32_t seen)
{
	syscall(SYS_futex, &state->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

/* What leave() needs, looked up before the start stamp. */
struct leaver {
	struct klat_worker *worker;
	struct state *state;
	int by;
	bool alone;
};

static struct leaver leaver_of(struct klat_worker *worker)
{
	const struct options *o = worker->run->options;

	return (struct leaver){ worker, worker->state, o->by, klat_planted(worker->run, "alone") };
}

/*
 * Leave the CPU until the turn differs from `own`; returns the first stamp after that. A yield can
 * return without a switch. If the first side rests, the second then sleeps as well. Otherwise the
 * other side may be asleep: wake it and yield again, every second time with a wait.
 */
static inline uint64_t leave(const struct leaver *leaver, uint32_t own, int64_t i)
{
	struct state *state = leaver->state;

	for (int tries = 0;;) {
		uint64_t end;

		if (leaver->by == YIELD) {
			sched_yield();
		} else {
			wake(state);
			wait_for_turn(state, leaver->alone ? own + 1 : own);
		}
		end = klat_stamp_end(leaver->worker);
		if (__atomic_load_n(&state->turn, __ATOMIC_ACQUIRE) != own || leaver->alone)
			return end;
		if (leaver->by == FUTEX)
			continue;
		if (__atomic_load_n(&state->resting, __ATOMIC_ACQUIRE)) {
			klat_rest_begins(leaver->worker);
			wait_for_turn(state, own);
			klat_rest_ends(leaver->worker);
			continue;
		}
		/* Both sides can be here. */
		__atomic_fetch_add(&state->unanswered, i >= -leaver->worker->run->lead,
				   __ATOMIC_RELAXED);
		wake(state);
		if (++tries % 2 == 0)
			wait_for_turn(state, own);
	}
}

/* The second side sleeps: let it return to its yield. */
static void call_back(const struct options *o, struct state *state)
{
	if (o->by == YIELD) {
		wake(state);
		sched_yield();
	}
}

static void rest(struct klat_worker *worker)
{
	struct state *state = worker->state;

	__atomic_store_n(&state->resting, 1, __ATOMIC_RELEASE);
	if (klat_rest(worker))
		call_back(worker->run->options, state);
	__atomic_store_n(&state->resting, 0, __ATOMIC_RELEASE);
}

/* The first side begins the switches with an even number, the second side the others. */
static void take_turns(struct klat_worker *worker, uint32_t side)
{
	const struct klat_run *run = worker->run;
	const struct leaver leaver = leaver_of(worker);
	const bool alone = leaver.alone;
	struct state *state = worker->state;
	uint64_t *samples = klat_series(run, SWITCH, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint32_t number = i + run->warmup;
		uint64_t end;

		klat_iteration(worker, i);
		if (number % 2 != side && !alone)
			continue;
		if (side == FIRST)
			rest(worker);
		worker->expected_switches += i >= -run->lead && leaver.by == YIELD;
		state->start = klat_stamp_begin();
		klat_inject(run, i);
		__atomic_store_n(&state->turn, number + 1, __ATOMIC_RELEASE);
		end = leave(&leaver, number + 1, i);
		if (alone)
			samples[i] = end - state->start;
		else if (i + 1 < klat_end(run))
			samples[i + 1] = end - state->start;
	}
	/* The other side still waits after the last switch that it began. */
	__atomic_store_n(&state->turn, klat_made(run) + 1, __ATOMIC_RELEASE);
	wake(state);
}

int first(struct klat_worker *worker)
{
	struct state *state = worker->state;

	/* Sleep: the thread that starts both sides may need this CPU to start the second. */
	for (int tries = 0; !__atomic_load_n(&state->ready, __ATOMIC_ACQUIRE); tries++) {
		if (tries == 20000)
			return -ETIMEDOUT;
		klat_sleep(worker, 100000);
	}
	call_back(worker->run->options, state);
	take_turns(worker, FIRST);
	return 0;
}

int second(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct leaver leaver = leaver_of(worker);
	struct state *state = worker->state;
	uint64_t end;

	__atomic_store_n(&state->ready, 1, __ATOMIC_RELEASE);
	end = leave(&leaver, 0, -run->warmup);
	klat_series(run, SWITCH, 0)[-run->warmup] = end - state->start;
	take_turns(worker, SECOND);
	return 0;
}
