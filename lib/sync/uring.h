/* SPDX-License-Identifier: MIT */
/* For sync.c: what its kinds have in common with those of io_uring. */
#ifndef SYNC_URING_H
#define SYNC_URING_H

#include "sync/sync.h"

enum { SYNC_FUTEX_32_PRIVATE = 2 | FUTEX_PRIVATE_FLAG }; /* flags of futex2 */

/*
 * Take tokens, and sleep while there are none. The algorithm of glibc's new_sem: a waiter announces
 * itself before the kernel reads the tokens; a poster adds its token before it reads the waiters.
 * Sequential consistency guarantees that at least one of them sees the other.
 */
static inline __attribute__((always_inline)) int
sync_take_tokens(struct sync *sync, uint32_t *tokens, uint32_t *waiters,
		 int (*sleep)(struct sync *sync, uint32_t *tokens))
{
	for (;;) {
		uint32_t seen = __atomic_load_n(tokens, __ATOMIC_RELAXED);
		int err;

		while (seen) {
			uint32_t left = sync->takes_all ? 0 : seen - 1;

			if (__atomic_compare_exchange_n(tokens, &seen, left, false,
							__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return 0;
		}
		__atomic_fetch_add(waiters, 1, __ATOMIC_SEQ_CST);
		err = sleep(sync, tokens);
		__atomic_fetch_sub(waiters, 1, __ATOMIC_RELAXED);
		if (err)
			return err;
	}
}

/* See sync_missing(), sync_begin() and sync_join(). */
const char *sync_uring_missing(enum sync_kind kind);
int sync_uring_init(struct sync *sync);
int sync_uring_begin(struct sync_uring *uring);
void sync_uring_join(struct sync_uring *a, struct sync_uring *b);

int sync_uring_wait_futex(struct sync *sync);
int sync_uring_post_futex(struct sync *sync);
int sync_uring_wait_eventfd(struct sync *sync);
int sync_uring_post_eventfd(struct sync *sync);
int sync_uring_wait_message(struct sync *sync);
int sync_uring_post_message(struct sync *sync);

#endif
