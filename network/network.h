/* SPDX-License-Identifier: MIT */
/* network.c has the options, the device and the evidence; threads.c has the event. */
#ifndef KLAT_NETWORK_H
#define KLAT_NETWORK_H

#include "klat.h"
#include "net/net.h"

enum { INTERRUPT_TO_READ, TIMER_TO_READ, SEND_TO_READ };

extern struct options {
	bool remote;
	int64_t low_priority, port, wait_for;
	const char *address, *device;
} options;

/* The counts of each thread have a cache line of their own, so that counting does not delay another
 * thread. */
struct counts {
	int64_t preempted KLAT_ALIGNED;      /* by L: packets that preempted it */
	int64_t strays KLAT_ALIGNED, unspun; /* by H */
	int64_t overtaken
		KLAT_ALIGNED; /* by the client: packets that H read before send() returned */
	int64_t lost;         /* by the client; with --remote by H, from gaps in the
				 numbering */
};

struct state {
	struct klat_net_device device;
	int tun_fd, socket_fd;
	struct counts counts;

	/* Written by L. */
	uint64_t last KLAT_ALIGNED;      /* stamp of L's last turn */
	uint32_t announced KLAT_ALIGNED; /* generation for which L spins; 0 while L rests */

	/* Written by H. */
	uint32_t done KLAT_ALIGNED; /* generation whose packet is read */
	bool spun;                  /* L was spinning when the packet came */
	uint32_t stream, next;      /* the sender's numbering, and the next number in it */
};

/* The metric that begins at L's last stamp. On one CPU it includes the client's timer and send().
 */
static inline int metric_of_spinner(const struct klat_run *run)
{
	return run->one_cpu && !options.remote ? TIMER_TO_READ : INTERRUPT_TO_READ;
}

/* The bodies of H, of L and of the client of the private network. */
int read_packets(struct klat_worker *worker);
int spin_for_packets(struct klat_worker *worker);
int send_packets(struct klat_worker *worker);

#endif
