/* SPDX-License-Identifier: MIT */
/*
 * A message as datagrams. One that fits into --datagram bytes is a datagram as it is, whose header
 * is the block's own; a larger one is cut into parts of equal length, each behind a header of its
 * own. Parts may come in any order, twice, or not at all.
 */
#ifndef KLAT_TRANSPORT_FRAGMENTS_H
#define KLAT_TRANSPORT_FRAGMENTS_H

#include "transport.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The first two bring a part. What a header alone means by its index is the transport's own. */
enum {
	DATA,
	REPAIR, /* a part that was asked for */
	NAK,
	STATUS,
	KIND_BITS = 8
};

/* Before anything else: into how many datagrams this side's messages are cut. */
void fragments_prepare(struct side *side);

/*
 * Send one datagram, or spoil it where a self-test says so. 0 also where the kernel had no room for
 * it, which is a loss like any other; -errno, described, where nothing can be sent.
 */
int fragment_send(struct side *side, uint64_t word, uint32_t kind, uint32_t index);
int fragment_send_all(struct side *side, uint64_t word);
/* After a send that failed: 0 to leave it at that, -EAGAIN to try again, or -errno, described. */
int fragment_send_failed(struct side *side, uint64_t *since);

/* Receive a datagram: its size, 0 for what is none of ours, -EAGAIN, or -errno, described. */
ssize_t fragment_receive_part(struct side *side, struct fragment *header);
/* The same, of what a system call returned that received no part. */
ssize_t fragment_receive_failed(struct side *side, ssize_t size);
/*
 * Place the part that it brought; false for one that was there or is not wanted. fragments_begin()
 * may come in between.
 */
bool fragment_take(struct side *side, const struct fragment *header, size_t size);
/* The first part from `index` on that is missing, or the number of parts. */
uint32_t fragment_missing(const struct side *side, uint32_t index);
/* The first part from `index` on that is there, or the number of parts. */
uint32_t fragment_present(const struct side *side, uint32_t index);

/*
 * A message that is one datagram goes the short way, which is inline: by the general one, with its
 * vectors, the program itself took some 200 ns more of a round trip of 5.5 us.
 */
static inline int fragments_send(struct side *side, uint64_t word)
{
	const struct fragment header = { word, DATA, 0 };
	uint64_t since = 0;
	int err = -EAGAIN;

	if (!side->plain)
		return fragment_send_all(side, word);
	memcpy(side->outgoing, &header, sizeof(header));
	while (err == -EAGAIN)
		err = send(side->out, side->outgoing, side->options->bytes, MSG_NOSIGNAL) < 0
			      ? fragment_send_failed(side, &since)
			      : 0;
	return err;
}

static inline ssize_t fragment_receive(struct side *side, struct fragment *header)
{
	const ssize_t bytes = side->options->bytes;
	ssize_t size;

	if (side->parts > 1)
		return fragment_receive_part(side, header);
	side->landed = 0;
	size = recv(side->in, side->incoming, bytes, MSG_TRUNC);
	if (size < (ssize_t)sizeof(*header) || size > bytes)
		return fragment_receive_failed(side, size);
	memcpy(header, side->incoming, sizeof(*header));
	return size;
}

/* Forget the parts of any message; then those of `word` are gathered. */
static inline void fragments_begin(struct side *side, uint64_t word)
{
	side->gathered_word = word;
	side->gathered = side->next_part = side->expected_part = 0;
	if (side->parts > 1)
		memset(side->seen, 0, (side->parts + 7) / 8);
	else
		side->seen[0] = 0;
}

static inline bool fragments_complete(const struct side *side)
{
	return side->gathered == side->parts;
}

/* Have a socket wait as --wait says; 0, or -errno, described. */
int fragment_set_waits(struct klat_run *run, int fd);

/* Of a receiver: how long it waits for a datagram, and what it has waited. */
struct patience {
	uint64_t limit; /* ticks */
	uint64_t since; /* when this limit began, 0 where none has */
	uint64_t spun;  /* when a spinner did, or last paused */
	uint64_t quiet; /* when the first of several limits did */
	uint32_t turns;
};

/*
 * At every -EAGAIN: whether the limit is over, which begins again then. A spinner that finds
 * nothing for a whole turn pauses, as a stream's does, and looks once more.
 */
bool falls_silent(struct side *side, struct patience *patience);
/* Then: for how long it has waited, by the clock. */
int64_t silent_for_ms(const struct side *side, const struct patience *patience);

/* Whether the other side has ended: remote, or of the responder, which lingers for that. */
bool has_left(const struct side *side);

#endif
