/* SPDX-License-Identifier: MIT */
/* arm64: the counter is the virtual count of the generic timer. */
#ifndef KLAT_ARCH_H
#define KLAT_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/unmarked.h"

/* A TLB shootdown is an instruction that the hardware broadcasts. It causes no interrupt. */
#define KLAT_ARCH_SHOOTDOWN_INTERRUPTS 0
#define KLAT_ARCH_SHOOTDOWN_CALLS 0

/* Whether the CPU has FEAT_ECV, and so a view of the counter that is ordered by itself. */
extern bool klat_arch_self_synchronised;

/* The counter, unfenced: for spins and limits, not for stamps. */
static inline uint64_t klat_ticks(void)
{
	uint64_t now;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
	return now;
}

/*
 * After the Arm Architecture Reference Manual (DDI 0487), "The virtual counter": a read of
 * CNTVCT_EL0 can be executed before earlier instructions, unless an ISB is between them.
 * CNTVCTSS_EL0 needs no ISB before it. The ISB after either keeps the measured event from starting
 * before the first stamp.
 */
static inline uint64_t klat_stamp_begin(void)
{
	uint64_t now;

	if (klat_arch_self_synchronised)
		__asm__ volatile("mrs %0, s3_3_c14_c0_6\n\tisb" : "=r"(now) : : "memory");
	else
		__asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now) : : "memory");
	return now;
}

#include "arch/rseq.h"

/* Without libc's errno: what the kernel returns. */
static inline __attribute__((always_inline)) long
klat_arch_syscall(long number, long first, long second, long third, long fourth)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = first;
	register long x1 __asm__("x1") = second;
	register long x2 __asm__("x2") = third;
	register long x3 __asm__("x3") = fourth;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

/* The same with six arguments. */
static inline __attribute__((always_inline)) long
klat_arch_syscall_of_six(long number, const long arguments[static 6])
{
	/* Read all of them first: a sanitizer's calls between the next lines would change
	 * registers. */
	const long a = arguments[0], b = arguments[1], c = arguments[2], d = arguments[3],
		   e = arguments[4], f = arguments[5];
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

#endif
