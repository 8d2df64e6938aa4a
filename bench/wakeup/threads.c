/* SPDX-License-Identifier: MIT */
/*
 * A waker wakes a thread that shares its CPU with hogs: ordinary threads that never sleep. The
 * woken thread does a piece of work, wakes the waker and sleeps.
 *
 * Timed: what `metrics` says.
 * Not timed: the way back to the waker, and its wait until the thread sleeps again.
 *
 * Traps:
 * - A thread that a hog preempted before it sleeps takes the next request without a wakeup. So the
 *   waker reads in /proc that it sleeps.
 * - A sender that waits for an answer sends nothing while the answer is late, and so hides how long
 *   other requests would have waited (coordinated omission). So with --rate a request counts from
 *   the time when it is due.
 * - The kernel can preempt a hog at the end of each of its system calls, but in user mode only at
 *   interrupts. So there are several kinds of hogs.
 */
#include "wakeup.h"

#include <fcntl.h>
#include <string.h>

/* Wait until a thread sleeps, by its file "stat" in /proc: 0 or -errno. */
static int await_sleep(struct klat_worker *worker, int stat)
{
	for (;;) {
		char text[64];
		const ssize_t size = pread(stat, text, sizeof(text) - 1, 0);
		const char *name_end;

		if (size <= 0)
			return size ? -errno : -ESRCH;
		text[size] = 0;
		name_end = strrchr(text, ')');
		if (name_end && name_end[1] == ' ' && name_end[2] == 'S')
			return 0;
		klat_sleep(worker, 20000);
	}
}

/* Sleep until a request is due, and spin for `spin` ticks before it, because timers are late. */
static void await(struct klat_worker *worker, uint64_t due, int64_t spin)
{
	const int64_t left = due - klat_ticks() - spin;

	if (left > 0)
		klat_sleep(worker, klat_ticks_to_ns(worker->run, left));
	while (spin && (int64_t)(due - klat_ticks()) > 0)
		;
}

/* A real-time thread must not spin all the time, and on one CPU it would keep the hogs from it. */
static int64_t spin_of(const struct klat_run *run, int64_t period)
{
	const int64_t longest = klat_ns_to_ticks(run, 200000);

	return run->one_cpu ? 0 : period / 2 < longest ? period / 2 : longest;
}

/* The fault "awake". */
static void look_for(const uint32_t *tokens)
{
	const int64_t begin = klat_now_ns();

	while (!__atomic_load_n(tokens, __ATOMIC_ACQUIRE) && klat_now_ns() - begin < 1000000)
		;
}

int waker(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const uint64_t period = options.rate ? run->counter_khz * 1000 / options.rate : 0;
	const int64_t spin = spin_of(run, period);
	const bool awake = klat_planted(run, "awake");
	struct state *state = worker->state;
	char path[64];
	uint64_t due;
	int stat, err;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", run->workers[WOKEN].tid);
	stat = open(path, O_RDONLY | O_CLOEXEC);
	err = stat < 0 ? -errno : klat_hogs_await(worker, state->hogs, options.hogs);
	/* On one CPU, frequent looks would lengthen what the other thread calibrates. */
	while (!err && !__atomic_load_n(&state->ready, __ATOMIC_ACQUIRE))
		klat_sleep(worker, 5000000);
	due = klat_ticks();
	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		err = awake ? 0 : await_sleep(worker, stat);
		due += period;
		if (period) {
			const bool late = (int64_t)(klat_ticks() - due) > 0;

			state->counts.late += late && klat_is_sample(run, i);
			if (!late && i > 0)
				state->last_on_time = i;
			await(worker, due, spin);
		}
		state->sent = klat_stamp_begin();
		state->from = period ? due : state->sent;
		klat_inject(run, i);
		err = err ?: sync_post(&state->wakeup) ?: sync_wait(&state->done);
	}
	close(stat);
	return err;
}

/* The two metrics end in two functions: klat explain tells their stamps apart by these names. */
static inline uint64_t awake_since(struct klat_worker *worker)
{
	return klat_stamp_end(worker);
}

static inline uint64_t done_at(struct klat_worker *worker)
{
	return klat_stamp_end(worker);
}

int woken(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const uint64_t rounds = klat_burn_rounds(worker, options.work_us * 1000);
	const bool awake = klat_planted(run, "awake");
	struct state *state = worker->state;
	uint64_t *wake = klat_series(run, WAKE, 0), *request = klat_series(run, REQUEST, 0),
		 seed = 0;
	int64_t before = 0;
	int err = 0;

	__atomic_store_n(&state->ready, 1, __ATOMIC_RELEASE);
	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		uint64_t begin;

		if (klat_observed_from(worker, i))
			before = klat_hogs_ns(state->hogs, options.hogs);
		if (awake)
			look_for(&state->wakeup.futex.tokens);
		err = sync_wait(&state->wakeup);
		begin = awake_since(worker);
		wake[i] = begin - state->sent;
		seed = klat_burn(rounds, seed);
		request[i] = done_at(worker) - state->from;
		klat_sample_ended(worker, wake, begin);
		if (run->soak)
			state->counts.hogs_ns = klat_hogs_ns(state->hogs, options.hogs) - before;
		err = err ?: sync_post(&state->done);
	}
	state->counts.hogs_ns = klat_hogs_ns(state->hogs, options.hogs) - before;
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}
