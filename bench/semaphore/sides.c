/* SPDX-License-Identifier: MIT */
/*
 * A producer hands items to a consumer over two semaphores: free slots and items. It works longer
 * for an item than the consumer, so the consumer sleeps once for each item.
 *
 * Timed:
 * - wake: from before the post until the consumer's wait returns.
 * - item and bare: on the producer's CPU, from the end of one item to the end of the next, with
 *   semaphores and without. Both run the same code with the same stamps and shared stores; in bare
 *   the calls do nothing. The difference is the cost of the semaphores.
 * Not timed: the time between two stretches.
 *
 * Traps:
 * - Work that spins until a point in time hides interruptions. So it is a fixed, calibrated amount.
 * - The same work takes longer at another time. So stretches with and without semaphores alternate.
 * - A consumer that was interrupted finds the next item and does not sleep. See follow().
 */
#include "semaphore.h"

static int64_t end_of_stretch(const struct klat_run *run, const struct state *state, int64_t i)
{
	int64_t end = i < 0 ? 0 : i < run->iterations ? run->iterations : klat_end(run);

	return end - i > state->stretch ? i + state->stretch : end;
}

/* Before the row of items that begins at `from`. Only samples need warm caches. */
static int64_t early_items(const struct klat_run *run, int64_t from)
{
	const struct state *state = run->state;

	return klat_is_sample(run, from) ? state->early : 0;
}

/* The half with semaphores comes first in every other stretch, so that a drift affects both halves
 * alike. */
static bool with_first(const struct state *state, int64_t i)
{
	return i < 0 || i / state->stretch % 2 == 0;
}

/* The consumer's part of an item: wait for it, stamp, free its slot, work. */
static inline int take(struct klat_worker *worker, struct sync *semaphores, uint32_t number,
		       uint64_t rounds, uint64_t *wake, uint64_t *seed)
{
	struct state *state = worker->state;
	int err = sync_wait(&semaphores[ITEMS]);
	uint64_t end = klat_stamp_end(worker);

	*wake = end - __atomic_load_n(&state->slots[number % SLOT_COUNT], __ATOMIC_ACQUIRE);
	err = err ?: sync_post(&semaphores[SLOTS]);
	*seed = klat_burn(rounds, *seed);
	return err;
}

static int64_t cpu_ns(void)
{
	return klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* If the consumer is late, spin until it waits for this item, and then for the time of --idle.
 * Returns the time that this took. It is neither in the sample nor in the CPU time of the
 * items. In bare, the consumer waits for no item, but the load costs the same. */
static uint64_t follow(struct klat_worker *worker, uint32_t number, bool alone, int *err)
{
	struct state *state = worker->state;
	const uint32_t consumed = __atomic_load_n(&state->consumed, __ATOMIC_ACQUIRE);
	uint64_t begin;
	int64_t before;

	if (alone || (int32_t)(consumed - number) > 0)
		return 0;
	begin = klat_stamp_begin();
	before = cpu_ns();
	*err = klat_spin_until(worker, &state->consumed, number + 1);
	klat_spin(klat_ns_to_ticks(worker->run, options.idle));
	state->followed_ns += cpu_ns() - before;
	return klat_stamp_begin() - begin;
}

/*
 * Produce the items from `from` to `to`; `alone` means without semaphores. Alone on one CPU, the
 * producer does the consumer's work too, `taking` rounds.
 */
static int produce(struct klat_worker *worker, int64_t from, int64_t to, bool alone,
		   uint64_t rounds, uint64_t taking)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const bool follows = !run->one_cpu && !options.any_sleeps;
	struct sync *semaphores = alone ? state->nothing : state->semaphores;
	uint32_t *produced = alone ? &state->made : &state->produced;
	uint64_t *samples = klat_series(run, alone ? BARE : ITEM, 0), last = klat_stamp_begin(),
		 seed = last, unused;
	int err = 0;

	for (int64_t i = from - early_items(run, from); i < to && !err; i++) {
		const bool early = i < from;
		uint32_t number = *produced;
		uint64_t end;

		/* The observed part begins once. */
		if (alone || early)
			__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
		else
			klat_iteration(worker, i);
		seed = klat_burn(rounds, seed);
		if (follows)
			last += follow(worker, number, alone, &err);
		err = err ?: sync_wait(&semaphores[SLOTS]);
		/* The semaphore orders this store; the release is for ThreadSanitizer. */
		__atomic_store_n(&state->slots[number % SLOT_COUNT], klat_stamp_begin(),
				 __ATOMIC_RELEASE);
		if (!alone && !early)
			klat_inject(run, i);
		err = err ?: sync_post(&semaphores[ITEMS]);
		__atomic_store_n(produced, number + 1, __ATOMIC_RELEASE);
		if (alone && run->one_cpu)
			err = take(worker, semaphores, number, taking, &unused, &seed);
		end = klat_stamp_end(worker);
		*(early ? &unused : &samples[i]) = end - last;
		last = end;
	}
	/* klat_iteration() would check too late: other end stamps come before the next sample. */
	if (worker->watched && !alone)
		klat_slow_check(worker, to);
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}

/* Spin until the item is there or the time is over. No PAUSE: see klat_spin_until(). */
static void look_for(const struct state *state, uint32_t number, uint64_t ticks)
{
	uint64_t begin = klat_ticks();

	while ((int32_t)(__atomic_load_n(&state->produced, __ATOMIC_ACQUIRE) - number) <= 0 &&
	       klat_ticks() - begin < ticks)
		;
}

static int consume(struct klat_worker *worker, int64_t from, int64_t to, bool alone,
		   uint64_t rounds)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct sync *semaphores = alone ? state->nothing : state->semaphores;
	uint64_t *wake = alone ? NULL : klat_series(run, WAKE, 0), seed = from, unused;
	int err = 0;

	if (!alone)
		worker->unsampled += early_items(run, from);
	for (int64_t i = from - early_items(run, from); i < to && !err; i++) {
		const bool early = i < from;
		uint32_t number = state->consumed;

		__atomic_store_n(&state->consumed, number + !alone, __ATOMIC_RELEASE);
		if (alone || early)
			__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
		else if (klat_iteration(worker, i))
			state->consumer_before = cpu_ns();
		if (state->spin && !alone)
			look_for(state, number, state->spin);
		err = take(worker, semaphores, number, rounds, wake && !early ? &wake[i] : &unused,
			   &seed);
	}
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}

/* Both sides begin a half together. Otherwise a consumer that spins would count the rest of the
 * producer's previous half as CPU time of its items. A consumer that sleeps until the first item
 * does not wait here. On one CPU the consumer runs whenever it can. */
static int begin_half(struct klat_worker *worker, uint32_t half, bool waits_for_items)
{
	struct state *state = worker->state;
	bool asleep = waits_for_items && !state->spin;

	klat_rest(worker);
	if (worker->run->one_cpu)
		return 0;
	__atomic_fetch_add(&state->arrived, 1, __ATOMIC_ACQ_REL);
	return asleep ? 0 : klat_spin_until(worker, &state->arrived, 2 * half);
}

static int take_part(struct klat_worker *worker, bool produces, uint64_t rounds, uint64_t taking)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct spent *spent = produces ? &state->producer : &state->consumer;
	int64_t half = 0, before, end;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run); i = end) {
		end = end_of_stretch(run, state, i);
		for (int turn = 0; turn < 2; turn++) {
			bool hands_over = (turn == 0) == with_first(state, i);

			err = begin_half(worker, ++half, hands_over && !produces);
			if (err)
				return err;
			if (produces)
				state->followed_ns = 0;
			before = cpu_ns();
			err = produces ? produce(worker, i, end, !hands_over, rounds, taking)
				       : consume(worker, i, end, !hands_over, rounds);
			if (klat_is_sample(run, i))
				*(hands_over ? &spent->with : &spent->without) +=
					cpu_ns() - before - (produces ? state->followed_ns : 0);
			if (err)
				return err;
		}
	}
	return 0;
}

int producer(struct klat_worker *worker)
{
	return take_part(
		worker, true, klat_burn_rounds(worker, options.consumer_burn + options.idle),
		worker->run->one_cpu ? klat_burn_rounds(worker, options.consumer_burn) : 0);
}

/* On one CPU the consumer has the higher priority, so it must not spin. It has no work in the
 * halves without semaphores, and its clock is read only at the ends of the observed part. */
static int consume_above(struct klat_worker *worker, uint64_t rounds)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	int64_t end;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i = end) {
		end = end_of_stretch(run, state, i);
		err = consume(worker, i, end, false, rounds);
	}
	state->consumer.with = (cpu_ns() - state->consumer_before) * state->items /
			       (klat_observed(run) + worker->unsampled);
	return err;
}

int consumer(struct klat_worker *worker)
{
	uint64_t rounds = klat_burn_rounds(worker, options.consumer_burn);

	return worker->run->one_cpu ? consume_above(worker, rounds)
				    : take_part(worker, false, rounds, 0);
}
