/* SPDX-License-Identifier: MIT */
/* A fenced pair of counter readings as one writes it by hand: make selfbench compares the stamps
 * with it. */
#ifndef KLAT_ARCH_BARE_H
#define KLAT_ARCH_BARE_H

#include <stdint.h>

static inline uint64_t bare_begin(void)
{
	uint64_t now;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(now) : : "memory");
	return now;
}

#define bare_end bare_begin

#endif
