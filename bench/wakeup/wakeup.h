/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the threads share, and the threads. */
#ifndef WAKEUP_WAKEUP_H
#define WAKEUP_WAKEUP_H

#include "sync/sync.h"
#include "work.h"

enum { WAKE, REQUEST };
enum { WAKER, WOKEN };
enum { MAX_HOGS = 64 };

extern struct options {
	int64_t hogs, nice, slice_us, work_us, rate;
	int kind;
} options;

struct state {
	uint64_t sent KLAT_ALIGNED; /* stamp of the waker */
	uint64_t from;              /* where the request begins */
	uint32_t ready;             /* the woken thread has calibrated its work */
	struct sync wakeup, done;
	struct klat_hog hogs[MAX_HOGS];
	struct counts {
		int64_t hogs_ns; /* their CPU time in the observed part */
		int64_t late; /* timed requests that were due before the previous request ended */
	} counts;
	int64_t last_on_time; /* the number of the last other one */
	uint64_t sink;
};

int waker(struct klat_worker *worker);
int woken(struct klat_worker *worker);

#endif
