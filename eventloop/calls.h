/* SPDX-License-Identifier: MIT */
/* Counts the system calls that something makes, by tracing a process of its own that does it. */
#ifndef CALLS_H
#define CALLS_H

#include <stdint.h>

/*
 * Fork a child that runs action(argument), and count its system calls by what *phase, which the
 * child sets as it goes and which both share, is at each: counts[phase]. Phases from `phases` on
 * are not counted. Returns 0, what the action returned, or -errno where it cannot be traced.
 */
int calls_count(int (*action)(void *argument), void *argument, const volatile int *phase,
		int phases, int64_t *counts);

#endif
