/* SPDX-License-Identifier: MIT */
/*
 * What the transports share: one table of functions each, and the two sides of a channel. A message
 * is a block of --bytes, of which the first HEADER_BYTES belong to the transport and the rest is
 * payload; a word, its number, goes with it, in the header or in a descriptor.
 */
#ifndef KLAT_TRANSPORT_H
#define KLAT_TRANSPORT_H

#include "klat.h"

#include <string.h>

#define HEADER_BYTES 16
#define SMALLEST 32
#define LARGEST (16 << 20)

enum {
	THREAD_POINTER,
	SHM_ZERO_COPY,
	SHM_COPY,
	PIPE,
	UNIX,
};
enum {
	AUTO,
	THREAD,
	PROCESS,
};
enum {
	SPIN,
	BLOCK
};
enum {
	UNTOUCHED,
	READ,
	WRITE
};
enum {
	INITIATOR,
	RESPONDER
};

struct options {
	int64_t bytes, rate;
	int transport, peer, wait, touch;
};

/* The number of a message, from 1, warm-up included; with this bit both sides rest after it. */
#define WORD_REST (UINT64_C(1) << 63)
#define WORD_NUMBER (~WORD_REST)

struct message {
	uint64_t word;
	const char *data; /* the whole block, header first */
};

struct ring;

/* One end of the channel. Used by one worker alone once the run has begun. */
struct side {
	struct klat_run *run;
	const struct options *options;
	struct klat_worker *worker;
	const char *name;
	char *outgoing; /* a block of --bytes */
	char *incoming; /* the same, where a transport copies */
	struct ring *ring_in, *ring_out;
	int in, out;    /* descriptors, where there are any */
	uint64_t limit; /* ticks after which a silent spin is given up */
	uint64_t spun_since;
	bool spoils; /* for --plant corrupt, the last byte of what it sends */
	/* Of the timed part. */
	int64_t sent, received, damaged;
	int64_t bytes_sent, bytes_received;
} KLAT_ALIGNED;

struct state {
	struct side sides[2];
	char *region; /* all blocks and rings, mapped shared */
	size_t region_size;
	int64_t late; /* messages that left more than an interval after they were due */
};

/*
 * A transport. `open` runs once, in the measured process, before the workers exist, and makes both
 * ends. send() returns when the block is handed over, receive() when a whole one is there, or
 * -errno, described. A sender does not change its block until the answer has come.
 */
struct transport {
	const char *name;
	bool copies;     /* into the receiver's `incoming` */
	bool descriptor; /* the word travels beside the block, which nobody has to touch */
	size_t (*ring_size)(const struct options *options); /* of each direction, or NULL */
	int (*open)(struct klat_run *run);
	int (*send)(struct side *side, uint64_t word);
	int (*receive)(struct side *side, struct message *message);
};

extern const struct transport thread_pointer, shm_zero_copy, shm_copy; /* memory.c */
extern const struct transport pipe_transport, unix_transport;          /* stream.c */

/*
 * For a loop that polls: whether to give up. `turns` and `since` start at 0, and the counter is
 * read every 256th time.
 */
static inline bool gives_up(const struct side *side, uint32_t *turns, uint64_t *since)
{
	if (++*turns & 0xff)
		return false;
	if (!*since)
		*since = __rdtsc();
	return __rdtsc() - *since > side->limit;
}

/* The line for it; returns -ETIMEDOUT. */
int say_silent(struct side *side, const char *awaited);

/* The word in the header of a block that is copied as a whole. */
static inline void put_word(char *block, uint64_t word)
{
	memcpy(block, &word, sizeof(word));
}

static inline uint64_t get_word(const char *block)
{
	uint64_t word;

	memcpy(&word, block, sizeof(word));
	return word;
}

#endif
