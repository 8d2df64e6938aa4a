/* SPDX-License-Identifier: MIT */
/*
 * A timer and the thread that waits for it.
 *
 * Timed: what `metrics` says.
 * Not timed: setting the timer.
 *
 * Traps:
 * - A very short timer fires inside the call that sets it and interrupts no spin. Such samples are
 *   counted.
 * - A periodic timer that is served late skips periods. They are counted, and lateness is taken
 *   from the first deadline that was missed.
 */
#include "timer.h"

static const char *const methods[] = { "auto",      "signal",       "itimer", "timerfd",
				       "nanosleep", "signal-below", NULL };
static const char *const waits[] = { "auto", "spin", "read", "epoll", "sleep", NULL };

struct options options = { 0 };

static const struct klat_option option_table[] = {
	{ "method",
	  "auto: signal, or nanosleep under SCHED_DEADLINE; signal: timer_create() with SIGALRM; "
	  "itimer: setitimer() with SIGALRM; timerfd: a timer "
	  "descriptor; nanosleep: clock_nanosleep() to a deadline; signal-below: signal, with the "
	  "waiter under SCHED_OTHER, below the thread that sends signals under PREEMPT_RT",
	  KLAT_CHOICE_OF(method, methods) },
	{ "wait",
	  "how the thread waits; auto: spin for signals, read a timerfd, sleep in nanosleep; read "
	  "and epoll take signals from a signalfd",
	  KLAT_CHOICE_OF(wait, waits) },
	{ "mode", "set the timer for each sample, or let it run",
	  KLAT_CHOICE(mode, "one-shot", "periodic") },
	{ "period",
	  "time to the deadline; default: 200; 1000 in a soak and in an emulator; PERIOD with "
	  "--policy deadline",
	  KLAT_INTEGER(period_us, 1, 10000000), .argument = "US" },
};

static const struct klat_metric metrics[] = {
	[DELIVERY] = { "delivery", "last spin stamp to the signal handler", .path_length = true,
		       KLAT_WINDOWS("begin_stretch advance spin", "on_alarm"),
		       .taken_by = "waiter" },
	[LATENESS] = { "lateness", "deadline to the handler, or to the end of the wait",
		       .path_length = true,
		       KLAT_WINDOWS("begin_stretch advance", "on_alarm take_sample"),
		       .from_deadline = true, .taken_by = "waiter" },
	[RETURN] = { "return", "last spin stamp before the handler to the first one after it",
		     .path_length = true, KLAT_WINDOWS("begin_stretch advance spin", "spin"),
		     .taken_by = "waiter" },
};

static const struct klat_published published[] = {
	{ "delivery", "method=signal", 6147.38, "cycles",
	  "SIGALRM into a spinning thread, mean of 500 runs, sd 116.7; Linux, 2013" },
};

/* The waits of each method. With --wait auto it is the first one. */
static const int fitting[][3] = {
	[SIGNAL] = { SPIN, READ, EPOLL }, [ITIMER] = { SPIN, READ, EPOLL },
	[TIMERFD] = { READ, EPOLL },      [NANOSLEEP] = { SLEEP },
	[SIGNAL_BELOW] = { SPIN },
};

static int configure(struct klat_run *run)
{
	const int *fit;
	int wait, err;

	if (options.method == CHOSEN)
		options.method = run->period_ns ? NANOSLEEP : SIGNAL;
	fit = fitting[options.method];
	wait = options.wait == AUTO ? fit[0] : options.wait;
	if (wait != fit[0] && wait != fit[1] && wait != fit[2])
		return klat_usage(run, "--method %s does not support --wait %s",
				  methods[options.method], waits[wait]);
	if (run->soak && options.mode == PERIODIC && options.method != NANOSLEEP)
		return klat_usage(run, "--soak with --mode periodic needs --method nanosleep: the "
				       "kernel merges the late periods of other timers into one");
	options.wait = wait;
	err = wait_configure(run);
	if (err)
		return err;
	/* A shorter wait gives more samples a second. An emulator can take longer than 200 us to
	 * set a timer. */
	if (!options.period_us)
		options.period_us = run->soak || !klat_timed() ? 1000 : 200;
	run->ordinary = options.method == SIGNAL_BELOW;
	if (klat_planted(run, "uncounted"))
		options.mode = PERIODIC;
	run->patience += 2 * (options.period_us / 1000000);
	klat_use_metric(run, LATENESS, 1);
	if (wait == SPIN) {
		klat_use_metric(run, DELIVERY, 1);
		klat_use_metric(run, RETURN, 1);
	}
	return 0;
}

static int setup(struct klat_run *run)
{
	run->workers->sleeps = options.wait == SPIN ? KLAT_RARELY : KLAT_MOSTLY;
	return wait_prepare(run);
}

/* Without a sleep: the timer's interrupt, and a tick that it delayed. */
static const struct klat_worker workers[] = { { "waiter", .body = wait_for_timer, .timers = 2 } };

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const struct klat_worker *worker = klat_worker_find(run, "waiter", 0);
	/* See advance(). */
	const bool serves_all = run->soak && options.mode == PERIODIC;
	const int64_t unserved = state->due - klat_observed(run),
		      period_ns = options.period_us * 1000,
		      longest_tick_ns = 10000000; /* CONFIG_HZ=100 */

	/* While a thread spins, each scheduler tick sets the device again. The CPU of a sleeper can
	 * be tickless. */
	klat_judge_clock_rate(run, LATENESS,
			      options.wait == SPIN && period_ns > longest_tick_ns ? longest_tick_ns
										  : period_ns);
	klat_require(
		run,
		{ "early", state->early, KLAT_RARELY, run->iterations,
		  .reason = "the timer fired before the wait began: --period is too short" },
		{ NULL, state->early, KLAT_NEVER, run->iterations,
		  "in {got} of {wanted} iterations the timer fired before the wait began",
		  .disturbs = true },
		{ "premature", state->premature, KLAT_RARELY, klat_observed(run),
		  .reason = "in {got} of {wanted} iterations the timer seems to have expired "
			    "before its deadline" },
		{ "missed", .got = state->missed,
		  .unless = options.mode == ONE_SHOT || serves_all },
		{ "periods", .got = serves_all ? state->due : state->periods,
		  .unless = options.mode == ONE_SHOT },
		{ "behind", state->behind, KLAT_RARELY, klat_observed(run),
		  "in {got} of {wanted} periods the thread was still busy with earlier periods",
		  .disturbs = true, .unless = !serves_all },
		{ NULL, unserved < 0 ? -unserved : unserved, KLAT_RARELY, klat_observed(run),
		  "{got} periods in {wanted} iterations were not served", .unless = !serves_all },
		{ NULL, state->unaccounted, KLAT_RARELY, klat_observed(run),
		  .reason = "{got} periods in {wanted} iterations are unaccounted for" },
		{ NULL, worker->involuntary, KLAT_NEVER, .reason = "the waiter was preempted",
		  .disturbs = true,
		  .unless = options.wait != SPIN || options.method == SIGNAL_BELOW });
}

const struct klat_benchmark klat_benchmark = {
	.name = "timer",
	.summary = "from a timer's deadline to the thread that waits for it",
	.description =
		"One pinned thread waits for a timer. A spinning thread stamps its counter "
		"in each turn. delivery is the time of the interrupt and the signal frame; "
		"return adds sigreturn. A blocking wait has lateness only. setitimer() "
		"takes a relative time: klat computes the deadline from the time that "
		"getitimer() reports, to the microsecond.\n\n"
		"A one-shot timer is set for each sample. A periodic timer keeps running. A "
		"period in which the thread does not run is counted as missed. Lateness "
		"then counts from the first deadline that the thread missed, so a long delay "
		"shows although it prevents samples. A negative lateness is recorded "
		"as 0 and counted as premature: no timer of the kernel expires early, so it "
		"is an error in reading a clock. Under --policy other, lateness includes "
		"the timer slack (50 us by default).",
	.examples =
		"timer\tSIGALRM into a spinning thread\n"
		"timer --method nanosleep --mode periodic --period 1000\tas cyclictest measures\n"
		"timer --method timerfd --wait epoll\tan event loop's timer",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.soaks = true,
	.counts_size = sizeof(struct state),
	.takes_deadline = true,
	.high_priority = 98,
	.needs_frequency = true,
	.faults = { "yield", "early", "uncounted", "overrun" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
