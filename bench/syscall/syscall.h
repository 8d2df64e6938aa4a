/* SPDX-License-Identifier: MIT */
/* The system calls of an iteration, and the control that they reach the kernel. */
#ifndef SYSCALL_H
#define SYSCALL_H

#include "klat.h"

struct request {
	long number, arguments[4];
	long expected;
};

/* What an iteration calls: one request, or a pair. */
struct call {
	struct request requests[2];
	int count;
};

/* `cached` is the planted fault: the expected result, without a system call. */
static inline __attribute__((always_inline)) long request(const struct request *of, bool cached)
{
	const long *arguments = of->arguments;

	return cached ? of->expected
		      : klat_arch_syscall(of->number, arguments[0], arguments[1], arguments[2],
					  arguments[3]);
}

#define CONTROL_CALLS 100

/*
 * Make the calls of CONTROL_CALLS iterations in a new process, under a seccomp filter that refuses
 * `number` and the second call of a pair. Returns how many calls the filter refused, or -1 without
 * filters. *refused is in memory that the process shares.
 */
int64_t control(const struct call *call, int number, bool cached, int64_t *refused);

#endif
