/* SPDX-License-Identifier: MIT */
/* Counting semaphores made of what the kernel offers, all with the same two operations. */
#ifndef SEMAPHORE_PRIMITIVES_H
#define SEMAPHORE_PRIMITIVES_H

#include "klat.h"

#include <semaphore.h>

enum {
	POSIX,
	SYSV,
	FUTEX,
	COND,
	EVENTFD,
	PIPE
};

/* What the producer waits for, and what the consumer does. */
enum {
	SLOTS,
	ITEMS
};

struct semaphores {
	struct {
		sem_t posix KLAT_ALIGNED;
		uint32_t value KLAT_ALIGNED; /* futex and cond */
		uint32_t waiters;
		pthread_mutex_t mutex KLAT_ALIGNED;
		pthread_cond_t cond;
		int fds[2] KLAT_ALIGNED; /* to read from and write to; the same for an eventfd */
	} of[2];
	int sysv; /* a set of both */
};

struct primitive {
	int (*init)(struct klat_run *run, struct semaphores *semaphores, uint32_t slots);
	int (*wait)(struct semaphores *semaphores, int which);
	int (*post)(struct semaphores *semaphores, int which);
};

extern const char *const primitive_names[];
extern const struct primitive primitives[];
/* The same calls, which do nothing. */
extern const struct primitive no_primitive;

#endif
