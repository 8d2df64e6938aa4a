/* SPDX-License-Identifier: MIT */
#include "inet.h"

#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static int make_in_namespaces(struct klat_run *run)
{
	struct state *state = run->state;
	struct klat_net_device devices[2] = { { .name = "klat0" }, { .name = "klat1" } };
	int err;

	for (int i = 0; i < 2; i++) {
		klat_net_parse(i == INITIATOR ? "10.168.78.1/24" : "10.168.78.2/24", &devices[i]);
		state->addresses[i] = devices[i].address;
	}
	err = klat_net_make_veth(run, devices, state->namespaces);
	err = err ?: state->make_sockets(run);
	for (int i = 0; i < 2; i++)
		if (state->namespaces[i] >= 0)
			close(state->namespaces[i]);
	return err;
}

int inet_make(struct klat_run *run, int (*make)(struct klat_run *run))
{
	struct state *state = run->state;

	if (options.peer == NETNS) {
		state->make_sockets = make;
		return klat_net_in_child(run, make_in_namespaces);
	}
	for (int i = 0; i < 2 && options.peer != REMOTE; i++)
		state->addresses[i].s_addr = htonl(INADDR_LOOPBACK);
	return make(run);
}

int inet_socket(struct klat_run *run, int side, int type, struct in_addr address)
{
	const struct state *state = run->state;
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = address };
	int fd;

	if (options.peer == NETNS) {
		int err = klat_net_enter(run, state->namespaces[side]);

		if (err)
			return err;
	}
	fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return klat_error(run, errno, "cannot make a socket: %m");
	if (bind(fd, (struct sockaddr *)&own, sizeof(own)))
		return klat_error(run, errno, "cannot bind a socket to %s: %m",
				  inet_ntoa(own.sin_addr));
	return fd;
}

int inet_name(struct klat_run *run, int fd, struct sockaddr_in *name)
{
	socklen_t size = sizeof(*name);

	if (getsockname(fd, (struct sockaddr *)name, &size))
		return klat_error(run, errno, "cannot read a socket's address: %m");
	return 0;
}

int inet_connect(struct klat_run *run, int fd, const struct sockaddr_in *to)
{
	if (!connect(fd, (const struct sockaddr *)to, sizeof(*to)))
		return 0;
	if (errno == ENETUNREACH)
		return klat_skip(run, "no network interface that is up leads to %s",
				 inet_ntoa(to->sin_addr));
	return klat_error(run, errno, "cannot connect to %s: %m", inet_ntoa(to->sin_addr));
}

int inet_set_wait(struct klat_run *run, int fd)
{
	if (options.wait == SPIN && fcntl(fd, F_SETFL, O_NONBLOCK))
		return klat_error(run, errno, "cannot keep a descriptor from blocking: %m");
	return 0;
}

int inet_no_delay(struct klat_run *run, int fd)
{
	const int yes = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)))
		return klat_error(run, errno, "cannot set TCP_NODELAY: %m");
	return 0;
}

void inet_make_room(int fd)
{
	/* The kernel doubles the size, and charges some 2 KiB for a datagram of 1,400 bytes. */
	const int size = 2 * options.bytes + (256 << 10);

	/* The first needs a privilege; net.core.rmem_max limits the second. */
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}
