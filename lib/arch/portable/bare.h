/* SPDX-License-Identifier: MIT */
/* A pair of clock readings as one writes it by hand: make selfbench compares the stamps with it. */
#ifndef KLAT_ARCH_BARE_H
#define KLAT_ARCH_BARE_H

#include <stdint.h>
#include <time.h>

static inline uint64_t bare_begin(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

#define bare_end bare_begin

#endif
