/* SPDX-License-Identifier: MIT */
/* The timer with its deadlines, and the thread that waits for it. Every stamp is taken here. */
#include "timer.h"

#include "sync/sync.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* A spinner sleeps until this long before a far deadline. Spinning all the time would use up the
 * runtime of the real-time class. */
#define SPIN_NS 1000000
/* A spinner gives way when the signal is this late. */
#define STARVED_NS 200000000

/* Shared by the signal handler and the loop that it interrupts. */
struct handler {
	volatile uint64_t last_spin; /* 0 until the first turn after the timer was set */
	volatile uint64_t set;       /* stamp before the timer was set */
	volatile uint64_t from, to;  /* last stamp before the handler; its own */
	volatile bool early;
	volatile sig_atomic_t fired;
	struct klat_worker *worker;
};

/*
 * The timer of one thread. A stretch is the time in which a periodic timer runs without a stop. All
 * times are on CLOCK_MONOTONIC, in ns.
 */
struct clockwork {
	struct klat_worker *worker;
	const struct options *options;
	struct handler *handler;
	struct state *state;
	int64_t period, next; /* `next`: the deadline that the thread waits for */
	int64_t begun;        /* start of the stretch, 0 between two stretches */
	int64_t counted;      /* time of the last count of deadlines */
	timer_t timer;
	int fd, epoll_fd;
	bool yields, misdates, miscounts; /* planted faults: of wait, deadline, count of periods */
};

/* A signal handler has no argument for this. Set before the first timer is. */
static struct handler *the_handler;
/* SIGALRM. Between two waits for a running timer it must not interrupt but stay pending. */
static sigset_t alarm_set;

/* True after a sleep. A running timer then starts again: otherwise the sleep counts as lateness. */
static bool rested(struct clockwork *work)
{
	return work->options->wait == SPIN && klat_rest(work->worker);
}

static struct timeval to_timeval(int64_t ns)
{
	return (struct timeval){ ns / KLAT_NS_PER_S, ns % KLAT_NS_PER_S / 1000 };
}

/* Set the timer to its next deadline, or stop it. A periodic timer then runs by itself. */
static int set_timer(struct clockwork *work, bool runs)
{
	const struct options *o = work->options;
	int64_t interval = runs && o->mode == PERIODIC ? work->period : 0;
	struct itimerspec absolute = { klat_from_ns(interval),
				       klat_from_ns(runs ? work->next : 0) };
	struct itimerval relative = { to_timeval(interval), to_timeval(runs ? work->period : 0) };

	switch (o->method) {
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

/*
 * Count the periods of the stretch up to the last count of deadlines.
 *
 * At the last count of deadlines, the next one was less than a period away if the count is right.
 * Deadlines before that moment passed unserved and are missed. One may pass during the count; the
 * others, and periods that were counted too early, are unaccounted.
 */
static void end_stretch(struct clockwork *work)
{
	const int64_t left = work->next - work->counted,
		      passed = left <= 0 ? 1 - left / work->period : 0;

	if (work->begun) {
		work->state->periods += (work->counted - work->begun) / work->period;
		work->state->missed += passed;
		work->state->unaccounted += passed > 1 ? passed - 1
					    : passed   ? 0
						       : left / work->period;
	}
	work->begun = 0;
}

static int64_t remaining_ns(const struct itimerval *timer)
{
	return timer->it_value.tv_sec * KLAT_NS_PER_S + timer->it_value.tv_usec * 1000;
}

/*
 * The deadline of a relative timer, from the remaining time that the kernel reports. setitimer()
 * can take longer than all that is measured here (in a guest it programs the hypervisor's timer),
 * so neither its start nor its end is a good estimate. This estimate is early by at most a
 * microsecond and a short call.
 */
static void anchor_itimer(struct clockwork *work)
{
	struct itimerval left;
	int64_t now = klat_now_ns();

	getitimer(ITIMER_REAL, &left);
	/* A timer that has fired has no time left. */
	if (left.it_value.tv_sec || left.it_value.tv_usec > 1)
		work->next = now + remaining_ns(&left);
	work->begun = work->next - work->period;
}

static int begin_stretch(struct clockwork *work)
{
	int err;

	work->begun = klat_now_ns();
	work->next = work->begun + work->period;
	work->handler->last_spin = 0;
	work->handler->fired = 0;
	work->handler->set = klat_stamp_begin();
	err = set_timer(work, true);
	if (work->options->method == ITIMER)
		anchor_itimer(work);
	if (work->misdates)
		work->next += work->period / 2;
	return err;
}

/*
 * How many deadlines of an interval timer the kernel skipped when it delivered the last one. The
 * kernel then waits for the first deadline in the future. The clock alone could count one too many,
 * because that deadline may have passed since. The remaining time shows which one the kernel
 * waits for: it is 0 if the timer has fired and is pending, and a microsecond if it is overdue.
 */
static int64_t passed_over(const struct clockwork *work, int64_t now)
{
	struct itimerval value;
	int64_t left, ahead;

	getitimer(ITIMER_REAL, &value);
	left = remaining_ns(&value);
	ahead = now - work->next + (left > 1000 ? left + work->period / 2 : left);
	return ahead > work->period ? ahead / work->period - 1 : 0;
}

/*
 * Go on to the next deadline of a running timer. `late` is the lateness of the last one in ticks;
 * `more` is the number of further expirations that the kernel reports.
 *
 * Deadlines that passed before the last one was served are missed. Their number is `more` if the
 * kernel counts them. An interval timer shows the next deadline, and for nanosleep it is the number
 * of periods in the lateness.
 */
static int advance(struct clockwork *work, uint64_t late, int64_t more)
{
	const struct options *o = work->options;
	static const struct timespec at_once;
	struct handler *handler = work->handler;
	int64_t missed = more;
	int err;

	if (work->miscounts)
		klat_spin(2 * klat_ns_to_ticks(work->worker->run, work->period));
	work->counted = klat_now_ns();
	if (work->miscounts)
		missed = 0;
	else if (o->method == ITIMER)
		missed = passed_over(work, work->counted);
	else if (o->method == NANOSLEEP)
		missed = late / klat_ns_to_ticks(work->worker->run, work->period);
	work->state->missed += missed;
	work->next += (1 + missed) * work->period;
	handler->last_spin = 0;
	handler->fired = 0;
	handler->set = klat_stamp_begin();
	if (!rested(work))
		return 0;
	/* Deadlines during the program's own rest are neither served nor missed. */
	end_stretch(work);
	err = set_timer(work, false);
	sigtimedwait(&alarm_set, NULL, &at_once);
	return err;
}

static int make_clockwork(struct clockwork *work)
{
	const struct options *o = work->options;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };

	if (o->method == SIGNAL && timer_create(CLOCK_MONOTONIC, &event, &work->timer))
		return -errno;
	if (o->method == NANOSLEEP || o->wait == SPIN)
		return 0;
	work->fd = o->method == TIMERFD ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)
					: signalfd(-1, &alarm_set, SFD_CLOEXEC);
	if (work->fd < 0)
		return -errno;
	work->epoll_fd = o->wait == EPOLL ? sync_epoll(work->fd) : 0;
	return work->epoll_fd < 0 ? work->epoll_fd : 0;
}

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

	late = klat_ns_to_ticks(run, ns - work->next) - since;
	if (late < 0 && work->options->method == ITIMER && work->options->mode == PERIODIC) {
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

	pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
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
	struct state *state = work->state;
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
	struct state *state = work->state;
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
				  .state = worker->state,
				  .period = options.period_us * 1000,
				  .yields = klat_planted(run, "yield"),
				  .misdates = klat_planted(run, "early"),
				  .miscounts = klat_planted(run, "uncounted") };
	int err;

	if (options.method == SIGNAL_BELOW)
		options.method = SIGNAL;
	the_handler = &handler;
	err = make_clockwork(&work);
	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		if (klat_iteration(worker, i)) {
			/* Counts of the observed part begin at the last deadline before it. */
			*work.state = (struct state){ 0 };
			work.begun = work.begun ? work.next - work.period : 0;
		}
		if (work.options->mode == ONE_SHOT || !work.begun) {
			/* The timer may fire inside the call that sets it; the handler then runs
			 * there and the sample counts as early. */
			if (work.options->wait == SPIN)
				pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
			err = begin_stretch(&work);
		}
		if (!err)
			err = work.options->wait == SPIN ? spinner_sample(&work, i)
							 : sleeper_sample(&work, i);
	}
	if (work.options->mode == PERIODIC && !err) {
		end_stretch(&work);
		err = set_timer(&work, false);
	}
	return err;
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
