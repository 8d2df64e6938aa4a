/* SPDX-License-Identifier: MIT */
/*
 * Policies, memory locking and the latency request. Everything of the machine that is held here
 * hangs on a thread or a descriptor of the measured process, so that the kernel puts it back
 * however that process ends. RT throttling is lived with, not switched off.
 */
#include "machine/machine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int klat_policy_parse(const char *text, struct klat_policy *policy)
{
	static const struct {
		const char *name;
		int policy;
	} names[] = { { "fifo", SCHED_FIFO }, { "rr", SCHED_RR }, { "other", SCHED_OTHER } };
	size_t length = strcspn(text, ":");
	char *end;
	long priority;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++) {
		if (strlen(names[i].name) != length || strncmp(text, names[i].name, length))
			continue;
		policy->policy = names[i].policy;
		if (names[i].policy == SCHED_OTHER)
			policy->priority = 0;
		if (!text[length])
			return 0;
		errno = 0;
		priority = strtol(text + length + 1, &end, 10);
		/* strtol() skips white space and takes a sign. */
		if (!isdigit((unsigned char)text[length + 1]) || *end || errno ||
		    names[i].policy == SCHED_OTHER || priority < 1 || priority > 99)
			return -EINVAL;
		policy->priority = priority;
		return 0;
	}
	return -EINVAL;
}

const char *klat_policy_name(int policy)
{
	switch (policy & ~SCHED_RESET_ON_FORK) {
	case SCHED_FIFO:
		return "fifo";
	case SCHED_RR:
		return "rr";
	case SCHED_OTHER:
		return "other";
	case SCHED_BATCH:
		return "batch";
	case SCHED_IDLE:
		return "idle";
	default:
		return "unknown";
	}
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
