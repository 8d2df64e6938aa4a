/* SPDX-License-Identifier: MIT */
/*
 * A message as datagrams. One that fits into --datagram bytes is a datagram as it is, whose header
 * is the block's own; a larger one is cut into parts of equal length, each behind a header of its
 * own. Parts may come in any order, twice, or not at all.
 */
#ifndef KLAT_TRANSPORT_FRAGMENTS_H
#define KLAT_TRANSPORT_FRAGMENTS_H

#include "transport.h"

#include <sys/types.h>

/* The first two bring a part. What a header alone means by its index is the transport's own. */
enum {
	DATA,
	REPAIR, /* a part that was asked for */
	NAK,
	STATUS,
	KIND_BITS = 8
};

/* How many datagrams a message takes. */
uint32_t fragment_count(const struct options *options);

/*
 * Send one datagram, or spoil it where a self-test says so. 0 also where the kernel had no room for
 * it, which is a loss like any other; -errno, described, where nothing can be sent.
 */
int fragment_send(struct side *side, uint64_t word, uint32_t kind, uint32_t index);
int fragment_send_all(struct side *side, uint64_t word);

/* Forget the parts of any message; then those of `word` are gathered. */
void fragments_begin(struct side *side, uint64_t word);
/* Receive a datagram: its size, 0 for what is none of ours, -EAGAIN, or -errno, described. */
ssize_t fragment_receive(struct side *side, struct fragment *header);
/*
 * Place the part that it brought; false for one that was there or is not wanted. fragments_begin()
 * may come in between.
 */
bool fragment_take(struct side *side, const struct fragment *header, size_t size);
bool fragments_complete(const struct side *side);
/* The first part from `index` on that is missing, or the number of parts. */
uint32_t fragment_missing(const struct side *side, uint32_t index);
/* The first part from `index` on that is there, or the number of parts. */
uint32_t fragment_present(const struct side *side, uint32_t index);

/*
 * Have a socket wait as --wait says; receiving ends after `ms` without a datagram. 0, or -errno,
 * described.
 */
int fragment_set_waits(struct klat_run *run, int fd, int64_t ms);

/* Whether the other side has ended: remote, or of the responder, which lingers for that. */
bool has_left(const struct side *side);

/*
 * After a silence: a spinner of real-time priority may be what keeps the kernel's own thread from
 * delivering the packets of its CPU.
 */
void give_way(struct side *side);

#endif
