/* SPDX-License-Identifier: MIT */
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <sys/socket.h>

bool klat_net_parse(const char *text, struct klat_net_device *device)
{
	char dotted[INET_ADDRSTRLEN], digits[3], rest;
	uint32_t address, host;
	int bits;

	if (sscanf(text, "%15[0-9.]/%2[0-9]%c", dotted, digits, &rest) != 2 ||
	    inet_pton(AF_INET, dotted, &device->address) != 1)
		return false;
	bits = atoi(digits);
	if (bits < 8 || bits > 30)
		return false;
	address = ntohl(device->address.s_addr);
	host = ~UINT32_C(0) >> bits;
	device->netmask.s_addr = htonl(~host);
	return address >> 24 && address >> 24 != 127 && address >> 24 < 224 && (address & host) &&
	       (address & host) != host;
}

int klat_net_check_free(struct klat_run *run, const struct klat_net_device *device)
{
	struct ifaddrs *interfaces;
	int err = 0;

	if (getifaddrs(&interfaces))
		return klat_error(run, errno, "cannot list the network interfaces: %m");
	for (const struct ifaddrs *at = interfaces; at && !err; at = at->ifa_next) {
		const struct sockaddr_in *address = (const struct sockaddr_in *)at->ifa_addr,
					 *netmask = (const struct sockaddr_in *)at->ifa_netmask;

		if (!address || !netmask || address->sin_family != AF_INET)
			continue;
		if (!((address->sin_addr.s_addr ^ device->address.s_addr) &
		      netmask->sin_addr.s_addr & device->netmask.s_addr))
			err = klat_error(run, EADDRINUSE,
					 "%s overlaps with the addresses of %s: choose another "
					 "subnet with --address",
					 inet_ntoa(device->address), at->ifa_name);
	}
	freeifaddrs(interfaces);
	return err;
}
