/* SPDX-License-Identifier: MIT */
/*
 * With SO_RCVTIMEO the kernel starts and stops a timer for each message, which adds some 100 ns to
 * a round trip. A program that waits without a limit does not pay that. So a signal wakes a side
 * that sleeps in recv(), once in thousands of messages, and the side then reads the clock.
 */
#include "transport.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define BEAT SIGRTMIN

static void on_beat(int signal)
{
	(void)signal;
}

int beat_prepare(struct klat_run *run)
{
	/* Without SA_RESTART, so that recv() ends. */
	const struct sigaction action = { .sa_handler = on_beat };

	if (sigaction(BEAT, &action, NULL))
		return klat_error(run, errno, "cannot handle a signal: %m");
	return 0;
}

int beat_begin(struct side *side, int64_t ms)
{
	const struct timespec period = klat_from_ns(ms * 1000000);
	const struct itimerspec beats = { period, period };
	sigset_t unblocked;
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = BEAT };

	/* The caller of the program may have blocked the signal. */
	sigemptyset(&unblocked);
	sigaddset(&unblocked, BEAT);
	pthread_sigmask(SIG_UNBLOCK, &unblocked, NULL);
	event._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, &side->beat) ||
	    timer_settime(side->beat, 0, &beats, NULL))
		return errno == EAGAIN ? klat_skip(side->run,
						   "cannot make a timer for each side: the limit "
						   "of pending signals (ulimit -i) is exhausted")
				       : klat_error(side->run, errno,
						    "cannot make the %s's timer: %m", side->name);
	side->beats = true;
	return 0;
}

void beat_end(struct side *side)
{
	if (side->beats)
		timer_delete(side->beat);
}
