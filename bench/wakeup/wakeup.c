/* SPDX-License-Identifier: MIT */
/* Wakeups beside hogs: what can be chosen, the set-up and the evidence. threads.c has the event. */
#include "wakeup.h"

struct options options = { .hogs = 1, .work_us = 10 };

static const struct klat_option option_table[] = {
	{ "hogs", "threads that share the CPU of the woken thread, and never sleep",
	  KLAT_INTEGER(hogs, 0, MAX_HOGS) },
	{ "hog-kind",
	  "user: they stay in user mode; syscall: they make short system calls; fault: they take "
	  "page faults",
	  KLAT_CHOICE(kind, "user", "syscall", "fault") },
	{ "nice", "nice value of the woken thread; 0: as inherited", KLAT_INTEGER(nice, -20, 19) },
	{ "slice",
	  "time slice of the woken thread (Linux 6.12 and later), at least 100; 0: as inherited",
	  KLAT_INTEGER(slice_us, 0, 100000), .argument = "US" },
	{ "work", "work of the woken thread for each request", KLAT_INTEGER(work_us, 0, 100000),
	  .argument = "US" },
	{ "rate",
	  "requests due in a second, at least 10; 0: each is sent when the one before it has ended",
	  KLAT_INTEGER(rate, 0, 1000000) },
};

static const struct klat_metric metrics[] = {
	[WAKE] = { "wake", "before the waker's call to the first stamp of the woken thread",
		   .path_length = true, KLAT_WINDOWS("waker", "awake_since"), .taken_by = "woken" },
	[REQUEST] = { "request", "sent, or due with --rate, until the work is done",
		      .path_length = true, KLAT_WINDOWS("waker", "done_at"), .taken_by = "woken" },
};

static int configure(struct klat_run *run)
{
	if (options.slice_us && options.slice_us < 100)
		return klat_usage(run, "--slice takes 0 or at least 100, the kernel's minimum");
	if (klat_planted(run, "behind"))
		options.rate = 1000000;
	if (options.rate && options.rate < 10)
		return klat_usage(run, "--rate takes 0 or at least 10");
	run->ordinary = options.nice || options.slice_us;
	if (!run->one_cpu)
		klat_bound_offset(run, WAKE);
	return 0;
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	struct klat_worker *woken = &run->workers[WOKEN];
	int err =
		sync_init(&state->wakeup, SYNC_FUTEX, 0) ?: sync_init(&state->done, SYNC_FUTEX, 0);

	woken->nice = options.nice;
	woken->slice_ns = options.slice_us * 1000;
	woken->competes = options.hogs > 0;
	run->workers[WAKER].competes = woken->competes && run->one_cpu;
	for (int i = 0; i < options.hogs && !err; i++) {
		state->hogs[i].kind = klat_planted(run, "idle") ? KLAT_HOG_ASLEEP : options.kind;
		err = klat_hog_start(run, &state->hogs[i], woken->cpu);
	}
	return err;
}

static void teardown(struct klat_run *run)
{
	struct state *state = run->state;

	klat_hogs_read(state->hogs, options.hogs);
}

static const struct klat_worker workers[] = {
	[WAKER] = { "waker", .body = waker, .woken = true, .most_sleeps = 1 },
	[WOKEN] = { "woken", "woken thread", .body = woken, .place = 1, .woken = true,
		    .sleeps = KLAT_MOSTLY },
};

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const struct klat_worker *woken = klat_worker_find(run, "woken", 0);

	if (!run->soak)
		klat_hogs_require(run, state->hogs, options.hogs);
	if (options.hogs)
		klat_hogs_require_remainder(run, woken, state->counts.hogs_ns);
	/* By the kernel's count. It is 0 for a thread that preempts the hog at once: the kernel
	 * then reads its clock only once (rq_clock_skip_update()). So it is no metric. */
	if (woken->account.waited_ns >= 0)
		klat_count_mean(run, "wait_ticks", klat_ns_to_ticks(run, woken->account.waited_ns),
				klat_observed(run));
	klat_require(run,
		     { "late", state->counts.late, run->soak ? KLAT_AT_MOST : KLAT_COUNTED,
		       klat_observed(run) / 2,
		       "the rate was not kept: {got} requests were late (give a lower --rate)",
		       .unless = !options.rate },
		     { NULL, state->last_on_time, KLAT_AT_LEAST, run->iterations / 2,
		       .reason =
			       "the rate was not kept: all requests after request {got} were late "
			       "(give a lower --rate)",
		       .unless = !options.rate || run->soak });
}

const struct klat_benchmark klat_benchmark = {
	.name = "wakeup",
	.summary = "the wakeup of an ordinary thread whose CPU is busy with others",
	.description =
		"A waker wakes a thread that shares its CPU with --hogs threads of SCHED_OTHER. "
		"The hogs never sleep, so the scheduler decides when the woken thread runs: at "
		"once, at the next tick, or after the hogs' time slices. The woken thread does "
		"some work, wakes the waker and sleeps. The policy is SCHED_OTHER unless --policy "
		"is given. Hogs keep SCHED_OTHER.\n\n"
		"Without --rate the next request follows when the woken thread sleeps again. With "
		"--rate requests are due at fixed times, and `request` counts from there: a "
		"request that is sent late counts in full. If the thread cannot keep the rate, "
		"the run is invalid.\n\n"
		"The waker has a CPU of its own. On one CPU (--cpus 1,1) it competes with the "
		"hogs, too: with --rate, `request` then contains its own wakeup.",
	.examples = "wakeup\tone hog in user mode\n"
		    "wakeup --hogs 4 --policy batch\tfour hogs, and threads of SCHED_BATCH\n"
		    "wakeup --rate 1000 --slice 100\tan open loop, and a short time slice\n"
		    "wakeup --policy fifo\tthe woken thread is real-time, the hog is not",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.soaks = true,
	.counts_at = offsetof(struct state, counts),
	.counts_size = sizeof(struct counts),
	.ordinary = true,
	.needs_frequency = true,
	.faults = { "awake", "idle", "behind" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};
