/* SPDX-License-Identifier: MIT */
/*
 * A lock-free ring of descriptors between one producer and one consumer, after Lamport (1977). Each
 * slot has its own turn instead of a shared head. So a hand-off moves one cache line: the consumer
 * polls the line that holds the descriptor.
 *
 * Memory order. Positions count from 1 and never wrap (64 bits).
 *
 * - Producer to consumer: the producer writes the descriptor and its block, then stores `turn` with
 *   release. The consumer loads that turn with acquire, then reads them.
 * - Consumer to producer: the consumer reads the slot, then stores `freed`, the number of
 *   slots freed so far, with release. The producer loads it with acquire, then writes the slot
 * again.
 * - Only one side reads its own position, so it is plain.
 *
 * Sleeping. A waiter sets a futex word, then looks at the ring once more before it sleeps. The
 * other side publishes, then looks at the futex word. With release and acquire, a CPU's load may
 * pass its own store (as in Dekker's algorithm), and both sides could miss each other. So these
 * four accesses are sequentially consistent. A ring whose sides spin has no full barrier.
 */
#ifndef KLAT_TRANSPORT_RING_H
#define KLAT_TRANSPORT_RING_H

#include "sync/sync.h"
#include "transport.h"

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
	/* Used by the producer only. */
	uint64_t produced KLAT_ALIGNED, known_freed;
	/* Used by the consumer only. */
	uint64_t consumed KLAT_ALIGNED;
	char chunks[] __attribute__((aligned(4096)));
};

/*
 * Two messages in RING_SLOTS take longer: the producer reads `freed`, and the ring starts again at
 * its first slot, which no prefetcher predicts. Random starts make these other messages in each
 * run.
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
	sync_futex(awaited, FUTEX_WAKE, 1);
}

/* Wait until *word has reached `value`. A blocking wait has no limit of its own: the library ends a
 * run without progress. */
static inline int ring_wait(struct side *side, const uint64_t *word, uint64_t value,
			    uint32_t *awaited)
{
	uint64_t since = 0;
	uint32_t turns = 0;

	if (options.wait == SPIN) {
		while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
			if (gives_up(side, &turns, &since))
				return say_silent(side, "descriptor");
		return 0;
	}
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
		__atomic_store_n(awaited, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(word, __ATOMIC_SEQ_CST) < value)
			sync_futex(awaited, FUTEX_WAIT, 1);
		/* Otherwise the next publication makes a system call that wakes nobody. */
		__atomic_store_n(awaited, 0, __ATOMIC_SEQ_CST);
	}
	return 0;
}

static inline void ring_publish(uint64_t *word, uint64_t value, uint32_t *awaited)
{
	if (options.wait == SPIN) {
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

	ring_publish(&slot->turn, ++ring->produced, &ring->data_awaited);
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

	ring_publish(&ring->freed, ++ring->consumed, &ring->space_awaited);
}

#endif
