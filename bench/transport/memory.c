/* SPDX-License-Identifier: MIT */
/*
 * Shared memory: a descriptor of the block (thread-pointer, shm-zero-copy), or the block itself,
 * copied in by one side and out by the other (shm-copy). thread-pointer passes an address, which is
 * valid in one address space only; shm-zero-copy passes an offset into the region. Without --touch
 * nobody touches the block, and the time does not depend on its size.
 */
#include "ring.h"

/* Small enough that both copies of a large block overlap and stay in the cache. */
#define CHUNK 16384

static size_t descriptor_ring(void)
{
	return sizeof(struct ring);
}

static size_t chunk_of(void)
{
	return options.bytes < CHUNK ? options.bytes : CHUNK;
}

static size_t chunk_ring(void)
{
	return sizeof(struct ring) + RING_SLOTS * chunk_of();
}

static int push_block(struct side *side, uint64_t word, uint64_t where)
{
	struct slot *slot;
	int err = ring_reserve(side, &slot);

	if (err)
		return err;
	slot->word = word;
	slot->where = where;
	slot->bytes = options.bytes;
	ring_push(side, slot);
	side->tally.bytes_sent += options.bytes;
	return 0;
}

static int pull_block(struct side *side, struct message *message, uintptr_t base)
{
	struct slot *slot;
	int err = ring_pull(side, &slot);

	if (err)
		return err;
	message->word = slot->word;
	message->data = (const char *)(base + slot->where);
	side->tally.bytes_received += slot->bytes;
	ring_free(side);
	return 0;
}

static int send_pointer(struct side *side, uint64_t word)
{
	return push_block(side, word, (uintptr_t)side->outgoing);
}

static int receive_pointer(struct side *side, struct message *message)
{
	return pull_block(side, message, 0);
}

static int send_offset(struct side *side, uint64_t word)
{
	const struct state *state = side->run->state;

	return push_block(side, word, side->outgoing - state->region);
}

static int receive_offset(struct side *side, struct message *message)
{
	const struct state *state = side->run->state;

	return pull_block(side, message, (uintptr_t)state->region);
}

static char *chunk_at(struct ring *ring, const struct slot *slot, size_t chunk)
{
	return ring->chunks + (slot - ring->slots) * chunk;
}

static int send_copy(struct side *side, uint64_t word)
{
	const size_t size = options.bytes, chunk = chunk_of();

	put_word(side->outgoing, word);
	for (size_t done = 0; done < size;) {
		size_t part = size - done < chunk ? size - done : chunk;
		struct slot *slot;
		int err = ring_reserve(side, &slot);

		if (err)
			return err;
		memcpy(chunk_at(side->ring_out, slot, chunk), side->outgoing + done, part);
		slot->word = word;
		slot->where = done;
		slot->bytes = part;
		ring_push(side, slot);
		side->tally.bytes_sent += part;
		done += part;
	}
	return 0;
}

static int receive_copy(struct side *side, struct message *message)
{
	const size_t size = options.bytes, chunk = chunk_of();

	for (size_t done = 0; done < size;) {
		struct slot *slot;
		int err = ring_pull(side, &slot);

		if (err)
			return err;
		if (slot->where != done || slot->bytes > size - done)
			return klat_error(side->run, EPROTO, "the %s received a chunk out of order",
					  side->name);
		memcpy(side->incoming + done, chunk_at(side->ring_in, slot, chunk), slot->bytes);
		done += slot->bytes;
		side->tally.bytes_received += slot->bytes;
		ring_free(side);
	}
	message->word = get_word(side->incoming);
	message->data = side->incoming;
	return 0;
}

const struct transport thread_pointer = { .ring_size = descriptor_ring,
					  .send = send_pointer,
					  .receive = receive_pointer };

const struct transport shm_zero_copy = { .ring_size = descriptor_ring,
					 .send = send_offset,
					 .receive = receive_offset };

const struct transport shm_copy = {
	.copies = true, .ring_size = chunk_ring, .send = send_copy, .receive = receive_copy
};
