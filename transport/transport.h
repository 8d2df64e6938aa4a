/* SPDX-License-Identifier: MIT */
/*
 * What the transports share: one table of functions each, and the two sides of a channel. A message
 * is a block of --bytes, of which the first HEADER_BYTES belong to the transport and the rest is
 * payload; a word, its number, goes with it, in the header or in a descriptor.
 */
#ifndef KLAT_TRANSPORT_H
#define KLAT_TRANSPORT_H

#include "klat.h"

#include <assert.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>

#define PAGE 4096
#define HEADER_BYTES 16
#define SMALLEST 32
#define LARGEST (16 << 20)

/* A spinner's turn, and the pause after it: 87 % of the time, where the kernel's limit is 95 %. */
#define SPIN_MS 40
#define PAUSE_MS 6

enum {
	ROUND_TRIP,
	HALF,
	RESPONSE,
	TURNAROUND
};
enum {
	THREAD_POINTER,
	SHM_ZERO_COPY,
	SHM_COPY,
	PIPE,
	UNIX,
	TCP,
	UDP,
	MULTICAST,
};
enum {
	AUTO,
	THREAD,
	PROCESS,
	NETNS,
	REMOTE,
};
enum {
	SPIN = AUTO + 1,
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
	int64_t bytes, rate, datagram, listen, wait_for;
	int64_t drop_every, reorder_every, duplicate_every;
	int transport, peer, wait, touch;
	const char *connect, *interface;
};

/*
 * The number of a message, from 1, warm-up included, in the low bits; above it how often it was
 * sent before. With the highest bit both sides rest after it.
 */
#define WORD_REST (UINT64_C(1) << 63)
#define WORD_AGAIN (UINT64_C(1) << 32)
#define WORD_NUMBER (WORD_AGAIN - 1)

/* The longest datagram of IPv4, less its headers and UDP's; and the shortest to cut a message to.
 */
#define LARGEST_DATAGRAM 65507
#define SMALLEST_DATAGRAM 256
#define MOST_FRAGMENTS (LARGEST / (SMALLEST_DATAGRAM - HEADER_BYTES) + 1)

struct message {
	uint64_t word;
	const char *data; /* the whole block, header first */
};

struct ring;

/* The header of a datagram. Both machines have the same byte order. */
struct fragment {
	uint64_t word;
	uint32_t kind;
	uint32_t index;
};

static_assert(sizeof(struct fragment) == HEADER_BYTES, "a block's header is a fragment's");

/* What a side did. All are of one type: they are added up as one array. */
struct tally {
	int64_t sent, received, damaged;
	int64_t bytes_sent, bytes_received;
	int64_t pauses; /* of a spinner that found nothing for a whole turn */
	/* Datagrams: messages given up and sent again; parts that came by a repair, were sent for
	 * one, came twice, or were of a message or an attempt that nobody awaits any more. */
	int64_t lost, repaired, resent, repeated, outdated;
	/* Self-tests: datagrams left out, those among them that were the first of their part, held
	 * back, and sent twice. */
	int64_t dropped, dropped_parts, reordered, duplicated;
};

/* One end of the channel. Used by one worker alone once the run has begun. */
struct side {
	struct klat_run *run;
	const struct options *options;
	const struct transport *transport;
	struct klat_worker *worker;
	int index; /* INITIATOR or RESPONDER */
	const char *name;
	char *outgoing; /* a block of --bytes */
	char *incoming; /* the same, where a transport copies */
	struct ring *ring_in, *ring_out;
	int in, out;      /* descriptors, where there are any */
	int64_t limit_ms; /* how long it waits for the other side */
	uint64_t limit;   /* the same in ticks */
	uint64_t turn;    /* SPIN_MS in ticks */
	uint64_t spun_since;
	bool spoils;        /* for --plant corrupt, the last byte of what it sends */
	struct tally tally; /* of the timed part */

	/* Datagrams: the message that is awaited and gathered, the last one that was sent. */
	uint64_t awaited, gathered_word, sent_word;
	uint64_t loss_limit; /* udp: ticks until one is sent again; 0 until an answer was late */
	uint64_t resent;     /* udp: when this message was last sent again, 0 where it was not */
	uint32_t parts;      /* datagrams of a message */
	bool plain;          /* it is one, and no self-test spoils it */
	uint32_t gathered, next_part, expected_part;
	uint32_t landed;                      /* in which part's place the last datagram is */
	uint8_t seen[MOST_FRAGMENTS / 8 + 1]; /* a bit for each part that is in its place */
	bool lingers;
	bool beats;
	timer_t beat;
	/* Of the self-tests. */
	uint32_t random;
	struct fragment held;
	bool holds;
} KLAT_ALIGNED;

struct state {
	struct side sides[2];
	bool finished; /* the initiator has all answers */
	int namespaces[2];
	int (*make_sockets)(struct klat_run *run); /* see inet_make() */
	struct in_addr addresses[2];
	int control; /* the connection to the other machine, or -1 */
	struct sockaddr_in listener;
	char other[64]; /* that machine, for messages */
	char *region;   /* all blocks and rings, mapped shared */
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
	bool copies;    /* into the receiver's `incoming` */
	bool datagrams; /* may lose some; answers again until the initiator has finished */
	bool internet;  /* reaches other namespaces and machines */
	size_t (*ring_size)(const struct options *options); /* of each direction, or NULL */
	int64_t (*beat_ms)(const struct options *options);  /* of a side that sleeps, or NULL */
	int (*open)(struct klat_run *run);
	int (*send)(struct side *side, uint64_t word);
	int (*receive)(struct side *side, struct message *message);
};

extern const struct transport thread_pointer, shm_zero_copy, shm_copy; /* memory.c */
extern const struct transport pipe_transport, unix_transport, tcp;     /* stream.c */
extern const struct transport udp;                                     /* udp.c */
extern const struct transport multicast;                               /* multicast.c */

/*
 * For a loop that polls: whether `limit` ticks are over. `turns` and `since` start at 0, and the
 * counter is read every 256th time.
 */
static inline bool is_over(uint64_t limit, uint32_t *turns, uint64_t *since)
{
	if (++*turns & 0xff)
		return false;
	if (!*since)
		*since = klat_ticks();
	return klat_ticks() - *since > limit;
}

static inline bool gives_up(const struct side *side, uint32_t *turns, uint64_t *since)
{
	return is_over(side->limit, turns, since);
}

/*
 * beat.c: signals that end a system call of the worker that began them, every `ms`, until it ends
 * them. beat_prepare() once, before there are workers. 0, or -errno, described.
 */
int beat_prepare(struct klat_run *run);
int beat_begin(struct side *side, int64_t ms);
void beat_end(struct side *side);

const struct transport *transport_of(const struct klat_run *run);

/* pingpong.c: the bodies of the initiator and the responder. */
int ping(struct klat_worker *worker);
int pong(struct klat_worker *worker);
/* Sleep. The evidence does not count it. */
void pause_ms(struct klat_worker *worker, int ms);

/* Describe that nothing came; returns -ETIMEDOUT. */
int say_silent(struct side *side, const char *awaited);
/* Describe that the other side has left; returns -EPIPE. */
int say_gone(struct side *side);

/* evidence.c */
void verify_messages(struct klat_run *run);

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
