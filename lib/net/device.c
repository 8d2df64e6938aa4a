/* SPDX-License-Identifier: MIT */
/* Addresses, and devices by ioctl: netdevice(7). */
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Neighbour discovery would send packets of its own. A kernel without IPv6 has no such file. The
 * programs tolerate the packets where the write fails.
 */
static void disable_ipv6(const char *name)
{
	char path[64 + IFNAMSIZ];
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "1", 1) < 0)
		errno = 0;
	close(fd);
}

static void set_inet(struct sockaddr *to, struct in_addr address)
{
	const struct sockaddr_in inet = { .sin_family = AF_INET, .sin_addr = address };

	memcpy(to, &inet, sizeof(inet));
}

/* Returns the operation that failed, with errno set, or NULL. */
static const char *configure(int fd, const struct klat_net_device *device)
{
	struct ifreq request = { 0 };

	strcpy(request.ifr_name, device->name);
	set_inet(&request.ifr_addr, device->address);
	if (ioctl(fd, SIOCSIFADDR, &request))
		return "set the address of";
	set_inet(&request.ifr_netmask, device->netmask);
	if (ioctl(fd, SIOCSIFNETMASK, &request))
		return "set the netmask of";
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		return "read the flags of";
	request.ifr_flags |= IFF_UP;
	return ioctl(fd, SIOCSIFFLAGS, &request) ? "bring up" : NULL;
}

int klat_net_bring_up(struct klat_run *run, const struct klat_net_device *device)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	const char *failed;

	if (fd < 0)
		return klat_error(run, errno, "cannot make a UDP socket: %m");
	disable_ipv6(device->name);
	failed = configure(fd, device);
	if (failed)
		err = klat_error(run, errno, "cannot %s network device %s, %s: %m", failed,
				 device->name, inet_ntoa(device->address));
	close(fd);
	return err;
}

static int fail_tun(struct klat_run *run, const char *name)
{
	switch (errno) {
	case EPERM:
		return klat_skip(
			run, "cannot make a tun device (%s): run as root, or with CAP_NET_ADMIN",
			strerror(errno));
	case EBUSY:
	case EEXIST:
		return klat_error(
			run, errno,
			"network device %s exists already: choose another name with --device",
			name);
	default:
		return klat_error(run, errno, "cannot make the tun device %s: %m", name);
	}
}

int klat_net_open_tun(struct klat_run *run, const struct klat_net_device *device, bool persist)
{
	/* Exclusive: fail if a device of this name exists. */
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_TUN_EXCL };
	int err, fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return klat_skip(run, "/dev/net/tun: %s; %s", strerror(errno),
				 errno == EACCES || errno == EPERM
					 ? "run as root"
					 : "load the tun module (modprobe tun), or give the "
					   "container the device");
	strcpy(request.ifr_name, device->name);
	if (ioctl(fd, TUNSETIFF, &request))
		err = fail_tun(run, device->name);
	else if (persist && ioctl(fd, TUNSETPERSIST, 1))
		err = klat_error(run, errno, "cannot leave %s to its namespace: %m", device->name);
	else
		err = klat_net_bring_up(run, device);
	if (!err)
		return fd;
	close(fd);
	return err;
}

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
