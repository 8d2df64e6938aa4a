/* SPDX-License-Identifier: MIT */
/*
 * How a sleeper was woken is part of the event. A CPU that is halted, or runs something of lower
 * priority, gets an interrupt. A CPU that polls while it is idle, or waits by MWAIT, gets none: the
 * waker sets a flag in its memory. Both wakeups and interrupts are counted, for the workers that
 * another CPU wakes.
 */
#include "run/run.h"

#include <string.h>

/* If a worker of another role is on the same CPU, it may be the waker. It then sends no interrupt.
 */
static bool is_counted(const struct klat_run *run, const struct klat_worker *worker)
{
	klat_for_each_worker(other, run)
		if (other->cpu == worker->cpu && strcmp(other->role, worker->role) != 0)
			return false;
	return worker->woken;
}

static bool has_earlier(const struct klat_run *run, const struct klat_worker *worker)
{
	for (const struct klat_worker *w = run->workers; w < worker; w++)
		if (is_counted(run, w) && w->cpu == worker->cpu)
			return true;
	return false;
}

/* A function-call interrupt can make an idle CPU wake the thread itself: see ttwu_queue_cond() in
 * kernel/sched/core.c. */
int64_t klat_wake_interrupts(const struct klat_run *run, int cpu)
{
	int64_t reschedules = klat_interrupts(run, "RES", cpu),
		calls = klat_interrupts(run, "CAL", cpu);

	return reschedules < 0 || calls < 0 ? -1 : reschedules + calls;
}

void klat_wakeups_count(struct klat_run *run)
{
	int64_t wakeups = 0, interrupts = 0;

	klat_for_each_worker(worker, run) {
		int64_t of_cpu;

		if (!is_counted(run, worker))
			continue;
		wakeups += worker->wakeups;
		if (has_earlier(run, worker))
			continue;
		of_cpu = klat_wake_interrupts(run, worker->cpu);
		if (of_cpu < 0)
			return;
		interrupts += of_cpu;
	}
	/* With so few sleeps, the event is not a wakeup. */
	if (wakeups * 10 < klat_made(run))
		return;
	klat_count(run, "wakeups", wakeups);
	klat_count(run, "wake_interrupts", interrupts);
}
