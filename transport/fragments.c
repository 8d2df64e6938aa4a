/* SPDX-License-Identifier: MIT */
#include "fragments.h"
#include "inet.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

/* Of the block in each part but the last. */
static size_t part_size(const struct options *o)
{
	return o->datagram - sizeof(struct fragment);
}

static bool whole(const struct options *o)
{
	return o->bytes <= o->datagram;
}

uint32_t fragment_count(const struct options *o)
{
	return whole(o) ? 1 : (o->bytes + part_size(o) - 1) / part_size(o);
}

/* The part's place and length in a block. */
static size_t part_at(const struct options *o, uint32_t index, size_t *length)
{
	size_t at = index * part_size(o), left = o->bytes - at;

	*length = left < part_size(o) ? left : part_size(o);
	return at;
}

/*
 * One in so many, at random, for a strict rhythm could fall in step with the repair and spoil the
 * same part for ever. The multiplier and increment of Numerical Recipes; the upper bits are the
 * random ones.
 */
static bool comes_up(struct side *side, int64_t every)
{
	if (!every)
		return false;
	side->random = side->random * 1664525 + 1013904223;
	return !((side->random >> 8) % every);
}

/* sendmsg() and recvmsg() would cost a one-part datagram some 100 ns more than these. */
static ssize_t send_parts(int fd, struct iovec *parts, int count)
{
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = count };

	if (count == 1)
		return send(fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL);
	return sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* What is longer than the parts counts as nothing. */
static ssize_t receive_parts(int fd, struct iovec *parts, int count)
{
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = count };
	ssize_t size;

	if (count == 1) {
		size = recv(fd, parts->iov_base, parts->iov_len, MSG_TRUNC);
		return size > (ssize_t)parts->iov_len ? 0 : size;
	}
	size = recvmsg(fd, &message, 0);
	return size >= 0 && message.msg_flags & MSG_TRUNC ? 0 : size;
}

static int send_vector(struct side *side, struct iovec *parts, int count)
{
	uint64_t since = 0;
	uint32_t turns = 0;

	for (;;) {
		if (send_parts(side->out, parts, count) >= 0 || errno == ENOBUFS)
			return 0;
		if (errno == EAGAIN) {
			if (side->options->wait == BLOCK || gives_up(side, &turns, &since))
				return say_silent(side, "room to send");
		} else if (errno == ECONNREFUSED) {
			return say_gone(side);
		} else if (errno != EINTR) {
			return klat_error(side->run, errno, "the %s cannot send a datagram: %s",
					  side->name, strerror(errno));
		}
	}
}

static int transmit(struct side *side, const struct fragment *header)
{
	const struct options *o = side->options;
	struct iovec parts[2] = { { (void *)header, sizeof(*header) } };
	size_t at, length;

	if (header->kind != DATA && header->kind != REPAIR)
		return send_vector(side, parts, 1);
	if (whole(o)) {
		memcpy(side->outgoing, header, sizeof(*header));
		parts[0] = (struct iovec){ side->outgoing, o->bytes };
		return send_vector(side, parts, 1);
	}
	at = part_at(o, header->index, &length);
	parts[1] = (struct iovec){ side->outgoing + at, length };
	return send_vector(side, parts, 2);
}

/*
 * What networks do to a datagram: lose it, have the next one overtake it, deliver it twice. Where
 * that next one is of another message, the bytes of the one held back are no longer there; but
 * neither does anybody await it then.
 */
static int transmit_spoiled(struct side *side, const struct fragment *header)
{
	const struct options *o = side->options;
	int err;

	if (comes_up(side, o->drop_every)) {
		side->tally.dropped++;
		side->tally.dropped_parts += header->kind == DATA;
		return 0;
	}
	if (!side->holds && comes_up(side, o->reorder_every)) {
		side->tally.reordered++;
		side->held = *header;
		side->holds = true;
		return 0;
	}
	err = transmit(side, header);
	if (!err && comes_up(side, o->duplicate_every)) {
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
	const struct options *o = side->options;
	const struct fragment header = { word, kind, index };

	if (__builtin_expect(o->drop_every | o->reorder_every | o->duplicate_every, 0))
		return transmit_spoiled(side, &header);
	return transmit(side, &header);
}

int fragment_send_all(struct side *side, uint64_t word)
{
	const uint32_t count = fragment_count(side->options);
	int err = 0;

	for (uint32_t i = 0; i < count && !err; i++)
		err = fragment_send(side, word, DATA, i);
	return err;
}

void fragments_begin(struct side *side, uint64_t word)
{
	side->gathered_word = word;
	side->gathered = side->next_part = side->expected_part = 0;
	memset(side->seen, 0, (fragment_count(side->options) + 7) / 8);
}

static bool is_seen(const struct side *side, uint32_t index)
{
	return side->seen[index / 8] >> index % 8 & 1;
}

uint32_t fragment_missing(const struct side *side, uint32_t index)
{
	const uint32_t count = fragment_count(side->options);

	while (index < count && is_seen(side, index))
		index++;
	return index;
}

uint32_t fragment_present(const struct side *side, uint32_t index)
{
	const uint32_t count = fragment_count(side->options);

	while (index < count && !is_seen(side, index))
		index++;
	return index;
}

bool fragments_complete(const struct side *side)
{
	return side->gathered == fragment_count(side->options);
}

/* Into the place of the first part that is missing, which is where it belongs if none is lost. */
ssize_t fragment_receive(struct side *side, struct fragment *header)
{
	const struct options *o = side->options;
	struct iovec parts[2] = { { header, sizeof(*header) },
				  { side->incoming + side->next_part * part_size(o),
				    part_size(o) } };
	int count = 2;
	ssize_t size;

	side->landed = side->next_part;
	if (whole(o)) {
		parts[0] = (struct iovec){ side->incoming, o->bytes };
		count = 1;
	}
	do
		size = receive_parts(side->in, parts, count);
	while (size < 0 && errno == EINTR);
	if (size < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (size < 0 && errno == ECONNREFUSED)
		return say_gone(side);
	if (size < 0)
		return klat_error(side->run, errno, "the %s cannot receive a datagram: %s",
				  side->name, strerror(errno));
	if (size < (ssize_t)sizeof(*header))
		return 0;
	if (whole(o))
		memcpy(header, side->incoming, sizeof(*header));
	return size;
}

bool fragment_take(struct side *side, const struct fragment *header, size_t size)
{
	const struct options *o = side->options;
	size_t at = 0, length = o->bytes - sizeof(*header);

	if (header->word != side->gathered_word) {
		side->tally.outdated++;
		return false;
	}
	if (header->index >= fragment_count(o))
		return false;
	if (is_seen(side, header->index)) {
		side->tally.repeated++;
		return false;
	}
	if (!whole(o))
		at = part_at(o, header->index, &length);
	if (size != length + sizeof(*header))
		return false;
	if (header->index != side->landed)
		memcpy(side->incoming + at, side->incoming + side->landed * part_size(o), length);
	side->seen[header->index / 8] |= 1 << header->index % 8;
	side->gathered++;
	side->next_part = fragment_missing(side, side->next_part);
	side->tally.repaired += header->kind == REPAIR;
	return true;
}

static struct timeval time_of(int64_t ms)
{
	return (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
}

int fragment_set_waits(struct klat_run *run, int fd, int64_t ms)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const struct timeval receive = time_of(ms),
			     send = time_of(state->sides[INITIATOR].limit_ms);

	if (o->wait == SPIN)
		return fcntl(fd, F_SETFL, O_NONBLOCK)
			       ? klat_error(run, errno, "cannot keep a socket from blocking: %s",
					    strerror(errno))
			       : 0;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &receive, sizeof(receive)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof(send)))
		return klat_error(run, errno, "cannot limit a wait: %s", strerror(errno));
	return 0;
}

bool has_left(const struct side *side)
{
	const struct state *state = side->run->state;

	return remote_left(state) ||
	       (side->index == RESPONDER && __atomic_load_n(&state->finished, __ATOMIC_ACQUIRE));
}

void give_way(struct side *side)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	if (side->options->wait == BLOCK)
		return;
	clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
	side->worker->rests++;
}
