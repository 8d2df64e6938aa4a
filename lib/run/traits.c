/* SPDX-License-Identifier: MIT */
/* What another program can change of a worker while it runs. The record names the first values. */
#include "run/run.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool klat_task_path(char path[static KLAT_TASK_PATH])
{
	const ssize_t size = readlink("/proc/thread-self", path, KLAT_TASK_PATH - 1);

	path[size > 0 ? size : 0] = 0;
	return size > 0;
}

ssize_t klat_task_read(const char *task, const char *name, char *text, size_t size)
{
	ssize_t length = -1;

	if (*task)
		length = klat_read_small(klat_path("/proc/%s/%s", task, name), text, size);
	text[length > 0 ? length : 0] = 0;
	return length;
}

int64_t klat_task_count(const char *task, const char *file, const char *name)
{
	return *task ? klat_count_in(klat_path("/proc/%s/%s", task, file), name) : -1;
}

void klat_worker_read_policy(struct klat_worker *worker, pid_t thread)
{
	struct sched_param param = { 0 };
	struct klat_scheduling scheduling;

	worker->policy_obtained = sched_getscheduler(thread);
	sched_getparam(thread, &param);
	worker->priority_obtained = param.sched_priority;
	if (worker->policy_obtained == SCHED_DEADLINE &&
	    klat_scheduling_read(thread, &scheduling)) {
		worker->runtime_obtained = scheduling.runtime;
		worker->period_obtained = scheduling.period;
	}
}

struct klat_policy_text klat_policy_obtained(const struct klat_worker *worker)
{
	return klat_policy_text(&(struct klat_policy){ .policy = worker->policy_obtained,
						       .priority = worker->priority_obtained,
						       .runtime_ns = worker->runtime_obtained,
						       .period_ns = worker->period_obtained });
}

void klat_traits_read_scheduling(struct klat_traits *traits, pid_t thread)
{
	struct klat_scheduling scheduling = { 0 };

	for (size_t i = 0; i < KLAT_SLACK; i++)
		traits->values[i] = KLAT_TRAIT_UNKNOWN;
	if (klat_scheduling_read(thread, &scheduling)) {
		traits->values[KLAT_POLICY] = scheduling.policy * 100LL + scheduling.priority;
		/* The kernel reports no nice value under a real-time policy, which ignores it. The
		 * result is never negative, like that of the system call getpriority(2). */
		traits->values[KLAT_NICE] = 20 - scheduling.nice;
		traits->values[KLAT_CLAMPS] = scheduling.util_min * 10000LL + scheduling.util_max;
		traits->values[KLAT_SLICE] = scheduling.runtime;
	}
}

void klat_traits_read_task(struct klat_traits *traits, const char *task)
{
	char text[8192];
	const char *number = strrchr(task, '/');

	for (size_t i = KLAT_SLACK; i < KLAT_TRAITS; i++)
		traits->values[i] = KLAT_TRAIT_UNKNOWN;
	/* This file is in /proc/TID. It is not in /proc/PID/task/TID, which `task` names. */
	if (number)
		traits->values[KLAT_SLACK] =
			klat_read_count(klat_path("/proc%s/timerslack_ns", number));
	traits->values[KLAT_FILTERS] = klat_task_count(task, "status", "\nSeccomp_filters:");
	/* With a limit, each switch updates a counter of the whole process. 0: unlimited, for which
	 * klat_count_after() returns -1. */
	if (klat_task_read(task, "limits", text, sizeof(text)) > 0)
		traits->values[KLAT_CPU_LIMIT] = klat_count_after(text, "\nMax cpu time") + 1;
	/* Both count: the kernel charges memory to the cgroup of the process, not of the thread. */
	if (klat_task_read(task, "cgroup", text, sizeof(text)) > 0) {
		traits->values[KLAT_CGROUP] = klat_hash(0, text);
		klat_task_read(task, "../../cgroup", text, sizeof(text));
		traits->values[KLAT_CGROUP] = klat_hash(traits->values[KLAT_CGROUP], text);
	}
}

const char *klat_traits_changed(const struct klat_traits *before, const struct klat_traits *after)
{
	static const char *const names[KLAT_TRAITS] = {
		[KLAT_POLICY] = "scheduling policy",
		[KLAT_NICE] = "nice value",
		[KLAT_CLAMPS] = "utilization clamp",
		[KLAT_SLICE] = "time slice",
		[KLAT_SLACK] = "timer slack",
		[KLAT_FILTERS] = "seccomp filters",
		[KLAT_CGROUP] = "cgroup",
		[KLAT_CPU_LIMIT] = "limit on CPU time",
	};

	for (size_t i = 0; i < KLAT_TRAITS; i++)
		if (before->values[i] != after->values[i] &&
		    before->values[i] != KLAT_TRAIT_UNKNOWN &&
		    after->values[i] != KLAT_TRAIT_UNKNOWN)
			return names[i];
	return NULL;
}

void klat_traits_watch(struct klat_run *run)
{
	klat_for_each_worker(worker, run) {
		struct klat_traits traits;
		const char *changed;

		/* Its first traits were read before its first iteration. */
		if (__atomic_load_n(&worker->iteration, __ATOMIC_ACQUIRE) <= 0)
			continue;
		klat_traits_read_scheduling(&traits, worker->tid);
		klat_traits_read_task(&traits, worker->account.task);
		/* After its body, a worker leaves SCHED_DEADLINE. */
		if (__atomic_load_n(&worker->account.ended, __ATOMIC_ACQUIRE))
			continue;
		changed = klat_traits_changed(&worker->account.traits, &traits);
		if (changed)
			worker->account.changed = changed;
	}
}
