/* SPDX-License-Identifier: MIT */
#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

const char *const wake_names[] = { "eventfd-epoll", "eventfd-read", "futex", "cond",
				   "pipe",          "spin",         NULL };

int owner_descriptors(const struct costs *costs)
{
	static const int taken[] = {
		[EVENTFD_EPOLL] = 2, [EVENTFD_READ] = 1, [PIPE] = 2, [SPIN] = 0
	};

	return taken[costs->wake] + costs->timer;
}

static int watch(struct owner *owner)
{
	struct epoll_event event = { .events = EPOLLIN };

	owner->epoll = epoll_create1(EPOLL_CLOEXEC);
	return owner->epoll < 0 || epoll_ctl(owner->epoll, EPOLL_CTL_ADD, owner->fds[0], &event)
		       ? -errno
		       : 0;
}

static int init_wake(struct owner *owner)
{
	switch (owner->costs->wake) {
	case EVENTFD_EPOLL:
	case EVENTFD_READ:
		owner->fds[0] = owner->fds[1] = eventfd(0, EFD_CLOEXEC);
		if (owner->fds[0] < 0)
			return -errno;
		return owner->costs->wake == EVENTFD_EPOLL ? watch(owner) : 0;
	case PIPE:
		return pipe2(owner->fds, O_CLOEXEC) ? -errno : 0;
	case COND:
		return -(pthread_mutex_init(&owner->mutex, NULL)
				 ?: pthread_cond_init(&owner->cond, NULL));
	default:
		return 0;
	}
}

int owner_init(struct owner *owner, struct costs *costs)
{
	owner->costs = costs;
	if (costs->timer) {
		owner->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
		if (owner->timer < 0)
			return -errno;
	}
	return init_wake(owner);
}

static int notify_futex(struct owner *owner)
{
	/* Before the look at `sleeping`, in one order for all; see wait_futex(). */
	__atomic_fetch_add(&owner->notified, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&owner->sleeping, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &owner->notified, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return 0;
}

/*
 * Whoever pushes after the second look at the queue raises `notified` after it, too: the kernel
 * then finds another value than `seen`, or they find the owner asleep.
 */
static int wait_futex(struct owner *owner)
{
	uint32_t seen = __atomic_load_n(&owner->notified, __ATOMIC_SEQ_CST);

	__atomic_store_n(&owner->sleeping, 1, __ATOMIC_SEQ_CST);
	if (queue_is_empty(&owner->queue))
		syscall(SYS_futex, &owner->notified, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	__atomic_store_n(&owner->sleeping, 0, __ATOMIC_RELAXED);
	return 0;
}

static int notify_cond(struct owner *owner)
{
	pthread_mutex_lock(&owner->mutex);
	owner->pending = true;
	pthread_mutex_unlock(&owner->mutex);
	pthread_cond_signal(&owner->cond);
	return 0;
}

static int wait_cond(struct owner *owner)
{
	pthread_mutex_lock(&owner->mutex);
	while (!owner->pending)
		pthread_cond_wait(&owner->cond, &owner->mutex);
	owner->pending = false;
	pthread_mutex_unlock(&owner->mutex);
	return 0;
}

/* No PAUSE, see klat_spin_until(). Rests where the hub does, whose messages are all held then. */
static int wait_spin(struct owner *owner)
{
	const struct timespec rest = { .tv_nsec = 5000000 };

	while (queue_is_empty(&owner->queue)) {
		uint32_t resting = __atomic_load_n(&owner->costs->resting, __ATOMIC_RELAXED);

		if (resting != owner->rested) {
			owner->rested = resting;
			clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL);
		}
	}
	return 0;
}

int owner_notify(struct owner *owner)
{
	static const uint64_t one = 1;

	switch (owner->costs->wake) {
	case EVENTFD_EPOLL:
	case EVENTFD_READ:
		return write(owner->fds[1], &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
	case PIPE:
		return write(owner->fds[1], "", 1) == 1 ? 0 : -errno;
	case FUTEX:
		return notify_futex(owner);
	case COND:
		return notify_cond(owner);
	default:
		return 0;
	}
}

int owner_send(struct owner *owner, struct message *message)
{
	queue_push(&owner->queue, message);
	return owner_notify(owner);
}

int owner_pass(struct owner *owner)
{
	/* Far enough ahead that it never expires. */
	static const struct itimerspec hour = { .it_value = { .tv_sec = 3600 } };
	int err;

	if (!owner->costs->timer)
		return 0;
	pthread_mutex_lock(&owner->costs->timers);
	err = timerfd_settime(owner->timer, 0, &hour, NULL) ? -errno : 0;
	pthread_mutex_unlock(&owner->costs->timers);
	owner->armed++;
	return err;
}

int owner_wait(struct owner *owner)
{
	struct epoll_event event;
	char tokens[4096]; /* more than one may have come meanwhile */

	owner->waited++;
	if (owner->costs->polls) {
		while (queue_is_empty(&owner->queue))
			sched_yield();
		return 0;
	}
	switch (owner->costs->wake) {
	case EVENTFD_EPOLL:
		if (epoll_wait(owner->epoll, &event, 1, -1) < 0)
			return -errno;
		return read(owner->fds[0], tokens, 8) == 8 ? 0 : -errno;
	case EVENTFD_READ:
		return read(owner->fds[0], tokens, 8) == 8 ? 0 : -errno;
	case PIPE:
		return read(owner->fds[0], tokens, sizeof(tokens)) > 0 ? 0 : -errno;
	case FUTEX:
		return wait_futex(owner);
	case COND:
		return wait_cond(owner);
	default:
		return wait_spin(owner);
	}
}

int owner_take(struct owner *owner, struct message **message)
{
	int err;

	do {
		err = owner_pass(owner);
		if (!err && queue_is_empty(&owner->queue))
			err = owner_wait(owner);
		/* None, where the notification was of one taken in an earlier pass. */
		*message = queue_take(&owner->queue);
	} while (!err && !*message);
	owner->handled++;
	return err;
}

struct message *message_make(const struct costs *costs, struct message *reused)
{
	return costs->alloc ? malloc(sizeof(*reused)) : reused;
}

void message_free(const struct costs *costs, struct message *message)
{
	if (costs->alloc)
		free(message);
}
