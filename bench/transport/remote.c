/* SPDX-License-Identifier: MIT */
/*
 * --listen and --connect: one side of the run on each of two machines. Over a TCP connection, each
 * sends one line with the settings that must be equal on both. A difference ends both runs. tcp
 * then uses that connection. The other transports exchange ports by it, and its end means that the
 * other side has left. A side gives up on a silent machine after --wait-for.
 */
#include "inet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define GREETING_BYTES 256
#define RETRY_MS 100
#define TRY_MS 1500

static int fail(struct klat_run *run, const char *what)
{
	const struct state *state = run->state;
	const int err = errno;

	return klat_error(run, err, "%s %s: %s", what, state->other,
			  err == EAGAIN ? "it does not answer" : strerror(err));
}

/*
 * Sending gets half of the limit: a send() that the limit ends has sent a part, and another send()
 * follows.
 */
static int set_timeouts(struct klat_run *run, int fd)
{
	const struct timeval receive = { .tv_sec = options.wait_for },
			     send = { .tv_sec = options.wait_for / 2,
				      .tv_usec = options.wait_for % 2 * 500000 };

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &receive, sizeof(receive)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof(send)))
		return fail(run, "cannot limit the wait for");
	return 0;
}

static int wait_for_other(struct klat_run *run)
{
	struct state *state = run->state;
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(options.listen) },
			   other;
	socklen_t size = sizeof(other);
	struct pollfd ready = { .events = POLLIN };
	const int yes = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return klat_error(run, errno, "cannot make a socket: %m");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, (struct sockaddr *)&own, sizeof(own)) || listen(fd, 1))
		return klat_error(run, errno, "cannot listen on port %lld: %m%s",
				  (long long)options.listen,
				  errno == EADDRINUSE ? "; choose another with --listen" : "");
	if (isatty(STDERR_FILENO))
		fprintf(stderr,
			"transport: waiting on port %lld for up to %lld s; on the other machine, "
			"with the same options: transport --connect ADDRESS:%lld\n",
			(long long)options.listen, (long long)options.wait_for,
			(long long)options.listen);
	ready.fd = fd;
	if (poll(&ready, 1, options.wait_for * 1000) <= 0) {
		close(fd);
		return klat_error(run, ETIMEDOUT, "no connection to port %lld in %lld s",
				  (long long)options.listen, (long long)options.wait_for);
	}
	state->control = accept4(fd, (struct sockaddr *)&other, &size, SOCK_CLOEXEC);
	close(fd);
	if (state->control < 0)
		return klat_error(run, errno, "cannot accept a connection: %m");
	snprintf(state->other, sizeof(state->other), "%s", inet_ntoa(other.sin_addr));
	return 0;
}

/* Not blocking: a machine that is off does not refuse. */
static int try_to_connect(struct state *state, int limit_ms)
{
	struct pollfd ready = { .events = POLLOUT };
	socklen_t size = sizeof(int);
	int err = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	ready.fd = fd;
	if (connect(fd, (struct sockaddr *)&state->listener, sizeof(state->listener)))
		err = errno;
	if (err == EINPROGRESS) {
		err = ETIMEDOUT;
		if (poll(&ready, 1, limit_ms) > 0)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
	}
	if (!err && fcntl(fd, F_SETFL, 0))
		err = errno;
	if (err)
		close(fd);
	else
		state->control = fd;
	return -err;
}

/* The listener may start a moment later. TCP repeats a lost first packet only after a second. */
static int go_to_other(struct klat_run *run)
{
	const int64_t deadline = klat_now_ns() + options.wait_for * KLAT_NS_PER_S;
	struct state *state = run->state;
	int err = 0;

	snprintf(state->other, sizeof(state->other), "%s", options.connect);
	for (int64_t left; (left = (deadline - klat_now_ns()) / 1000000) > 0;) {
		err = try_to_connect(state, left < TRY_MS ? left : TRY_MS);
		if (!err)
			return 0;
		klat_nap(RETRY_MS * 1000000);
	}
	return klat_error(run, -err, "no answer from transport --listen at %s in %lld s: %m",
			  options.connect, (long long)options.wait_for);
}

static int exchange(struct klat_run *run, const void *own, void *other, size_t size)
{
	const struct state *state = run->state;
	ssize_t got;

	if (send(state->control, own, size, MSG_NOSIGNAL) != (ssize_t)size)
		return fail(run, "cannot send to");
	got = TEMP_FAILURE_RETRY(recv(state->control, other, size, MSG_WAITALL));
	if (got < 0)
		return fail(run, "cannot receive from");
	return got == (ssize_t)size
		       ? 0
		       : klat_error(run, EPIPE, "%s left before the run began", state->other);
}

static int agree(struct klat_run *run)
{
	struct state *state = run->state;
	char own[GREETING_BYTES] = { 0 }, other[GREETING_BYTES];
	int err;

	snprintf(own, sizeof(own),
		 "transport=%s;bytes=%lld;touch=%d;wait=%d;iterations=%lld;warmup=%lld;datagram=%"
		 "lld",
		 transport_names[options.transport], (long long)options.bytes, options.touch,
		 options.wait, (long long)run->iterations, (long long)run->warmup,
		 (long long)options.datagram);
	err = exchange(run, own, other, sizeof(own));
	if (err)
		return err;
	other[sizeof(other) - 1] = 0;
	return strcmp(own, other)
		       ? klat_error(run, EPROTO, "%s measures something else: %s, not %s",
				    state->other, other, own)
		       : 0;
}

int remote_exchange(struct klat_run *run, uint16_t own, uint16_t *other)
{
	return exchange(run, &own, other, sizeof(own));
}

int remote_meet(struct klat_run *run)
{
	struct state *state = run->state;
	const int self = options.listen ? RESPONDER : INITIATOR;
	struct sockaddr_in name;
	socklen_t size = sizeof(name);
	int err = options.listen ? wait_for_other(run) : go_to_other(run);

	err = err ?: set_timeouts(run, state->control);
	err = err ?: inet_no_delay(run, state->control);
	err = err ?: agree(run);
	err = err ?: inet_name(run, state->control, &name);
	if (err)
		return err;
	state->addresses[self] = name.sin_addr;
	if (getpeername(state->control, (struct sockaddr *)&name, &size))
		return fail(run, "cannot read the address of");
	state->addresses[!self] = name.sin_addr;
	return 0;
}

int remote_start(struct klat_run *run)
{
	const struct state *state = run->state;
	struct pollfd ready = { .fd = state->control, .events = POLLIN };
	char byte = 0;

	if (send(state->control, &byte, 1, MSG_NOSIGNAL) != 1)
		return fail(run, "cannot send to");
	if (poll(&ready, 1, options.wait_for * 1000) <= 0)
		return klat_error(run, ETIMEDOUT, "%s did not begin the run in %lld s",
				  state->other, (long long)options.wait_for);
	if (recv(state->control, &byte, 1, 0) != 1)
		return klat_error(run, EPIPE, "%s left before the run began", state->other);
	return 0;
}

bool remote_left(const struct state *state)
{
	ssize_t size;
	char byte;

	if (state->control < 0)
		return false;
	size = recv(state->control, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return !size || (size < 0 && errno != EAGAIN && errno != EINTR);
}
