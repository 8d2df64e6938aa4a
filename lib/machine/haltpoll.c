/* SPDX-License-Identifier: MIT */
/*
 * The guest's halt polling, held at a value for the length of a run. Before a virtual CPU halts,
 * which is an exit to the hypervisor, the haltpoll governor lets it look for work for up to
 * guest_halt_poll_ns.
 *
 * The kernel does not put that back when its writer is gone, as it does with what hangs on a
 * descriptor. So a guard does: a process that waits for the end of a pipe whose writing end the
 * supervisor alone has. It is there before the value is touched, in a group of its own and deaf to
 * signals, so that what ends the program does not end it. Only who kills both at once, by name or
 * as all of a cgroup, leaves the value as it is.
 *
 * The trap, in drivers/cpuidle/governors/haltpoll.c: the value is only a bound. Each CPU has a
 * limit of its own, which a halt longer than that limit makes grow, up to the bound, and one longer
 * than the bound makes shrink. A CPU that finds work within its limit does not halt, and so keeps a
 * limit from before, whatever the bound is now; a limit is left behind by --dma-latency 0 as well,
 * see cpuidle_poll_time(). The CPUs of the run are therefore brought to 0 first.
 */
#include "machine/machine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CPUIDLE "/sys/devices/system/cpu/cpuidle"
#define PARAMETERS "/sys/module/haltpoll/parameters"
#define VALUE PARAMETERS "/guest_halt_poll_ns"

enum {
	LOCK_LIMIT_MS = 1000,
	SETTLE_NS = 300000000,
	BUSY_SLEEPS = 10,
	SHORTEST_SLEEP_NS = 100000,
	LONGEST_SLEEP_NS = 20000000
};

static int64_t number_of(const char *text)
{
	return isdigit((unsigned char)*text) ? strtoll(text, NULL, 10) : -1;
}

static int64_t read_number(const char *path)
{
	char text[64];

	return klat_read_small(path, text, sizeof(text)) > 0 ? number_of(text) : -1;
}

int64_t klat_halt_poll_ns(void)
{
	return read_number(VALUE);
}

bool klat_idle_entries(int cpu, int64_t *polls, int64_t *halts)
{
	char path[96], name[64];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpuidle/state0/name", cpu);
	if (klat_read_small(path, name, sizeof(name)) <= 0 || strncmp(name, "POLL", 4))
		return false;
	*polls = *halts = 0;
	for (int state = 0;; state++) {
		int64_t usage;

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpuidle/state%d/usage",
			 cpu, state);
		usage = read_number(path);
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

/* Without the governor the value changes nothing; older kernels have the one file or the other. */
static int check_governor(struct klat_run *run)
{
	char governor[64];

	if (klat_read_small(CPUIDLE "/current_governor", governor, sizeof(governor)) <= 0 &&
	    klat_read_small(CPUIDLE "/current_governor_ro", governor, sizeof(governor)) <= 0)
		strcpy(governor, "none");
	governor[strcspn(governor, "\n")] = 0;
	if (!strcmp(governor, "haltpoll"))
		return 0;
	return klat_skip(
		run,
		"--guest-halt-poll has no effect under the cpuidle governor %s: it needs haltpoll, "
		"which a KVM guest has with the cpuidle-haltpoll driver",
		governor);
}

static int check_adaptive(struct klat_run *run)
{
	char allowed[8];

	if ((klat_read_small(PARAMETERS "/guest_halt_poll_allow_shrink", allowed, sizeof(allowed)) >
		     0 &&
	     allowed[0] == 'N') ||
	    read_number(PARAMETERS "/guest_halt_poll_shrink") == 1)
		return klat_skip(
			run, "--guest-halt-poll cannot lower the polling limits of the CPUs; write "
			     "Y to guest_halt_poll_allow_shrink and 2 to guest_halt_poll_shrink "
			     "in " PARAMETERS);
	return 0;
}

/*
 * Within a second, the guard of a program that was killed has put the value back. A longer wait
 * does not help: the other program is measuring, and two at once would disturb each other. The lock
 * is on the file itself and leaves nothing behind. A network namespace with a /sys of its own does
 * not see it.
 */
static int lock(struct klat_run *run, int file)
{
	int err = klat_lock(file, LOCK_LIMIT_MS);
	char holder[64];

	if (err == -EWOULDBLOCK) {
		klat_lock_holder(file, holder, sizeof(holder));
		return klat_error(
			run, EBUSY,
			"%s holds guest_halt_poll_ns: run one with --guest-halt-poll at a "
			"time",
			holder);
	}
	return err ? klat_error(run, -err, "cannot lock " VALUE ": %s", strerror(-err)) : 0;
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
		return klat_error(run, errno, "cannot make a pipe: %s", strerror(errno));
	hold->lifeline = ends[1];
	fflush(NULL);
	pid = fork();
	if (!pid)
		guard(hold, ends[0]);
	if (pid < 0)
		err = klat_cannot_start(run, errno,
					"the process that puts guest_halt_poll_ns back");
	else if (setpgid(pid, pid))
		err = klat_error(run, errno, "cannot make a process group: %s", strerror(errno));
	close(ends[0]);
	if (pid > 0)
		hold->guard = pid;
	else
		close(ends[1]);
	return err;
}

/*
 * Let this CPU halt until it does so without having polled. Its limit halves with each halt that is
 * longer than the bound, and while the limit is longer than a sleep the CPU does not halt. What a
 * busy CPU does cannot be seen, and its run tells by its evidence.
 */
static void settle(int cpu, int64_t bound_ns)
{
	const int64_t shortest =
		2 * bound_ns > SHORTEST_SLEEP_NS ? 2 * bound_ns : SHORTEST_SLEEP_NS;
	int64_t begun = klat_now_ns(), ns = shortest;

	for (int busy = 0; busy < BUSY_SLEEPS && klat_now_ns() - begun < SETTLE_NS;) {
		int64_t polls, halts, polls_then, halts_then;

		if (!klat_idle_entries(cpu, &polls_then, &halts_then))
			return;
		klat_nap(ns);
		if (!klat_idle_entries(cpu, &polls, &halts))
			return;
		if (halts > halts_then && polls == polls_then)
			return;
		busy = halts > halts_then || polls > polls_then ? 0 : busy + 1;
		if (halts > halts_then)
			ns = ns / 2 > shortest ? ns / 2 : shortest;
		else if (polls > polls_then)
			ns = ns * 2 < LONGEST_SLEEP_NS ? ns * 2 : LONGEST_SLEEP_NS;
	}
}

static int settle_all(struct klat_run *run, const struct klat_halt_poll *hold)
{
	klat_cpu_set before;
	int err = put(hold->file, 0);

	if (err || klat_cpus_allowed(&before))
		return err;
	/* A signal that ends the program here has the guard put the value back. */
	klat_signals_open();
	for (int i = 0; i < run->cpu_count; i++)
		if (!klat_cpu_pin(run->cpus[i]))
			settle(run->cpus[i], 0);
	klat_signals_close();
	klat_cpus_allow(&before);
	return 0;
}

void klat_halt_poll_settle(void)
{
	int64_t bound = klat_halt_poll_ns();
	klat_cpu_set allowed;

	if (bound < 0 || klat_cpus_allowed(&allowed))
		return;
	klat_signals_open();
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(&allowed, cpu) && !klat_cpu_pin(cpu))
			settle(cpu, bound);
	klat_signals_close();
	klat_cpus_allow(&allowed);
}

static int take(struct klat_run *run, struct klat_halt_poll *hold, int64_t ns)
{
	int err = lock(run, hold->file);

	if (err)
		return err;
	hold->before = read_number(VALUE);
	if (hold->before < 0)
		return klat_error(run, EIO, "cannot read " VALUE);
	err = start_guard(run, hold);
	if (err)
		return err;
	err = settle_all(run, hold);
	if (!err)
		err = put(hold->file, ns);
	if (!err && klat_halt_poll_ns() != ns)
		err = -EIO;
	return err ? klat_error(run, -err, "cannot set " VALUE " to %lld: %s", (long long)ns,
				strerror(-err))
		   : 0;
}

int klat_halt_poll_hold(struct klat_run *run, struct klat_halt_poll *hold, int64_t ns)
{
	int err = check_governor(run);

	if (!err)
		err = check_adaptive(run);
	if (err)
		return err;
	hold->file = open(VALUE, O_RDWR | O_CLOEXEC);
	if (hold->file < 0 && errno == ENOENT)
		return klat_skip(run, "there is no " VALUE " to hold by --guest-halt-poll");
	if (hold->file < 0)
		return klat_skip(run,
				 "cannot write " VALUE ": %s; run as root, or without "
				 "--guest-halt-poll",
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
		/* Somebody killed it, or it could not: what is left is to try again. */
		if (status)
			err = put(hold->file, hold->before);
	}
	if (err)
		klat_error(run, -err, "cannot restore %lld in " VALUE ": %s; write it by hand",
			   (long long)hold->before, strerror(-err));
	close(hold->file);
	*hold = (struct klat_halt_poll){ 0 };
	return err;
}
