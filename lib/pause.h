/* SPDX-License-Identifier: MIT */
/* A pause that does not tie a sample to the steps of the counter. */
#ifndef KLAT_PAUSE_H
#define KLAT_PAUSE_H

#include "klat.h"

/*
 * A pause before a sample, spun so that the CPU stays awake: `ns`, and a random part of `random_ns`
 * more. A spin ends just after a step of the counter. If the counter is coarse, a sample that
 * begins there is always rounded down, and so is the mean of many. So on such a counter the pause
 * goes on for a random part of two steps, without reading the counter.
 */
struct klat_pause {
	uint64_t ticks, random_ticks, turns;
};
struct klat_pause klat_pause_prepare(const struct klat_run *run, int64_t ns, int64_t random_ns);
void klat_pause(const struct klat_pause *pause, uint64_t *seed);

#endif
