/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the two sides share, and the sides. */
#ifndef SWITCH_SWITCH_H
#define SWITCH_SWITCH_H

#include "klat.h"

enum {
	SWITCH
};
enum {
	YIELD,
	FUTEX
};
struct options {
	int peer, by;
};

struct state {
	uint64_t start;             /* stamp of the side that left last */
	uint32_t turn KLAT_ALIGNED; /* how many switches have begun */
	uint32_t ready;             /* the second side has started */
	uint32_t resting;           /* the first side sleeps */
	int64_t unanswered;         /* timed yields that returned without a switch */
} KLAT_ALIGNED;

int first(struct klat_worker *worker);
int second(struct klat_worker *worker);

#endif
