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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	int policy;
} policies[] = {
	{ "fifo", SCHED_FIFO },         { "rr", SCHED_RR },
	{ "other", SCHED_OTHER },       { "batch", SCHED_BATCH },
	{ "deadline", SCHED_DEADLINE }, { "idle", SCHED_IDLE },
};

enum { SELECTABLE_POLICIES = 5 };

static const struct {
	const char *name;
	int64_t ns;
} units[] = { { "s", KLAT_NS_PER_S }, { "ms", 1000000 }, { "us", 1000 }, { "ns", 1 } };

/* A whole number with its unit, up to a colon or the end. NULL, or the text after it. */
static const char *parse_duration(const char *text, int64_t *ns)
{
	char *unit;

	if (!isdigit((unsigned char)*text))
		return NULL;
	errno = 0;
	*ns = strtoll(text, &unit, 10);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(units); i++) {
		const size_t length = strlen(units[i].name);

		if (strcspn(unit, ":") == length && !strncmp(unit, units[i].name, length))
			return errno || __builtin_mul_overflow(*ns, units[i].ns, ns)
				       ? NULL
				       : unit + length;
	}
	return NULL;
}

static int parse_deadline(const char *text, struct klat_policy *policy)
{
	enum { SHORTEST_NS = 1024 }; /* the kernel's DL_SCALE */

	text = parse_duration(text, &policy->runtime_ns);
	if (text && *text == ':')
		text = parse_duration(text + 1, &policy->period_ns);
	else
		text = NULL;
	if (!text || *text)
		return -EINVAL;
	return policy->runtime_ns < SHORTEST_NS || policy->runtime_ns > policy->period_ns ? -ERANGE
											  : 0;
}

int klat_policy_parse(const char *text, struct klat_policy *policy)
{
	size_t length = strcspn(text, ":"), i = 0;
	int64_t priority;

	while (i < SELECTABLE_POLICIES &&
	       (strlen(policies[i].name) != length || strncmp(text, policies[i].name, length)))
		i++;
	if (i == SELECTABLE_POLICIES)
		return -EINVAL;
	policy->policy = policies[i].policy;
	if (!klat_policy_has_priority(policy->policy))
		policy->priority = 0;
	if (policy->policy == SCHED_DEADLINE)
		return text[length] ? parse_deadline(text + length + 1, policy) : -EINVAL;
	if (!text[length])
		return 0;
	if (!klat_parse_number(text + length + 1, 1, 99, &priority) ||
	    !klat_policy_has_priority(policy->policy))
		return -EINVAL;
	policy->priority = priority;
	return 0;
}

bool klat_policy_has_priority(int policy)
{
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

bool klat_policy_is_real_time(int policy)
{
	return klat_policy_has_priority(policy) || policy == SCHED_DEADLINE;
}

/* In the largest unit that gives a whole number. */
static int print_duration(char *text, size_t size, int64_t ns)
{
	size_t i = 0;

	while (ns % units[i].ns)
		i++;
	return snprintf(text, size, ":%lld%s", (long long)(ns / units[i].ns), units[i].name);
}

struct klat_policy_text klat_policy_text(const struct klat_policy *policy)
{
	struct klat_policy_text made;
	const size_t size = sizeof(made.text);
	size_t length = snprintf(made.text, size, "%s", klat_policy_name(policy->policy));

	if (policy->policy == SCHED_DEADLINE) {
		length += print_duration(made.text + length, size - length, policy->runtime_ns);
		print_duration(made.text + length, size - length, policy->period_ns);
	} else {
		snprintf(made.text + length, size - length, ":%d", policy->priority);
	}
	return made;
}

const char *klat_policy_name(int policy)
{
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(policies); i++)
		if (policies[i].policy == (policy & ~SCHED_RESET_ON_FORK))
			return policies[i].name;
	return "unknown";
}

bool klat_scheduling_read(pid_t thread, struct klat_scheduling *scheduling)
{
	return !syscall(SYS_sched_getattr, thread, scheduling, sizeof(*scheduling), 0);
}

int klat_scheduling_set(int policy, int nice, int64_t slice_ns)
{
	struct klat_scheduling scheduling = { 0 };

	if (!klat_scheduling_read(0, &scheduling))
		return -errno;
	scheduling.policy = policy;
	if (nice)
		scheduling.nice = nice;
	if (slice_ns)
		scheduling.runtime = slice_ns;
	if (syscall(SYS_sched_setattr, 0, &scheduling, 0))
		return -errno;
	/* Before Linux 6.12 the kernel ignores the time slice, and reports 0. */
	if (!klat_scheduling_read(0, &scheduling))
		return -errno;
	if (nice && scheduling.nice != nice)
		return -EACCES;
	return slice_ns && (int64_t)scheduling.runtime != slice_ns ? -EOPNOTSUPP : 0;
}

int klat_deadline_set(const struct klat_policy *policy)
{
	const struct klat_scheduling scheduling = { .size = sizeof(scheduling),
						    .policy = SCHED_DEADLINE,
						    .runtime = policy->runtime_ns,
						    .deadline = policy->period_ns,
						    .period = policy->period_ns };
	klat_cpu_set every;
	int err;

	memset(&every, 0xff, sizeof(every));
	err = klat_cpus_allow(&every);
	return err ?: syscall(SYS_sched_setattr, 0, &scheduling, 0) ? -errno : 0;
}

void klat_deadline_leave(int cpu)
{
	const struct sched_param param = { .sched_priority = KLAT_HIGHEST_PRIORITY };

	sched_setscheduler(0, SCHED_FIFO, &param);
	klat_cpu_pin(cpu);
}

int klat_policy_try(const struct klat_policy *policy)
{
	struct sched_param wanted = { .sched_priority = policy->priority }, before;
	int policy_before = sched_getscheduler(0), err;

	if (policy_before < 0 || sched_getparam(0, &before))
		return -errno;
	if (policy->policy == SCHED_DEADLINE)
		err = klat_deadline_set(policy);
	else
		err = sched_setscheduler(0, policy->policy, &wanted) ? -errno : 0;
	return err ?: sched_setscheduler(0, policy_before, &before) ? -errno : 0;
}

int klat_thread_create(pthread_t *thread, const klat_cpu_set *cpus, int policy, int priority,
		       void *(*body)(void *), void *argument)
{
	const struct sched_param param = { .sched_priority = priority };
	const long least = sysconf(_SC_THREAD_STACK_MIN);
	pthread_attr_t attributes;
	int err;

	/* glibc calls a priority out of range if it cannot read the range. */
	if (sched_get_priority_min(policy) < 0 || sched_get_priority_max(policy) < 0)
		return -errno;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, least > KLAT_STACK_SIZE ? least : KLAT_STACK_SIZE);
	/* A seccomp filter can refuse to set even the policy that the caller has. */
	if (policy != SCHED_OTHER || sched_getscheduler(0) != SCHED_OTHER)
		pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	/* glibc knows no other policies. The thread itself can choose SCHED_BATCH. */
	pthread_attr_setschedpolicy(&attributes,
				    klat_policy_has_priority(policy) ? policy : SCHED_OTHER);
	pthread_attr_setschedparam(&attributes, &param);
	/* A cpu_set_t holds only 1024 CPUs. */
	if (cpus)
		pthread_attr_setaffinity_np(&attributes, sizeof(*cpus), (const cpu_set_t *)cpus);
	err = pthread_create(thread, &attributes, body, argument);
	pthread_attr_destroy(&attributes);
	return -err;
}

int klat_thread_start(pthread_t *thread, int cpu, void *(*body)(void *), void *argument)
{
	klat_cpu_set set = { 0 };

	klat_cpu_add(&set, cpu);
	return klat_thread_create(thread, &set, SCHED_OTHER, 0, body, argument);
}

int klat_memory_lock(void)
{
	return mlockall(MCL_CURRENT) ? -errno : 0;
}

int klat_latency_hold(int64_t us)
{
	int32_t value = us;
	int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC), err;

	if (fd >= 0 && write(fd, &value, sizeof(value)) == sizeof(value))
		return fd;
	err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

int32_t klat_latency_request(int32_t expected)
{
	const int file = open("/dev/cpu_dma_latency", O_RDONLY | O_CLOEXEC);
	int32_t us = -1;

	if (file < 0)
		return -1;
	for (int i = 0; i < 10; i++) {
		if (i)
			klat_nap(1000000);
		if (pread(file, &us, sizeof(us), 0) != sizeof(us))
			us = -1;
		if (us < 0 || us == expected || us == KLAT_LATENCY_UNLIMITED)
			break;
	}
	close(file);
	return us;
}
