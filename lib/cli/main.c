/* SPDX-License-Identifier: MIT */
/* The life of a run: see klat.h. */
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	EXIT_MEASURED = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_UNTRUSTED = 3,
	EXIT_SKIPPED = 4
};

static void *map_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static size_t round_up(size_t size)
{
	return (size + 4095) & ~(size_t)4095;
}

/* Run, library, options and state, each on pages of its own, shared with the measured process. */
static struct klat_run *make_run(const struct klat_benchmark *benchmark)
{
	size_t run_size = round_up(sizeof(struct klat_run)),
	       library_size = round_up(sizeof(struct klat_library));
	size_t options_size = round_up(benchmark->options_size);
	char *memory = map_shared(run_size + library_size + options_size +
				  round_up(benchmark->state_size));
	struct klat_run *run = (struct klat_run *)memory;

	if (!memory) {
		fprintf(stderr, "%s: cannot map shared memory: %s\n", benchmark->name,
			strerror(errno));
		return NULL;
	}
	run->benchmark = benchmark;
	run->library = (struct klat_library *)(memory + run_size);
	run->options = memory + run_size + library_size;
	run->state = memory + run_size + library_size + options_size;
	run->patience = klat_emulated() ? 300 : 30;
	if (benchmark->options_size)
		memcpy(run->options, benchmark->defaults, benchmark->options_size);
	return run;
}

static int check_cpus(struct klat_run *run, const char *list)
{
	klat_cpu_set online;
	int err = klat_cpus_online(&online);

	if (err)
		return klat_usage(run, "cannot read which CPUs are online");
	run->cpu_count = klat_cpus_parse(list, &run->cpus);
	if (run->cpu_count < 0)
		return klat_usage(run, "--cpus takes a list such as 2,3 or 4-7, not '%s'", list);
	for (int i = 0; i < run->cpu_count; i++) {
		if (!klat_cpu_in(&online, run->cpus[i]))
			return klat_usage(run,
					  "--cpus: CPU %d does not exist or is offline (%d online)",
					  run->cpus[i], klat_cpu_weight(&online));
		if (klat_cpu_is_forbidden(run->cpus[i]))
			return klat_usage(run,
					  "--cpus: CPU %d is outside the cpuset of this control "
					  "group or container; choose another, or widen the cpuset",
					  run->cpus[i]);
		for (int j = 0; j < i && run->benchmark->distinct_cpus; j++)
			if (run->cpus[j] == run->cpus[i])
				return klat_usage(run,
						  "--cpus names CPU %d twice, but each role spins "
						  "and needs its own CPU",
						  run->cpus[i]);
	}
	run->cpus_given = true;
	return 0;
}

/* The fault "edges" is for tests of the order of samples: klat at work at both ends. */
static void set_edges(struct klat_run *run)
{
	bool planted = klat_planted(run, "edges");

	if (!run->warmup)
		run->warmup = 1;
	run->lead = planted ? 0 : run->warmup < KLAT_LEAD ? run->warmup : KLAT_LEAD;
	run->end = run->iterations + (planted ? 0 : KLAT_TAIL);
}

/*
 * Whether all roles are on one CPU, as far as that is known before the program says how many it
 * has. A machine with a single CPU, as every one in counted mode, leaves no choice.
 */
static bool is_on_one_cpu(const struct klat_run *run)
{
	if (!run->cpus_given)
		return klat_machine_has_one_cpu();
	for (int i = 1; i < run->cpu_count; i++)
		if (run->cpus[i] != run->cpus[0])
			return false;
	return true;
}

/* All that can be wrong with the command line, before anything of the machine is touched. */
static int prepare(struct klat_run *run)
{
	struct klat_library *library = run->library;
	struct klat_common *common = &library->common;
	int err, given;

	run->iterations = common->iterations;
	run->warmup = common->warmup;
	library->policy = (struct klat_policy){ run->benchmark->policy,
						run->benchmark->high_priority, false };
	if (common->policy) {
		library->policy.asked = true;
		if (klat_policy_parse(common->policy, &library->policy))
			return klat_usage(run,
					  "--policy is fifo, rr or other, with a priority of 1 to "
					  "99 for the first two, not '%s'",
					  common->policy);
	}
	if (common->cpus) {
		err = check_cpus(run, common->cpus);
		if (err)
			return err;
	}
	given = run->cpu_count;
	run->one_cpu = is_on_one_cpu(run);
	err = run->benchmark->configure(run);
	if (err)
		return err;
	if (run->ordinary && common->policy && library->policy.policy != SCHED_OTHER)
		return klat_usage(run, "--policy %s: these options measure under SCHED_OTHER only",
				  common->policy);
	if (run->ordinary)
		library->policy = (struct klat_policy){ SCHED_OTHER, 0, true };
	if (run->cpus_given && given != run->cpu_count)
		return klat_usage(run, "this measurement takes %d CPU%s; --cpus names %d",
				  run->cpu_count, run->cpu_count == 1 ? "" : "s", given);
	if (run->low_priority && library->policy.policy != SCHED_OTHER &&
	    run->low_priority >= library->policy.priority)
		return klat_usage(run,
				  "the low priority %d must be below the priority of --policy, %d",
				  run->low_priority, library->policy.priority);
	set_edges(run);
	err = klat_options_params(run, common, library->params, sizeof(library->params));
	return err ? klat_usage(run, "the options are too long to record") : 0;
}

/* Whether a program with several roles has them on the only CPU unasked. */
static bool shares_one_cpu(const struct klat_run *run)
{
	return run->one_cpu && !run->cpus_given && !run->benchmark->distinct_cpus;
}

/* Whether there are enough, where the program chooses among those that it may use. */
static int count_cpus(struct klat_run *run, klat_cpu_set *allowed)
{
	int available, err = klat_cpus_allowed(allowed);

	if (err)
		return klat_error(run, -err, "cannot read the affinity mask: %s", strerror(-err));
	available = klat_cpu_weight(allowed);
	if (run->cpus_given || run->cpu_count <= available || shares_one_cpu(run))
		return 0;
	return klat_skip(run, "needs %d CPUs and may use %d%s", run->cpu_count, available,
			 run->benchmark->distinct_cpus
				 ? ""
				 : "; --cpus with a number repeated puts roles on one CPU");
}

static int place(struct klat_run *run)
{
	struct klat_library *library = run->library;
	klat_cpu_set allowed;
	int err = count_cpus(run, &allowed);

	if (err)
		return err;
	if (!run->cpus_given) {
		int distinct = shares_one_cpu(run) ? 1 : run->cpu_count;

		run->cpus = malloc(run->cpu_count * sizeof(*run->cpus));
		err = run->cpus ? klat_cpus_place(&allowed, distinct, run->cpus) : -ENOMEM;
		if (err)
			return klat_error(run, -err, "cannot choose CPUs: %s", strerror(-err));
		for (int i = distinct; i < run->cpu_count; i++)
			run->cpus[i] = run->cpus[0];
	}
	run->one_cpu = true;
	for (int i = 1; i < run->cpu_count; i++)
		run->one_cpu = run->one_cpu && run->cpus[i] == run->cpus[0];
	library->placement = klat_cpus_relation(run->cpus, run->cpu_count);
	/* A program adds at most one worker a place, and one more where two roles share the first,
	 * unless it said otherwise. */
	library->worker_capacity =
		run->most_workers > run->cpu_count ? run->most_workers : run->cpu_count + 1;
	run->workers = map_shared(round_up(library->worker_capacity * sizeof(*run->workers)));
	return run->workers
		       ? 0
		       : klat_error(run, errno, "cannot map shared memory: %s", strerror(errno));
}

static int take_policy(struct klat_run *run)
{
	struct klat_policy *policy = &run->library->policy;
	int err = klat_policy_try(policy->policy, policy->priority);

	if (!err)
		return 0;
	if (policy->asked)
		return klat_error(run, -err,
				  "%s:%d refused: %s; run as root, raise RLIMIT_RTPRIO, or ask for "
				  "--policy other",
				  klat_policy_name(policy->policy), policy->priority,
				  strerror(-err));
	klat_warn(run,
		  "%s:%d refused (%s): measuring under SCHED_OTHER, not comparable with "
		  "real-time figures",
		  klat_policy_name(policy->policy), policy->priority, strerror(-err));
	policy->policy = SCHED_OTHER;
	policy->priority = 0;
	return 0;
}

/* Before and after the run: an offset that changed between leaves no possible one. */
static int bound_offsets(struct klat_run *run)
{
	struct klat_library *library = run->library;

	if (!library->offset_wanted || !klat_measurable(run, library->offset_metric))
		return 0;
	if (!library->offsets) {
		library->offsets = malloc(run->cpu_count * sizeof(*library->offsets));
		if (!library->offsets)
			return klat_error(run, ENOMEM, "out of memory");
		for (int i = 0; i < run->cpu_count; i++)
			library->offsets[i] = KLAT_ANY_OFFSET;
	}
	for (int i = 0; i < run->cpu_count; i++) {
		int err = klat_counter_narrow_offset(run->cpus[0], run->cpus[i], &library->policy,
						     &library->offsets[i]);

		if (err == -EAGAIN)
			return klat_cannot_start(run, -err,
						 "the threads that compare the counters");
		if (err)
			return klat_error(run, -err,
					  "cannot compare the counters of CPUs %d and %d: %s",
					  run->cpus[0], run->cpus[i], strerror(-err));
	}
	return 0;
}

static void calibrate(struct klat_run *run)
{
	if (!run->library->counter.khz)
		klat_counter_calibrate(&run->library->counter);
	run->counter_khz = run->library->counter.khz;
}

static int measure(struct klat_run *run)
{
	struct klat_library *library = run->library;
	int err, latency_fd = -1;

	err = klat_memory_lock();
	library->memory_locked = !err;
	if (err)
		klat_warn(run,
			  "memory cannot be locked (%s): page faults are counted, not prevented",
			  strerror(-err));
	if (library->common.dma_latency >= 0) {
		latency_fd = klat_latency_hold(library->common.dma_latency);
		if (latency_fd < 0)
			return klat_error(run, -latency_fd,
					  "cannot hold /dev/cpu_dma_latency: %s; run as root, or "
					  "without --dma-latency",
					  strerror(-latency_fd));
	}
	err = run->benchmark->setup(run);
	if (err && klat_has_result(run))
		klat_error(run, -err, "setup() failed: %s", strerror(-err));
	if (!err)
		err = klat_workers_run(run);
	/* Not the clock of start_ns, which somebody may set meanwhile. */
	library->elapsed_ns = klat_now_ns() - library->start_monotonic_ns;
	if (run->benchmark->teardown)
		run->benchmark->teardown(run);
	if (latency_fd >= 0)
		close(latency_fd);
	return err;
}

/*
 * The measured process, on the first CPU from its birth: the kernel remembers for each address
 * space where it has run, and sends TLB shootdowns there.
 */
static pid_t fork_measured(struct klat_run *run)
{
	pid_t supervisor = getpid(), pid;

	klat_cpu_pin(run->cpus[0]);
	fflush(NULL);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != supervisor)
			_exit(EXIT_FAILED);
		klat_signals_release();
		klat_halt_poll_leave(run);
		_exit(measure(run) ? EXIT_FAILED : EXIT_MEASURED);
	}
	return pid;
}

/*
 * The supervisor wakes every second, and where it runs, the address space that is measured does
 * not: a shootdown would leave that CPU out. So it stays where nobody is measured; where all CPUs
 * are taken, with the first worker, unless that has a priority and could keep it from running.
 */
static void stand_aside(const struct klat_run *run, const klat_cpu_set *allowed)
{
	klat_cpu_set free_cpus = *allowed;

	for (int i = 0; i < run->cpu_count; i++)
		klat_cpu_remove(&free_cpus, run->cpus[i]);
	if (klat_cpu_weight(&free_cpus))
		klat_cpus_allow(&free_cpus);
	else if (run->library->policy.policy != SCHED_OTHER)
		klat_cpus_allow(allowed);
}

static int64_t progress(const struct klat_run *run)
{
	int64_t sum = run->worker_count;

	for (int i = 0; i < run->worker_count; i++)
		sum += __atomic_load_n(&run->workers[i].iteration, __ATOMIC_RELAXED);
	return sum;
}

/*
 * Wait for the measured process, or for a signal to us. Returns the signal's number, or 0;
 * -ETIMEDOUT when no worker has made progress for run->patience seconds.
 */
static int wait_measured(struct klat_run *run, pid_t pid, int *status, struct rusage *usage)
{
	const struct timespec second = { .tv_sec = 1 };
	int64_t seen = INT64_MIN;
	int idle = 0;

	for (;;) {
		int signal = klat_signals_wait(&second);

		if (signal > 0 && signal != SIGCHLD) {
			kill(pid, SIGKILL);
			wait4(pid, status, 0, usage);
			return signal;
		}
		if (wait4(pid, status, WNOHANG, usage) == pid)
			return 0;
		idle = progress(run) == seen ? idle + (signal < 0) : 0;
		seen = progress(run);
		if (idle >= run->patience) {
			kill(pid, SIGKILL);
			wait4(pid, status, 0, usage);
			return -ETIMEDOUT;
		}
	}
}

static void describe_hang(struct klat_run *run)
{
	const struct klat_worker *slowest = run->workers;

	for (int i = 1; i < run->worker_count; i++)
		if (run->workers[i].iteration < slowest->iteration)
			slowest = &run->workers[i];
	if (run->worker_count)
		klat_error(run, ETIMEDOUT,
			   "no progress for %d s: the %s on CPU %d is at iteration %lld",
			   run->patience, slowest->role, slowest->cpu,
			   (long long)slowest->iteration);
	else
		klat_error(run, ETIMEDOUT, "no progress for %d s during set-up", run->patience);
}

/* A worker's process ended before its body did: see on_child() in worker.c. */
static void describe_end(struct klat_run *run)
{
	const struct klat_library *library = run->library;
	char who[64] = "a process of the run";

	for (int i = 0; i < run->worker_count; i++)
		if (run->workers[i].tid == library->ended_pid)
			snprintf(who, sizeof(who), "the %s on CPU %d", run->workers[i].role,
				 run->workers[i].cpu);
	if (library->ended_signal)
		klat_error(run, EIO, "%s was killed by signal %d (%s)", who, library->ended_signal,
			   strsignal(library->ended_signal));
	else if (klat_has_result(run))
		klat_error(run, EIO, "%s ended with an error and gave no reason", who);
}

/* Run the measurement in a process of its own. Does not return when a signal ends the program. */
static int supervise(struct klat_run *run)
{
	struct klat_library *library = run->library;
	struct rusage usage = { 0 };
	klat_cpu_set allowed;
	int status = 0, result, err;
	pid_t pid;

	if (library->common.guest_halt_poll >= 0) {
		err = klat_halt_poll_hold(run, library->common.guest_halt_poll);
		if (err)
			return err;
	}
	klat_cpus_allowed(&allowed);
	library->start_ns = klat_clock_ns(CLOCK_REALTIME);
	library->start_monotonic_ns = klat_now_ns();
	pid = fork_measured(run);
	if (pid < 0) {
		err = klat_cannot_start(run, errno, "the measured process");
		klat_halt_poll_release(run);
		return err;
	}
	stand_aside(run, &allowed);
	result = wait_measured(run, pid, &status, &usage);
	klat_cpus_allow(&allowed);
	err = klat_halt_poll_release(run);
	if (!library->common.dma_latency && !result)
		klat_halt_poll_settle();
	if (result > 0) {
		if (err)
			klat_warn(run, "%s", library->reason);
		klat_signals_end(result);
	}
	library->measured_memory = usage.ru_maxrss * 1024;
	if (result)
		describe_hang(run);
	else if (WIFSIGNALED(status))
		return klat_error(run, EIO, "the measured process was killed by signal %d (%s)",
				  WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (library->ended_pid)
		describe_end(run);
	else if (WEXITSTATUS(status) && klat_has_result(run))
		klat_error(run, EIO, "the measured process ended with an error and gave no reason");
	return klat_has_result(run) ? 0 : -EIO;
}

static int summarise(struct klat_run *run)
{
	struct klat_library *library = run->library;

	for (int m = 0; m < run->benchmark->metric_count; m++) {
		int64_t count = klat_samples_kept(run, m);
		uint64_t *sorted;

		if (!count)
			continue;
		sorted = malloc(count * sizeof(*sorted));
		if (!sorted)
			return klat_error(run, ENOMEM, "out of memory for %lld samples",
					  (long long)count);
		klat_samples_copy(run, m, sorted);
		klat_summarise(sorted, count, &library->summaries[m]);
		free(sorted);
	}
	for (int i = 0; i < run->worker_count; i++)
		if (run->workers[i].floor > library->floor)
			library->floor = run->workers[i].floor;
	return 0;
}

static void judge_offset(struct klat_run *run)
{
	struct klat_library *library = run->library;
	const struct klat_summary *summary = &library->summaries[library->offset_metric];
	uint64_t bound;

	if (!library->offsets)
		return;
	bound = klat_counter_offset_bound(library->offsets, run->cpu_count);
	if (bound == UINT64_MAX) {
		klat_invalid(run, "the counters of the CPUs did not keep their offset");
		return;
	}
	klat_count(run, "offset_bound", bound);
	/* A counter that lags by more than the latency makes the difference negative. */
	if (summary->max > INT64_MAX)
		klat_invalid(run, "a sample ends before it starts: the counters of the CPUs "
				  "differ by more than the latency");
	/* Too few samples for a median: their mean. */
	else if (bound * 10 > (summary->p50_known ? summary->p50 : summary->mean_milli / 1000))
		klat_invalid(run,
			     "the counters of the CPUs may differ by %llu ticks, more than a "
			     "tenth of the median",
			     (unsigned long long)bound);
}

static int judge(struct klat_run *run)
{
	int err;

	calibrate(run);
	err = summarise(run);
	if (err)
		return err;
	klat_count(run, "locked", run->library->memory_locked);
	klat_count(run, "observed", klat_observed(run));
	klat_evidence_judge(run);
	judge_offset(run);
	err = run->benchmark->verify(run);
	if (err && klat_has_result(run))
		klat_error(run, -err, "verify() failed: %s", strerror(-err));
	return err;
}

/* What to ask of klat_spin() for a spin of so many nanoseconds, 0 for none. */
static uint64_t spin_of(const struct klat_run *run, int64_t ns)
{
	uint64_t ticks = ns * run->counter_khz / 1e6, excess = ns ? klat_spin_excess() : 0;

	return ns && ticks <= excess ? 1 : ticks - excess;
}

static int measure_and_judge(struct klat_run *run)
{
	struct klat_library *library = run->library;
	int err;

	/* A run that is skipped has its time too, which tells it from the next. */
	library->start_ns = klat_clock_ns(CLOCK_REALTIME);
	if (klat_arch_missing())
		return klat_skip(run, "this CPU has no %s", klat_arch_missing());
	err = place(run);
	if (err)
		return err;
	err = take_policy(run);
	if (err)
		return err;
	err = klat_samples_map(run);
	if (err)
		return err;
	if (library->common.inject_ns || run->benchmark->needs_frequency)
		calibrate(run);
	run->inject = spin_of(run, library->common.inject_ns);
	err = bound_offsets(run);
	if (err)
		return err;
	err = supervise(run);
	if (err)
		return err;
	err = bound_offsets(run);
	if (err)
		return err;
	return judge(run);
}

/* What failed before the last buffer is left in the stream's error, and its errno is lost: 0. */
static bool is_written(FILE *out)
{
	errno = 0;
	return !fflush(out) && !ferror(out);
}

static int print(struct klat_run *run)
{
	const struct klat_library *library = run->library;

	if (library->status != KLAT_OK)
		klat_warn(run, "%s: %s", klat_status_name(library->status), library->reason);
	if (library->common.quiet)
		return 0;
	if (library->common.csv) {
		char *rows = klat_record_rows(run, 0);

		if (!rows)
			return -ENOMEM;
		printf("%s%s", klat_record_header, rows);
		free(rows);
	} else if (library->common.json) {
		klat_output_json(run, stdout);
	} else if (klat_has_result(run)) {
		klat_output_text(run, stdout);
	}
	if (!is_written(stdout)) {
		const char *record = library->common.record;

		klat_warn(run, "%s%s%sstandard output: %s", record ? "recorded in " : "",
			  record ? record : "", record ? "; " : "",
			  errno ? strerror(errno) : "it took only a part");
		return -EIO;
	}
	return 0;
}

static int exit_status(enum klat_status status)
{
	switch (status) {
	case KLAT_OK:
	case KLAT_DISTURBED:
		return EXIT_MEASURED;
	case KLAT_INVALID:
		return EXIT_UNTRUSTED;
	case KLAT_SKIPPED:
		return EXIT_SKIPPED;
	default:
		return EXIT_FAILED;
	}
}

/* Help and the like: true when that was all. */
static bool inform(const struct klat_run *run)
{
	const struct klat_common *common = &run->library->common;

	if (common->help)
		klat_options_help(run->benchmark, stdout);
	else if (common->version)
		printf("%s (klat %s, %s)\n", run->benchmark->name, KLAT_VERSION, KLAT_COMMIT);
	else if (common->print_man)
		klat_options_man(run->benchmark, stdout);
	else if (common->print_completion)
		klat_options_completion(run->benchmark, stdout);
	else if (common->print_published)
		klat_output_published(run->benchmark, stdout);
	else
		return false;
	return true;
}

/* With --check-for: nothing is measured. */
static int check_cpus_only(struct klat_run *run)
{
	klat_cpu_set allowed;

	if (count_cpus(run, &allowed))
		klat_warn(run, "%s: %s", klat_status_name(run->library->status),
			  run->library->reason);
	return exit_status(run->library->status);
}

static int live(struct klat_run *run, int argc, char **argv)
{
	const char *check_for;
	int session = -1;

	if (klat_options_parse(run, &run->library->common, argc, argv))
		return EXIT_USAGE;
	check_for = run->library->common.check_for;
	if (inform(run))
		return is_written(stdout) ? EXIT_MEASURED : EXIT_FAILED;
	if (check_for && klat_check_for(run, check_for))
		return EXIT_USAGE;
	if (prepare(run))
		return EXIT_USAGE;
	if (check_for)
		return check_cpus_only(run);
	klat_signals_hold(run);
	if (run->library->common.record) {
		session = klat_session_join(run);
		if (session < 0) {
			klat_warn(run, "%s", run->library->reason);
			return EXIT_FAILED;
		}
	}
	measure_and_judge(run);
	if (session >= 0 && klat_record_append(run, session)) {
		klat_warn(run, "%s", run->library->reason);
		return EXIT_FAILED;
	}
	klat_signals_release();
	if (print(run))
		return EXIT_FAILED;
	return exit_status(run->library->status);
}

int klat_main(const struct klat_benchmark *benchmark, int argc, char **argv)
{
	struct klat_run *run = make_run(benchmark);
	int status;

	if (!run)
		return EXIT_FAILED;
	status = live(run, argc, argv);
	free(run->library->counts);
	free(run->cpus);
	free(run->library->offsets);
	return status;
}
