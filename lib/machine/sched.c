/* SPDX-License-Identifier: MIT */
/*
 * Policies, memory locking and the latency request. Everything of the machine that is held here
 * hangs on a thread or a descriptor of the measured process, so that the kernel puts it back
 * however that process ends. RT throttling is lived with, not switched off.
 */
#include "internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
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

enum {
	SPIN_MS = 40,
	REST_MS = 6
};

/* A coarse clock is enough here, and needs no calibration. */
static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * UINT64_C(1000) + now.tv_nsec / 1000000;
}

void klat_rest(struct klat_worker *worker)
{
	struct timespec pause = { .tv_nsec = REST_MS * 1000000 };
	uint64_t now, spun;

	/* What it obtained is read back when its body has ended. */
	if (!worker->priority)
		return;
	now = now_ms();
	if (!worker->spin_began)
		worker->spin_began = now;
	spun = now - worker->spin_began;
	if (spun < SPIN_MS)
		return;
	if (klat_emulated())
		pause.tv_nsec = (spun < 1000 ? spun : 1000) * REST_MS / SPIN_MS * 1000000;
	do
		worker->rests++;
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) == EINTR);
	worker->spin_began = now_ms();
}

/* No PAUSE: in a guest, enough of them in a row hand the CPU to the hypervisor (pause-loop
 * exiting). */
int klat_spin_until(struct klat_worker *worker, const uint32_t *word, uint32_t value)
{
	const struct timespec pause = { .tv_nsec = REST_MS * 1000000 };
	uint64_t begun = 0;

	for (uint32_t turns = 1; (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0;
	     turns++) {
		if (turns & 0xffff)
			continue;
		if (worker)
			klat_rest(worker);
		else if (begun && now_ms() - begun > SPIN_MS)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		if (!begun)
			begun = now_ms();
		else if (now_ms() - begun > (klat_emulated() ? 120000 : 2000))
			return -ETIMEDOUT;
	}
	return 0;
}
