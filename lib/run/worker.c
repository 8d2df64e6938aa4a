/* SPDX-License-Identifier: MIT */
/* Workers: started pinned and at their priority, released together, their evidence taken on their
 * own thread. */
#include "run/run.h"

#include "prefault.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void klat_use_table(struct klat_run *run, const struct klat_worker *table, int count)
{
	run->table = table;
	run->table_count = run->most_workers = count;
	run->cpu_count = 0;
	for (int i = 0; i < count; i++)
		if (run->cpu_count <= table[i].place)
			run->cpu_count = table[i].place + 1;
}

static void set_priority(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;

	if (klat_is_real_time(run))
		worker->priority = worker->rank == KLAT_HIGH ? run->library->policy.priority
							     : run->low_priority;
}

struct klat_worker *klat_worker_add(struct klat_run *run, const struct klat_worker *row)
{
	struct klat_worker *worker = &run->workers[run->worker_count];

	if (run->worker_count == run->library->worker_capacity)
		abort();
	*worker = *row;
	worker->noun = row->noun ?: row->role;
	klat_for_each_worker(earlier, run)
		worker->index += !strcmp(earlier->role, row->role);
	worker->run = run;
	worker->state = run->state;
	worker->cpu = run->cpus[row->place];
	worker->observed_from = -run->lead;
	worker->other_faults = worker->account.file = worker->migrations = worker->wait_ns =
		worker->before_rest = -1;
	set_priority(worker);
	run->worker_count++;
	return worker;
}

struct klat_worker *klat_worker_find(struct klat_run *run, const char *role, int index)
{
	klat_for_each_worker(worker, run)
		if (!strcmp(worker->role, role) && worker->index == index)
			return worker;
	return NULL;
}

struct klat_worker *klat_worker_of(struct klat_run *run, int metric, int64_t series)
{
	const char *roles = run->benchmark->metrics[metric].taken_by;

	klat_for_each_worker(worker, run)
		if (roles && worker->index == series && klat_has_word(roles, ' ', worker->role))
			return worker;
	return NULL;
}

static void take_fault(void)
{
	volatile char *page =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page != MAP_FAILED)
		*page = 1;
}

/* The fault "edges", which leaves no lead: some 50 us of klat's other work at both edges of the
 * timed part. The other workers work twice as long: if all of them worked equally long, sides that
 * spin would begin together, and no sample would show the work. */
static void be_at_work(const struct klat_worker *worker)
{
	const int times = worker == worker->run->workers ? 3 : 6;
	int64_t migrations, wait_ns;

	for (int i = 0; !worker->run->lead && i < times; i++)
		klat_thread_self(&migrations, &wait_ns);
}

/* No pair takes a sample before all pairs have arrived. The first worker of a pair waits for the
 * other pairs, and the other workers of the pair wait for the first one. The supervisor ends a run
 * without progress. */
static void await_pairs(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	uint32_t *arrived = &run->library->arrived;

	if (run->pairs > 1 && worker == run->workers && klat_meet(worker, arrived, run->pairs, 0))
		while (klat_spin_until(worker, arrived, run->pairs))
			;
}

void klat_observed_part_begins(struct klat_worker *worker)
{
	struct rusage usage;

	await_pairs(worker);
	klat_observers_count(worker, -1);
	klat_account_read(worker, &worker->account.start_cpu_ns, &worker->account.start_waited_ns);
	worker->account.start_ns = klat_now_ns();
	/* Last: if the body forks, the first write to a page in the lines above is a page fault. */
	usage = klat_thread_usage();
	worker->start_voluntary = usage.ru_nvcsw;
	worker->start_involuntary = usage.ru_nivcsw;
	worker->start_minor = usage.ru_minflt;
	worker->start_major = usage.ru_majflt;
	worker->start_rests = worker->rests;
	worker->start_slept_ns = worker->slept_ns;
	be_at_work(worker);
	if (worker == worker->run->workers && klat_planted(worker->run, "fault"))
		take_fault();
}

static void observed_part_ends(struct klat_worker *worker)
{
	const int64_t rests = worker->rests - worker->start_rests;
	struct rusage usage;

	if (klat_is_deadline(worker->run))
		klat_deadline_count(worker);
	be_at_work(worker);
	usage = klat_thread_usage();
	klat_account_read(worker, &worker->account.cpu_ns, &worker->account.waited_ns);
	worker->account.cpu_ns -= worker->account.start_cpu_ns;
	if (worker->account.waited_ns >= 0)
		worker->account.waited_ns -= worker->account.start_waited_ns;
	worker->account.elapsed_ns = klat_now_ns() - worker->account.start_ns;
	worker->slept_ns -= worker->start_slept_ns;
	worker->voluntary = usage.ru_nvcsw - worker->start_voluntary - rests;
	/* transport counts an interrupted receive as a rest even if it had not slept. */
	if (worker->voluntary < 0)
		worker->voluntary = 0;
	worker->wakeups += usage.ru_nvcsw - worker->rests;
	worker->involuntary = usage.ru_nivcsw - worker->start_involuntary;
	worker->minor_faults = usage.ru_minflt - worker->start_minor;
	worker->major_faults = usage.ru_majflt - worker->start_major;
	klat_observers_count(worker, 1);
}

void klat_attend(struct klat_worker *worker, int64_t i)
{
	if (klat_is_deadline(worker->run))
		klat_deadline_count(worker);
	if (worker->watched) {
		klat_slow_check(worker, i);
		worker->run->library->slow.gap_count = 0;
	}
	/* If a soak reads the counts during the rest, they include all complete iterations. */
	__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
	if (worker->spins)
		klat_rest(worker);
}

/* Touch the stack that the body and its calls will use. */
static __attribute__((noinline)) void prefault_stack(void)
{
	volatile char stack[16 << 10];

	for (size_t i = 0; i < sizeof(stack); i += 1024)
		stack[i] = 0;
}

/* Without these calls the evidence would consist of zeros. glibc's gettid() returns -errno. */
static void require_calls(const struct klat_worker *worker)
{
	struct rusage usage;
	int err = worker->tid < 0 ? -worker->tid : getrusage(RUSAGE_THREAD, &usage) ? errno : 0;

	if (err) {
		klat_error(worker->run, err, "cannot count what the %s does: %s failed: %m",
			   worker->noun, worker->tid < 0 ? "gettid()" : "getrusage()");
		_exit(1);
	}
}

static int policy_of(const struct klat_worker *worker);

/* What a thread must request by itself. */
static void set_scheduling(const struct klat_worker *worker)
{
	const int policy = policy_of(worker);
	int err;

	if (klat_policy_is_real_time(policy) ||
	    (policy == SCHED_OTHER && !worker->nice && !worker->slice_ns))
		return;
	err = klat_scheduling_set(policy, worker->nice, worker->slice_ns);
	if (!err)
		return;
	if (err == -EOPNOTSUPP)
		klat_skip(worker->run,
			  "the kernel ignores the time slice of the %s (Linux 6.12 and later have "
			  "time slices)",
			  worker->noun);
	else
		klat_error(worker->run, -err,
			   "cannot give the %s policy %s, nice value %d and time slice %lld ns: "
			   "%m%s",
			   worker->noun, klat_policy_name(policy), worker->nice,
			   (long long)worker->slice_ns,
			   worker->nice < 0 ? "; run as root, or raise RLIMIT_NICE" : "");
	_exit(1);
}

static void *worker_main(void *argument)
{
	struct klat_worker *worker = argument;
	struct klat_library *library = worker->run->library;
	int64_t migrations, wait_ns;
	struct klat_traits traits;
	bool pinned_first;

	worker->tid = gettid();
	require_calls(worker);
	set_scheduling(worker);
	prefault_stack();
	klat_arch_stamp_end(&worker->cpu_identity);
	/* In an emulator the floor is no time, and many readers of the counter are slow. */
	worker->floor = klat_emulated() ? 0 : klat_counter_floor(worker);
	worker->strayed = 0;
	pinned_first = klat_cpu_is_pinned(worker->cpu);
	klat_thread_self(&migrations, &wait_ns);
	worker->account.file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	worker->account.traced = klat_is_traced("/proc/thread-self/status");
	klat_task_path(worker->account.task);
	klat_traits_read_scheduling(&worker->account.traits, 0);
	klat_traits_read_task(&worker->account.traits, worker->account.task);
	/* Last: the lines above use more than a short runtime. */
	if (policy_of(worker) == SCHED_DEADLINE && klat_deadline_enter(worker))
		_exit(1);

	pthread_barrier_wait(&library->barrier); /* ready */
	pthread_barrier_wait(&library->barrier); /* the first snapshot is taken */
	worker->wakeups = -klat_thread_usage().ru_nvcsw;
	worker->result = worker->body(worker);
	if (worker->result)
		klat_worker_failed(worker);
	/* Before the barrier: its sleep does not belong to the body. */
	observed_part_ends(worker);
	/* Without a tail, no iteration follows the last sample. */
	if (worker->watched && worker->run->end == worker->run->iterations)
		klat_slow_check(worker, worker->run->end);
	pthread_barrier_wait(&library->barrier); /* all stamps are taken */
	__atomic_store_n(&worker->account.ended, true, __ATOMIC_RELEASE);
	worker->pinned = pinned_first && klat_deadline_is_held(worker);
	klat_worker_read_policy(worker, 0);
	klat_traits_read_scheduling(&traits, 0);
	if (worker->policy_obtained == SCHED_DEADLINE)
		klat_deadline_leave(worker->cpu);
	klat_thread_self(&worker->migrations, &worker->wait_ns);
	worker->account.traced |= klat_is_traced("/proc/thread-self/status");
	worker->account.probed = klat_is_probed();
	if (worker->migrations >= 0 && migrations >= 0)
		worker->migrations -= migrations;
	if (worker->wait_ns >= 0 && wait_ns >= 0)
		worker->wait_ns -= wait_ns;
	klat_traits_read_task(&traits, worker->account.task);
	worker->account.changed =
		klat_traits_changed(&worker->account.traits, &traits) ?: worker->account.changed;
	pthread_barrier_wait(&library->barrier); /* done */
	return NULL;
}

static bool is_first(const struct klat_worker *worker)
{
	return worker == worker->run->workers;
}

static int policy_of(const struct klat_worker *worker)
{
	const bool planted = is_first(worker) && klat_planted(worker->run, "policy");
	const int policy = worker->run->library->policy.policy;

	return !planted ? policy : policy == SCHED_OTHER ? SCHED_BATCH : SCHED_OTHER;
}

/* Nothing preempts a thread before it gets SCHED_DEADLINE, so that it stays on its CPU. */
static int first_policy_of(const struct klat_worker *worker)
{
	return policy_of(worker) == SCHED_DEADLINE ? SCHED_FIFO : policy_of(worker);
}

static int priority_of(const struct klat_worker *worker)
{
	if (policy_of(worker) == SCHED_DEADLINE)
		return KLAT_HIGHEST_PRIORITY;
	return klat_policy_is_real_time(policy_of(worker)) ? worker->priority : 0;
}

/* The fault "unpinned" allows every CPU. */
static klat_cpu_set affinity_of(const struct klat_worker *worker)
{
	klat_cpu_set set = { 0 };

	if (is_first(worker) && klat_planted(worker->run, "unpinned"))
		klat_cpus_online(&set);
	else
		klat_cpu_add(&set, worker->cpu);
	return set;
}

static int start_failed(struct klat_worker *worker, int error)
{
	if (error == EAGAIN || error == ENOMEM)
		return klat_skip(
			worker->run,
			"needs %d threads or processes, and only %d could be started: a "
			"limit (ulimit -u, pids.max, kernel.threads-max) or memory is exhausted",
			worker->run->worker_count, (int)(worker - worker->run->workers));
	return klat_error(
		worker->run, error, "cannot start the %s on CPU %d under %s:%d: %m%s", worker->noun,
		worker->cpu, klat_policy_name(first_policy_of(worker)), priority_of(worker),
		error == EINVAL ? "; the CPU may be offline or outside this container's set" : "");
}

static _Noreturn void run_process(struct klat_worker *worker, pid_t parent)
{
	const struct sched_param param = { .sched_priority = priority_of(worker) };
	const klat_cpu_set set = affinity_of(worker);
	int err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	err = klat_cpus_allow(&set);
	if (!err && sched_setscheduler(0, policy_of(worker), &param))
		err = -errno;
	if (err) {
		start_failed(worker, -err);
		_exit(1);
	}
	if (!worker->run->library->lock_error)
		klat_memory_lock();
	klat_prefault();
	worker_main(worker);
	_exit(0);
}

/* The process ends with the measured process. If it fails, it ends the measured process: see
 * on_child(). */
static int start_process(struct klat_worker *worker)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return start_failed(worker, errno);
	if (!pid)
		run_process(worker, parent);
	worker->tid = pid;
	return 0;
}

/* For on_child(). */
static struct klat_library *watching;

/* Without this, the other workers would wait at a barrier for ever. */
static void on_child(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	if (info->si_code == CLD_EXITED && !info->si_status)
		return;
	if (info->si_code == CLD_STOPPED || info->si_code == CLD_TRAPPED ||
	    info->si_code == CLD_CONTINUED) {
		watching->stops += info->si_code != CLD_CONTINUED;
		return;
	}
	/* Its new parent may reap it late, and until then it counts for RLIMIT_NPROC. */
	waitpid(info->si_pid, NULL, WNOHANG);
	watching->ended_pid = info->si_pid;
	watching->ended_signal = info->si_code == CLD_EXITED ? 0 : info->si_status;
	_exit(1);
}

static void watch_children(struct klat_run *run)
{
	struct sigaction action = { .sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigset_t set;

	watching = run->library;
	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int init_barrier(struct klat_run *run)
{
	pthread_barrierattr_t attributes;
	int err;

	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	err = pthread_barrier_init(&run->library->barrier, &attributes, run->worker_count + 1);
	pthread_barrierattr_destroy(&attributes);
	return err ? klat_error(run, err, "cannot make a barrier: %m") : 0;
}

/* Processes first: a fork copies only the calling thread. */
static int start_all(struct klat_run *run)
{
	int err = 0;

	watch_children(run);
	klat_for_each_worker(worker, run)
		if (worker->process && !err)
			err = start_process(worker);
	klat_for_each_worker(worker, run) {
		const klat_cpu_set set = affinity_of(worker);

		if (worker->process || err)
			continue;
		err = klat_thread_create(&worker->thread, &set, first_policy_of(worker),
					 priority_of(worker), worker_main, worker);
		if (err)
			err = start_failed(worker, -err);
	}
	return err;
}

int klat_workers_run(struct klat_run *run)
{
	struct klat_library *library = run->library;
	int err;

	err = init_barrier(run);
	if (err)
		return err;
	library->starting = run->worker_count;
	klat_prefault();
	klat_for_each_worker(worker, run) {
		/* setup() may have lowered a rank. */
		if (worker->rank == KLAT_LOW)
			set_priority(worker);
		if (worker->spins == KLAT_ON_ONE_CPU && !worker->run->one_cpu)
			worker->spins = 0;
		worker->attends = worker->watched || worker->spins || klat_is_deadline(run);
	}
	/* After a failure, workers stay at the barrier. They end with this process. */
	err = start_all(run);
	if (err)
		return err;
	pthread_barrier_wait(&library->barrier);
	if (library->soak.lap)
		klat_warn_of_refusals(run);
	/* Every stack exists now. Nothing is locked later: what the measured operation maps must
	 * stay unlocked. */
	if (!library->lock_error)
		klat_memory_lock();
	klat_neighbours_take(&library->neighbours, run);
	klat_stop_detector_start(&library->stop_detector, run->cpus[0]);
	klat_snapshot_take(&library->before, run);
	klat_observers_take(run);
	klat_busy_take(&library->busy_before, run);
	pthread_barrier_wait(&library->barrier);
	pthread_barrier_wait(&library->barrier); /* all stamps are taken */
	klat_busy_take(&library->busy_after, run);
	klat_snapshot_take(&library->after, run);
	klat_stop_detector_end(run);
	klat_neighbours_take(&library->neighbours, run);
	pthread_barrier_wait(&library->barrier); /* done */
	klat_for_each_worker(worker, run)
		if (worker->process)
			waitpid(worker->tid, NULL, 0);
		else
			pthread_join(worker->thread, NULL);
	return 0;
}
