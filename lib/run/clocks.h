/* SPDX-License-Identifier: MIT */
#ifndef KLAT_CLOCKS_H
#define KLAT_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* The clocks at one moment. */
struct klat_clocks {
	int64_t at_ns, boot_ns, raw_ns; /* CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW */
	int64_t clock_ns;               /* CLOCK_REALTIME */
	int64_t width_ns;               /* how long the readings took */
	uint64_t ticks;                 /* the counter */
	/* Suspensions of the machine since it booted, with those that failed. -1 if the kernel does
	 * not count them. The threads go on some time before it counts one that failed. */
	int64_t suspensions;
};

void klat_clocks_take(struct klat_clocks *clocks);
/* How long the machine was suspended between the two. */
int64_t klat_suspended_ms(const struct klat_clocks *before, const struct klat_clocks *after);
/* Whether it was suspended, or began to be. */
bool klat_was_suspended(const struct klat_clocks *before, const struct klat_clocks *after);
/* After a stop of the threads: wait until the kernel has counted a suspension that failed. */
void klat_clocks_wait(const struct klat_clocks *before, struct klat_clocks *after);

#endif
