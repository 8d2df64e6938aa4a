/* SPDX-License-Identifier: MIT */
/*
 * Over UDP as it is: what the network or a full buffer loses, it loses. A message of which a part
 * is missing does not arrive; the initiator sends it again after loss_ms() of silence, counts
 * it as lost, and times it from there: how long a program waits before it tries again is its own
 * affair and no latency of the network.
 */
#include "fragments.h"
#include "inet.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MAX_ATTEMPTS 50
#define SILENCE_MS 10000

enum {
	DATA
};

/* Enough for a message there and one back at 20 MB/s. */
static int64_t loss_ms(const struct options *o)
{
	return 20 + o->bytes / 10000;
}

static int send_udp(struct side *side, uint64_t word)
{
	side->sent_word = word;
	side->bytes_sent += side->options->bytes;
	return fragment_send_all(side, word, DATA);
}

static int send_again(struct side *side, struct message *message)
{
	const struct options *o = side->options;

	if (side->sent_word / WORD_AGAIN % 128 + 1 == MAX_ATTEMPTS)
		return klat_error(side->run, ETIMEDOUT,
				  "%d messages of %lld bytes in a row were lost: is the other side "
				  "there, and net.core.rmem_max large enough?",
				  MAX_ATTEMPTS, (long long)o->bytes);
	side->lost++;
	side->sent_word += WORD_AGAIN;
	fragments_begin(side, side->sent_word);
	message->resent = klat_tsc_begin();
	return fragment_send_all(side, side->sent_word, DATA);
}

/* Of the responder, to the message before: its answer was lost. The last part stands for all. */
static int answer_again(struct side *side, const struct fragment *header)
{
	if ((header->word & WORD_NUMBER) != side->awaited - 1 ||
	    header->index != fragment_count(side->options) - 1)
		return 0;
	return fragment_send_all(side, header->word, DATA);
}

static bool has_left(const struct side *side)
{
	const struct state *state = side->run->state;

	return side->index == RESPONDER &&
	       (__atomic_load_n(&state->finished, __ATOMIC_ACQUIRE) || remote_left(state));
}

static int on_silence(struct side *side, struct message *message, int silences)
{
	if (has_left(side))
		return side->lingers ? -ECANCELED : say_gone(side);
	if (side->index == INITIATOR)
		return send_again(side, message);
	return silences * loss_ms(side->options) > SILENCE_MS ? say_silent(side, "datagram") : 0;
}

static int receive_udp(struct side *side, struct message *message)
{
	const bool responds = side->index == RESPONDER;
	const uint64_t limit = side->run->tsc_khz * loss_ms(side->options);
	uint64_t since = 0;
	uint32_t turns = 0;
	int err = 0, silences = 0;

	fragments_begin(side, responds ? 0 : side->sent_word);
	message->resent = 0;
	while (!fragments_complete(side) && !err) {
		struct fragment header;
		ssize_t size = fragment_receive(side, &header);

		if (size == -EAGAIN) {
			if (side->options->wait == SPIN && !is_over(limit, &turns, &since))
				continue;
			give_way(side);
			err = on_silence(side, message, ++silences);
			since = 0;
			continue;
		}
		if (size <= 0) {
			err = size;
			continue;
		}
		since = 0;
		if (responds && (header.word & WORD_NUMBER) != side->awaited) {
			err = answer_again(side, &header);
			continue;
		}
		if (responds && header.word != side->gathered_word)
			fragments_begin(side, header.word);
		fragment_take(side, &header, size);
	}
	message->word = side->gathered_word;
	message->data = side->incoming;
	side->bytes_received += err ? 0 : side->options->bytes;
	return err;
}

static int prepare(struct klat_run *run, struct side *side, int fd)
{
	const struct options *o = run->options;
	const struct timeval limit = { .tv_sec = loss_ms(o) / 1000,
				       .tv_usec = loss_ms(o) % 1000 * 1000 };

	side->in = side->out = fd;
	inet_make_room(run, fd);
	if (o->wait == SPIN)
		return fcntl(fd, F_SETFL, O_NONBLOCK)
			       ? klat_error(run, errno, "cannot keep a socket from blocking: %s",
					    strerror(errno))
			       : 0;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
		return klat_error(run, errno, "cannot limit a wait: %s", strerror(errno));
	return 0;
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
		if (!err)
			err = prepare(run, &state->sides[i], fds[i]);
	}
	return err;
}

static int make_remote(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	const int self = o->listen ? RESPONDER : INITIATOR;
	struct sockaddr_in own,
		other = { .sin_family = AF_INET, .sin_addr = state->addresses[!self] };
	int fd = inet_socket(run, self, SOCK_DGRAM, state->addresses[self]), err;

	err = fd < 0 ? fd : inet_name(run, fd, &own);
	if (!err)
		err = remote_exchange(run, own.sin_port, &other.sin_port);
	if (!err)
		err = inet_connect(run, fd, &other);
	return err ? err : prepare(run, &state->sides[self], fd);
}

static int open_udp(struct klat_run *run)
{
	const struct options *o = run->options;

	return inet_make(run, o->peer == REMOTE ? make_remote : make_udp);
}

const struct transport udp = { .name = "udp",
			       .copies = true,
			       .datagrams = true,
			       .internet = true,
			       .open = open_udp,
			       .send = send_udp,
			       .receive = receive_udp };
