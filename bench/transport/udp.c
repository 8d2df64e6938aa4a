/* SPDX-License-Identifier: MIT */
/*
 * Plain UDP: the network or a full buffer may drop datagrams. A message with a missing part does
 * not arrive. The initiator sends it again after loss_ms() of silence and counts it as lost. Its
 * sample begins when the message was first sent. Otherwise a sample would hide every stall longer
 * than loss_ms(). So a lost message shows as a sample of at least loss_ms().
 *
 * On a slow network, loss_ms() may be shorter than a round trip, and every attempt would be given
 * up too early. An answer to such an attempt shows this (as in the Eifel detection, RFC 3522). The
 * limit of this message and the next ones is then the time of that answer, and later three times
 * the time of the last answer, which is the initial value of RFC 6298.
 *
 * Each repetition is a separate attempt with its number in the word. A message has arrived when all
 * parts of one attempt have. Parts of two attempts do not make a message: it would be complete
 * before the later attempt was sent, and look too fast. So late parts of an earlier attempt are
 * ignored.
 */
#include "fragments.h"
#include "inet.h"

#include <errno.h>

/* Enough for a message in each direction at 20 MB/s. */
static int64_t loss_ms(void)
{
	return 20 + options.bytes / 10000;
}

static uint64_t least_limit(const struct side *side)
{
	return side->run->counter_khz * loss_ms();
}

/* At most a third of the limit, so that a message is sent more than once. */
static void allow(struct side *side, uint64_t ticks)
{
	const uint64_t most = side->limit / 3;

	side->loss_limit = ticks < most ? ticks : most;
	if (side->loss_limit < least_limit(side))
		side->loss_limit = least_limit(side);
}

static int send_udp(struct side *side, uint64_t word)
{
	side->sent_word = word;
	side->tally.bytes_sent += options.bytes;
	return fragments_send(side, word);
}

static int send_again(struct side *side)
{
	side->tally.lost++;
	side->sent_word += WORD_AGAIN;
	fragments_begin(side, side->sent_word);
	side->resent = klat_ticks();
	return fragment_send_all(side, side->sent_word);
}

/* The responder receives the previous message again: its answer was lost. The last part of the
 * message triggers the repetition. */
static int answer_again(struct side *side, const struct fragment *header)
{
	side->tally.outdated++;
	if ((header->word ^ side->sent_word) & WORD_NUMBER || header->index != side->parts - 1)
		return 0;
	return fragment_send_all(side, header->word);
}

static int on_silence(struct side *side, struct patience *patience)
{
	const bool is_over = silent_for_ms(side, patience) >= side->limit_ms;

	if (has_left(side))
		return side->lingers ? -ECANCELED : say_gone(side);
	if (side->index == RESPONDER)
		return is_over ? say_silent(side, "datagram") : 0;
	if (!is_over || !side->resent)
		return send_again(side);
	return klat_error(side->run, ETIMEDOUT,
			  "a message of %lld bytes was not answered for %lld s: is the other "
			  "side running, and is net.core.rmem_max large enough?",
			  (long long)options.bytes, (long long)side->limit_ms / 1000);
}

/* The initiator has received an answer to an earlier attempt. patience->quiet is at most one beat
 * after the message was sent. */
static void note_late_answer(struct side *side, const struct fragment *header,
			     struct patience *patience)
{
	if (header->word == side->sent_word ||
	    (header->word & WORD_NUMBER) != (side->sent_word & WORD_NUMBER))
		return;
	allow(side, klat_ticks() - patience->quiet + least_limit(side));
	patience->limit = side->loss_limit;
}

static int on_datagram(struct side *side, const struct fragment *header, ssize_t size,
		       struct patience *patience)
{
	if (side->index == INITIATOR)
		note_late_answer(side, header, patience);
	if (side->index == RESPONDER && (header->word & WORD_NUMBER) != side->awaited)
		return answer_again(side, header);
	/* A later attempt has the larger word. */
	if (side->index == RESPONDER && header->word > side->gathered_word)
		fragments_begin(side, header->word);
	fragment_take(side, header, size);
	return 0;
}

static int receive_udp(struct side *side, struct message *message)
{
	/* No stamp until an answer was late: it would add to the sample. */
	const uint64_t began = side->loss_limit ? klat_ticks() : 0;
	struct patience patience = { .limit = began ? side->loss_limit : least_limit(side) };
	int err = 0;

	fragments_begin(side, side->index == RESPONDER ? 0 : side->sent_word);
	side->resent = 0;
	while (!fragments_complete(side) && !err) {
		struct fragment header;
		ssize_t size = fragment_receive(side, &header);

		if (size == -EAGAIN) {
			err = falls_silent(side, &patience) ? on_silence(side, &patience) : 0;
		} else if (size <= 0) {
			err = size;
		} else {
			patience.since = 0;
			err = on_datagram(side, &header, size, &patience);
		}
	}
	if (began)
		allow(side, 3 * (klat_ticks() - (side->resent ? side->resent : began)));
	message->word = side->gathered_word;
	message->data = side->incoming;
	side->tally.bytes_received += err ? 0 : options.bytes;
	return err;
}

static int prepare(struct klat_run *run, struct side *side, int fd)
{
	side->in = side->out = fd;
	inet_make_room(fd);
	return inet_set_wait(run, fd);
}

static int make_udp(struct klat_run *run)
{
	struct state *state = run->state;
	struct sockaddr_in names[2];
	int fds[2], err = 0;

	for (int i = 0; i < 2 && !err; i++) {
		fds[i] = inet_socket(run, i, SOCK_DGRAM, state->addresses[i]);
		err = fds[i] < 0 ? fds[i] : inet_name(run, fds[i], &names[i]);
	}
	for (int i = 0; i < 2 && !err; i++) {
		err = inet_connect(run, fds[i], &names[!i]);
		err = err ?: prepare(run, &state->sides[i], fds[i]);
	}
	return err;
}

static int make_remote(struct klat_run *run)
{
	struct state *state = run->state;
	const int self = options.listen ? RESPONDER : INITIATOR;
	struct sockaddr_in own,
		other = { .sin_family = AF_INET, .sin_addr = state->addresses[!self] };
	int fd = inet_socket(run, self, SOCK_DGRAM, state->addresses[self]), err;

	err = fd < 0 ? fd : inet_name(run, fd, &own);
	err = err ?: remote_exchange(run, own.sin_port, &other.sin_port);
	err = err ?: inet_connect(run, fd, &other);
	return err ? err : prepare(run, &state->sides[self], fd);
}

static int open_udp(struct klat_run *run)
{
	return inet_make(run, options.peer == REMOTE ? make_remote : make_udp);
}

const struct transport udp = { .copies = true,
			       .datagrams = true,
			       .internet = true,
			       .beat_ms = loss_ms,
			       .open = open_udp,
			       .send = send_udp,
			       .receive = receive_udp };
