/* SPDX-License-Identifier: MIT */
/* The rounds of the chain, and what they share with the program. */
#ifndef EVENTLOOP_ROUND_H
#define EVENTLOOP_ROUND_H

#include "eventloop.h"
#include "klat.h"

enum { TOTAL, REGISTRATION, LOOP, TEARDOWN };

extern struct options {
	int64_t pairs, active, writes, batch;
	int backend, descriptor;
	bool timers, priorities, fresh, count_calls;
} options;

/* System calls are counted by the phase of a round. */
enum phase { REGISTERING, LOOPING, TEARING_DOWN, PHASES };

struct state {
	struct loop loop;
	struct tally tally;
	volatile int phase;
	int64_t calls[PHASES];
};

extern const char *const backend_names[];

/* The body of the worker. */
int run_rounds(struct klat_worker *worker);
/* For --count-syscalls: count the system calls of one round in a traced child process. */
int count_calls(struct klat_run *run);

#endif
