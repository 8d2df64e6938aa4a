/* SPDX-License-Identifier: MIT */
/*
 * The threads that fault. A round is one fault at each spot of an area.
 *
 * Trap: threads that start one after the other do not compete. So several threads wait for each
 * other before each fault, and each fault must overlap with another one.
 */
#include "fault.h"

#include <sys/mman.h>
#include <sys/param.h>

/* Meeting points of an iteration. At the first one a thread may still rest. */
enum { PREPARED, STARTING, FINISHED, POINTS };

static int meet(struct klat_worker *worker, uint32_t round, int point)
{
	struct state *state = worker->state;

	return klat_meet(worker, &state->arrivals, options.threads, POINTS * round + point);
}

static bool met_another(const struct state *state, int index)
{
	for (int64_t other = 0; other < options.threads; other++)
		if (other != index && state->stamps[other].begin < state->stamps[index].end &&
		    state->stamps[index].begin < state->stamps[other].end)
			return true;
	return false;
}

/* The other threads read these stamps until all have arrived at the next iteration. */
static int compare_stamps(struct klat_worker *worker, uint32_t round, uint64_t begin, uint64_t end,
			  bool is_sample)
{
	struct state *state = worker->state;
	int err;

	state->stamps[worker->index].begin = begin;
	state->stamps[worker->index].end = end;
	err = meet(worker, round, FINISHED);
	state->counts[worker->index].met += is_sample && met_another(state, worker->index);
	return err;
}

static int64_t count_faults(void)
{
	const struct rusage usage = klat_thread_usage();

	return usage.ru_minflt + usage.ru_majflt;
}

struct toucher {
	struct area area;
	bool present;                 /* the fault of this name: the pages do not fault again */
	int next;                     /* spot of this round */
	int64_t start;                /* faults of this thread when the round began */
	int64_t expected, unobserved; /* faults of touches and renewals; before the observed part */
};

static void finish_round(struct klat_worker *worker, struct toucher *toucher)
{
	const int64_t faults = count_faults() - toucher->start, surplus = faults - toucher->next;
	struct state *state = worker->state;
	struct counts *counts = &state->counts[worker->index];

	counts->touches += toucher->next;
	counts->faults += faults;
	counts->missing += MAX(-surplus, 0);
	counts->surplus += MAX(surplus, 0);
	toucher->next = 0;
}

static int begin_round(struct klat_worker *worker, struct toucher *toucher)
{
	const struct area *area = &toucher->area;
	const int64_t before = count_faults();
	int err = area_renew(&toucher->area);

	for (int i = 0; toucher->present && i < area->count; i++)
		area_touch(area, area->spots[i]);
	toucher->start = count_faults();
	worker->other_faults = before - toucher->expected;
	toucher->expected += toucher->start - before;
	return err;
}

static inline __attribute__((always_inline)) int touch_pages(struct klat_worker *worker,
							     struct toucher *toucher, bool writes)
{
	const struct klat_run *run = worker->run;
	const struct area *area = &toucher->area;
	const bool several = options.threads > 1, extra = klat_planted(run, "extra"),
		   small = klat_planted(run, "small") && options.kind == CACHED;
	uint64_t *samples = klat_series(run, FAULT, worker->index);
	uint32_t round = 0;
	int err = begin_round(worker, toucher);

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++, round++) {
		uint64_t begin, end;
		volatile char *spot;

		if (klat_observed_from(worker, i))
			toucher->unobserved = toucher->expected;
		if (toucher->next == area->count) {
			finish_round(worker, toucher);
			err = begin_round(worker, toucher);
		}
		spot = area->spots[toucher->next++];
		if (several)
			err = err ?: meet(worker, round, PREPARED) ?: meet(worker, round, STARTING);
		if (err)
			break;
		begin = klat_stamp_begin();
		klat_inject(run, i);
		if (writes)
			*spot = 1;
		else
			(void)*spot;
		end = klat_stamp_end(worker);
		samples[i] = end - begin;
		toucher->expected++;
		if (small)
			madvise((char *)spot + area->page, area->last, MADV_DONTNEED);
		(void)spot[area->last];
		if (extra && !madvise((char *)spot, area->page, MADV_DONTNEED))
			(void)*spot;
		if (several)
			err = compare_stamps(worker, round, begin, end, klat_is_sample(run, i));
	}
	finish_round(worker, toucher);
	worker->expected_faults = toucher->expected - toucher->unobserved;
	return err;
}

int toucher(struct klat_worker *worker)
{
	struct toucher toucher = { .present = klat_planted(worker->run, "present"),
				   .area = { .random = options.random,
					     .seed = klat_seed(worker->run) + worker->index } };
	struct state *state = worker->state;
	int err = area_make(&toucher.area, options.kind, klat_planted(worker->run, "small"));

	if (!err && options.kind == USERFAULTFD)
		err = uffd_register(state->uffd, &toucher.area);
	err = err ?: mapper_await(worker, &state->mapper);
	if (!err && options.kind == CACHED)
		err = touch_pages(worker, &toucher, false);
	else if (!err)
		err = touch_pages(worker, &toucher, true);
	return err;
}
