/* SPDX-License-Identifier: MIT */
/* x86-64: the counter is the time-stamp counter (TSC). */
#ifndef KLAT_ARCH_H
#define KLAT_ARCH_H

#include <stdbool.h>
#include <stdint.h>

/* A user program can see that an interrupt reached it: see klat_arch_mark(). */
#define KLAT_ARCH_HAS_MARK 1
/* A TLB shootdown interrupts the other CPUs. */
#define KLAT_ARCH_SHOOTDOWN_INTERRUPTS 1
#define KLAT_ARCH_SHOOTDOWN_CALLS 0

/* The counter, unfenced: for spins and limits, not for stamps. */
static inline uint64_t klat_ticks(void)
{
	return __builtin_ia32_rdtsc();
}

/*
 * Stamps after Intel's "How to Benchmark Code Execution Times" (324264) and the LFENCE semantics of
 * both vendors: nothing measured starts before the first stamp or is still executing at the second.
 * CPUID as the fence would trap in a virtual machine.
 */
static inline uint64_t klat_stamp_begin(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

/* RDTSCP reads the counter and TSC_AUX together. The kernel keeps the CPU's number in TSC_AUX. */
static inline uint64_t klat_arch_stamp_end(uint32_t *cpu_identity)
{
	uint32_t low, high;

	__asm__ volatile("rdtscp\n\tlfence"
			 : "=a"(low), "=d"(high), "=c"(*cpu_identity)
			 :
			 : "memory");
	return (uint64_t)high << 32 | low;
}

/* Without libc's errno: what the kernel returns. */
static inline __attribute__((always_inline)) long
klat_arch_syscall(long number, long first, long second, long third, long fourth)
{
	register long r10 __asm__("r10") = fourth;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

/* The same with six arguments. */
static inline __attribute__((always_inline)) long
klat_arch_syscall_of_six(long number, const long arguments[static 6])
{
	/* Read all of them first: a sanitizer's calls between the next lines would change
	 * registers. */
	const long a = arguments[0], b = arguments[1], c = arguments[2], d = arguments[3],
		   e = arguments[4], f = arguments[5];
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/*
 * The mark is a null selector with a privilege level in it. It has no effect on the program. The
 * return from an interrupt to user mode clears the privilege level (IRET in the manuals of both
 * vendors). An emulator's host that stops the CPU does not.
 */
static inline void klat_arch_mark(void)
{
	__asm__ volatile("mov %0, %%es" : : "r"(3) : "memory");
}

/* Whether an interrupt came since klat_arch_mark(). Removes the mark. */
static inline bool klat_arch_mark_lost(void)
{
	uint32_t selector;

	__asm__ volatile("mov %%es, %0\n\tmov %1, %%es" : "=&r"(selector) : "r"(0) : "memory");
	return !(selector & 0xffff);
}

#endif
