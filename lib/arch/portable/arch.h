/* SPDX-License-Identifier: MIT */
/* Any ISA: the counter is the kernel's CLOCK_MONOTONIC_RAW. A tick is 1 ns. */
#ifndef KLAT_ARCH_H
#define KLAT_ARCH_H

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "arch/unmarked.h"

/* A TLB shootdown interrupts the other CPUs, as far as one knows. */
#define KLAT_ARCH_SHOOTDOWN_INTERRUPTS 1
#define KLAT_ARCH_SHOOTDOWN_CALLS 0

static inline uint64_t klat_ticks(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

/* The fences order only the memory accesses of the measured event. */
static inline uint64_t klat_stamp_begin(void)
{
	uint64_t now;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	now = klat_ticks();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return now;
}

/* The CPU is read after the clock: a thread that moves between the two shows as moved. */
static inline uint64_t klat_arch_stamp_end(uint32_t *cpu_identity)
{
	uint64_t now = klat_stamp_begin();

	*cpu_identity = sched_getcpu();
	return now;
}

static inline long klat_arch_syscall(long number, long first, long second, long third, long fourth)
{
	long result = syscall(number, first, second, third, fourth);

	return result < 0 ? -errno : result;
}

/* The same with six arguments. */
static inline long klat_arch_syscall_of_six(long number, const long arguments[static 6])
{
	long result = syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
			      arguments[4], arguments[5]);

	return result < 0 ? -errno : result;
}

#endif
