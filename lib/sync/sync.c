/* SPDX-License-Identifier: MIT */
/* The wait and the post of each primitive. */
#include "sync/sync.h"

#include "sync/uring.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/sem.h>

enum { SYS_FUTEX_WAITV = 449 }; /* on every architecture */

static int init_posix(struct sync *sync)
{
	return sem_init(&sync->posix, 0, 0) ? -errno : 0;
}

static int wait_posix(struct sync *sync)
{
	return TEMP_FAILURE_RETRY(sem_wait(&sync->posix)) ? -errno : 0;
}

static int post_posix(struct sync *sync)
{
	return sem_post(&sync->posix) ? -errno : 0;
}

static int init_sysv(struct sync *sync)
{
	sync->sysv = semget(IPC_PRIVATE, 1, 0600);
	return sync->sysv < 0 ? -errno : 0;
}

static int operate_sysv(struct sync *sync, int by)
{
	struct sembuf operation = { .sem_op = by };

	/* A stop of the process ends semop() and epoll_wait(): see signal(7). */
	return TEMP_FAILURE_RETRY(semop(sync->sysv, &operation, 1)) ? -errno : 0;
}

static int wait_sysv(struct sync *sync)
{
	return operate_sysv(sync, -1);
}

static int post_sysv(struct sync *sync)
{
	return operate_sysv(sync, 1);
}

static int sleep_futex(struct sync *sync, uint32_t *tokens)
{
	(void)sync;
	sync_futex(tokens, FUTEX_WAIT_PRIVATE, 0);
	return 0;
}

static int wait_futex(struct sync *sync)
{
	return sync_take_tokens(sync, &sync->futex.tokens, &sync->futex.waiters, sleep_futex);
}

/* struct futex_waitv of linux/futex.h, from Linux 5.16 on. */
struct waited_futex {
	uint64_t value, address;
	uint32_t flags, reserved;
};

static long futex_waitv(struct waited_futex *futexes, int count)
{
	return syscall(SYS_FUTEX_WAITV, futexes, count, 0, NULL, CLOCK_MONOTONIC);
}

static int sleep_waitv(struct sync *sync, uint32_t *tokens)
{
	struct waited_futex futex = { .address = (uintptr_t)tokens,
				      .flags = SYNC_FUTEX_32_PRIVATE };

	(void)sync;
	futex_waitv(&futex, 1);
	return 0;
}

static int wait_waitv(struct sync *sync)
{
	return sync_take_tokens(sync, &sync->futex.tokens, &sync->futex.waiters, sleep_waitv);
}

static int post_futex(struct sync *sync)
{
	uint32_t *tokens = &sync->futex.tokens;

	__atomic_fetch_add(tokens, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&sync->futex.waiters, __ATOMIC_SEQ_CST))
		sync_futex(tokens, FUTEX_WAKE_PRIVATE, 1);
	return 0;
}

static int init_cond(struct sync *sync)
{
	return -(pthread_mutex_init(&sync->cond.mutex, NULL)
			 ?: pthread_cond_init(&sync->cond.cond, NULL));
}

/* Without the count of tokens, a signal that comes before the wait would be lost. */
static int wait_cond(struct sync *sync)
{
	pthread_mutex_lock(&sync->cond.mutex);
	while (!sync->cond.tokens)
		pthread_cond_wait(&sync->cond.cond, &sync->cond.mutex);
	sync->cond.tokens = sync->takes_all ? 0 : sync->cond.tokens - 1;
	pthread_mutex_unlock(&sync->cond.mutex);
	return 0;
}

/* After the unlock, the waiter that wakes finds the mutex free. */
static int post_cond(struct sync *sync)
{
	pthread_mutex_lock(&sync->cond.mutex);
	sync->cond.tokens++;
	if (sync->signals_held)
		pthread_cond_signal(&sync->cond.cond);
	pthread_mutex_unlock(&sync->cond.mutex);
	if (!sync->signals_held)
		pthread_cond_signal(&sync->cond.cond);
	return 0;
}

static int init_eventfd(struct sync *sync)
{
	int flags = EFD_CLOEXEC | (sync->takes_all ? 0 : EFD_SEMAPHORE);

	sync->fds[0] = sync->fds[1] = eventfd(0, flags);
	return sync->fds[0] < 0 ? -errno : 0;
}

static int wait_eventfd(struct sync *sync)
{
	uint64_t count;

	return read(sync->fds[0], &count, sizeof(count)) == sizeof(count) ? 0 : -errno;
}

static int post_eventfd(struct sync *sync)
{
	static const uint64_t one = 1;

	return write(sync->fds[1], &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int make_pipe(struct klat_run *run, struct sync_pipe *made, int64_t bytes, bool by_epoll)
{
	const int page = (int)sysconf(_SC_PAGESIZE), usual = 16 * page;
	int fds[2], size;

	if (pipe2(fds, O_CLOEXEC))
		return klat_error(run, errno, "cannot make a pipe: %m");
	size = fcntl(fds[0], F_GETPIPE_SZ);
	if (size > 0 && size < usual && size < bytes + page)
		return klat_error(run, EDQUOT,
				  "a new pipe holds %d bytes, not %d: close other pipes of this "
				  "user, or raise fs.pipe-user-pages-soft and fs.pipe-max-size",
				  size, usual);
	*made = (struct sync_pipe){ fds[0], fds[1], by_epoll ? sync_epoll(fds[0]) : -1 };
	return by_epoll && made->epoll < 0 ? made->epoll : 0;
}

int sync_pipes(struct klat_run *run, struct sync_pipe pipes[2], int64_t bytes, bool by_epoll)
{
	return make_pipe(run, &pipes[0], bytes, by_epoll)
		       ?: make_pipe(run, &pipes[1], bytes, by_epoll);
}

static int init_pipe(struct sync *sync)
{
	return pipe2(sync->fds, O_CLOEXEC) ? -errno : 0;
}

static int wait_pipe(struct sync *sync)
{
	char tokens[4096];

	return read(sync->fds[0], tokens, sync->takes_all ? sizeof(tokens) : 1) > 0 ? 0 : -errno;
}

static int post_pipe(struct sync *sync)
{
	return write(sync->fds[1], "", 1) == 1 ? 0 : -errno;
}

static int do_nothing(struct sync *sync)
{
	(void)sync;
	return 0;
}

int sync_init(struct sync *sync, enum sync_kind kind, uint32_t tokens)
{
	static const struct {
		int (*init)(struct sync *sync);
		int (*wait)(struct sync *sync);
		int (*post)(struct sync *sync);
	} kinds[] = {
		[SYNC_POSIX] = { init_posix, wait_posix, post_posix },
		[SYNC_SYSV] = { init_sysv, wait_sysv, post_sysv },
		[SYNC_FUTEX] = { NULL, wait_futex, post_futex },
		[SYNC_COND] = { init_cond, wait_cond, post_cond },
		[SYNC_EVENTFD] = { init_eventfd, wait_eventfd, post_eventfd },
		[SYNC_PIPE] = { init_pipe, wait_pipe, post_pipe },
		[SYNC_NONE] = { NULL, do_nothing, do_nothing },
		[SYNC_FUTEX_WAITV] = { NULL, wait_waitv, post_futex },
		[SYNC_URING_FUTEX] = { sync_uring_init, sync_uring_wait_futex,
				       sync_uring_post_futex },
		[SYNC_URING_EVENTFD] = { sync_uring_init, sync_uring_wait_eventfd,
					 sync_uring_post_eventfd },
		[SYNC_URING_MESSAGE] = { sync_uring_init, sync_uring_wait_message,
					 sync_uring_post_message },
	};
	int err = 0;

	sync->wait = kinds[kind].wait;
	sync->post = kinds[kind].post;
	if (kinds[kind].init)
		err = kinds[kind].init(sync);
	while (tokens-- && !err)
		err = sync_post(sync);
	return err;
}

const char *sync_missing(enum sync_kind kind)
{
	/* A call without futexes fails with EINVAL. */
	if (kind == SYNC_FUTEX_WAITV && futex_waitv(NULL, 0) && errno != EINVAL)
		return "futex_waitv(), which Linux 5.16 brought, is missing, or forbidden by a "
		       "seccomp filter";
	return sync_is_uring(kind) ? sync_uring_missing(kind) : NULL;
}

void sync_join(struct sync *a, struct sync *b)
{
	sync_uring_join(a->uring, b->uring);
}

int sync_begin(struct sync *sync)
{
	return sync_uring_begin(sync->uring);
}

int sync_mutex_init(pthread_mutex_t *mutex, enum sync_kind kind)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	if (kind == SYNC_PI_MUTEX)
		pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	return -pthread_mutex_init(mutex, &attributes);
}

int sync_pair_init(struct sync_pair *pair, enum sync_kind kind, bool signals_held)
{
	int err = 0;

	pthread_barrier_init(&pair->entered, NULL, 2);
	for (int i = 0; i < 3 && !err; i++)
		err = sync_mutex_init(&pair->mutexes[i], kind);
	for (int i = 0; i < 2 && !err; i++) {
		pair->semaphores[i].signals_held = signals_held;
		err = sync_init(&pair->semaphores[i], kind, 0);
	}
	return err;
}

void sync_pair_enter(struct sync_pair *pair, int thread)
{
	for (int i = thread; i < 3 && !pair->semaphores[0].post; i += 2)
		pthread_mutex_lock(&pair->mutexes[i]);
	pthread_barrier_wait(&pair->entered);
}

/*
 * The futex word does not show whether a thread waits. Each owner here had to wait for the mutex,
 * so the word says "may have waiters" in any case: glibc sets 2, and the kernel sets FUTEX_WAITERS.
 * So let the kernel move one waiter from its queue to the same queue. The call returns how many
 * waiters it moved. For a priority-inheritance mutex with a waiter, it fails.
 */
bool sync_pair_becomes_contended(struct sync_pair *pair, int thread, uint32_t turn)
{
	int *word = &sync_pair_mutex(pair, thread, turn)->__data.__lock;

	for (int tries = 0; tries < 10000 && !pair->semaphores[thread].post; tries++) {
		int seen = __atomic_load_n(word, __ATOMIC_RELAXED);
		long moved = syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 1, word, seen);

		if (moved > 0 || (moved < 0 && errno == EINVAL))
			return true;
	}
	return false;
}

int sync_epoll(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	return epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : epoll;
}
