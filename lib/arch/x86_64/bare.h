/* SPDX-License-Identifier: MIT */
/* A fenced pair of counter readings as one writes it by hand: make selfbench compares the stamps
 * with it. */
#ifndef KLAT_ARCH_BARE_H
#define KLAT_ARCH_BARE_H

#include <stdint.h>

static inline uint64_t bare_begin(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static inline uint64_t bare_end(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high) : : "memory", "ecx");
	return (uint64_t)high << 32 | low;
}

#endif
