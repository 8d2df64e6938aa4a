/* SPDX-License-Identifier: MIT */
/*
 * Semaphores made of the primitives that the kernel and the C library offer, one wait and one post
 * for each primitive. A post adds a token. A wait sleeps until there is a token, and takes it.
 *
 * Functions return 0 or -errno. The kernel closes the descriptors of a semaphore with the process.
 * A System V semaphore outlives the process: make it in a private IPC namespace.
 */
#ifndef SYNC_SYNC_H
#define SYNC_SYNC_H

#include "klat.h"

#include <semaphore.h>

enum sync_kind {
	SYNC_POSIX,
	SYNC_SYSV,
	SYNC_FUTEX,
	SYNC_COND,
	SYNC_EVENTFD,
	SYNC_PIPE,
	SYNC_NONE, /* wait and post do nothing */
};

struct sync {
	/* Written once, on a cache line that both sides only read. */
	int (*wait)(struct sync *sync);
	int (*post)(struct sync *sync);
	bool takes_all;    /* a wait takes all tokens; not for posix and sysv */
	bool signals_held; /* cond: post signals with the mutex held */
	union {
		sem_t posix;
		int sysv;
		struct {
			uint32_t tokens, waiters;
		} futex;
		struct {
			pthread_mutex_t mutex;
			pthread_cond_t cond;
			uint32_t tokens;
		} cond;
		int fds[2]; /* to read and to write; one descriptor twice for an eventfd */
	} KLAT_ALIGNED;
} KLAT_ALIGNED;

/* `sync` is zeroed, except for takes_all and signals_held. */
int sync_init(struct sync *sync, enum sync_kind kind, uint32_t tokens);

static inline int sync_wait(struct sync *sync)
{
	return sync->wait(sync);
}

static inline int sync_post(struct sync *sync)
{
	return sync->post(sync);
}

/* An epoll descriptor that waits for `fd` to become readable, or -errno. */
int sync_epoll(int fd);

#endif
