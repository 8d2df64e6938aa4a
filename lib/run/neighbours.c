/* SPDX-License-Identifier: MIT */
/* Neighbours: real-time tasks of other programs that can run on no other CPUs than the run's. A
 * waking worker does not preempt a neighbour of equal or higher priority. */
#include "run/run.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static bool belongs_to_run(const struct klat_run *run, pid_t pid)
{
	klat_for_each_worker(worker, run)
		if (worker->process && worker->tid == pid)
			return true;
	return pid == getpid() || pid == run->library->soak.pid;
}

static bool is_neighbour(const struct klat_run *run, pid_t tid)
{
	const int policy = sched_getscheduler(tid) & ~SCHED_RESET_ON_FORK;
	const bool deadline = policy == SCHED_DEADLINE; /* it preempts every priority */
	struct sched_param param;
	klat_cpu_set set = { 0 };

	if ((policy != SCHED_FIFO && policy != SCHED_RR && !deadline) ||
	    sched_getparam(tid, &param) || sched_getaffinity(tid, sizeof(set), (cpu_set_t *)&set))
		return false;
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(&set, cpu) && !klat_place_has(run, cpu))
			return false;
	klat_for_each_worker(worker, run)
		if ((deadline ||
		     (!klat_is_deadline(run) && param.sched_priority >= worker->priority)) &&
		    klat_cpu_in(&set, worker->cpu))
			return true;
	return false;
}

/* The time since boot in this time namespace, in clock ticks, as in field 22 of /proc/PID/stat. */
static int64_t ticks_since_boot(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * sysconf(_SC_CLK_TCK) +
	       now.tv_nsec / (1000000000 / sysconf(_SC_CLK_TCK));
}

/* How long the task ran as a neighbour since `before`. Its whole CPU time if it started since then.
 * 0 if it is older and not in that list: it became a neighbour meanwhile, or the list was full. */
static int64_t ran_since(const struct klat_neighbours *before, pid_t tid, int64_t ns)
{
	enum { START_TIME = 22 };

	for (int i = 0; i < before->count; i++)
		if (before->tasks[i].tid == tid && before->tasks[i].ns <= ns)
			return ns - before->tasks[i].ns;
	return klat_read_stat_field(tid, START_TIME) >= before->taken_at_ticks ? ns : 0;
}

static void add_threads(struct klat_neighbours *now, const struct klat_neighbours *before,
			const struct klat_run *run, pid_t pid)
{
	DIR *threads = opendir(klat_path("/proc/%d/task", pid));
	const struct dirent *entry;

	while (threads && (entry = readdir(threads))) {
		const pid_t tid = atoi(entry->d_name);
		int64_t ns = -1;

		/* The first number is the time on a CPU in nanoseconds. */
		if (tid > 0 && is_neighbour(run, tid))
			ns = klat_count_in(klat_path("/proc/%d/schedstat", tid), "");
		if (ns < 0)
			continue;
		now->ran_ns += ran_since(before, tid, ns);
		if (now->count < (int)KLAT_ARRAY_SIZE(now->tasks)) {
			now->tasks[now->count].tid = tid;
			now->tasks[now->count++].ns = ns;
		}
	}
	if (threads)
		closedir(threads);
}

void klat_neighbours_take(struct klat_neighbours *neighbours, const struct klat_run *run)
{
	/* Before the scan of /proc: a task that starts during the scan can be missed, and has to
	 * count as started after it. */
	struct klat_neighbours now = { .taken_at_ticks = ticks_since_boot() };
	DIR *processes = opendir("/proc");
	const struct dirent *entry;

	while (processes && (entry = readdir(processes))) {
		const pid_t pid = atoi(entry->d_name);

		/* The kernel's own threads have process group 0. */
		if (pid > 0 && getpgid(pid) > 0 && !belongs_to_run(run, pid))
			add_threads(&now, neighbours, run, pid);
	}
	if (processes)
		closedir(processes);
	now.at_ns = klat_now_ns();
	now.elapsed_ns = now.at_ns - neighbours->at_ns;
	*neighbours = now;
}
