/* SPDX-License-Identifier: MIT */
/* The chain: threads that own a mutex while another thread waits for it. */
#include "inherit.h"

int link_in_chain(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	pthread_mutex_t *upper = &state->mutexes[worker->index + 1], *lower = upper - 1;

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		sync_wait(&state->turns[LINK + worker->index]);
		pthread_mutex_lock(upper);
		pthread_mutex_lock(lower);
		pthread_mutex_unlock(lower);
		pthread_mutex_unlock(upper);
	}
	return 0;
}

/* This thread runs only while all others sleep, or while it has inherited the highest priority. It
 * waits for the highest, which can sleep before its iteration to copy a trace for klat explain. */
int lowest(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const int next = klat_planted(run, "unopposed") ? HIGHEST : SPINNER;
	struct state *state = worker->state;
	pthread_mutex_t *mutex = &state->mutexes[klat_planted(run, "free") ? MAX_DEPTH : 0];

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		sync_wait(&state->turns[LOWEST]);
		pthread_mutex_lock(mutex);
		for (int64_t k = 0; k < options.depth - 1; k++)
			sync_post(&state->turns[LINK + k]);
		sync_post(&state->turns[next]);
		state->released = klat_stamp_begin();
		klat_inject(run, i);
		pthread_mutex_unlock(mutex);
	}
	return 0;
}
