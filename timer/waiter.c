/* SPDX-License-Identifier: MIT */
/* The timer with its deadlines, and the thread that waits for it. */
#include "timer.h"

#include "sync/sync.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* A spinner sleeps until this long before a far deadline: see KLAT_SPIN_NS. */
#define SPIN_NS 1000000
/* A spinner gives way when the signal is this late. */
#define STARVED_NS 200000000
#define STARVED_TIMES 3

/*
 * The timer of one thread. A stretch is the time in which a periodic timer runs without a stop. All
 * times are on CLOCK_MONOTONIC, in ns; stamps are in ticks.
 */
struct clockwork {
	/* Shared by the signal handler and the loop that it interrupts. */
	volatile uint64_t last_spin; /* 0 until the first turn after the timer was set */
	volatile uint64_t set;       /* stamp before the timer was set */
	volatile uint64_t from, to;  /* last stamp before the handler; its own */
	volatile bool early;
	volatile sig_atomic_t fired;
	int starved; /* consecutive signals that came only when the spinner slept */
	struct klat_worker *worker;
	struct state *state;
	int method;           /* SIGNAL for SIGNAL_BELOW, too */
	int64_t period, next; /* `next`: the deadline that the thread waits for */
	int64_t begun;        /* start of the stretch, 0 between two stretches */
	int64_t counted;      /* time of the last count of deadlines */
	timer_t timer;
	int fd, epoll_fd;
	bool yields, misdates, miscounts; /* planted faults: of wait, deadline, count of periods */
	int64_t overrun_ns;               /* planted: a spin longer than the runtime; else 0 */
};

/* A signal handler has no argument for this. Set before the first timer is. */
static struct clockwork *the_clockwork;
/* SIGALRM. Between two waits for a running timer it must not interrupt but stay pending. */
static sigset_t alarm_set;

/* True after a sleep. A running timer then starts again: otherwise the sleep counts as lateness. */
static bool rested(struct clockwork *work)
{
	return options.wait == SPIN && klat_rest(work->worker);
}

static struct timeval to_timeval(int64_t ns)
{
	return (struct timeval){ ns / KLAT_NS_PER_S, ns % KLAT_NS_PER_S / 1000 };
}

/* Set the timer to its next deadline, or stop it. A periodic timer then runs by itself. */
static int set_timer(struct clockwork *work, bool runs)
{
	int64_t interval = runs && options.mode == PERIODIC ? work->period : 0;
	struct itimerspec absolute = { klat_from_ns(interval),
				       klat_from_ns(runs ? work->next : 0) };
	struct itimerval relative = { to_timeval(interval), to_timeval(runs ? work->period : 0) };

	switch (work->method) {
	case SIGNAL:
		return timer_settime(work->timer, TIMER_ABSTIME, &absolute, NULL) ? -errno : 0;
	case ITIMER:
		return setitimer(ITIMER_REAL, &relative, NULL) ? -errno : 0;
	case TIMERFD:
		return timerfd_settime(work->fd, TFD_TIMER_ABSTIME, &absolute, NULL) ? -errno : 0;
	default:
		return 0;
	}
}

/* What the kernel reports, in ns: 0 if the timer has fired and is pending, a microsecond if it is
 * overdue. */
static int64_t itimer_remaining(void)
{
	struct itimerval timer;

	getitimer(ITIMER_REAL, &timer);
	return timer.it_value.tv_sec * KLAT_NS_PER_S + timer.it_value.tv_usec * 1000;
}

/*
 * The deadline of a relative timer, from the remaining time. setitimer() can take longer than all
 * that is measured here (in a guest it programs the hypervisor's timer), so neither its start nor
 * its end is a good estimate. This estimate is early by at most a microsecond and a short call.
 */
static void anchor_itimer(struct clockwork *work)
{
	int64_t now = klat_now_ns(), remaining = itimer_remaining();

	if (remaining > 1000)
		work->next = now + remaining;
}

static int begin_stretch(struct clockwork *work)
{
	int err;

	/* The timer may fire inside the call that sets it. The handler then runs there, and the
	 * sample counts as early. */
	if (options.wait == SPIN)
		pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
	work->next = klat_now_ns() + work->period;
	work->last_spin = 0;
	work->fired = 0;
	work->set = klat_stamp_begin();
	err = set_timer(work, true);
	if (work->method == ITIMER)
		anchor_itimer(work);
	if (work->misdates)
		work->next += work->period / 2;
	work->begun = work->next - work->period;
	return err;
}

/*
 * The clock gives the number of deadlines in the stretch, up to the last count of deadlines. Those
 * that were not counted passed unserved and are missed. One deadline may pass during the count.
 * More than one are unaccounted, and so are deadlines that were counted before they passed.
 */
static void end_stretch(struct clockwork *work)
{
	const int64_t periods = (work->counted - work->begun) / work->period,
		      unserved = periods + 1 - (work->next - work->begun) / work->period;

	work->state->periods += periods;
	work->state->missed += unserved > 0 ? unserved : 0;
	work->state->unaccounted += unserved > 0 ? unserved - 1 : -unserved;
	work->begun = 0;
}

/* Stop a running timer. Deadlines during the program's own rest are neither served nor missed. */
static int stop(struct clockwork *work)
{
	static const struct timespec at_once;
	int err;

	end_stretch(work);
	err = set_timer(work, false);
	sigtimedwait(&alarm_set, NULL, &at_once);
	return err;
}

/*
 * How many deadlines of an interval timer the kernel skipped when it delivered the last one. The
 * kernel then waits for the first deadline in the future. The clock alone could count one too many,
 * because that deadline may have passed since. So the remaining time shows which one it is.
 */
static int64_t passed_over(const struct clockwork *work, int64_t now)
{
	const int64_t remaining = itimer_remaining(),
		      ahead = now - work->next + remaining +
			      (remaining > 1000 ? work->period / 2 : 0);

	return ahead > work->period ? ahead / work->period - 1 : 0;
}

/*
 * Go on to the next deadline of a running timer. `late` is the lateness of the last one in ticks;
 * `count` is the number of expirations that the kernel reports for a descriptor.
 *
 * Deadlines that passed before the last one was served are missed. The kernel counts them, except
 * for an interval timer. For nanosleep, it is the number of periods in the lateness. In a soak,
 * nanosleep serves every deadline, also those that have passed.
 */
static int advance(struct clockwork *work, uint64_t late, uint64_t count)
{
	const int64_t period_ticks = klat_ns_to_ticks(work->worker->run, work->period);
	int64_t missed = count - 1;

	if (work->miscounts)
		klat_spin(2 * period_ticks);
	work->counted = klat_now_ns();
	if (work->miscounts)
		missed = 0;
	else if (work->method == ITIMER)
		missed = passed_over(work, work->counted);
	else if (work->method == NANOSLEEP)
		missed = work->worker->run->soak ? 0 : late / period_ticks;
	else if (options.wait == SPIN)
		missed = timer_getoverrun(work->timer);
	work->state->missed += missed;
	/* A thread that is late has not served the deadlines since this one. */
	work->state->due = (work->counted - work->begun) / work->period - late / period_ticks;
	work->next += (1 + missed) * work->period;
	work->last_spin = 0;
	work->fired = 0;
	work->set = klat_stamp_begin();
	return rested(work) ? stop(work) : 0;
}

static int make_clockwork(struct clockwork *work)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };

	if (work->method == SIGNAL && timer_create(CLOCK_MONOTONIC, &event, &work->timer))
		return -errno;
	if (work->method == NANOSLEEP || options.wait == SPIN)
		return 0;
	work->fd = work->method == TIMERFD ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)
					   : signalfd(-1, &alarm_set, SFD_CLOEXEC);
	if (work->fd < 0)
		return -errno;
	work->epoll_fd = options.wait == EPOLL ? sync_epoll(work->fd) : 0;
	return work->epoll_fd < 0 ? work->epoll_fd : 0;
}

/* Leaves SIGALRM blocked. Otherwise the loop never goes on if a delivery exceeds the period. */
static void on_alarm(int signal, siginfo_t *info, void *context)
{
	struct clockwork *work = the_clockwork;

	(void)info;
	klat_inject(work->worker->run, work->worker->iteration);
	work->to = klat_stamp_end(work->worker);
	work->early = !work->last_spin;
	work->from = work->last_spin ? work->last_spin : work->set;
	work->fired = 1;
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
	int64_t ns, late;
	uint64_t now;

	if (!klat_clock_step(&ns, &now)) {
		uint64_t before = klat_stamp_begin(), after;

		ns = klat_now_ns();
		after = klat_stamp_begin();
		now = before + (after - before) / 2;
	}
	late = klat_ns_to_ticks(run, ns - work->next) - (now - at);
	if (late < 0 && work->method == ITIMER && options.mode == PERIODIC) {
		work->next -= work->period;
		late += klat_ns_to_ticks(run, work->period);
		work->state->missed--;
	}
	work->state->premature += late < 0;
	return late < 0 ? 0 : late;
}

/*
 * No signal came while this thread spun. Under PREEMPT_RT a thread of low priority sends the
 * signal, and a spinner of higher priority keeps that thread from running. The signal then comes
 * when the spinner sleeps. A stall of the machine can delay one signal by as much, but not several
 * in succession.
 */
static int give_way(struct clockwork *work)
{
	const int64_t end = work->worker->run->end;
	const int times = end < STARVED_TIMES ? end : STARVED_TIMES;

	klat_nap(10000000);
	if (!work->fired || ++work->starved < times)
		return 0;
	return klat_skip(
		work->worker->run,
		"not delivered: SIGALRM to a thread that spins at priority %d (%d times, none "
		"came in %d ms, and one came when the thread slept: this kernel sends the "
		"signal from a thread of lower priority). Use --method signal-below, or "
		"--method nanosleep, which needs no signal",
		work->worker->priority, times, STARVED_NS / 1000000);
}

/* Spin until the handler has run; *end is the loop's first stamp after it. */
static int spin(struct clockwork *work, uint64_t *end)
{
	const int starved = work->starved;
	int64_t limit = work->next + STARVED_NS;

	pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
	if (work->next - klat_now_ns() > 2 * SPIN_NS) {
		/* A signal that ends this sleep came before the spin; its sample shows that. */
		klat_sleep_until(work->worker, work->next - SPIN_NS);
	}
	for (uint32_t turns = 1; !work->fired; turns++) {
		work->last_spin = klat_stamp_begin();
		if (work->yields)
			klat_nap(20000);
		if (!(turns & 0xffff) && klat_now_ns() > limit) {
			int err = give_way(work);

			if (err)
				return err;
			limit = klat_now_ns() + STARVED_NS;
		}
	}
	*end = klat_stamp_end(work->worker);
	if (work->starved == starved && !work->early)
		work->starved = 0;
	return 0;
}

/* Wait in the kernel. *count is the number of expirations that the kernel reports. */
static int block(struct clockwork *work, uint64_t *count)
{
	struct timespec deadline = klat_from_ns(work->next);
	struct signalfd_siginfo info;

	*count = 1;
	while (work->yields && klat_now_ns() < work->next)
		sched_yield();
	/* clock_nanosleep() may sleep even if the deadline has passed. */
	if (work->yields && work->method == NANOSLEEP)
		return 0;
	if (work->method == NANOSLEEP)
		return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
	if (options.wait == EPOLL && sync_epoll_wait(&work->epoll_fd) < 0)
		return -errno;
	if (work->method == TIMERFD)
		return read(work->fd, count, sizeof(*count)) == sizeof(*count) ? 0 : -errno;
	if (read(work->fd, &info, sizeof(info)) != sizeof(info))
		return -errno;
	*count = 1 + info.ssi_overrun;
	return 0;
}

static int take_sample(struct clockwork *work, int64_t i)
{
	const struct klat_run *run = work->worker->run;
	const bool spins = options.wait == SPIN;
	uint64_t count = 1, at, end = 0, late;
	bool early;
	int err;

	if (spins) {
		err = spin(work, &end);
		at = work->to;
		early = work->early;
	} else {
		early = klat_now_ns() >= work->next;
		err = block(work, &count);
		klat_inject(run, i);
		at = klat_stamp_end(work->worker);
	}
	if (err)
		return err;
	late = lateness(work, at);
	klat_series(run, LATENESS, 0)[i] = late;
	klat_sample_ended(work->worker, klat_series(run, LATENESS, 0), at);
	if (spins) {
		klat_sample_ended(work->worker, klat_series(run, DELIVERY, 0), at);
		klat_series(run, DELIVERY, 0)[i] = at - work->from;
		klat_series(run, RETURN, 0)[i] = end - work->from;
	}
	if (early && run->soak && options.mode == PERIODIC) {
		/* The thread is still busy with the periods before. */
		work->state->behind++;
		work->worker->unneeded_sleeps++;
		early = false;
	}
	work->state->early += klat_is_sample(run, i) && early;
	if (work->overrun_ns && i % 16 == 0)
		klat_spin(klat_ns_to_ticks(run, work->overrun_ns));
	if (options.mode == PERIODIC)
		return advance(work, late, count);
	rested(work);
	return 0;
}

int wait_for_timer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct clockwork work = { .worker = worker,
				  .state = worker->state,
				  .method =
					  options.method == SIGNAL_BELOW ? SIGNAL : options.method,
				  .period = options.period_us * 1000,
				  .yields = klat_planted(run, "yield"),
				  .misdates = klat_planted(run, "early"),
				  .miscounts = klat_planted(run, "uncounted") };
	/* Many kernels check the runtime only at scheduler ticks, and stop the thread at the second
	 * tick. */
	const int64_t ticks_ns = 30000000;
	int64_t rests = worker->rests;
	int err;

	if (klat_planted(run, "overrun"))
		work.overrun_ns = run->runtime_ns + ticks_ns;
	the_clockwork = &work;
	err = make_clockwork(&work);
	for (int64_t i = klat_first(run); !err && klat_next(worker, &i);
	     i++, rests = worker->rests) {
		if (klat_observed_from(worker, i)) {
			/* Counts of the observed part begin at the last deadline before it. */
			*work.state = (struct state){ 0 };
			work.begun = work.begun ? work.next - work.period : 0;
		}
		/* During the copy of a slow sample's trace, the worker rests. */
		if (options.mode == PERIODIC && work.begun && worker->rests != rests)
			err = stop(&work);
		if (!err && (options.mode == ONE_SHOT || !work.begun))
			err = begin_stretch(&work);
		err = err ?: take_sample(&work, i);
	}
	if (options.mode == PERIODIC && work.begun && !err)
		err = stop(&work);
	/* After an error the timer may still run; its handler must not use `work` then. */
	pthread_sigmask(SIG_BLOCK, &alarm_set, NULL);
	the_clockwork = NULL;
	return err;
}

/* Under SCHED_DEADLINE the thread must sleep, and be due at most once in a period. */
int wait_configure(struct klat_run *run)
{
	const int64_t shortest_us = (run->period_ns + 999) / 1000;

	if (klat_planted(run, "overrun") && !run->period_ns)
		return klat_usage(run, "--plant overrun needs --policy deadline:RUNTIME:PERIOD");
	if (!run->period_ns)
		return 0;
	if (options.wait == SPIN)
		return klat_usage(run, "--policy deadline: a thread that spins uses up its "
				       "runtime; --wait read and --method nanosleep sleep");
	if (!options.period_us)
		options.period_us = shortest_us;
	if (options.period_us < shortest_us)
		return klat_usage(run,
				  "--period %lld is shorter than the period of --policy deadline",
				  (long long)options.period_us);
	return 0;
}

int wait_prepare(struct klat_run *run)
{
	const struct sigaction action = { .sa_sigaction = on_alarm,
					  .sa_flags = SA_SIGINFO | SA_RESTART };

	/* Every thread inherits the blocked signal. The spinning one unblocks it. */
	sigemptyset(&alarm_set);
	sigaddset(&alarm_set, SIGALRM);
	if (sigaction(SIGALRM, &action, NULL) || sigprocmask(SIG_BLOCK, &alarm_set, NULL))
		return klat_error(run, errno, "cannot set up SIGALRM: %m");
	return 0;
}
