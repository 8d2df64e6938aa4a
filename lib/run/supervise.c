/* SPDX-License-Identifier: MIT */
/* The measured process, and the supervisor that waits for it: see klat.h. */
#include "run/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The workers of the pair come after those of the pairs before it. */
static int set_up(struct klat_run *run, struct klat_run *pair)
{
	int err;

	pair->workers = run->workers + (pair == run ? 0 : run->worker_count);
	for (int i = 0; i < run->table_count; i++)
		klat_worker_add(pair, &run->table[i]);
	err = run->benchmark->setup ? run->benchmark->setup(pair) : 0;
	if (err && klat_has_result(run))
		klat_error(run, -err, "setup() failed: %m");
	if (pair != run)
		run->worker_count += pair->worker_count;
	return err;
}

void klat_warn_of_refusals(const struct klat_run *run)
{
	const struct klat_library *library = run->library;

	if (library->policy_error)
		klat_warn(run,
			  "%s refused (%s): measuring under SCHED_OTHER, not comparable with "
			  "real-time figures; run as root or raise RLIMIT_RTPRIO",
			  klat_policy_text(&library->refused).text,
			  strerror(library->policy_error));
	if (library->lock_error)
		klat_warn(run,
			  "memory cannot be locked (%s): page faults are counted, not prevented",
			  strerror(library->lock_error));
}

static int measure(struct klat_run *run)
{
	struct klat_library *library = run->library;
	const struct sched_param ordinary = { 0 };
	int err, latency_fd = -1, set_up_count = 0;

	/* Since Linux 6.12, a real-time thread has no timer slack. The threads that it starts have
	 * none either, under any policy. */
	if (!klat_is_real_time(run) && sched_getscheduler(0) != SCHED_OTHER &&
	    sched_setscheduler(0, SCHED_OTHER, &ordinary))
		return klat_error(run, errno, "cannot leave the inherited scheduling policy: %m");
	/* For all threads and processes of the run. A real-time policy ignores it. */
	if (klat_read_count("/proc/self/timerslack_ns") != KLAT_TIMER_SLACK_NS &&
	    prctl(PR_SET_TIMERSLACK, KLAT_TIMER_SLACK_NS) && !klat_is_real_time(run))
		return klat_error(run, errno, "cannot set the timer slack: prctl() failed: %m");
	err = klat_memory_lock();
	library->lock_error = -err;
	if (library->common.dma_latency >= 0) {
		latency_fd = klat_latency_hold(library->common.dma_latency);
		if (latency_fd < 0)
			return klat_error(run, -latency_fd,
					  "cannot hold /dev/cpu_dma_latency: %m; run as root, or "
					  "without --dma-latency");
	}
	klat_for_each_pair(pair, run) {
		err = set_up(run, pair);
		set_up_count++;
		if (err)
			break;
	}
	if (!err)
		err = klat_slow_watch(run);
	if (!err) {
		klat_soak_watch(run);
		err = klat_workers_run(run) ?: klat_slow_finish(run);
	}
	/* Not the clock of start_ns: that one can be set during the run. */
	library->elapsed_ns = klat_now_ns() - library->start_monotonic_ns;
	for (int i = 0; i < set_up_count && run->benchmark->teardown; i++)
		run->benchmark->teardown(&library->pairs[i]);
	if (latency_fd >= 0)
		close(latency_fd);
	return err;
}

/* klat opens its own files with O_CLOEXEC, so a file without this flag was inherited. Close it: a
 * fork copies every open file, and select() has room for 1024. */
static void close_inherited(void)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;

	while (directory && (entry = readdir(directory))) {
		const int file = atoi(entry->d_name), flags = fcntl(file, F_GETFD);

		if (file > STDERR_FILENO && flags >= 0 && !(flags & FD_CLOEXEC))
			close(file);
	}
	if (directory)
		closedir(directory);
}

/*
 * The measured process runs on the first CPU from its first instruction. The kernel sends TLB
 * shootdowns to every CPU on which an address space has run.
 */
static pid_t fork_measured(struct klat_run *run)
{
	pid_t supervisor = getpid(), pid;

	klat_cpu_pin(run->cpus[0]);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != supervisor) {
			klat_error(run, EPERM,
				   "the measured process cannot identify its parent: getpid() or "
				   "getppid() failed");
			_exit(EXIT_FAILURE);
		}
		/* Ctrl-C reaches both processes. In a soak, the supervisor still needs this one. */
		if (run->library->soak.lap)
			klat_signals_ignore();
		klat_signals_release();
		close_inherited();
		klat_halt_poll_leave(&run->library->halt_poll);
		_exit(measure(run) ? EXIT_FAILURE : EXIT_SUCCESS);
	}
	return pid;
}

/*
 * The supervisor wakes every second. A CPU that runs it has left the measured address space, and a
 * shootdown skips that CPU. So the supervisor uses CPUs without a worker. If there are none, it
 * stays on the first worker's CPU, unless a real-time worker there could keep it from running.
 */
static void stand_aside(const struct klat_run *run, const klat_cpu_set *allowed)
{
	klat_cpu_set free_cpus = *allowed;

	klat_for_each_cpu(cpu, run)
		klat_cpu_remove(&free_cpus, cpu);
	if (klat_cpu_weight(&free_cpus))
		klat_cpus_allow(&free_cpus);
	else if (klat_is_real_time(run))
		klat_cpus_allow(allowed);
}

static int64_t progress(const struct klat_run *run)
{
	int64_t sum = run->worker_count;

	klat_for_each_worker(worker, run)
		sum += __atomic_load_n(&worker->iteration, __ATOMIC_RELAXED);
	return sum;
}

/*
 * Wait until the measured process ends: 0. A signal to the supervisor: its number. No progress of
 * any worker for run->patience seconds: -ETIMEDOUT. If the kernel refuses to wait: -errno.
 */
static int wait_measured(struct klat_run *run, pid_t pid, int *status, struct rusage *usage)
{
	const struct timespec second = { .tv_sec = 1 };
	int64_t seen = INT64_MIN;
	int idle = 0;

	for (;;) {
		int signal = klat_signals_wait(&second), err;
		pid_t ended;

		if (signal && signal != SIGCHLD) {
			kill(pid, SIGKILL);
			wait4(pid, status, 0, usage);
			return signal;
		}
		ended = wait4(pid, status, WNOHANG, usage);
		if (ended == pid)
			return 0;
		if (ended < 0) {
			err = -errno;
			kill(pid, SIGKILL);
			return err;
		}
		klat_traits_watch(run);
		idle = progress(run) == seen ? idle + !signal : 0;
		seen = progress(run);
		if (idle >= run->patience) {
			kill(pid, SIGKILL);
			wait4(pid, status, 0, usage);
			return -ETIMEDOUT;
		}
	}
}

/* Other workers may wait for this one in a spin, in a read or at the barrier. So the run ends here,
 * and not after run->patience. If several fail at once, the first one gives the reason. */
void klat_worker_failed(const struct klat_worker *worker)
{
	while (__atomic_exchange_n(&worker->run->library->failing, true, __ATOMIC_RELAXED))
		pause();
	if (worker->result == -ENOMEM && klat_has_result(worker->run))
		klat_skip(worker->run,
			  "no memory for the %s on CPU %d: a limit (ulimit -v, ulimit -d, "
			  "memory.max, vm.overcommit_memory) or memory is exhausted",
			  worker->noun, worker->cpu);
	else if (klat_has_result(worker->run))
		klat_error(worker->run, -worker->result,
			   "the %s on CPU %d failed at iteration %lld: %s", worker->noun,
			   worker->cpu, (long long)worker->iteration,
			   worker->result == -ETIMEDOUT
				   ? "timed out waiting for another thread of the run; is another "
				     "real-time task on these CPUs?"
				   : strerror(-worker->result));
	_exit(1);
}

static void describe_hang(struct klat_run *run)
{
	const struct klat_worker *slowest = run->workers;

	klat_for_each_worker(worker, run)
		if (worker->iteration < slowest->iteration)
			slowest = worker;
	if (run->worker_count)
		klat_error(run, ETIMEDOUT,
			   "no progress for %d s: the %s on CPU %d is at iteration %lld; is "
			   "another real-time task on this CPU?",
			   run->patience, slowest->noun, slowest->cpu,
			   (long long)slowest->iteration);
	else
		klat_error(run, ETIMEDOUT, "no progress for %d s during set-up", run->patience);
}

/* A worker's process ended before its body did: see on_child() in worker.c. */
static void describe_end(struct klat_run *run)
{
	const struct klat_library *library = run->library;
	char who[64] = "a process of the run";

	klat_for_each_worker(worker, run)
		if (worker->tid == library->ended_pid)
			snprintf(who, sizeof(who), "the %s on CPU %d", worker->noun, worker->cpu);
	if (library->ended_signal)
		klat_killed(run, who, library->ended_signal, klat_is_real_time(run));
	else if (klat_has_result(run))
		klat_error(run, EIO, "%s ended with an error and gave no reason", who);
}

int klat_supervise(struct klat_run *run)
{
	struct klat_library *library = run->library;
	struct rusage usage = { 0 };
	klat_cpu_set allowed;
	int status = 0, result, err;
	pid_t pid;

	if (library->common.guest_halt_poll >= 0) {
		err = klat_halt_poll_hold(run, &library->halt_poll,
					  library->common.guest_halt_poll);
		if (err)
			return err;
	} else {
		klat_halt_poll_settle(run);
	}
	if (klat_is_real_time(run))
		klat_lift_real_time();
	klat_cpus_allowed(&allowed);
	library->start_ns = klat_clock_ns(CLOCK_REALTIME);
	library->start_monotonic_ns = klat_now_ns();
	pid = fork_measured(run);
	if (pid < 0) {
		err = klat_cannot_start(run, errno, "the measured process");
		klat_halt_poll_release(run, &library->halt_poll);
		return err;
	}
	stand_aside(run, &allowed);
	library->soak.pid = pid;
	result = library->soak.lap ? klat_soak_follow(run, &status, &usage)
				   : wait_measured(run, pid, &status, &usage);
	klat_cpus_allow(&allowed);
	err = klat_halt_poll_release(run, &library->halt_poll);
	if (result > 0) {
		if (err)
			klat_warn(run, "%s", run->outcome->reason);
		klat_signals_end(result);
	}
	library->measured_memory = usage.ru_maxrss * 1024;
	/* A soak ends by killing the measured process. */
	if (library->soak.lap && !result)
		return 0;
	/* The measured process of a soak ended by itself. */
	if (library->soak.lap && !library->soak.pid)
		result = 0;
	if (result == -ETIMEDOUT)
		describe_hang(run);
	else if (library->soak.lap && !klat_has_result(run))
		return -EIO;
	else if (result && klat_has_result(run))
		klat_error(run, -result, "cannot wait for the measured process: %m");
	else if (WIFSIGNALED(status))
		return klat_killed(run, "the measured process", WTERMSIG(status),
				   klat_is_real_time(run));
	else if (library->ended_pid)
		describe_end(run);
	else if (WEXITSTATUS(status) && klat_has_result(run))
		klat_error(run, EIO, "the measured process ended with an error and gave no reason");
	return klat_has_result(run) ? 0 : -EIO;
}
