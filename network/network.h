/* SPDX-License-Identifier: MIT */
/*
 * The parts of network: the reader (H) and the spinner (L) on one CPU, and the sender of the
 * private network (role "client"). network/client is a program of its own, for another machine.
 */
#ifndef KLAT_NETWORK_H
#define KLAT_NETWORK_H

#include "klat.h"

#include "datagram.h"

#include <netinet/in.h>

#define DEFAULT_ADDRESS "10.168.77.1/24"
#define DEFAULT_DEVICE "klat0"

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
	int tun_fd, socket_fd;
	struct in_addr address, netmask, peer;

	/* Written by L. The client sends when `announced` is its generation. */
	uint64_t last KLAT_ALIGNED; /* stamp of L's last turn */
	bool resting;
	int64_t preempted;
	uint32_t announced KLAT_ALIGNED; /* generation for which L spins */

	/* Written by H. */
	uint32_t done KLAT_ALIGNED; /* generation whose packet is read */
	uint64_t end;               /* stamp of that read */
	bool spun;                  /* L was spinning when the packet came */
	uint64_t seen;              /* L's last stamp when H last returned from read() */
	uint32_t stream, next;      /* the sender's numbering, and the next number in it */
	int64_t strays, unspun;

	int64_t overtaken;         /* packets that H read before the client's send() returned */
	int64_t lost KLAT_ALIGNED; /* counted by the client; with --remote by H, from gaps in the
				      numbering */
};

/* Warm-up iterations are negative; generations begin at 1. */
static inline uint32_t generation_of(const struct klat_run *run, int64_t i)
{
	return i + run->warmup + 1;
}

/* device.c */
int device_configure(struct klat_run *run);
/* Open the tun device and the socket of the sender. */
int device_open(struct klat_run *run);

/* reader.c, spinner.c, sender.c: bodies of the workers */
int read_packets(struct klat_worker *worker);
int spin_for_packets(struct klat_worker *worker);
int send_packets(struct klat_worker *worker);

#endif
