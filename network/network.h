/* SPDX-License-Identifier: MIT */
/* network.c has the options, the device and the evidence; threads.c has the event. */
#ifndef KLAT_NETWORK_H
#define KLAT_NETWORK_H

#include "klat.h"
#include "net/net.h"

enum {
	WAKEUP,
	SEND_TO_READ
};

struct options {
	bool remote;
	int64_t low_priority, port, wait_for;
	const char *address, *device;
};

struct state {
	struct klat_net_device device;
	int tun_fd, socket_fd;

	/* Written by L. */
	uint64_t last KLAT_ALIGNED; /* stamp of L's last turn */
	int64_t preempted;
	uint32_t announced KLAT_ALIGNED; /* generation for which L spins; 0 while L rests */

	/* Written by H. */
	uint32_t done KLAT_ALIGNED; /* generation whose packet is read */
	bool spun;                  /* L was spinning when the packet came */
	uint32_t stream, next;      /* the sender's numbering, and the next number in it */
	int64_t strays, unspun;

	int64_t overtaken;         /* packets that H read before the client's send() returned */
	int64_t lost KLAT_ALIGNED; /* counted by the client; with --remote by H, from gaps in the
				      numbering */
};

/* The bodies of H, of L and of the client of the private network. */
int read_packets(struct klat_worker *worker);
int spin_for_packets(struct klat_worker *worker);
int send_packets(struct klat_worker *worker);

#endif
