/* SPDX-License-Identifier: MIT */
/*
 * Private network namespaces and the devices in them. Nothing here touches the machine's own
 * interfaces, unless the caller stays in the machine's namespace.
 *
 * Functions return 0 or -errno after klat_error() or klat_skip().
 */
#ifndef KLAT_NET_H
#define KLAT_NET_H

#include "klat.h"

#include <netinet/in.h>

struct klat_net_device {
	const char *name; /* shorter than IFNAMSIZ */
	struct in_addr address, netmask;
};

/*
 * Call `body` in a child process, which may enter namespaces. The measured process keeps its own:
 * in a new user namespace it would lose the privileges behind real-time priority and locked memory.
 * The child shares the descriptor table, so descriptors that `body` opens stay open here. The child
 * describes its failures; the parent returns -EIO for them.
 */
int klat_net_in_child(struct klat_run *run, int (*body)(struct klat_run *run));

/* Enter a namespace by its descriptor. */
int klat_net_enter(struct klat_run *run, int namespace);

/* Read the address of a host and its netmask from "A.B.C.D/N", N from 8 to 30. */
bool klat_net_parse(const char *text, struct klat_net_device *device);

/* Fail if an interface has addresses of the device's subnet: it would lose packets to the device. A
 * program lets its user choose the subnet with --address. */
int klat_net_check_free(struct klat_run *run, const struct klat_net_device *device);

/* Disable IPv6 on the device, set its address and netmask, and bring it up. The kernel adds the
 * route to the subnet. */
int klat_net_bring_up(struct klat_run *run, const struct klat_net_device *device);

/*
 * Make a tun device, bring it up and return its descriptor. Without `persist` the device disappears
 * with its last descriptor. Unregistering a device waits for RCU, some 20 ms. With `persist` a
 * device in a private namespace is left to that namespace, which the kernel removes in the
 * background. A program lets its user choose the name with --device.
 */
int klat_net_open_tun(struct klat_run *run, const struct klat_net_device *device, bool persist);

/*
 * Make two namespaces with one end of a veth pair each, both up. Put the descriptors of the
 * namespaces into `namespaces`, and leave the caller in the first. The namespaces and the pair
 * disappear with their last descriptor or socket. Close the namespaces after a failure, too: those
 * that were not made are left as they were.
 */
int klat_net_make_veth(struct klat_run *run, const struct klat_net_device devices[2],
		       int namespaces[2]);

#endif
