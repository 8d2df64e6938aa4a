/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the thread counts, and the thread. */
#ifndef KLAT_TIMER_H
#define KLAT_TIMER_H

#include "klat.h"

enum {
	DELIVERY,
	LATENESS,
	RETURN
};
enum {
	SIGNAL,
	ITIMER,
	TIMERFD,
	NANOSLEEP,
	SIGNAL_BELOW
};
enum {
	AUTO,
	SPIN,
	READ,
	EPOLL,
	SLEEP
};
enum {
	ONE_SHOT,
	PERIODIC
};

struct options {
	int64_t period_us;
	int method, wait, mode;
};

struct state {
	int64_t early; /* samples whose timer fired before the wait began */
	/* Deadlines of the observed part. */
	int64_t missed, periods;
	int64_t premature;   /* deadlines that a sample seems to precede */
	int64_t unaccounted; /* periods between the clock and the count of deadlines */
};

/* wait_prepare() runs before any worker exists. */
int wait_prepare(struct klat_run *run);
int wait_for_timer(struct klat_worker *worker);

#endif
