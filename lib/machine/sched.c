/* SPDX-License-Identifier: MIT */
/*
 * Policies, memory locking and the latency request. Each belongs to a thread, a mapping or a
 * descriptor of the measured process, so the kernel undoes it when that process ends. klat does not
 * change real-time throttling, which nothing would undo.
 */
#include "machine/machine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
	const char *name;
	int policy;
} policies[] = {
	{ "fifo", SCHED_FIFO },   { "rr", SCHED_RR },     { "other", SCHED_OTHER },
	{ "batch", SCHED_BATCH }, { "idle", SCHED_IDLE },
};

enum {
	SELECTABLE_POLICIES = 3
};

int klat_policy_parse(const char *text, struct klat_policy *policy)
{
	size_t length = strcspn(text, ":"), i = 0;
	char *end;
	long priority;

	while (i < SELECTABLE_POLICIES &&
	       (strlen(policies[i].name) != length || strncmp(text, policies[i].name, length)))
		i++;
	if (i == SELECTABLE_POLICIES)
		return -EINVAL;
	policy->policy = policies[i].policy;
	if (policy->policy == SCHED_OTHER)
		policy->priority = 0;
	if (!text[length])
		return 0;
	errno = 0;
	priority = strtol(text + length + 1, &end, 10);
	/* strtol() skips white space and takes a sign. */
	if (!isdigit((unsigned char)text[length + 1]) || *end || errno ||
	    policy->policy == SCHED_OTHER || priority < 1 || priority > 99)
		return -EINVAL;
	policy->priority = priority;
	return 0;
}

const char *klat_policy_name(int policy)
{
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(policies); i++)
		if (policies[i].policy == (policy & ~SCHED_RESET_ON_FORK))
			return policies[i].name;
	return "unknown";
}

int klat_policy_try(int policy, int priority)
{
	struct sched_param wanted = { .sched_priority = priority }, before;
	int policy_before = sched_getscheduler(0);

	if (policy_before < 0 || sched_getparam(0, &before) ||
	    sched_setscheduler(0, policy, &wanted))
		return -errno;
	return sched_setscheduler(0, policy_before, &before) ? -errno : 0;
}

int klat_memory_lock(void)
{
	return mlockall(MCL_CURRENT) ? -errno : 0;
}

int klat_latency_hold(int64_t us)
{
	int32_t value = us;
	int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	if (write(fd, &value, sizeof(value)) != sizeof(value)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}
