/* SPDX-License-Identifier: MIT */
/*
 * A stream of bytes through the kernel: a pair of pipes, or a pair of connected sockets. Each read
 * or write may be partial, so both loop until the block is complete. Spinning sides use nonblocking
 * descriptors and poll with the call itself. Buffers have the system's default size.
 *
 * A spinner that finds nothing for a whole turn pauses. If packets come fast, the kernel leaves
 * their delivery to a thread without real-time priority, on the CPU that took the interrupt. A
 * spinner on that CPU keeps this thread from running.
 */
#include "inet.h"
#include "sync/sync.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(struct side *side, const char *what, size_t done)
{
	const int err = errno;

	return klat_error(side->run, err, "the %s cannot %s after %zu of %lld bytes: %m",
			  side->name, what, done, (long long)options.bytes);
}

static int say_closed(struct side *side, size_t done)
{
	if (!done)
		return say_gone(side);
	return klat_error(side->run, EPIPE,
			  "the other side of the %s closed after %zu of %lld bytes of a message",
			  side->name, done, (long long)options.bytes);
}

typedef ssize_t transfer(int fd, void *bytes, size_t size);

static inline __attribute__((always_inline)) int transfer_all(struct side *side, transfer *some,
							      int fd, char *block, int64_t *count,
							      const char *what)
{
	const size_t size = options.bytes;
	uint64_t since = 0, spun_since = 0;
	uint32_t turns = 0, spun_turns = 0;

	for (size_t done = 0; done < size;) {
		ssize_t part = some(fd, block + done, size - done);

		if (part > 0) {
			done += part;
			*count += part;
			since = spun_since = 0;
		} else if (!part || errno == EPIPE || errno == ECONNRESET) {
			return say_closed(side, done);
		} else if (errno == EAGAIN) {
			if (options.wait == BLOCK || gives_up(side, &turns, &since))
				return say_silent(side, "byte");
			if (is_over(side->turn, &spun_turns, &spun_since)) {
				side->tally.pauses++;
				klat_sleep(side->worker, KLAT_REST_NS);
				spun_since = 0;
			}
		} else if (errno != EINTR) {
			return fail(side, what, done);
		}
	}
	return 0;
}

static ssize_t write_pipe(int fd, void *bytes, size_t size)
{
	return write(fd, bytes, size);
}

static ssize_t write_socket(int fd, void *bytes, size_t size)
{
	return send(fd, bytes, size, MSG_NOSIGNAL);
}

static ssize_t read_socket(int fd, void *bytes, size_t size)
{
	return recv(fd, bytes, size, 0);
}

static int send_by_pipe(struct side *side, uint64_t word)
{
	put_word(side->outgoing, word);
	return transfer_all(side, write_pipe, side->out, side->outgoing, &side->tally.bytes_sent,
			    "write");
}

static int receive_by_pipe(struct side *side, struct message *message)
{
	int err = transfer_all(side, read, side->in, side->incoming, &side->tally.bytes_received,
			       "read");

	message->word = get_word(side->incoming);
	message->data = side->incoming;
	return err;
}

static int send_by_socket(struct side *side, uint64_t word)
{
	put_word(side->outgoing, word);
	return transfer_all(side, write_socket, side->out, side->outgoing, &side->tally.bytes_sent,
			    "send");
}

static int receive_by_socket(struct side *side, struct message *message)
{
	int err = transfer_all(side, read_socket, side->in, side->incoming,
			       &side->tally.bytes_received, "receive");

	message->word = get_word(side->incoming);
	message->data = side->incoming;
	return err;
}

static int set_waits(struct klat_run *run)
{
	const struct state *state = run->state;
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		if (state->sides[i].in >= 0)
			err = inet_set_wait(run, state->sides[i].in)
				      ?: inet_set_wait(run, state->sides[i].out);
	return err;
}

static int open_pipes(struct klat_run *run)
{
	struct state *state = run->state;
	struct sync_pipe pipes[2];

	if (sync_pipes(run, pipes, options.bytes, false))
		return -EIO;
	for (int i = 0; i < 2; i++) {
		state->sides[i].out = pipes[i].out;
		state->sides[!i].in = pipes[i].in;
	}
	return set_waits(run);
}

static int open_unix(struct klat_run *run)
{
	struct state *state = run->state;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return klat_error(run, errno, "cannot make a pair of Unix sockets: %m");
	for (int i = 0; i < 2; i++)
		state->sides[i].in = state->sides[i].out = ends[i];
	return set_waits(run);
}

/* Both ends are made here; the responder listens. */
static int make_tcp(struct klat_run *run)
{
	struct state *state = run->state;
	struct sockaddr_in name;
	int listener, ends[2], err;

	listener = inet_socket(run, RESPONDER, SOCK_STREAM, state->addresses[RESPONDER]);
	if (listener < 0)
		return listener;
	if (listen(listener, 1))
		return klat_error(run, errno, "cannot listen: %m");
	err = inet_name(run, listener, &name);
	if (err)
		return err;
	ends[INITIATOR] = inet_socket(run, INITIATOR, SOCK_STREAM, state->addresses[INITIATOR]);
	if (ends[INITIATOR] < 0)
		return ends[INITIATOR];
	err = inet_connect(run, ends[INITIATOR], &name);
	if (err)
		return err;
	ends[RESPONDER] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (ends[RESPONDER] < 0)
		return klat_error(run, errno, "cannot accept a connection: %m");
	close(listener);
	for (int i = 0; i < 2 && !err; i++) {
		state->sides[i].in = state->sides[i].out = ends[i];
		err = inet_no_delay(run, ends[i]);
	}
	return err;
}

static int open_tcp(struct klat_run *run)
{
	struct state *state = run->state;
	struct side *side = &state->sides[options.listen ? RESPONDER : INITIATOR];
	int err = 0;

	if (options.peer == REMOTE)
		side->in = side->out = state->control;
	else
		err = inet_make(run, make_tcp);
	return err ? err : set_waits(run);
}

const struct transport pipe_transport = {
	.copies = true, .open = open_pipes, .send = send_by_pipe, .receive = receive_by_pipe
};

const struct transport unix_transport = {
	.copies = true, .open = open_unix, .send = send_by_socket, .receive = receive_by_socket
};

const struct transport tcp = { .copies = true,
			       .internet = true,
			       .open = open_tcp,
			       .send = send_by_socket,
			       .receive = receive_by_socket };
