/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the thread counts, and the thread. */
#ifndef KLAT_TIMER_H
#define KLAT_TIMER_H

#include "klat.h"

enum { DELIVERY, LATENESS, RETURN };
enum { CHOSEN, SIGNAL, ITIMER, TIMERFD, NANOSLEEP, SIGNAL_BELOW };
enum { AUTO, SPIN, READ, EPOLL, SLEEP };
enum { ONE_SHOT, PERIODIC };

extern struct options {
	int64_t period_us;
	int method, wait, mode;
} options;

struct state {
	int64_t early; /* samples whose timer fired before the wait began */
	/* Counts of deadlines in the observed part. */
	int64_t missed, periods;
	int64_t behind; /* in a soak: deadlines that had passed when their wait began */
	int64_t due; /* of a running timer: deadlines since it was set, by the clock, up to the one
			that was served */
	int64_t premature;   /* samples that seem to end before their deadline */
	int64_t unaccounted; /* difference between the clock and the count of deadlines, in periods
			      */
};

/* Check the options for SCHED_DEADLINE, and choose the period. 0 or -EINVAL. */
int wait_configure(struct klat_run *run);
/* wait_prepare() runs before any worker exists. */
int wait_prepare(struct klat_run *run);
int wait_for_timer(struct klat_worker *worker);

#endif
