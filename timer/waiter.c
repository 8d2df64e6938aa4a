/* SPDX-License-Identifier: MIT */
/* The thread that waits for the timer. Every stamp of a sample is taken here. */
#include "timer.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <ucontext.h>
#include <unistd.h>

/* A spinner sleeps until this long before a far deadline. Spinning all the time would use up the
 * runtime of the real-time class. */
#define SPIN_NS 1000000
/* A spinner gives way when the signal is this late. */
#define STARVED_NS 200000000

/* A signal handler has no argument for this. Set before the first timer is. */
static struct handler *the_handler;

/* Leaves SIGALRM blocked. Otherwise the loop never goes on if the period is shorter than a
 * delivery.
 */
static void on_alarm(int signal, siginfo_t *info, void *context)
{
	struct handler *handler = the_handler;

	(void)info;
	klat_inject(handler->worker->run, handler->worker->iteration);
	handler->to = klat_stamp_end(handler->worker);
	handler->early = !handler->last_spin;
	handler->from = handler->last_spin ? handler->last_spin : handler->set;
	handler->fired = 1;
	sigaddset(&((ucontext_t *)context)->uc_sigmask, signal);
}

/*
 * Lateness in ticks of the event with stamp `at`. The kernel's clock is read now, between two
 * stamps, and the ticks since `at` are subtracted. So the counter's rate over the period does not
 * matter.
 *
 * The deadlines of an interval timer are estimated early, never late. If such a timer seems to come
 * before its deadline, it serves the deadline before, and one period was counted as missed by
 * mistake. No other timer expires before its deadline. A negative lateness is then an error in
 * reading the clocks or the deadline. It is recorded as 0 and counted.
 */
static uint64_t lateness(struct clockwork *work, uint64_t at)
{
	const struct klat_run *run = work->worker->run;
	uint64_t before = klat_stamp_begin();
	int64_t ns = klat_now_ns(), late;
	uint64_t after = klat_stamp_begin(), since = before + (after - before) / 2 - at;

	if (work->options->method == ITIMER && work->options->mode == PERIODIC &&
	    ns - ticks_to_ns(run, since) < work->next) {
		work->next -= work->period;
		work->missed--;
	}
	late = ns_to_ticks(run, ns - work->next) - since;
	work->premature += late < 0;
	return late < 0 ? 0 : late;
}

/* Between two waits for a running timer, SIGALRM must not interrupt but stay pending. */
static int hold_alarm(bool hold)
{
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	return -pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &alarm, NULL);
}

/*
 * No signal came while this thread spun. Under PREEMPT_RT a thread of low priority sends the
 * signal, and a spinner of higher priority keeps that thread from running. The signal then comes
 * when the spinner sleeps.
 */
static int give_way(struct clockwork *work, int64_t late_ns)
{
	struct klat_run *run = work->worker->run;

	klat_nap(10000000);
	if (work->handler->fired)
		return klat_skip(run,
				 "not delivered: SIGALRM to a thread that spins at priority %d "
				 "(none in %d ms, one when the thread slept: this kernel sends the "
				 "signal from a thread of lower priority). Use --method "
				 "signal-below, or --method nanosleep, which needs no signal",
				 work->worker->priority, STARVED_NS / 1000000);
	if (late_ns > 2000000000)
		return klat_error(run, ETIMEDOUT, "no SIGALRM for two seconds");
	return 0;
}

/* Spin until the handler has run; *end is the loop's first stamp after it. */
static int spin(struct clockwork *work, uint64_t *end)
{
	struct handler *handler = work->handler;
	int64_t limit = work->next + STARVED_NS;

	hold_alarm(false);
	if (work->next - klat_now_ns() > 2 * SPIN_NS) {
		/* A signal that ends this sleep came before the spin; its sample shows that. */
		klat_sleep_until(work->worker, work->next - SPIN_NS);
	}
	for (uint32_t turns = 1; !handler->fired; turns++) {
		handler->last_spin = klat_stamp_begin();
		if (work->yields)
			klat_nap(20000);
		if (!(turns & 0xffff) && klat_now_ns() > limit) {
			int err = give_way(work, klat_now_ns() - work->next);

			if (err)
				return err;
			limit = klat_now_ns() + STARVED_NS;
		}
	}
	*end = klat_stamp_end(work->worker);
	return 0;
}

/* Wait in the kernel. *count is the number of expirations that the kernel reports. */
static int block(struct clockwork *work, uint64_t *count)
{
	const struct options *o = work->options;
	struct timespec deadline = klat_from_ns(work->next);
	struct signalfd_siginfo info;
	struct epoll_event event;

	*count = 1;
	while (work->yields && klat_now_ns() < work->next)
		sched_yield();
	if (o->method == NANOSLEEP)
		return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
	if (o->wait == EPOLL && epoll_wait(work->epoll_fd, &event, 1, -1) < 0)
		return -errno;
	if (o->method == TIMERFD)
		return read(work->fd, count, sizeof(*count)) == sizeof(*count) ? 0 : -errno;
	if (read(work->fd, &info, sizeof(info)) != sizeof(info))
		return -errno;
	*count = 1 + info.ssi_overrun;
	return 0;
}

static int spinner_sample(struct clockwork *work, int64_t i)
{
	const struct klat_run *run = work->worker->run;
	struct handler *handler = work->handler;
	struct state *state = work->worker->state;
	uint64_t end = 0, late;
	int err = spin(work, &end);

	if (err)
		return err;
	late = lateness(work, handler->to);
	klat_series(run, LATENESS, 0)[i] = late;
	klat_series(run, DELIVERY, 0)[i] = handler->to - handler->from;
	klat_series(run, RETURN, 0)[i] = end - handler->from;
	state->early += klat_is_sample(run, i) && handler->early;
	if (work->options->mode == PERIODIC)
		return advance(work, late,
			       work->options->method == SIGNAL ? timer_getoverrun(work->timer) : 0);
	rested(work);
	return 0;
}

static int sleeper_sample(struct clockwork *work, int64_t i)
{
	const struct klat_run *run = work->worker->run;
	struct state *state = work->worker->state;
	bool early = klat_now_ns() >= work->next;
	uint64_t count, at, late;
	int err = block(work, &count);

	klat_inject(run, i);
	at = klat_stamp_end(work->worker);
	if (err)
		return err;
	late = lateness(work, at);
	klat_series(run, LATENESS, 0)[i] = late;
	state->early += klat_is_sample(run, i) && early;
	return work->options->mode == PERIODIC ? advance(work, late, count - 1) : 0;
}

int wait_for_timer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct options options = *(const struct options *)run->options;
	struct handler handler = { .worker = worker };
	struct clockwork work = { .worker = worker,
				  .options = &options,
				  .handler = &handler,
				  .period = options.period_us * 1000,
				  .yields = klat_planted(run, "yield"),
				  .misdates = klat_planted(run, "early"),
				  .miscounts = klat_planted(run, "uncounted") };
	struct state *state = worker->state;
	int err;

	if (options.method == SIGNAL_BELOW)
		options.method = SIGNAL;
	the_handler = &handler;
	err = make_clockwork(&work);
	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		if (klat_iteration(worker, i)) {
			/* Counts of the observed part begin at the last deadline before it. */
			work.missed = work.periods = work.premature = work.unaccounted = 0;
			work.begun = work.begun ? work.next - work.period : 0;
		}
		if (work.options->mode == ONE_SHOT || !work.begun) {
			/* The timer may fire inside the call that sets it; the handler then runs
			 * there and the sample counts as early. */
			if (work.options->wait == SPIN)
				hold_alarm(false);
			err = begin_stretch(&work);
		}
		if (!err)
			err = work.options->wait == SPIN ? spinner_sample(&work, i)
							 : sleeper_sample(&work, i);
	}
	if (work.options->mode == PERIODIC && !err) {
		end_stretch(&work);
		err = stop_timer(&work);
	}
	state->missed = work.missed;
	state->periods = work.periods;
	state->premature = work.premature;
	state->unaccounted = work.unaccounted;
	return err;
}

int wait_prepare(struct klat_run *run)
{
	const struct sigaction action = { .sa_sigaction = on_alarm,
					  .sa_flags = SA_SIGINFO | SA_RESTART };

	/* Every thread inherits the blocked signal. The spinning one unblocks it. */
	if (sigaction(SIGALRM, &action, NULL) || hold_alarm(true))
		return klat_error(run, errno, "cannot set up SIGALRM: %m");
	return 0;
}
