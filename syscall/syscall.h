/* SPDX-License-Identifier: MIT */
/* The system calls of an iteration, and the control that they reach the kernel. */
#ifndef SYSCALL_H
#define SYSCALL_H

#include "klat.h"

struct request {
	long number, arguments[4];
	long expected;
};

/* The second one of a pair, or count is 1. */
struct call {
	struct request requests[2];
	int count;
};

/* `cached` is the planted fault: the answer of before, without asking the kernel. */
static inline __attribute__((always_inline)) long request(const struct request *of, bool cached)
{
	const long *arguments = of->arguments;

	return cached ? of->expected
		      : klat_arch_syscall(of->number, arguments[0], arguments[1], arguments[2],
					  arguments[3]);
}

#define CONTROL_CALLS 100

/*
 * Make the calls of CONTROL_CALLS iterations in a process of their own, under a seccomp filter that
 * refuses `number` and the second call of a pair. Returns how many calls the filter refused, or -1
 * without filters. *refused is in memory that the process shares. `cached` is the planted fault.
 */
int64_t control(const struct call *call, int number, bool cached, int64_t *refused);

#endif
