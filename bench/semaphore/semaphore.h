/* SPDX-License-Identifier: MIT */
/* What the command line chooses, what the threads share, and the threads. */
#ifndef SEMAPHORE_SEMAPHORE_H
#define SEMAPHORE_SEMAPHORE_H

#include "klat.h"
#include "sync/sync.h"
#include "work.h"

#define SLOT_COUNT 16

enum { WAKE, ITEM, BARE };
/* The producer waits for slots, the consumer for items. */
enum { SLOTS, ITEMS };

enum { HOG_NONE, HOG_IDLE, HOG_NICE19 };

extern struct options {
	int64_t consumer_burn, idle, spin, items, low_priority;
	int primitive, hog, any_sleeps;
} options;

/* CPU time of a side, in nanoseconds, in the timed part. */
struct spent {
	int64_t with, without;
};

struct state {
	struct sync semaphores[2];
	struct sync nothing[2];                  /* the same calls, which do nothing */
	uint64_t slots[SLOT_COUNT] KLAT_ALIGNED; /* when each item was posted */
	uint32_t produced KLAT_ALIGNED;          /* items posted */
	uint32_t consumed KLAT_ALIGNED;          /* items taken */
	uint32_t made KLAT_ALIGNED;              /* items of the halves without semaphores */
	uint32_t arrived KLAT_ALIGNED;           /* sides at the beginning of each half */
	struct spent producer KLAT_ALIGNED;
	int64_t followed_ns; /* the producer's CPU time in follow(), of this half */
	struct spent consumer KLAT_ALIGNED;
	int64_t stretch;         /* items in a row */
	int64_t early;           /* items before each row of samples, without a sample */
	int64_t items;           /* handed over in the timed part, early ones included */
	int64_t consumer_before; /* its CPU time where the observed part begins */
	uint64_t spin; /* ticks for which the consumer looks for an item before it waits */
	struct klat_hog hogs[2]; /* of the lowest priority: they keep the CPUs out of idle states */
	uint64_t sink;
};

int producer(struct klat_worker *worker);
int consumer(struct klat_worker *worker);

#endif
