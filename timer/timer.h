/* SPDX-License-Identifier: MIT */
/* The parts of timer: the timer with its deadlines, and the thread that waits for it. */
#ifndef KLAT_TIMER_H
#define KLAT_TIMER_H

#include "klat.h"

#include <signal.h>
#include <time.h>

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

/* Shared by the signal handler and the loop that it interrupts. */
struct handler {
	volatile uint64_t last_spin; /* 0 until the first turn after the timer was set */
	volatile uint64_t set;       /* stamp before the timer was set */
	volatile uint64_t from, to;  /* last stamp before the handler; its own */
	volatile bool early;
	volatile sig_atomic_t fired;
	struct klat_worker *worker;
};

struct state {
	int64_t early, missed, periods;
	int64_t premature;   /* samples that seem to come before their deadline */
	int64_t unaccounted; /* difference between the clock and the count of deadlines, in periods
			      */
};

/*
 * The timer of one thread. A stretch is the time in which a periodic timer runs without a stop. All
 * times are on CLOCK_MONOTONIC, in ns.
 */
struct clockwork {
	struct klat_worker *worker;
	const struct options *options;
	struct handler *handler;
	int64_t period, next; /* `next`: the deadline that the thread waits for */
	int64_t begun;        /* start of the stretch, 0 between two stretches */
	int64_t missed, periods, premature, unaccounted;
	int64_t counted; /* time of the last count of deadlines */
	timer_t timer;
	int fd, epoll_fd;
	bool yields, misdates, miscounts; /* planted faults: of wait, deadline, count of periods */
};

static inline int64_t ns_to_ticks(const struct klat_run *run, int64_t ns)
{
	return ns * run->counter_khz / 1e6;
}

static inline int64_t ticks_to_ns(const struct klat_run *run, int64_t ticks)
{
	return ticks * 1e6 / run->counter_khz;
}

/* True after a sleep. A running timer then starts anew, or the sleep would count as lateness. */
static inline bool rested(struct clockwork *work)
{
	return work->options->wait == SPIN && klat_rest(work->worker);
}

/* waiter.c. wait_prepare() runs before any worker exists. */
int wait_prepare(struct klat_run *run);
int wait_for_timer(struct klat_worker *worker);

/* deadlines.c: 0, or -errno without a description. */
int make_clockwork(struct clockwork *work);
/* Set the timer to its next deadline. A periodic timer then runs by itself. */
int begin_stretch(struct clockwork *work);
/* Count the periods of the stretch up to the last count of deadlines. */
void end_stretch(struct clockwork *work);
/*
 * Go on to the next deadline of a running timer. `late` is the lateness of the last one in ticks;
 * `more` is the number of further expirations that the kernel reports.
 */
int advance(struct clockwork *work, uint64_t late, int64_t more);
int stop_timer(struct clockwork *work);

#endif
