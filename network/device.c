/* SPDX-License-Identifier: MIT */
/* The tun device, in a private network namespace, or with --remote in the machine's own. */
#include "network.h"

#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * The peer is the first address of the subnet that is not the device's own. The kernel routes a
 * packet to it to the device.
 */
static int parse_address(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	uint32_t address, mask;
	char dotted[INET_ADDRSTRLEN], digits[3], rest;
	int bits;

	if (sscanf(o->address, "%15[0-9.]/%2[0-9]%c", dotted, digits, &rest) != 2 ||
	    inet_pton(AF_INET, dotted, &state->address) != 1)
		return klat_usage(run,
				  "--address takes an IPv4 address with a prefix, for example %s, "
				  "not '%s'",
				  DEFAULT_ADDRESS, o->address);
	bits = atoi(digits);
	if (bits < 8 || bits > 30)
		return klat_usage(run, "--address %s: the prefix is out of range: 8 to 30",
				  o->address);
	address = ntohl(state->address.s_addr);
	mask = ~UINT32_C(0) << (32 - bits);
	if (address >> 24 == 0 || address >> 24 == 127 || address >> 24 >= 224 ||
	    !(address & ~mask) || (address | mask) == ~UINT32_C(0))
		return klat_usage(run, "--address %s is not the address of a host in its subnet",
				  o->address);
	state->netmask.s_addr = htonl(mask);
	state->peer.s_addr =
		htonl((address & mask) + 1 == address ? address + 1 : (address & mask) + 1);
	return 0;
}

int device_configure(struct klat_run *run)
{
	const struct options *o = run->options;

	/* '%' would ask the kernel to choose a number. */
	if (!o->device[0] || strlen(o->device) >= IFNAMSIZ || strpbrk(o->device, "/%: \t\n") ||
	    o->device[0] == '.')
		return klat_usage(run, "--device takes a name of at most %d characters, not '%s'",
				  IFNAMSIZ - 1, o->device);
	return parse_address(run);
}

/* In the caller's network namespace. */
static int open_here(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	const struct klat_net_device device = { o->device, state->address, state->netmask };
	const struct sockaddr_in peer = { .sin_family = AF_INET,
					  .sin_port = htons(o->port),
					  .sin_addr = state->peer };
	int err;

	state->tun_fd = klat_net_open_tun(run, o->device, !o->remote);
	if (state->tun_fd < 0)
		return state->tun_fd;
	err = klat_net_bring_up(run, &device);
	if (err || o->remote)
		return err;
	state->socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (state->socket_fd < 0)
		return klat_error(run, errno, "cannot make a UDP socket: %m");
	if (connect(state->socket_fd, (const struct sockaddr *)&peer, sizeof(peer)))
		return klat_error(run, errno, "no route to the device %s: %m", o->device);
	return 0;
}

static int open_private(struct klat_run *run)
{
	int err = klat_enter_namespace(run, CLONE_NEWNET, "a network namespace");

	return err ? err : open_here(run);
}

/* Another interface with addresses of the device's subnet would lose packets to the device. */
static int check_overlap(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	struct ifaddrs *interfaces;
	int err = 0;

	if (getifaddrs(&interfaces))
		return klat_error(run, errno, "cannot list the network interfaces: %m");
	for (const struct ifaddrs *at = interfaces; at && !err; at = at->ifa_next) {
		struct sockaddr_in address, netmask;
		uint32_t common;

		if (!at->ifa_addr || !at->ifa_netmask || at->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&address, at->ifa_addr, sizeof(address));
		memcpy(&netmask, at->ifa_netmask, sizeof(netmask));
		common = netmask.sin_addr.s_addr & state->netmask.s_addr;
		if ((address.sin_addr.s_addr & common) == (state->address.s_addr & common))
			err = klat_error(run, EADDRINUSE,
					 "%s overlaps with the addresses of %s: choose another "
					 "subnet with --address",
					 o->address, at->ifa_name);
	}
	freeifaddrs(interfaces);
	return err;
}

/* On a terminal, say what to type on the other machine. */
static void announce_wait(const struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	char peer[INET_ADDRSTRLEN];

	if (!isatty(STDERR_FILENO))
		return;
	inet_ntop(AF_INET, &state->peer, peer, sizeof(peer));
	fprintf(stderr,
		"network: waiting on %s for up to %lld s; on the other machine: network/client "
		"--to %s --port %lld\n",
		o->device, (long long)o->wait_for, peer, (long long)o->port);
}

int device_open(struct klat_run *run)
{
	const struct options *o = run->options;
	int err;

	if (!o->remote)
		return klat_net_in_child(run, open_private);
	err = check_overlap(run);
	if (!err)
		err = open_here(run);
	if (!err)
		announce_wait(run);
	return err;
}
