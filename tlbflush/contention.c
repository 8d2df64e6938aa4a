/* SPDX-License-Identifier: MIT */
/*
 * Several initiators in one process, each with its own pages, unmap at the same time, as in a
 * program whose threads map and unmap memory.
 *
 * Trap: threads that start one after the other do not compete. So they wait for each other in a
 * spin, and each operation must overlap with another one.
 */
#include "tlbflush.h"

#include <errno.h>
#include <sys/param.h>

/* Meeting points of an iteration. */
enum { PREPARED, STARTING, FINISHED, POINTS };

/*
 * The count of arrivals when all contenders have reached this meeting point. Rounds count from 0,
 * warm-up included. At PREPARED a contender may sleep while it waits for the others. At STARTING
 * all are awake.
 */
static uint32_t all_at(uint32_t round, int point)
{
	return options.initiators * (POINTS * round + point + 1);
}

static int meet(struct klat_worker *worker, uint32_t round, int point)
{
	struct state *state = worker->state;

	return klat_meet(worker, &state->arrived, options.initiators, POINTS * round + point);
}

static bool met_another(const struct state *state, int index)
{
	const struct contender *own = &state->contenders[index];

	for (int64_t other = 0; other < options.initiators; other++)
		if (other != index && state->contenders[other].begin < own->end &&
		    own->begin < state->contenders[other].end)
			return true;
	return false;
}

static uint64_t time_together(const struct state *state)
{
	uint64_t begin = state->contenders[0].begin, end = state->contenders[0].end;

	for (int64_t c = 1; c < options.initiators; c++) {
		const struct contender *other = &state->contenders[c];

		begin = MIN(begin, other->begin);
		end = MAX(end, other->end);
	}
	return end - begin;
}

int contender(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct contender *own = &state->contenders[worker->index];
	uint64_t *samples = klat_series(run, INITIATOR, worker->index),
		 *together = worker->index ? NULL : klat_series(run, TOGETHER, 0);
	bool apart = klat_planted(run, "apart");
	char *pages;
	uint32_t round = 0;
	int err = make_pages(&pages);

	if (!err && !worker->index)
		err = settle_delivery(worker, pages);
	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++, round++) {
		touch_first(worker, i, pages);
		err = meet(worker, round, PREPARED);
		err = err ?: meet(worker, round, STARTING);
		/* The fault "apart": each waits until the one before has finished. */
		if (!err && apart)
			err = klat_spin_until(worker, &state->arrived,
					      all_at(round, STARTING) + worker->index);
		if (err)
			break;
		own->begin = klat_stamp_begin();
		klat_inject(run, i);
		err = operate(pages);
		own->end = klat_stamp_end(worker);
		samples[i] = own->end - own->begin;
		own->operations += !err;
		err = err ?: meet(worker, round, FINISHED);
		if (err)
			break;
		own->met += klat_is_sample(run, i) && met_another(state, worker->index);
		if (together)
			together[i] = time_together(state);
		err = restore(pages);
	}
	return err;
}

void verify_contention(struct klat_run *run)
{
	const struct state *state = run->state;
	const bool alone = options.initiators == 1;
	int64_t expected = (options.initiators - 1) * klat_made(run) * flushes_of(),
		least = INT64_MAX, most = -1, met = INT64_MAX, operations = 0, interrupts = 0;

	for (int64_t c = 0; c < options.initiators; c++) {
		int64_t delivered =
			klat_interrupts(run, "TLB", klat_worker_find(run, "initiator", c)->cpu);

		least = MIN(least, delivered);
		most = MAX(most, delivered);
		interrupts += MIN(delivered, expected);
		met = MIN(met, state->contenders[c].met);
		operations += state->contenders[c].operations;
	}
	const bool broadcasts = !alone && least >= 0 && klat_arch_broadcast_cpus();

	klat_require(
		run, { "operations", .got = operations },
		{ "least_met", met, KLAT_MOSTLY, run->iterations,
		  "operations of two initiators overlapped in only {got} of {wanted} iterations",
		  .unless = alone },
		/* An initiator that sleeps on the lock of the address space gets no shootdown. */
		{ "least_delivered", .got = least, .unless = alone || least < 0 },
		{ "most_delivered", most, KLAT_AT_MOST, most_flushes(expected),
		  "shootdowns of other processes reached an initiator", .disturbs = true,
		  .unless = alone || most < 0 },
		{ "expected", .got = expected, .unless = alone },
		/* Elsewhere each flush is an interrupt. */
		{ "flushes", .got = options.initiators * expected, .unless = !broadcasts },
		{ "flush_interrupts", .got = interrupts, .unless = !broadcasts });
}
