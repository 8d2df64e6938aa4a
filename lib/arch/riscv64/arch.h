/* SPDX-License-Identifier: MIT */
/* riscv64: the counter is the `time` CSR, or `cycle` where it counts instructions: isa.c. */
#ifndef KLAT_ARCH_H
#define KLAT_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "arch/unmarked.h"

/* A TLB shootdown is usually a call of firmware, whose interrupts the kernel does not count. Some
 * kernels call a function on the other CPUs. */
#define KLAT_ARCH_SHOOTDOWN_INTERRUPTS 0
#define KLAT_ARCH_SHOOTDOWN_CALLS 1

/* Whether the counter is `cycle`: in counted mode. */
extern bool klat_arch_cycle;

/* The counter, unfenced: for spins and limits, not for stamps. */
static inline uint64_t klat_ticks(void)
{
	uint64_t now;

	if (klat_arch_cycle)
		__asm__ volatile("rdcycle %0" : "=r"(now));
	else
		__asm__ volatile("rdtime %0" : "=r"(now));
	return now;
}

/*
 * In the unprivileged specification ("Zicsr", CSR access ordering), reading `time` is a device
 * input. A FENCE orders it against the memory accesses and device accesses of the measured event.
 * `cycle` is read only in an emulator, which executes the instructions in their order.
 */
static inline uint64_t klat_stamp_begin(void)
{
	uint64_t now;

	if (klat_arch_cycle)
		__asm__ volatile("rdcycle %0" : "=r"(now) : : "memory");
	else
		__asm__ volatile("fence iorw, i\n\trdtime %0\n\tfence i, iorw"
				 : "=r"(now)
				 :
				 : "memory");
	return now;
}

#include "arch/rseq.h"

/* Without libc's errno: what the kernel returns. */
static inline __attribute__((always_inline)) long
klat_arch_syscall(long number, long first, long second, long third, long fourth)
{
	register long a7 __asm__("a7") = number;
	register long a0 __asm__("a0") = first;
	register long a1 __asm__("a1") = second;
	register long a2 __asm__("a2") = third;
	register long a3 __asm__("a3") = fourth;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3) : "memory");
	return a0;
}

/* The same with six arguments. */
static inline __attribute__((always_inline)) long
klat_arch_syscall_of_six(long number, const long arguments[static 6])
{
	/* Read all of them first: a sanitizer's calls between the next lines would change
	 * registers. */
	const long a = arguments[0], b = arguments[1], c = arguments[2], d = arguments[3],
		   e = arguments[4], f = arguments[5];
	register long a7 __asm__("a7") = number;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a3 __asm__("a3") = d;
	register long a4 __asm__("a4") = e;
	register long a5 __asm__("a5") = f;

	__asm__ volatile("ecall"
			 : "+r"(a0)
			 : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
			 : "memory");
	return a0;
}

#endif
