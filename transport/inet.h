/* SPDX-License-Identifier: MIT */
/* Internet sockets of both sides: over loopback, between private namespaces, between machines. */
#ifndef KLAT_TRANSPORT_INET_H
#define KLAT_TRANSPORT_INET_H

#include "transport.h"

#include <netinet/in.h>

/*
 * Call `make` where the sockets are to be made: here, or in a process that has two network
 * namespaces of its own, joined by a pair of virtual interfaces, and shares our descriptors. The
 * namespaces live as long as their sockets.
 */
int inet_make(struct klat_run *run, int (*make)(struct klat_run *run));

/* A socket of one side, bound to an address and a port of the kernel's choice, or -errno. */
int inet_socket(struct klat_run *run, int side, int type, struct in_addr address);
/* The address and port that a socket is bound to. */
int inet_name(struct klat_run *run, int fd, struct sockaddr_in *name);
int inet_connect(struct klat_run *run, int fd, const struct sockaddr_in *to);
/* Send at once, whatever the size. */
int inet_no_delay(struct klat_run *run, int fd);
/* So large that a whole message fits into the receiver's buffer, as far as one may. */
void inet_make_room(const struct klat_run *run, int fd);

/* veth.c: two namespaces, into which descriptors are put, or -errno. Leaves the caller in one. */
int veth_make(struct klat_run *run, int namespaces[2], const struct in_addr addresses[2]);

/*
 * remote.c: meet the other machine, agree that both measure the same, leave the connection in
 * state->control and both addresses in state->addresses.
 */
int remote_meet(struct klat_run *run);
/* Give the other side a port number, and take its. */
int remote_exchange(struct klat_run *run, uint16_t own, uint16_t *other);
/* Start together: wait until the other side's worker is there. */
int remote_start(struct klat_run *run);
/* Whether the other side has closed the connection. */
bool remote_left(const struct state *state);

#endif
