/* SPDX-License-Identifier: MIT */
#include "locks.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

int locks_init(struct locks *locks, bool inherit)
{
	pthread_mutexattr_t attributes;
	int err = pthread_mutexattr_init(&attributes);

	locks->inherit = inherit;
	if (!err)
		err = pthread_mutexattr_setprotocol(&attributes, inherit ? PTHREAD_PRIO_INHERIT
									 : PTHREAD_PRIO_NONE);
	for (int i = 0; i < 3 && !err; i++)
		err = pthread_mutex_init(&locks->of[i], &attributes);
	pthread_mutexattr_destroy(&attributes);
	return -err;
}

void locks_enter(struct locks *locks, int direction)
{
	if (direction == TO_LOW) {
		pthread_mutex_lock(&locks->of[0]);
		pthread_mutex_lock(&locks->of[2]);
	} else {
		pthread_mutex_lock(&locks->of[1]);
	}
}

/*
 * Whether a thread waits for the lock. The futex word does not show it: an owner that had to wait,
 * as each owner here did, leaves "may have waiters" set, by glibc (2) or by the kernel
 * (FUTEX_WAITERS). So ask the kernel. For a normal mutex, move one waiter from its queue to the
 * same queue: the call returns how many it moved. For a priority-inheritance lock, wake one: the
 * call fails if there is a waiter.
 */
static bool has_waiter(pthread_mutex_t *lock, bool inherit)
{
	int *word = &lock->__data.__lock;

	if (inherit)
		return syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1) < 0 && errno == EINVAL;
	return syscall(SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 1, word, 2) == 1;
}

bool locks_become_contended(struct locks *locks, uint32_t turn)
{
	pthread_mutex_t *lock = locks_at(locks, TO_HIGH, turn);

	for (int tries = 0; tries < 10000; tries++)
		if (has_waiter(lock, locks->inherit))
			return true;
	return false;
}
