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

#include <errno.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum sync_kind {
	SYNC_POSIX,
	SYNC_SYSV,
	SYNC_FUTEX,
	SYNC_COND,
	SYNC_EVENTFD,
	SYNC_PIPE,
	/* For sync_mutex_init() and struct sync_pair. */
	SYNC_MUTEX,
	SYNC_PI_MUTEX,
	SYNC_NONE,        /* wait and post do nothing */
	SYNC_FUTEX_WAITV, /* futex_waitv(2), Linux 5.16 */
	/* The last kinds: see sync_is_uring(). The wait is by io_uring. The post: FUTEX_WAKE;
	 * write(); a message to the waiter's ring. Two threads that wait for each other. See
	 * sync_begin(). */
	SYNC_URING_FUTEX,
	SYNC_URING_EVENTFD,
	SYNC_URING_MESSAGE,
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
		struct sync_uring *uring;
	} KLAT_ALIGNED;
} KLAT_ALIGNED;

/* `sync` is zeroed, except for takes_all and signals_held. */
int sync_init(struct sync *sync, enum sync_kind kind, uint32_t tokens);

/* Why this kernel cannot have the kind, for a message, or NULL. */
const char *sync_missing(enum sync_kind kind);

static inline bool sync_is_uring(enum sync_kind kind)
{
	return kind >= SYNC_URING_FUTEX;
}

/* Only for the kinds of io_uring. The thread that waits for `a` posts `b`, and the other way round.
 */
void sync_join(struct sync *a, struct sync *b);
/* Only for the kinds of io_uring: call it in the thread that waits, before its first wait and
 * before the first post. The kernel maps a ring: see klat_prefault(). */
int sync_begin(struct sync *sync);

static inline int sync_wait(struct sync *sync)
{
	return sync->wait(sync);
}

static inline int sync_post(struct sync *sync)
{
	return sync->post(sync);
}

static inline bool sync_is_mutex(enum sync_kind kind)
{
	return kind == SYNC_MUTEX || kind == SYNC_PI_MUTEX;
}

/* SYNC_MUTEX, or SYNC_PI_MUTEX with priority inheritance. -ENOTSUP if the kernel has none. */
int sync_mutex_init(pthread_mutex_t *mutex, enum sync_kind kind);

/*
 * Two threads that wake each other. In each turn thread 0 posts and then waits, and thread 1 waits
 * and then posts. With mutexes, a post is an unlock and a wait is a lock.
 *
 * A mutex that its owner can lock again at once is not handed over. So three mutexes rotate: thread
 * 0 starts with mutexes 0 and 2, thread 1 with mutex 1. In each turn a thread unlocks the mutex
 * that the other waits for, and then waits for the mutex that the other holds.
 */
struct sync_pair {
	struct sync semaphores[2]; /* by the thread that posts; no functions if it has mutexes */
	pthread_mutex_t mutexes[3] KLAT_ALIGNED;
	pthread_barrier_t entered;
};

/* `pair` is zeroed. */
int sync_pair_init(struct sync_pair *pair, enum sync_kind kind, bool signals_held);

/* Both threads call it before their first turn. It waits for the other thread. */
void sync_pair_enter(struct sync_pair *pair, int thread);

/* The mutex that the thread unlocks in a turn: 0, 2, 1, 0, ... or 1, 0, 2, 1, ... */
static inline pthread_mutex_t *sync_pair_mutex(struct sync_pair *pair, int thread, uint64_t turn)
{
	return &pair->mutexes[(2 * turn + thread) % 3];
}

static inline void sync_pair_post(struct sync_pair *pair, int thread, uint32_t turn)
{
	if (pair->semaphores[thread].post)
		sync_post(&pair->semaphores[thread]);
	else
		pthread_mutex_unlock(sync_pair_mutex(pair, thread, turn));
}

static inline void sync_pair_wait(struct sync_pair *pair, int thread, uint32_t turn)
{
	if (pair->semaphores[!thread].wait)
		sync_wait(&pair->semaphores[!thread]);
	else
		pthread_mutex_lock(sync_pair_mutex(pair, !thread, turn));
}

/* Whether the other thread waits for this thread's mutex within about a millisecond. */
bool sync_pair_becomes_contended(struct sync_pair *pair, int thread, uint32_t turn);

/* futex(2) without a time limit. FUTEX_PRIVATE_FLAG is for threads of one process. */
static inline long sync_futex(uint32_t *word, int operation, uint32_t value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* The ends of a pipe, and an epoll descriptor that waits for bytes, or -1. */
struct sync_pipe {
	int in, out, epoll;
};

/* Make two pipes for messages of this number of bytes. The kernel makes a pipe of 16 pages, or a
 * smaller one for a user with many pipes. A pipe that is too small for a message is an error,
 * because the message would take more wakeups. 0 or -errno. */
int sync_pipes(struct klat_run *run, struct sync_pipe pipes[2], int64_t bytes, bool by_epoll);

/* An epoll descriptor that waits for `fd` to become readable, or -errno. */
int sync_epoll(int fd);

/* Wait for the epoll descriptor. Negative, with errno, if this fails. The descriptor is passed by
 * address, so that it takes no register in timed parts. */
static inline long sync_epoll_wait(const int *epoll)
{
	struct epoll_event event;

	return TEMP_FAILURE_RETRY(epoll_wait(*epoll, &event, 1, -1));
}

/* Write and read a whole message: 0 or -errno. */
static inline int sync_pipe_put(const struct sync_pipe *pipe, const char *bytes, size_t size)
{
	for (ssize_t done; size; bytes += done, size -= done)
		if ((done = write(pipe->out, bytes, size)) <= 0)
			return done ? -errno : -EPIPE;
	return 0;
}

static inline int sync_pipe_take(const struct sync_pipe *pipe, char *bytes, size_t size)
{
	if (pipe->epoll >= 0 && sync_epoll_wait(&pipe->epoll) < 0)
		return -errno;
	for (ssize_t done; size; bytes += done, size -= done)
		if ((done = read(pipe->in, bytes, size)) <= 0)
			return done ? -errno : -EPIPE;
	return 0;
}

#endif
