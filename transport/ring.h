/* SPDX-License-Identifier: MIT */
/*
 * A lock-free ring of descriptors between one producer and one consumer, after Lamport's (1977),
 * with a slot's own turn in place of the shared head, so that a hand-off moves one cache line: the
 * consumer polls the line that brings the descriptor.
 *
 * Memory order. Positions count from 1 and never wrap (64 bits).
 *
 * - Producer to consumer: the descriptor's fields, and the block that it names, are plain writes
 *   before a release store of `turn`; the consumer reads them after an acquire load that saw that
 *   turn. So whatever the producer wrote before push() is seen after pull().
 * - Consumer to producer: `freed` says how many slots the consumer is done with. Its release store
 *   follows the consumer's reads of the slot; the producer's acquire load precedes the write that
 *   uses the slot again. So no slot is overwritten while it is read.
 * - Each side's own position is plain: nobody else reads it.
 *
 * Sleeping. A waiter announces itself in a futex word and looks once more before it sleeps; the
 * other side publishes and then looks at the word. This is the store-then-load pattern of Dekker's
 * algorithm, and with release and acquire alone both could miss each other, as each CPU's load may
 * pass its own store. So all four accesses are sequentially consistent: in their one order either
 * the waiter's second look comes after the publication, and sees it, or the other's look comes
 * after the announcement, and wakes. A spinning ring needs none of that and has no full barrier.
 */
#ifndef KLAT_TRANSPORT_RING_H
#define KLAT_TRANSPORT_RING_H

#include "transport.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RING_SLOTS 64 /* a power of two */

struct slot {
	uint64_t turn; /* position of the descriptor that is in it */
	uint64_t word;
	uint64_t where; /* of the block: a pointer, or an offset into the shared region */
	uint64_t bytes;
} KLAT_ALIGNED;

struct ring {
	struct slot slots[RING_SLOTS];
	uint64_t freed KLAT_ALIGNED;
	uint32_t data_awaited KLAT_ALIGNED, space_awaited KLAT_ALIGNED; /* futex words */
	/* Of the producer alone. */
	uint64_t produced KLAT_ALIGNED, known_freed;
	/* Of the consumer alone. */
	uint64_t consumed KLAT_ALIGNED;
	char chunks[] __attribute__((aligned(4096)));
};

/*
 * Once in RING_SLOTS messages the producer reads how many slots are free, and the ring starts again
 * at its first slot, which no prefetcher predicts. Such a message takes longer. A random start
 * varies which messages these are; otherwise they would be the same ones in every run.
 */
static inline void ring_begin(struct ring *ring)
{
	uint64_t now = klat_ticks();

	ring->produced = ring->consumed = ring->freed = RING_SLOTS + now / RING_SLOTS % RING_SLOTS;
	ring->known_freed = ring->freed - now / (RING_SLOTS * RING_SLOTS) % RING_SLOTS;
}

/* Shared, not FUTEX_PRIVATE_FLAG: the other side may be a process. */
static inline void ring_wake(uint32_t *awaited)
{
	if (!__atomic_load_n(awaited, __ATOMIC_SEQ_CST))
		return;
	__atomic_store_n(awaited, 0, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, awaited, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/*
 * Wait until *word has reached `value`. When it blocks, the library's limit ends a run that makes
 * no progress.
 */
static inline int ring_wait(struct side *side, const uint64_t *word, uint64_t value,
			    uint32_t *awaited)
{
	uint64_t since = 0;
	uint32_t turns = 0;

	if (side->options->wait == SPIN) {
		while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
			if (gives_up(side, &turns, &since))
				return say_silent(side, "descriptor");
		return 0;
	}
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
		__atomic_store_n(awaited, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value)
			syscall(SYS_futex, awaited, FUTEX_WAIT, 1, NULL, NULL, 0);
		/* Otherwise the next publication would make a system call that wakes nobody. */
		__atomic_store_n(awaited, 0, __ATOMIC_SEQ_CST);
	}
	return 0;
}

static inline void ring_publish(const struct side *side, uint64_t *word, uint64_t value,
				uint32_t *awaited)
{
	if (side->options->wait == SPIN) {
		__atomic_store_n(word, value, __ATOMIC_RELEASE);
		return;
	}
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
	ring_wake(awaited);
}

/* The slot to fill next; then ring_push(). */
static inline int ring_reserve(struct side *side, struct slot **slot)
{
	struct ring *ring = side->ring_out;
	uint64_t position = ring->produced + 1;

	if (position - ring->known_freed > RING_SLOTS) {
		int err =
			ring_wait(side, &ring->freed, position - RING_SLOTS, &ring->space_awaited);

		if (err)
			return err;
		ring->known_freed = __atomic_load_n(&ring->freed, __ATOMIC_ACQUIRE);
	}
	*slot = &ring->slots[position % RING_SLOTS];
	return 0;
}

static inline void ring_push(struct side *side, struct slot *slot)
{
	struct ring *ring = side->ring_out;

	ring_publish(side, &slot->turn, ++ring->produced, &ring->data_awaited);
}

/* The next slot once it is filled; then ring_free(). */
static inline int ring_pull(struct side *side, struct slot **slot)
{
	struct ring *ring = side->ring_in;
	uint64_t position = ring->consumed + 1;

	*slot = &ring->slots[position % RING_SLOTS];
	return ring_wait(side, &(*slot)->turn, position, &ring->data_awaited);
}

static inline void ring_free(struct side *side)
{
	struct ring *ring = side->ring_in;

	ring_publish(side, &ring->freed, ++ring->consumed, &ring->space_awaited);
}

#endif
