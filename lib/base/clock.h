/* SPDX-License-Identifier: MIT */
/* The kernel's clocks in nanoseconds. All inline: a body may read a clock between two stamps. */
#ifndef KLAT_BASE_CLOCK_H
#define KLAT_BASE_CLOCK_H

#include "arch/isa.h"

#include <stdint.h>
#include <time.h>

#define KLAT_NS_PER_S INT64_C(1000000000)

static inline int64_t klat_to_ns(struct timespec time)
{
	return time.tv_sec * KLAT_NS_PER_S + time.tv_nsec;
}

static inline struct timespec klat_from_ns(int64_t ns)
{
	struct timespec time;

	time.tv_sec = ns / KLAT_NS_PER_S;
	time.tv_nsec = ns % KLAT_NS_PER_S;
	return time;
}

/* CLOCK_MONOTONIC: no program can set it. */
static inline int64_t klat_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return klat_to_ns(now);
}

/* klat_arch_clock_step() of klat_now_ns(). */
static inline bool klat_clock_step(int64_t *ns, uint64_t *ticks)
{
	return klat_arch_clock_step(klat_now_ns, ns, ticks);
}

/* Any other clock. 0 if it does not exist: the clock of a process ends with the process. */
static inline int64_t klat_clock_ns(clockid_t clock)
{
	struct timespec now;

	return clock_gettime(clock, &now) ? 0 : klat_to_ns(now);
}

/* Sleep. A signal may end the sleep early. */
static inline void klat_nap(int64_t ns)
{
	struct timespec time = klat_from_ns(ns);

	clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

#endif
