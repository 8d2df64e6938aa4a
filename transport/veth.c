/* SPDX-License-Identifier: MIT */
/*
 * A pair of virtual Ethernet interfaces between two new network namespaces, by rtnetlink(7), for
 * which there is no older interface. All of it goes when its last socket does.
 */
#include "inet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* RTM_NEWLINK as it grows. */
struct request {
	struct nlmsghdr header;
	struct ifinfomsg link;
	char attributes[256];
};

static void *end_of(struct request *request)
{
	return (char *)request + NLMSG_ALIGN(request->header.nlmsg_len);
}

static struct rtattr *add(struct request *request, int type, const void *data, size_t size)
{
	struct rtattr *attribute = end_of(request);

	attribute->rta_type = type;
	attribute->rta_len = RTA_LENGTH(size);
	if (size)
		memcpy(RTA_DATA(attribute), data, size);
	request->header.nlmsg_len =
		NLMSG_ALIGN(request->header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
	return attribute;
}

/* What was added since belongs into it. */
static void close_nest(struct request *request, struct rtattr *nest)
{
	nest->rta_len = (char *)end_of(request) - (char *)nest;
}

/* `name` here, its peer in another namespace. */
static int make_pair(const char *name, const char *peer, int peer_namespace)
{
	const struct ifinfomsg nothing = { 0 };
	struct request request = { .header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
					       .nlmsg_type = RTM_NEWLINK,
					       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK |
							      NLM_F_CREATE | NLM_F_EXCL } };
	struct rtattr *info, *data, *other;
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), err = 0;
	ssize_t size;

	if (fd < 0)
		return -errno;
	add(&request, IFLA_IFNAME, name, strlen(name) + 1);
	info = add(&request, IFLA_LINKINFO, NULL, 0);
	add(&request, IFLA_INFO_KIND, "veth", 4);
	data = add(&request, IFLA_INFO_DATA, NULL, 0);
	other = add(&request, VETH_INFO_PEER, &nothing, sizeof(nothing));
	add(&request, IFLA_IFNAME, peer, strlen(peer) + 1);
	add(&request, IFLA_NET_NS_FD, &peer_namespace, sizeof(peer_namespace));
	close_nest(&request, other);
	close_nest(&request, data);
	close_nest(&request, info);
	if (send(fd, &request, request.header.nlmsg_len, 0) < 0) {
		err = -errno;
	} else {
		size = recv(fd, &answer, sizeof(answer), 0);
		if (size < (ssize_t)NLMSG_LENGTH(sizeof(answer.error)))
			err = size < 0 ? -errno : -EPROTO;
		else if (answer.header.nlmsg_type == NLMSG_ERROR)
			err = answer.error.error;
	}
	close(fd);
	return err;
}

/* Neighbour discovery would disturb. Without IPv6 there is no such file, and nothing to do. */
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

/* Address and netmask, which give the route as well, then up. */
static int bring_up(const char *name, struct in_addr address)
{
	struct sockaddr_in inet = { .sin_family = AF_INET, .sin_addr = address };
	struct sockaddr_in mask = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(~0xffu) };
	struct ifreq request = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return -errno;
	disable_ipv6(name);
	strcpy(request.ifr_name, name);
	memcpy(&request.ifr_addr, &inet, sizeof(inet));
	if (ioctl(fd, SIOCSIFADDR, &request))
		err = -errno;
	memcpy(&request.ifr_netmask, &mask, sizeof(mask));
	if (!err && ioctl(fd, SIOCSIFNETMASK, &request))
		err = -errno;
	if (!err && ioctl(fd, SIOCGIFFLAGS, &request))
		err = -errno;
	request.ifr_flags |= IFF_UP;
	if (!err && ioctl(fd, SIOCSIFFLAGS, &request))
		err = -errno;
	close(fd);
	return err;
}

/* Root needs no user namespace; anyone else is root in one, where the system lets them. */
static int enter_new(int *namespace)
{
	if (unshare(CLONE_NEWNET) && (errno != EPERM || unshare(CLONE_NEWUSER | CLONE_NEWNET)))
		return -errno;
	*namespace = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *namespace < 0 ? -errno : 0;
}

int veth_make(struct klat_run *run, int namespaces[2], const struct in_addr addresses[2])
{
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		err = enter_new(&namespaces[i]);
	if (err)
		return klat_skip(run,
				 "may not make a network namespace (%s): run as root, or allow "
				 "user namespaces",
				 strerror(-err));
	err = make_pair("klat1", "klat0", namespaces[0]);
	if (err == -EOPNOTSUPP || err == -EPERM)
		return klat_skip(run,
				 "cannot make a pair of virtual interfaces (%s): load the veth "
				 "module (modprobe veth)",
				 strerror(-err));
	if (!err)
		err = bring_up("klat1", addresses[1]);
	if (!err && setns(namespaces[0], CLONE_NEWNET))
		err = -errno;
	if (!err)
		err = bring_up("klat0", addresses[0]);
	return err ? klat_error(run, -err, "cannot set up the private network: %s", strerror(-err))
		   : 0;
}
