/* SPDX-License-Identifier: MIT */
/* What audit, security modules and livepatches add to the system calls of this process. */
#include "record/record.h"

#include <errno.h>
#include <glob.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct message {
	struct nlmsghdr header;
	union {
		char bytes[16384];
		struct audit_status status;
		struct audit_rule_data rule;
	};
};

/* The length of the next reply without its header, or -1 if the kernel refused the request. */
static ssize_t receive(int netlink, struct message *message)
{
	const ssize_t size = TEMP_FAILURE_RETRY(recv(netlink, message, sizeof(*message), 0));

	if (size < (ssize_t)sizeof(message->header) || message->header.nlmsg_type == NLMSG_ERROR)
		return -1;
	return size - (ssize_t)sizeof(message->header);
}

static bool request(int netlink, uint16_t type)
{
	const struct nlmsghdr header = { .nlmsg_len = sizeof(header),
					 .nlmsg_type = type,
					 .nlmsg_flags = NLM_F_REQUEST };

	return send(netlink, &header, sizeof(header), MSG_NOSIGNAL) == sizeof(header);
}

static bool is_of_syscalls(const struct audit_rule_data *rule)
{
	const uint32_t list = rule->flags & ~AUDIT_FILTER_PREPEND;

	return list != AUDIT_FILTER_USER && list != AUDIT_FILTER_EXCLUDE && list != AUDIT_FILTER_FS;
}

/* `-a never,task`: the kernel audits the system calls of no task. */
static bool excludes_tasks(const struct audit_rule_data *rule)
{
	return rule->flags == AUDIT_FILTER_TASK && rule->action == AUDIT_NEVER &&
	       !rule->field_count;
}

void klat_audit_describe(int netlink, char *text, size_t size)
{
	struct message message;
	bool excluded = false;
	int rules = 0;

	snprintf(text, size, "unknown");
	if (!request(netlink, AUDIT_GET) ||
	    receive(netlink, &message) < (ssize_t)offsetof(struct audit_status, failure) ||
	    message.header.nlmsg_type != AUDIT_GET)
		return;
	if (!message.status.enabled) {
		snprintf(text, size, "off");
		return;
	}
	if (!request(netlink, AUDIT_LIST_RULES))
		return;
	do {
		const ssize_t length = receive(netlink, &message);

		if (length < 0)
			return;
		if (message.header.nlmsg_type != AUDIT_LIST_RULES ||
		    length < (ssize_t)offsetof(struct audit_rule_data, mask))
			continue;
		excluded |= excludes_tasks(&message.rule);
		rules += is_of_syscalls(&message.rule);
	} while (message.header.nlmsg_type != NLMSG_DONE);
	if (excluded)
		snprintf(text, size, "off");
	else if (rules)
		snprintf(text, size, "on, %d rule%s", rules, rules == 1 ? "" : "s");
	else
		snprintf(text, size, "on");
}

static void add_audit(json_t *object)
{
	/* A kernel thread answers. It has no CPU if real-time tasks occupy all of them. */
	const struct timeval limit = { .tv_sec = 10 };
	const int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT);
	char text[32] = "unknown";

	/* A kernel without audit, or one that began with audit=0. */
	if (netlink < 0 && errno == EPROTONOSUPPORT)
		return;
	if (netlink >= 0) {
		setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		klat_audit_describe(netlink, text, sizeof(text));
		close(netlink);
	}
	json_object_set_new(object, "audit", json_string(text));
}

void klat_profile_add(json_t *object, char *context)
{
	const char *name = "apparmor", *value = context;
	const size_t length = strlen(context);

	/* AppArmor: "unconfined", or "profile (mode)". SELinux: "user:role:type:level". Other
	 * modules have texts of other forms. */
	if (strcmp(context, "unconfined") && (!length || context[length - 1] != ')')) {
		name = "selinux_type";
		if (!strsep(&context, ":") || !strsep(&context, ":") || !context)
			return;
		value = strsep(&context, ":");
	}
	if (!strncmp(value, "unconfined", 10) && !strchr(value, ' '))
		value = "none";
	json_object_set_new(object, name, json_string(value) ?: json_string("not UTF-8"));
}

/* Several security modules share the second file. The first one that answers is in it. */
static void add_profile(json_t *object)
{
	static const char *const files[] = { "/proc/self/attr/apparmor/current",
					     "/proc/self/attr/current" };
	char context[1024];

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(files); i++)
		if (klat_read_line(files[i], context, sizeof(context)))
			klat_profile_add(object, context);
}

static void add_livepatches(json_t *object)
{
	const char *const directory = "/sys/kernel/livepatch/";
	char text[512] = "", path[64];
	glob_t patches;

	if (access(directory, F_OK))
		return;
	snprintf(path, sizeof(path), "%s*", directory);
	if (!glob(path, GLOB_ONLYDIR, NULL, &patches)) {
		for (size_t i = 0; i < patches.gl_pathc; i++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
				 *text ? ", " : "", patches.gl_pathv[i] + strlen(directory));
		globfree(&patches);
	}
	json_object_set_new(object, "livepatch", json_string(*text ? text : "none"));
}

void klat_security_add(json_t *object)
{
	add_audit(object);
	add_profile(object);
	add_livepatches(object);
}
