/* SPDX-License-Identifier: MIT */
/* The timer: setting it, and which deadlines have passed. Nothing here is timed. */
#include "timer.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static struct timeval to_timeval(int64_t ns)
{
	return (struct timeval){ ns / KLAT_NS_PER_S, ns % KLAT_NS_PER_S / 1000 };
}

static int set_timer(struct clockwork *work)
{
	const struct options *o = work->options;
	int64_t interval = o->mode == PERIODIC ? work->period : 0;
	struct itimerspec absolute = { klat_from_ns(interval), klat_from_ns(work->next) };
	struct itimerval relative = { to_timeval(interval), to_timeval(work->period) };

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

int stop_timer(struct clockwork *work)
{
	static const struct itimerspec absolute;
	static const struct itimerval relative;

	switch (work->options->method) {
	case SIGNAL:
		return timer_settime(work->timer, 0, &absolute, NULL) ? -errno : 0;
	case ITIMER:
		return setitimer(ITIMER_REAL, &relative, NULL) ? -errno : 0;
	case TIMERFD:
		return timerfd_settime(work->fd, 0, &absolute, NULL) ? -errno : 0;
	default:
		return 0;
	}
}

/*
 * At the last count of deadlines, the next one was less than a period away if the count is right.
 * Deadlines before that moment passed unserved and are missed. One may pass during the count; the
 * others, and periods that were counted too early, are unaccounted.
 */
void end_stretch(struct clockwork *work)
{
	const int64_t left = work->next - work->counted,
		      passed = left <= 0 ? 1 - left / work->period : 0;

	if (work->begun) {
		work->periods += (work->counted - work->begun) / work->period;
		work->missed += passed;
		work->unaccounted += passed > 1 ? passed - 1 : passed ? 0 : left / work->period;
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

int begin_stretch(struct clockwork *work)
{
	int err;

	work->begun = klat_now_ns();
	work->next = work->begun + work->period;
	work->handler->last_spin = 0;
	work->handler->fired = 0;
	work->handler->set = klat_stamp_begin();
	err = set_timer(work);
	if (work->options->method == ITIMER)
		anchor_itimer(work);
	if (work->misdates)
		work->next += work->period / 2;
	return err;
}

static void drop_pending_alarm(void)
{
	static const struct timespec at_once;
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigtimedwait(&alarm, NULL, &at_once);
}

/*
 * How many deadlines of an interval timer the kernel skipped when it delivered the last one. The
 * kernel then waits for the first deadline in the future. The clock alone could count one too many,
 * because that deadline may have come meanwhile. So the remaining time tells which one the kernel
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
 * Deadlines that passed before the last one was served are missed. Their number is `more` if the
 * kernel counts them. An interval timer shows the next deadline, and for nanosleep it is the number
 * of periods in the lateness.
 */
int advance(struct clockwork *work, uint64_t late, int64_t more)
{
	const struct options *o = work->options;
	struct handler *handler = work->handler;
	int64_t missed = more;
	int err;

	if (work->miscounts)
		klat_spin(2 * ns_to_ticks(work->worker->run, work->period));
	work->counted = klat_now_ns();
	if (work->miscounts)
		missed = 0;
	else if (o->method == ITIMER)
		missed = passed_over(work, work->counted);
	else if (o->method == NANOSLEEP)
		missed = late / ns_to_ticks(work->worker->run, work->period);
	work->missed += missed;
	work->next += (1 + missed) * work->period;
	handler->last_spin = 0;
	handler->fired = 0;
	handler->set = klat_stamp_begin();
	if (!rested(work))
		return 0;
	/* Deadlines during the program's own rest are neither served nor missed. */
	end_stretch(work);
	err = stop_timer(work);
	drop_pending_alarm();
	return err;
}

int make_clockwork(struct clockwork *work)
{
	const struct options *o = work->options;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct epoll_event readable = { .events = EPOLLIN };
	sigset_t alarm;

	work->fd = work->epoll_fd = -1;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	if (o->method == SIGNAL && timer_create(CLOCK_MONOTONIC, &event, &work->timer))
		return -errno;
	if (o->method == TIMERFD)
		work->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	else if (o->method != NANOSLEEP && o->wait != SPIN)
		work->fd = signalfd(-1, &alarm, SFD_CLOEXEC);
	else
		return 0;
	if (work->fd < 0)
		return -errno;
	if (o->wait != EPOLL)
		return 0;
	work->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return work->epoll_fd < 0 || epoll_ctl(work->epoll_fd, EPOLL_CTL_ADD, work->fd, &readable)
		       ? -errno
		       : 0;
}
