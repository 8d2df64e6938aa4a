/* SPDX-License-Identifier: MIT */
#include "primitives.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *const primitive_names[] = { "posix", "sysv", "futex", "cond", "eventfd", "pipe", NULL };

static int init_posix(struct klat_run *run, struct semaphores *s, uint32_t slots)
{
	(void)run;
	return sem_init(&s->of[SLOTS].posix, 0, slots) || sem_init(&s->of[ITEMS].posix, 0, 0)
		       ? -errno
		       : 0;
}

static int wait_posix(struct semaphores *s, int which)
{
	return sem_wait(&s->of[which].posix) ? -errno : 0;
}

static int post_posix(struct semaphores *s, int which)
{
	return sem_post(&s->of[which].posix) ? -errno : 0;
}

/*
 * A set of System V semaphores outlives the process that made it, whatever ends that. In an IPC
 * namespace of the measured process alone it does not. An ordinary user may have one together with
 * a user namespace, where the system allows those.
 */
static int init_sysv(struct klat_run *run, struct semaphores *s, uint32_t slots)
{
	union {
		int value;
	} initial = { .value = slots };

	if (unshare(CLONE_NEWIPC) && unshare(CLONE_NEWUSER | CLONE_NEWIPC))
		return klat_skip(run,
				 "cannot make an IPC namespace for System V semaphores: %s; run as "
				 "root",
				 strerror(errno));
	s->sysv = semget(IPC_PRIVATE, 2, 0600);
	return s->sysv < 0 || semctl(s->sysv, SLOTS, SETVAL, initial) ? -errno : 0;
}

static int operate_sysv(struct semaphores *s, int which, int by)
{
	struct sembuf operation = { .sem_num = which, .sem_op = by };

	return semop(s->sysv, &operation, 1) ? -errno : 0;
}

static int wait_sysv(struct semaphores *s, int which)
{
	return operate_sysv(s, which, -1);
}

static int post_sysv(struct semaphores *s, int which)
{
	return operate_sysv(s, which, 1);
}

static int init_futex(struct klat_run *run, struct semaphores *s, uint32_t slots)
{
	(void)run;
	s->of[SLOTS].value = slots;
	return 0;
}

/*
 * As glibc's new_sem: a waiter announces itself before the kernel looks at the value again, a
 * poster raises the value before it looks for waiters. Both in one order for all, so that one of
 * them sees the other.
 */
static int wait_futex(struct semaphores *s, int which)
{
	uint32_t *value = &s->of[which].value, *waiters = &s->of[which].waiters;

	for (;;) {
		uint32_t seen = __atomic_load_n(value, __ATOMIC_RELAXED);

		while (seen)
			if (__atomic_compare_exchange_n(value, &seen, seen - 1, false,
							__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return 0;
		__atomic_fetch_add(waiters, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, value, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
		__atomic_fetch_sub(waiters, 1, __ATOMIC_RELAXED);
	}
}

static int post_futex(struct semaphores *s, int which)
{
	__atomic_fetch_add(&s->of[which].value, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->of[which].waiters, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &s->of[which].value, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return 0;
}

static int init_cond(struct klat_run *run, struct semaphores *s, uint32_t slots)
{
	int err = 0;

	(void)run;
	for (int i = 0; i < 2 && !err; i++) {
		err = pthread_mutex_init(&s->of[i].mutex, NULL);
		if (!err)
			err = pthread_cond_init(&s->of[i].cond, NULL);
	}
	s->of[SLOTS].value = slots;
	return -err;
}

static int wait_cond(struct semaphores *s, int which)
{
	pthread_mutex_lock(&s->of[which].mutex);
	while (!s->of[which].value)
		pthread_cond_wait(&s->of[which].cond, &s->of[which].mutex);
	s->of[which].value--;
	pthread_mutex_unlock(&s->of[which].mutex);
	return 0;
}

/* After the unlock: the waiter that is woken has no lock to wait for. */
static int post_cond(struct semaphores *s, int which)
{
	pthread_mutex_lock(&s->of[which].mutex);
	s->of[which].value++;
	pthread_mutex_unlock(&s->of[which].mutex);
	pthread_cond_signal(&s->of[which].cond);
	return 0;
}

static int init_eventfd(struct klat_run *run, struct semaphores *s, uint32_t slots)
{
	(void)run;
	for (int i = 0; i < 2; i++) {
		int fd = eventfd(i == SLOTS ? slots : 0, EFD_SEMAPHORE | EFD_CLOEXEC);

		if (fd < 0)
			return -errno;
		s->of[i].fds[0] = s->of[i].fds[1] = fd;
	}
	return 0;
}

static int wait_eventfd(struct semaphores *s, int which)
{
	uint64_t count;

	return read(s->of[which].fds[0], &count, sizeof(count)) == sizeof(count) ? 0 : -errno;
}

static int post_eventfd(struct semaphores *s, int which)
{
	static const uint64_t one = 1;

	return write(s->of[which].fds[1], &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

static int wait_pipe(struct semaphores *s, int which)
{
	char token;

	return read(s->of[which].fds[0], &token, 1) == 1 ? 0 : -errno;
}

static int post_pipe(struct semaphores *s, int which)
{
	return write(s->of[which].fds[1], "", 1) == 1 ? 0 : -errno;
}

static int init_pipe(struct klat_run *run, struct semaphores *s, uint32_t slots)
{
	int err = 0;

	(void)run;
	for (int i = 0; i < 2; i++)
		if (pipe2(s->of[i].fds, O_CLOEXEC))
			return -errno;
	while (slots-- && !err)
		err = post_pipe(s, SLOTS);
	return err;
}

const struct primitive primitives[] = {
	[POSIX] = { init_posix, wait_posix, post_posix },
	[SYSV] = { init_sysv, wait_sysv, post_sysv },
	[FUTEX] = { init_futex, wait_futex, post_futex },
	[COND] = { init_cond, wait_cond, post_cond },
	[EVENTFD] = { init_eventfd, wait_eventfd, post_eventfd },
	[PIPE] = { init_pipe, wait_pipe, post_pipe },
};

static int do_nothing(struct semaphores *s, int which)
{
	(void)s;
	(void)which;
	return 0;
}

const struct primitive no_primitive = { .wait = do_nothing, .post = do_nothing };
