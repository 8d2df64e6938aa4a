/* SPDX-License-Identifier: MIT */
/*
 * A hand-off between two threads: the low one, L, signals the high one, H, and H signals L.
 *
 *     L: start1, signal H, wait for H, end2
 *     H: wait for L, end1, start2, signal L
 *
 * One hand-off is ((end1-start1)+(end2-start2))/2: a constant offset between the two CPUs' counters
 * cancels. Not timed: what H does between end1 and start2. H stores the number of the turn with its
 * stamps, so that L never pairs stamps of different turns.
 *
 * The traps: a wait without a predicate loses a signal that comes first, and a lock that its owner
 * can take again at once is not handed over.
 */
#include "cv.h"

/* End the other thread's wait for `direction`. */
static inline void give(struct state *state, bool locks, int direction, uint32_t turn)
{
	if (locks)
		pthread_mutex_unlock(locks_at(&state->locks, direction, turn));
	else
		sync_post(&state->signals[direction]);
}

static inline void take(struct state *state, bool locks, int direction, uint32_t turn)
{
	if (locks)
		pthread_mutex_lock(locks_at(&state->locks, direction, turn));
	else
		sync_wait(&state->signals[direction]);
}

static void enter(struct klat_worker *worker, int direction)
{
	struct state *state = worker->state;

	if (uses_locks(worker->run))
		locks_enter(&state->locks, direction);
	pthread_barrier_wait(&state->entered);
}

int low(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const bool locks = uses_locks(run);
	struct state *state = worker->state;
	uint64_t *handoff = klat_series(run, HANDOFF, 0),
		 *round_trip = klat_series(run, ROUND_TRIP, 0);

	enter(worker, TO_LOW);
	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint32_t turn = i + run->warmup;
		uint64_t start1, end1, start2, end2;

		klat_iteration(worker, i);
		/* Two threads that only wait for each other leave their one CPU no idle time. */
		if (run->one_cpu)
			klat_rest(worker);
		if (locks && locks_become_contended(&state->locks, turn) && klat_is_sample(run, i))
			state->contended++;
		start1 = klat_stamp_begin();
		klat_inject(run, i);
		give(state, locks, TO_HIGH, turn);
		take(state, locks, TO_LOW, turn);
		end2 = klat_stamp_end(worker);
		end1 = state->end1;
		start2 = state->start2;
		round_trip[i] = end2 - start1;
		handoff[i] = ((end1 - start1) + (end2 - start2)) / 2;
		state->mismatches += state->turn != turn || start2 - end1 >= round_trip[i];
	}
	return 0;
}

int high(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const bool locks = uses_locks(run), late = klat_planted(run, "late");
	const uint32_t behind = klat_planted(run, "stale");
	struct state *state = worker->state;

	enter(worker, TO_HIGH);
	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint32_t turn = i + run->warmup;

		klat_iteration(worker, i);
		if (__builtin_expect(late, 0))
			klat_sleep(worker, 5000000);
		take(state, locks, TO_HIGH, turn);
		state->end1 = klat_stamp_end(worker);
		state->turn = turn - behind;
		state->start2 = klat_stamp_begin();
		klat_inject(run, i);
		give(state, locks, TO_LOW, turn);
	}
	return 0;
}

int locker(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	pthread_mutex_t *lock = ((struct state *)worker->state)->locks.of;
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
