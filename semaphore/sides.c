/* SPDX-License-Identifier: MIT */
/*
 * A producer hands items to a consumer over two semaphores, free slots and items. It burns CPU for
 * longer than the consumer does, so that the consumer sleeps once for each item. Timed: from before
 * the post to after the consumer's wait (wake), and on the producer's CPU from the end of one item
 * to the end of the next, with semaphores (item) and without (bare). Both run the same code with
 * the same stamps and shared stores; without semaphores the calls do nothing. The difference is
 * what the semaphores cost. Not timed: the time between two stretches.
 *
 * The traps: a burn that spins until a point in time hides interruptions, so the burn is a fixed,
 * calibrated amount of work. And the same work takes longer at another time, so stretches with and
 * without semaphores alternate within the run.
 */
#include "semaphore.h"

/* Each round needs the result of the one before, so the compiler and the CPU execute them all, one
 * after another. */
static uint64_t burn(uint64_t rounds, uint64_t seed)
{
	while (rounds--) {
		seed = seed * UINT64_C(6364136223846793005) + 1;
		__asm__ volatile("" : "+r"(seed));
	}
	return seed;
}

/* Rounds of burn() in `ns` nanoseconds on this CPU. Tries end when ten in a row are not faster. */
static uint64_t rounds_of(struct klat_worker *worker, int64_t ns)
{
	const uint64_t rounds = 1 << 14;
	struct state *state = worker->state;
	uint64_t quickest = UINT64_MAX;

	for (int slower = 0; slower < 10; slower++) {
		uint64_t begin = klat_stamp_begin(), ticks;
		uint64_t result = burn(rounds, slower);

		ticks = klat_stamp_end(worker) - begin;
		__atomic_store_n(&state->sink, result, __ATOMIC_RELAXED);
		if (ticks < quickest) {
			quickest = ticks;
			slower = 0;
		}
	}
	return ns * worker->run->counter_khz / 1e6 * rounds / quickest;
}

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
	if (!err)
		err = sync_post(&semaphores[SLOTS]);
	*seed = burn(rounds, *seed);
	return err;
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
		seed = burn(rounds, seed);
		err = sync_wait(&semaphores[SLOTS]);
		/* The semaphore orders this store; the release is for ThreadSanitizer. */
		__atomic_store_n(&state->slots[number % SLOT_COUNT], klat_stamp_begin(),
				 __ATOMIC_RELEASE);
		if (!alone && !early)
			klat_inject(run, i);
		if (!err)
			err = sync_post(&semaphores[ITEMS]);
		__atomic_store_n(produced, number + 1, __ATOMIC_RELEASE);
		if (alone && run->one_cpu)
			err = take(worker, semaphores, number, taking, &unused, &seed);
		end = klat_stamp_end(worker);
		*(early ? &unused : &samples[i]) = end - last;
		last = end;
	}
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}

/* Begin half a stretch together with the consumer. On one CPU the consumer runs whenever it can. */
static int begin_half(struct klat_worker *worker, uint32_t half)
{
	struct state *state = worker->state;
	int err = 0;

	klat_rest(worker);
	if (!worker->run->one_cpu)
		err = klat_spin_until(worker, &state->ready, half);
	__atomic_store_n(&state->begun, half, __ATOMIC_RELEASE);
	return err;
}

int producer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t rounds = rounds_of(worker, o->consumer_burn + o->idle),
		 taking = run->one_cpu ? rounds_of(worker, o->consumer_burn) : 0;
	uint32_t half = 0;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err;) {
		int64_t end = end_of_stretch(run, state, i);

		for (int turn = 0; turn < 2 && !err; turn++) {
			bool hands_over = (turn == 0) == with_first(state, i);
			int64_t before;

			err = begin_half(worker, ++half);
			if (err)
				break;
			before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
			err = produce(worker, i, end, !hands_over, rounds, taking);
			if (klat_is_sample(run, i) && hands_over)
				state->items += end - i + state->early;
			if (klat_is_sample(run, i))
				*(hands_over ? &state->producer.with : &state->producer.without) +=
					klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
			if (!err && !run->one_cpu)
				err = klat_spin_until(worker, &state->ended, half);
		}
		i = end;
	}
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

		state->consumed += !alone;
		if (alone || early)
			__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
		else if (klat_iteration(worker, i))
			state->consumer_before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		if (state->spin && !alone)
			look_for(state, number, state->spin);
		err = take(worker, semaphores, number, rounds, wake && !early ? &wake[i] : &unused,
			   &seed);
	}
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}

static int consume_half(struct klat_worker *worker, uint32_t half, int64_t from, int64_t to,
			bool takes, uint64_t rounds)
{
	struct state *state = worker->state;
	int64_t before;
	int err = 0;

	klat_rest(worker);
	__atomic_store_n(&state->ready, half, __ATOMIC_RELEASE);
	if (!takes)
		err = klat_spin_until(worker, &state->begun, half);
	if (err)
		return err;
	before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	err = consume(worker, from, to, !takes, rounds);
	if (klat_is_sample(worker->run, from))
		*(takes ? &state->consumer.with : &state->consumer.without) +=
			klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	__atomic_store_n(&state->ended, half, __ATOMIC_RELEASE);
	return err;
}

int consumer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t rounds = rounds_of(worker, o->consumer_burn);
	uint32_t half = 0;
	int err = 0;

	/* On one CPU the consumer has the higher priority, so it must not spin, and it has no work
	 * in the halves without semaphores. */
	if (run->one_cpu) {
		for (int64_t i = klat_first(run); i < klat_end(run) && !err;) {
			int64_t end = end_of_stretch(run, state, i);

			err = consume(worker, i, end, false, rounds);
			i = end;
		}
		state->consumer.with =
			(klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - state->consumer_before) *
			state->items / (klat_observed(run) + worker->unsampled);
		return err;
	}
	for (int64_t i = klat_first(run); i < klat_end(run) && !err;) {
		int64_t end = end_of_stretch(run, state, i);

		for (int turn = 0; turn < 2 && !err; turn++) {
			bool takes = (turn == 0) == with_first(state, i);

			err = consume_half(worker, ++half, i, end, takes, rounds);
		}
		i = end;
	}
	return err;
}
