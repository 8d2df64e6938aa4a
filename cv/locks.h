/* SPDX-License-Identifier: MIT */
/*
 * Three mutexes in rotation, so that each hand-over is an unlock by one thread and a lock by the
 * other. L starts with locks 0 and 2, H with lock 1. In each turn a thread unlocks the lock that
 * the other waits for, and then waits for the lock that the other holds. No lock is ever free for
 * its previous owner to take back.
 */
#ifndef CV_LOCKS_H
#define CV_LOCKS_H

#include "klat.h"

enum {
	TO_HIGH,
	TO_LOW
};

struct locks {
	pthread_mutex_t of[3];
	bool inherit; /* priority */
};

/* 0 or -errno. */
int locks_init(struct locks *locks, bool inherit);

/* Take the locks with which the waiter of `direction` starts. */
void locks_enter(struct locks *locks, int direction);

/* The lock that is handed over in a turn: 0, 2, 1, 0, ... from L to H, the next one from H to L. */
static inline pthread_mutex_t *locks_at(struct locks *locks, int direction, uint32_t turn)
{
	return &locks->of[(2 * (turn % 3) + direction) % 3];
}

/* Wait about a millisecond for H to wait for the lock that L is about to unlock; true if it does.
 */
bool locks_become_contended(struct locks *locks, uint32_t turn);

#endif
