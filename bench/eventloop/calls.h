/* SPDX-License-Identifier: MIT */
/* Counts system calls by tracing a child process. */
#ifndef CALLS_H
#define CALLS_H

#include <stdint.h>

/*
 * Fork a child that runs action(argument), and count its system calls in counts[*phase]. The child
 * sets *phase in shared memory. Phases from `phases` on are not counted. Returns the action's
 * result, or -errno if the child cannot be traced.
 */
int calls_count(int (*action)(void *argument), void *argument, const volatile int *phase,
		int phases, int64_t *counts);

#endif
