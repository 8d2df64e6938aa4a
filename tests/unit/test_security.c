/* SPDX-License-Identifier: MIT */
/* The state of audit, as a stand-in for the kernel reports it, and the profile of the process. */
#include "support.h"

#include <jansson.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int sockets[2]; /* klat's, the stand-in's */

void set_up(void)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
}

void tear_down(void)
{
	close(sockets[0]);
	close(sockets[1]);
}

static void answer(uint16_t type, const void *data, size_t size)
{
	struct {
		struct nlmsghdr header;
		char bytes[2048];
	} message = { .header = { .nlmsg_len = sizeof(message.header) + size,
				  .nlmsg_type = type } };

	if (size)
		memcpy(message.bytes, data, size);
	assert_int_equal(send(sockets[1], &message, message.header.nlmsg_len, 0),
			 message.header.nlmsg_len);
}

static void answer_status(uint32_t enabled)
{
	const struct audit_status status = { .enabled = enabled };

	answer(AUDIT_GET, &status, sizeof(status));
}

static void answer_rule(uint32_t flags, uint32_t action, uint32_t field_count)
{
	const struct audit_rule_data rule = { .flags = flags,
					      .action = action,
					      .field_count = field_count };

	answer(AUDIT_LIST_RULES, &rule, sizeof(rule));
}

static void assert_described(const char *expected)
{
	char text[32];

	/* The end of the answers, even if some are missing. */
	shutdown(sockets[1], SHUT_WR);
	klat_audit_describe(sockets[0], text, sizeof(text));
	assert_string_equal(text, expected);
}

TEST(audit_is_off)
{
	answer_status(0);
	assert_described("off");
}

TEST(audit_is_on_without_rules)
{
	answer_status(1);
	answer(NLMSG_DONE, NULL, 0);
	assert_described("on");
}

/* Rules for user messages, for excluded types and for file systems do not apply to system calls. */
TEST(rules_of_system_calls_are_counted)
{
	answer_status(2);
	answer_rule(AUDIT_FILTER_EXIT, AUDIT_ALWAYS, 1);
	answer_rule(AUDIT_FILTER_USER, AUDIT_ALWAYS, 0);
	answer_rule(AUDIT_FILTER_EXCLUDE, AUDIT_ALWAYS, 1);
	answer_rule(AUDIT_FILTER_FS, AUDIT_NEVER, 1);
	answer_rule(AUDIT_FILTER_TASK, AUDIT_NEVER, 1);
	answer(NLMSG_DONE, NULL, 0);
	assert_described("on, 2 rules");
}

TEST(a_rule_that_excludes_all_tasks_is_off)
{
	answer_status(1);
	answer_rule(AUDIT_FILTER_TASK, AUDIT_NEVER, 0);
	answer(NLMSG_DONE, NULL, 0);
	assert_described("off");
}

TEST(a_refused_request_is_unknown)
{
	const struct nlmsgerr refusal = { .error = -1 };

	answer(NLMSG_ERROR, &refusal, sizeof(refusal));
	assert_described("unknown");
}

TEST(rules_that_do_not_arrive_are_unknown)
{
	answer_status(1);
	answer_rule(AUDIT_FILTER_EXIT, AUDIT_ALWAYS, 1);
	assert_described("unknown");
}

TEST(the_profile_of_a_security_module)
{
	static const struct {
		const char *context, *apparmor, *selinux_type;
	} cases[] = {
		{ "unconfined", "none", NULL },
		{ "docker-default (enforce)", "docker-default (enforce)", NULL },
		{ "/usr/bin/a:b:c (complain)", "/usr/bin/a:b:c (complain)", NULL },
		{ "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", NULL, "none" },
		{ "system_u:system_r:container_t:s0:c1,c2", NULL, "container_t" },
		{ "system_u:system_r:kernel_t", NULL, "kernel_t" },
		{ "_", NULL, NULL }, /* Smack */
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		json_t *object = json_object();
		char *context = strdupa(cases[i].context);
		const char *const expected[] = { cases[i].apparmor, cases[i].selinux_type };
		static const char *const names[] = { "apparmor", "selinux_type" };

		klat_profile_add(object, context);
		for (size_t n = 0; n < KLAT_ARRAY_SIZE(names); n++) {
			const char *value = json_string_value(json_object_get(object, names[n]));

			assert_int_equal(!value, !expected[n]);
			if (value)
				assert_string_equal(value, expected[n]);
		}
		json_decref(object);
	}
}
