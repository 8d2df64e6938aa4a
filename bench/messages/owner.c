/* SPDX-License-Identifier: MIT */
/* The owner of a queue: how it waits, and how others wake it. */
#include "owner.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const struct {
	enum sync_kind kind;
	int descriptors;
} wakes[] = {
	[EVENTFD_EPOLL] = { SYNC_EVENTFD, 2 },
	[EVENTFD_READ] = { SYNC_EVENTFD, 1 },
	[FUTEX] = { SYNC_FUTEX, 0 },
	[COND] = { SYNC_COND, 0 },
	[PIPE] = { SYNC_PIPE, 2 },
	[SPIN] = { SYNC_NONE, 0 },
	[FUTEX_WAITV] = { SYNC_FUTEX_WAITV, 0 },
	[URING_FUTEX] = { SYNC_URING_FUTEX, 2 },
	[URING_EVENTFD] = { SYNC_URING_EVENTFD, 2 },
	[URING_MESSAGE] = { SYNC_URING_MESSAGE, 2 },
};

enum sync_kind owner_kind(int wake)
{
	return wakes[wake].kind;
}

int owner_descriptors(const struct costs *costs)
{
	return wakes[costs->wake].descriptors + costs->timer;
}

int owner_init(struct owner *owner, struct costs *costs)
{
	int err;

	owner->costs = costs;
	if (costs->timer) {
		owner->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
		if (owner->timer < 0)
			return -errno;
	}
	owner->wake.takes_all = true;
	err = sync_init(&owner->wake, wakes[costs->wake].kind, 0);
	if (err || costs->wake != EVENTFD_EPOLL)
		return err;
	owner->epoll = sync_epoll(owner->wake.fds[0]);
	return owner->epoll < 0 ? owner->epoll : 0;
}

/* No PAUSE, see klat_spin_until(). Sleeps while the hub does, when no message is under way. */
static int wait_spin(struct owner *owner)
{
	while (queue_is_empty(&owner->queue)) {
		uint32_t resting = __atomic_load_n(&owner->costs->resting, __ATOMIC_RELAXED);

		if (resting != owner->rested) {
			owner->rested = resting;
			klat_sleep(owner->worker, 5000000);
		}
	}
	return 0;
}

int owner_send(struct owner *owner, struct message *message)
{
	queue_push(&owner->queue, message);
	return sync_post(&owner->wake);
}

int owner_pass(struct owner *owner)
{
	/* It never expires. */
	static const struct itimerspec hour = { .it_value = { .tv_sec = 3600 } };
	int err;

	if (!owner->costs->timer)
		return 0;
	pthread_mutex_lock(&owner->costs->timers);
	err = timerfd_settime(owner->timer, 0, &hour, NULL) ? -errno : 0;
	pthread_mutex_unlock(&owner->costs->timers);
	owner->counts.armed++;
	return err;
}

int owner_wait(struct owner *owner)
{
	owner->counts.waited++;
	if (owner->costs->polls) {
		while (queue_is_empty(&owner->queue))
			sched_yield();
		return 0;
	}
	if (owner->costs->wake == SPIN)
		return wait_spin(owner);
	if (owner->costs->wake == EVENTFD_EPOLL && sync_epoll_wait(&owner->epoll) < 0)
		return -errno;
	return sync_wait(&owner->wake);
}

int owner_take(struct owner *owner, struct message **message)
{
	int err;

	do {
		err = owner_pass(owner);
		if (!err && queue_is_empty(&owner->queue))
			err = owner_wait(owner);
		/* The wake may have been for a message that an earlier pass took. */
		*message = queue_take(&owner->queue);
	} while (!err && !*message);
	owner->counts.handled++;
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
