/* SPDX-License-Identifier: MIT */
/* A hog: a busy thread of the lowest priority that keeps its CPU out of idle states. */
#ifndef SEMAPHORE_HOG_H
#define SEMAPHORE_HOG_H

#include "klat.h"

enum {
	HOG_NONE,
	HOG_IDLE,
	HOG_NICE19
};

struct hog {
	pthread_t thread;
	int kind, cpu;
	bool started;
	uint32_t stop;
	int error;
	int64_t cpu_ns; /* CPU time that it got */
} KLAT_ALIGNED;

/* Start a hog on `cpu`. It ends with hog_end() or with the process. */
int hog_start(struct klat_run *run, struct hog *hog, int kind, int cpu);
void hog_end(struct hog *hog);

#endif
