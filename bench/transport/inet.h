/* SPDX-License-Identifier: MIT */
/* Internet sockets of both sides: over loopback, between private namespaces, between machines. */
#ifndef KLAT_TRANSPORT_INET_H
#define KLAT_TRANSPORT_INET_H

#include "transport.h"

#include <netinet/in.h>

/*
 * Call `make`, which makes the sockets. With --peer netns, call it in a child with two private
 * network namespaces that a veth pair joins; the namespaces live as long as their sockets.
 */
int inet_make(struct klat_run *run, int (*make)(struct klat_run *run));

/* A socket of one side, bound to an address and a port that the kernel chooses, or -errno. */
int inet_socket(struct klat_run *run, int side, int type, struct in_addr address);
/* The address and port that a socket is bound to. */
int inet_name(struct klat_run *run, int fd, struct sockaddr_in *name);
int inet_connect(struct klat_run *run, int fd, const struct sockaddr_in *to);
/* Set up a descriptor for --wait. */
int inet_set_wait(struct klat_run *run, int fd);
/* Send messages of any size at once. */
int inet_no_delay(struct klat_run *run, int fd);
/* Make the receive buffer large enough for a whole message, within the limits of the system. */
void inet_make_room(int fd);

/*
 * remote.c: meet the other machine and check that both measure the same. Puts the connection into
 * state->control and both addresses into state->addresses.
 */
int remote_meet(struct klat_run *run);
/* Exchange port numbers with the other side. */
int remote_exchange(struct klat_run *run, uint16_t own, uint16_t *other);
/* Wait until the worker of the other side has started. */
int remote_start(struct klat_run *run);
/* Whether the other side has closed the connection. */
bool remote_left(const struct state *state);

#endif
