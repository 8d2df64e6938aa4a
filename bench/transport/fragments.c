/* SPDX-License-Identifier: MIT */
#include "fragments.h"
#include "inet.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

/* The bytes of the block in each part, except in the last. */
static size_t part_size(void)
{
	return options.datagram - sizeof(struct fragment);
}

void fragments_prepare(struct side *side)
{
	side->parts = options.bytes <= options.datagram
			      ? 1
			      : (options.bytes + part_size() - 1) / part_size();
	side->plain = side->parts == 1 &&
		      !(options.drop_every | options.reorder_every | options.duplicate_every);
}

/* The part's place and length in a block. */
static size_t part_at(uint32_t index, size_t *length)
{
	size_t at = index * part_size(), left = options.bytes - at;

	*length = left < part_size() ? left : part_size();
	return at;
}

/*
 * One in `every`, at random. A fixed rhythm could fall in step with the repair and spoil the same
 * part for ever.
 */
static bool comes_up(struct side *side, int64_t every)
{
	return every && !(klat_draw(&side->random) % every);
}

int fragment_send_failed(struct side *side, uint64_t *since)
{
	const uint64_t now = klat_ticks();

	switch (errno) {
	case ENOBUFS:
		return 0;
	case EAGAIN:
	case EINTR:
		if (!*since)
			*since = now;
		return now - *since > side->limit ? say_silent(side, "room to send") : -EAGAIN;
	case ECONNREFUSED:
		return say_gone(side);
	default:
		return klat_error(side->run, errno, "the %s cannot send a datagram: %m",
				  side->name);
	}
}

static int send_vector(struct side *side, struct iovec *parts, int count)
{
	const struct msghdr message = { .msg_iov = parts, .msg_iovlen = count };
	uint64_t since = 0;
	int err = -EAGAIN;

	while (err == -EAGAIN)
		err = sendmsg(side->out, &message, MSG_NOSIGNAL) < 0
			      ? fragment_send_failed(side, &since)
			      : 0;
	return err;
}

static int transmit(struct side *side, const struct fragment *header)
{
	struct iovec parts[2] = { { (void *)header, sizeof(*header) } };
	size_t at, length;

	if (header->kind != DATA && header->kind != REPAIR)
		return send_vector(side, parts, 1);
	if (side->parts == 1) {
		memcpy(side->outgoing, header, sizeof(*header));
		parts[0] = (struct iovec){ side->outgoing, options.bytes };
		return send_vector(side, parts, 1);
	}
	at = part_at(header->index, &length);
	parts[1] = (struct iovec){ side->outgoing + at, length };
	return send_vector(side, parts, 2);
}

/*
 * The faults of a network: it drops a datagram, lets the next one overtake it, or delivers it
 * twice. If the next datagram belongs to another message, the bytes of the one that was held back
 * are gone; but then nobody waits for them.
 */
static int transmit_spoiled(struct side *side, const struct fragment *header)
{
	int err;

	if (comes_up(side, options.drop_every)) {
		side->tally.dropped++;
		side->tally.dropped_parts += header->kind == DATA;
		return 0;
	}
	if (!side->holds && comes_up(side, options.reorder_every)) {
		side->tally.reordered++;
		side->held = *header;
		side->holds = true;
		return 0;
	}
	err = transmit(side, header);
	if (!err && comes_up(side, options.duplicate_every)) {
		side->tally.duplicated++;
		err = transmit(side, header);
	}
	if (!err && side->holds) {
		side->holds = false;
		err = transmit(side, &side->held);
	}
	return err;
}

int fragment_send(struct side *side, uint64_t word, uint32_t kind, uint32_t index)
{
	const struct fragment header = { word, kind, index };

	if (__builtin_expect(options.drop_every | options.reorder_every | options.duplicate_every,
			     0))
		return transmit_spoiled(side, &header);
	return transmit(side, &header);
}

int fragment_send_all(struct side *side, uint64_t word)
{
	const uint32_t count = side->parts;
	int err = 0;

	for (uint32_t i = 0; i < count && !err; i++)
		err = fragment_send(side, word, DATA, i);
	return err;
}

static bool is_seen(const struct side *side, uint32_t index)
{
	return side->seen[index / 8] >> index % 8 & 1;
}

uint32_t fragment_next(const struct side *side, uint32_t index, bool seen)
{
	const uint32_t count = side->parts;

	while (index < count && is_seen(side, index) != seen)
		index++;
	return index;
}

ssize_t fragment_receive_failed(struct side *side, ssize_t size)
{
	if (size >= 0)
		return 0;
	/*
	 * A beat ended the sleep, which is one voluntary switch and not the wait for a message.
	 * klat_rest_begins() is not used here: it would be in the timed part, before each receive.
	 */
	side->worker->rests += errno == EINTR;
	if (errno == EAGAIN || errno == EINTR)
		return -EAGAIN;
	if (errno == ECONNREFUSED)
		return say_gone(side);
	return klat_error(side->run, errno, "the %s cannot receive a datagram: %m", side->name);
}

/* Receive into the place of the first missing part: the right place if no part is lost. */
ssize_t fragment_receive_part(struct side *side, struct fragment *header)
{
	struct iovec parts[2] = { { header, sizeof(*header) },
				  { side->incoming + side->next_part * part_size(), part_size() } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t size = recvmsg(side->in, &message, 0);

	side->landed = side->next_part;
	/* A longer datagram is not ours. */
	if (size < (ssize_t)sizeof(*header) || message.msg_flags & MSG_TRUNC)
		return fragment_receive_failed(side, size);
	return size;
}

bool fragment_take(struct side *side, const struct fragment *header, size_t size)
{
	size_t at = 0, length = options.bytes - sizeof(*header);

	if (header->word != side->gathered_word) {
		side->tally.outdated++;
		return false;
	}
	if (header->index >= side->parts)
		return false;
	if (is_seen(side, header->index)) {
		side->tally.repeated++;
		return false;
	}
	if (side->parts > 1)
		at = part_at(header->index, &length);
	if (size != length + sizeof(*header))
		return false;
	if (header->index != side->landed)
		memcpy(side->incoming + at, side->incoming + side->landed * part_size(), length);
	side->seen[header->index / 8] |= 1 << header->index % 8;
	side->gathered++;
	side->next_part = fragment_next(side, side->next_part, false);
	side->tally.repaired += header->kind == REPAIR;
	return true;
}

bool falls_silent(struct side *side, struct patience *patience)
{
	const bool spins = options.wait == SPIN;
	uint64_t now;

	if (spins && ++patience->turns & 0xff)
		return false;
	now = klat_ticks();
	if (!patience->since)
		patience->since = patience->spun = now;
	if (spins && now - patience->spun >= side->turn) {
		side->tally.pauses += !side->lingers;
		klat_sleep(side->worker, KLAT_REST_NS);
		patience->spun = klat_ticks();
		return false;
	}
	if (now - patience->since < patience->limit)
		return false;
	if (!patience->quiet)
		patience->quiet = patience->since;
	patience->since = now;
	return true;
}

int64_t silent_for_ms(const struct side *side, const struct patience *patience)
{
	return klat_ticks_to_ns(side->run, klat_ticks() - patience->quiet) / 1e6;
}

bool has_left(const struct side *side)
{
	const struct state *state = side->run->state;

	return remote_left(state) ||
	       (side->index == RESPONDER && __atomic_load_n(&state->finished, __ATOMIC_ACQUIRE));
}
