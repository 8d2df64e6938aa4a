/* SPDX-License-Identifier: MIT */
/*
 * What the transports share. Each is a table of functions that work on the two sides of a channel.
 * A message is a block of --bytes: a header of HEADER_BYTES, which belongs to the transport, and
 * the payload. Each message has a word, its number. The word travels in the header or in a
 * descriptor.
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

enum { ROUND_TRIP, HALF, RESPONSE, TURNAROUND };
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
enum { SPIN = AUTO + 1, BLOCK };
enum { UNTOUCHED, READ, WRITE };
enum { INITIATOR, RESPONDER };

extern struct options {
	int64_t bytes, rate, datagram, listen, wait_for;
	int64_t drop_every, reorder_every, duplicate_every;
	int transport, peer, wait, touch;
	const char *connect, *interface;
} options;

/*
 * The low bits are the number of the message, from 1, warm-up included. The bits above count how
 * often it was sent again. If the highest bit is set, both sides rest after the message.
 */
#define WORD_REST (UINT64_C(1) << 63)
#define WORD_AGAIN (UINT64_C(1) << 32)
#define WORD_NUMBER (WORD_AGAIN - 1)

/* The largest payload of UDP over IPv4. */
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

/* What a side did. All fields have one type, because add_up() treats the struct as an array. */
struct tally {
	int64_t sent, received, damaged;
	int64_t bytes_sent, bytes_received;
	int64_t late;   /* messages that left more than an interval after they were due */
	int64_t pauses; /* of a spinner that found nothing for KLAT_SPIN_NS */
	/* Datagrams. */
	int64_t lost;     /* messages that were sent again */
	int64_t repaired; /* parts that arrived by a repair */
	int64_t resent;   /* parts that were sent for a repair */
	int64_t repeated; /* parts that arrived twice */
	int64_t outdated; /* parts of a message or an attempt that is no longer awaited */
	/* Self-tests: datagrams. `dropped_parts` of the dropped ones carried a part for the first
	 * time. */
	int64_t dropped, dropped_parts, reordered, duplicated;
};

/* One end of the channel. During the run only one worker uses it. */
struct side {
	struct klat_run *run;
	const struct transport *transport;
	struct klat_worker *worker;
	int index; /* INITIATOR or RESPONDER */
	const char *name;
	char *outgoing; /* a block of --bytes */
	char *incoming; /* the same; NULL if the transport does not copy */
	struct ring *ring_in, *ring_out;
	int in, out;      /* descriptors, or -1 */
	int64_t limit_ms; /* how long it waits for the other side */
	uint64_t limit;   /* the same in ticks */
	uint64_t turn;    /* KLAT_SPIN_NS in ticks */
	uint64_t spun_since;
	bool spoils;        /* for --plant corrupt, the last byte of what it sends */
	struct tally tally; /* of the timed part */

	/* Datagrams. */
	uint64_t awaited, gathered_word, sent_word;
	uint64_t loss_limit; /* udp: ticks until a message is sent again; 0: no answer was late */
	uint64_t resent;     /* udp: when this message was last sent again, or 0 */
	uint32_t parts;      /* datagrams of a message */
	bool plain;          /* one datagram, and no self-test */
	uint32_t gathered, next_part, expected_part;
	uint32_t landed;                      /* the last datagram is in the place of this part */
	uint8_t seen[MOST_FRAGMENTS / 8 + 1]; /* a bit for each part that has arrived */
	bool lingers;
	bool beats;
	timer_t beat;
	/* Self-tests. */
	uint64_t random;
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
};

/*
 * open() makes both ends, unless it is NULL. It runs once, in the measured process, before the
 * workers start. send() hands over the block; receive() returns when a whole block has arrived.
 * Both return 0 or -errno after klat_error(). A sender does not change its block until the answer
 * has arrived.
 */
struct transport {
	bool copies;               /* into the receiver's `incoming` */
	bool datagrams;            /* some may be lost: the responder repeats its last answer */
	bool internet;             /* reaches other namespaces and machines */
	size_t (*ring_size)(void); /* of each direction, or NULL */
	int64_t (*beat_ms)(void);  /* of a side that sleeps, or NULL */
	int (*open)(struct klat_run *run);
	int (*send)(struct side *side, uint64_t word);
	int (*receive)(struct side *side, struct message *message);
};

extern const struct transport thread_pointer, shm_zero_copy, shm_copy; /* memory.c */
extern const struct transport pipe_transport, unix_transport, tcp;     /* stream.c */
extern const struct transport udp;                                     /* udp.c */
extern const struct transport multicast;                               /* multicast.c */

/* For a polling loop: whether `limit` ticks are over. `turns` and `since` start at 0. The counter
 * is read in every 256th call. */
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
 * beat.c: between beat_begin() and beat_end(), a signal every `ms` ends the system call of the
 * calling worker. Call beat_prepare() once, before the workers start. 0, or -errno after
 * klat_error().
 */
int beat_prepare(struct klat_run *run);
int beat_begin(struct side *side, int64_t ms);
void beat_end(struct side *side);

extern const char *const transport_names[];
const struct transport *transport_of(void);

/* pingpong.c: the bodies of the initiator and the responder. */
int ping(struct klat_worker *worker);
int pong(struct klat_worker *worker);
/* klat_error() for a message that did not arrive: returns -ETIMEDOUT. */
int say_silent(struct side *side, const char *awaited);
/* klat_error() for the end of the other side: returns -EPIPE. */
int say_gone(struct side *side);

/* evidence.c */
void verify_messages(struct klat_run *run);

/* For transports that copy the whole block, header included. */
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
