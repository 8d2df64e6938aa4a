/* SPDX-License-Identifier: MIT */
/*
 * Holds the guest's halt polling at a value during a run. Under the haltpoll governor a virtual CPU
 * polls for work, for up to guest_halt_poll_ns, before it halts. A halt is an exit to the
 * hypervisor.
 *
 * The kernel does not restore this value when its writer exits. Therefore a guard process does. It
 * reads from a pipe until the supervisor, the only writer, ends. It starts before the value
 * changes, has its own process group, and blocks all signals, so a signal to the program does not
 * end it. If both are killed at once, for example by cgroup.kill, the value stays.
 *
 * In drivers/cpuidle/governors/haltpoll.c the value is only an upper bound. Each CPU has its own
 * polling limit. A halt longer than the limit makes the limit grow, up to the bound; a halt longer
 * than the bound makes it shrink. A CPU that finds work within its limit does not halt, so its
 * limit stays, also above a new bound. Under a latency request of 0 every idle CPU polls, and gets
 * a limit: see cpuidle_poll_time(). Therefore every run first brings the limits of its CPUs down to
 * 0.
 */
#include "machine/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE "/sys/devices/system/cpu/cpu%d/cpuidle/state%d"
#define CPUIDLE "/sys/devices/system/cpu/cpuidle"
#define PARAMETERS "/sys/module/haltpoll/parameters"
#define VALUE PARAMETERS "/guest_halt_poll_ns"

enum {
	LOCK_LIMIT_MS = 1000,
	SETTLE_NS = 300000000,
	BUSY_SLEEPS = 10,
	HALTS = 2,
	/* A hypervisor polls too before it takes the CPU, by default up to 200 us. A longer halt
	 * shrinks its limit. */
	SHORTEST_SLEEP_NS = 1000000,
	LONGEST_SLEEP_NS = 20000000
};

int64_t klat_halt_poll_ns(void)
{
	return klat_read_count(VALUE);
}

bool klat_idle_entries(int cpu, int64_t *polls, int64_t *halts)
{
	char name[64];

	if (!klat_read_line(klat_path(STATE "/name", cpu, 0), name, sizeof(name)) ||
	    strncmp(name, "POLL", 4))
		return false;
	*polls = *halts = 0;
	for (int state = 0;; state++) {
		const int64_t usage = klat_read_count(klat_path(STATE "/usage", cpu, state));

		if (usage < 0)
			return state > 1;
		*(state ? halts : polls) += usage;
	}
}

static int put(int file, int64_t ns)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%lld\n", (long long)ns);
	ssize_t written = pwrite(file, text, length, 0);

	return written == length ? 0 : written < 0 ? -errno : -EIO;
}

/* Older kernels have only one of the two files. */
static void read_governor(char *governor, size_t size)
{
	if (!klat_read_line(CPUIDLE "/current_governor", governor, size) &&
	    !klat_read_line(CPUIDLE "/current_governor_ro", governor, size))
		snprintf(governor, size, "none");
}

static int check_governor(struct klat_run *run)
{
	char governor[64];

	read_governor(governor, sizeof(governor));
	if (!strcmp(governor, "haltpoll"))
		return 0;
	return klat_skip(run,
			 "--guest-halt-poll has no effect under the cpuidle governor %s: it needs "
			 "haltpoll, which a KVM guest has with the cpuidle-haltpoll driver",
			 governor);
}

static int check_adaptive(struct klat_run *run)
{
	char allowed[8];

	klat_read_line(PARAMETERS "/guest_halt_poll_allow_shrink", allowed, sizeof(allowed));
	if (allowed[0] == 'N' || klat_read_count(PARAMETERS "/guest_halt_poll_shrink") == 1)
		return klat_skip(run, "--guest-halt-poll cannot lower the polling limits of the "
				      "CPUs; write Y to guest_halt_poll_allow_shrink and 2 to "
				      "guest_halt_poll_shrink in " PARAMETERS);
	return 0;
}

/*
 * After a kill, the guard of the killed program restores the value and releases the lock within a
 * second. A longer wait is useless: another program is measuring, and the two would disturb each
 * other. Processes with a /sys of another network namespace do not see the lock.
 */
static int lock(struct klat_run *run, int file)
{
	int err = klat_lock(file, LOCK_LIMIT_MS);
	char holder[64];

	if (err == -EWOULDBLOCK) {
		klat_lock_holder(file, holder, sizeof(holder));
		return klat_error(run, EBUSY,
				  "%s holds guest_halt_poll_ns: run only one program with "
				  "--guest-halt-poll at a time",
				  holder);
	}
	return err ? klat_error(run, -err, "cannot lock " VALUE ": %m") : 0;
}

static _Noreturn void guard(const struct klat_halt_poll *hold, int pipe_end)
{
	sigset_t all;
	char byte;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	prctl(PR_SET_NAME, "klat-restore");
	close(hold->lifeline);
	while (read(pipe_end, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(put(hold->file, hold->before) ? 1 : 0);
}

static int start_guard(struct klat_run *run, struct klat_halt_poll *hold)
{
	int ends[2], err = 0;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return klat_error(run, errno, "cannot make a pipe: %m");
	hold->lifeline = ends[1];
	fflush(NULL);
	pid = fork();
	if (!pid)
		guard(hold, ends[0]);
	if (pid < 0)
		err = klat_cannot_start(run, errno, "the process that restores guest_halt_poll_ns");
	else if (setpgid(pid, pid))
		err = klat_error(run, errno, "cannot make a process group: %m");
	close(ends[0]);
	if (pid > 0)
		hold->guard = pid;
	else
		close(ends[1]);
	return err;
}

/*
 * Sleep on this CPU until it halts HALTS times in succession without polling first: after a poll
 * that found no work, the governor halts once whatever the limit is. Each halt longer than the
 * bound halves the CPU's limit. A sleep shorter than the limit ends while the CPU polls, so sleeps
 * get longer until the CPU halts. On a busy CPU nothing can be seen; the evidence of the run then
 * shows polls.
 */
static void settle(int cpu, int64_t bound_ns)
{
	const int64_t shortest =
		2 * bound_ns > SHORTEST_SLEEP_NS ? 2 * bound_ns : SHORTEST_SLEEP_NS;
	int64_t begun = klat_now_ns(), ns = shortest;
	int busy = 0, halts_alone = 0;

	while (halts_alone < HALTS && busy < BUSY_SLEEPS && klat_now_ns() - begun < SETTLE_NS) {
		int64_t polls, halts, polls_before, halts_before;
		bool polled, halted;

		if (!klat_idle_entries(cpu, &polls_before, &halts_before))
			return;
		klat_nap(ns);
		if (!klat_idle_entries(cpu, &polls, &halts))
			return;
		polled = polls > polls_before;
		halted = halts > halts_before;
		halts_alone = halted && !polled ? halts_alone + 1 : 0;
		busy = halted || polled ? 0 : busy + 1;
		if (halted)
			ns = ns / 2 > shortest ? ns / 2 : shortest;
		else if (polled)
			ns = ns * 2 < LONGEST_SLEEP_NS ? ns * 2 : LONGEST_SLEEP_NS;
	}
}

/* A signal may end the program here. The guard, if there is one, then restores the value. */
static void settle_all(const struct klat_run *run, int64_t bound_ns)
{
	klat_cpu_set allowed;

	if (klat_cpus_allowed(&allowed))
		return;
	klat_signals_open();
	for (int i = 0; i < run->cpu_count; i++)
		if (!klat_cpu_pin(run->cpus[i]))
			settle(run->cpus[i], bound_ns);
	klat_signals_close();
	klat_cpus_allow(&allowed);
}

void klat_halt_poll_settle(const struct klat_run *run)
{
	const int64_t bound_ns = klat_halt_poll_ns();
	char governor[64];

	read_governor(governor, sizeof(governor));
	if (bound_ns >= 0 && !strcmp(governor, "haltpoll"))
		settle_all(run, bound_ns);
}

static int take(struct klat_run *run, struct klat_halt_poll *hold, int64_t ns)
{
	int err = lock(run, hold->file);

	if (err)
		return err;
	hold->before = klat_read_count(VALUE);
	if (hold->before < 0)
		return klat_error(run, EIO, "cannot read " VALUE);
	err = start_guard(run, hold);
	if (err)
		return err;
	err = put(hold->file, 0);
	if (!err) {
		settle_all(run, 0);
		err = put(hold->file, ns);
	}
	if (!err && klat_halt_poll_ns() != ns)
		err = -EIO;
	return err ? klat_error(run, -err, "cannot set " VALUE " to %lld: %m", (long long)ns) : 0;
}

int klat_halt_poll_hold(struct klat_run *run, struct klat_halt_poll *hold, int64_t ns)
{
	int err = check_governor(run) ?: check_adaptive(run);

	if (err)
		return err;
	hold->file = open(VALUE, O_RDWR | O_CLOEXEC);
	if (hold->file < 0 && errno == ENOENT)
		return klat_skip(run, "--guest-halt-poll needs " VALUE ", which does not exist");
	if (hold->file < 0)
		return klat_skip(run,
				 "cannot write " VALUE
				 ": %s; run as root, or without --guest-halt-poll",
				 strerror(errno));
	hold->open = true;
	err = take(run, hold, ns);
	if (err)
		klat_halt_poll_release(run, hold);
	return err;
}

void klat_halt_poll_leave(const struct klat_halt_poll *hold)
{
	if (!hold->open)
		return;
	close(hold->lifeline);
	close(hold->file);
}

int klat_halt_poll_release(struct klat_run *run, struct klat_halt_poll *hold)
{
	int status = 0, err = 0;

	if (!hold->open)
		return 0;
	if (hold->guard) {
		close(hold->lifeline);
		while (waitpid(hold->guard, &status, 0) < 0 && errno == EINTR)
			;
		/* The guard was killed, or its write failed. */
		if (status)
			err = put(hold->file, hold->before);
	}
	if (err)
		klat_error(run, -err, "cannot restore %lld in " VALUE ": %m; write it by hand",
			   (long long)hold->before);
	close(hold->file);
	*hold = (struct klat_halt_poll){ 0 };
	return err;
}
