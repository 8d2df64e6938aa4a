/* SPDX-License-Identifier: MIT */
/* Private network namespaces, and pairs of devices by rtnetlink(7): ioctl cannot make a pair. */
#include "net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* An RTM_NEWLINK message. Attributes are appended to it. */
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

/* The attribute `nest` contains all attributes that were added after it. */
static void close_nest(struct request *request, struct rtattr *nest)
{
	nest->rta_len = (char *)end_of(request) - (char *)nest;
}

static int transact(const struct request *request)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), err = 0;
	ssize_t size;

	if (fd < 0)
		return -errno;
	if (send(fd, request, request->header.nlmsg_len, 0) < 0) {
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

/* `name` in the caller's namespace, `peer` in another. */
static int make_pair(const char *name, const char *peer, int peer_namespace)
{
	const struct ifinfomsg any_link = { 0 };
	struct request request = { .header = { .nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
					       .nlmsg_type = RTM_NEWLINK,
					       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK |
							      NLM_F_CREATE | NLM_F_EXCL } };
	struct rtattr *info, *data, *other;

	add(&request, IFLA_IFNAME, name, strlen(name) + 1);
	info = add(&request, IFLA_LINKINFO, NULL, 0);
	add(&request, IFLA_INFO_KIND, "veth", 4);
	data = add(&request, IFLA_INFO_DATA, NULL, 0);
	other = add(&request, VETH_INFO_PEER, &any_link, sizeof(any_link));
	add(&request, IFLA_IFNAME, peer, strlen(peer) + 1);
	add(&request, IFLA_NET_NS_FD, &peer_namespace, sizeof(peer_namespace));
	close_nest(&request, other);
	close_nest(&request, data);
	close_nest(&request, info);
	return transact(&request);
}

int klat_net_make_veth(struct klat_run *run, const struct klat_net_device devices[2],
		       int namespaces[2])
{
	int err = 0;

	for (int i = 0; i < 2; i++) {
		err = klat_enter_namespace(run, CLONE_NEWNET, "a network namespace");
		if (err)
			return err;
		namespaces[i] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		if (namespaces[i] < 0)
			return klat_error(run, errno, "cannot open the network namespace: %m");
	}
	err = make_pair(devices[1].name, devices[0].name, namespaces[0]);
	if (err == -EOPNOTSUPP || err == -EPERM)
		return klat_skip(run,
				 "cannot make a pair of virtual interfaces (%s): load the veth "
				 "module (modprobe veth)",
				 strerror(-err));
	if (err)
		return klat_error(run, -err, "cannot make a pair of virtual interfaces: %m");
	return klat_net_bring_up(run, &devices[1]) ?: klat_net_enter(run, namespaces[0])
					?: klat_net_bring_up(run, &devices[0]);
}

int klat_net_in_child(struct klat_run *run, int (*body)(struct klat_run *run))
{
	pid_t pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0ul);
	int status;

	if (pid < 0)
		return klat_cannot_start(run, errno, "the process that makes the network");
	if (!pid)
		_exit(body(run) ? 1 : 0);
	if (waitpid(pid, &status, 0) < 0)
		return klat_error(run, errno,
				  "cannot wait for the process that makes the network: %m");
	if (WIFSIGNALED(status))
		return klat_error(run, EIO, "signal %d killed the process that makes the network",
				  WTERMSIG(status));
	return WEXITSTATUS(status) ? -EIO : 0;
}

int klat_net_enter(struct klat_run *run, int namespace)
{
	if (setns(namespace, CLONE_NEWNET))
		return klat_error(run, errno, "cannot enter the network namespace: %m");
	return 0;
}
