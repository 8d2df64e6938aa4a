/* SPDX-License-Identifier: MIT */
/* The calls that send a signal, and the waits that receive one. */
#include "side.h"

#include <errno.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static int by_tgkill(const struct side *side, int value)
{
	(void)value;
	return tgkill(side->target_pid, side->target_tid, side->target_number);
}

static int by_kill(const struct side *side, int value)
{
	(void)value;
	return kill(side->target_pid, side->target_number);
}

static int by_sigqueue(const struct side *side, int value)
{
	return sigqueue(side->target_pid, side->target_number,
			(union sigval){ .sival_int = value });
}

static int by_pidfd(const struct side *side, int value)
{
	(void)value;
	return syscall(SYS_pidfd_send_signal, side->target_fd, side->target_number, NULL, 0);
}

static const struct {
	send_fn send;
	int code; /* of the signals */
} ways[] = {
	[TGKILL] = { by_tgkill, SI_TKILL },
	[KILL] = { by_kill, SI_USER },
	[SIGQUEUE] = { by_sigqueue, SI_QUEUE },
	[PIDFD] = { by_pidfd, SI_USER },
};

send_fn send_by(int way)
{
	return ways[way].send;
}

static inline void store(struct side *side, int number, int code, int from, int value)
{
	side->code = code;
	side->from = from;
	side->value = value;
	side->received = number;
}

/* By number, because glibc's sigwaitinfo() returns SI_USER for SI_TKILL. A stop of the process ends
 * the call: see signal(7). */
static int by_sigwaitinfo(struct side *side)
{
	siginfo_t info;
	const size_t size = _NSIG / 8; /* of the kernel's set */

	if (TEMP_FAILURE_RETRY(syscall(SYS_rt_sigtimedwait, &side->set, &info, NULL, size)) < 0)
		return -errno;
	store(side, info.si_signo, info.si_code, info.si_pid, info.si_value.sival_int);
	return 0;
}

static int by_signalfd(struct side *side)
{
	struct signalfd_siginfo info;

	if (TEMP_FAILURE_RETRY(read(side->fd, &info, sizeof(info))) != sizeof(info))
		return -errno;
	store(side, (int)info.ssi_signo, info.ssi_code, (int)info.ssi_pid, info.ssi_int);
	return 0;
}

/* The side of each signal, from SIGRTMIN on: a signal handler gets no pointer to it. Each process
 * has its own copy. */
static struct side *handled[_NSIG];

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)context;
	store(handled[number - SIGRTMIN], number, info->si_code, info->si_pid,
	      info->si_value.sival_int);
}

/*
 * The signal is blocked outside sigsuspend(), so one that comes before stays pending, and none is
 * missed. SIGCHLD of a stopped receiver also ends sigsuspend().
 */
static int by_handler(struct side *side)
{
	side->received = 0;
	while (!side->received)
		if (sigsuspend(&side->others) && errno != EINTR)
			return -errno;
	return 0;
}

int sides_prepare(const struct klat_run *run, struct side sides[2])
{
	static int (*const waits[])(struct side * side) = {
		[SIGWAITINFO] = by_sigwaitinfo,
		[HANDLER] = by_handler,
		[SIGNALFD] = by_signalfd,
	};
	const struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigset_t all;

	/* Every thread and process of the run inherits the blocked signals of all pairs. */
	sigemptyset(&all);
	for (int i = 0; i < 2 * run->pairs; i++)
		sigaddset(&all, SIGRTMIN + i);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int i = 0; i < 2; i++) {
		struct side *side = &sides[i];

		side->number = SIGRTMIN + 2 * run->pair + i;
		side->target_number = SIGRTMIN + 2 * run->pair + !i;
		handled[side->number - SIGRTMIN] = side;
		side->send = send_by(options.send);
		side->receive = waits[options.receive];
		sigemptyset(&side->set);
		sigaddset(&side->set, side->number);
		sigprocmask(SIG_BLOCK, NULL, &side->others);
		sigdelset(&side->others, side->number);
		if (sigaction(side->number, &action, NULL))
			return -errno;
		if (options.receive == SIGNALFD)
			side->fd = signalfd(-1, &side->set, SFD_CLOEXEC);
		if (side->fd < 0)
			return -errno;
	}
	return 0;
}

int side_aim(struct side *side, pid_t pid, pid_t tid)
{
	side->target_pid = pid;
	side->target_tid = tid;
	if (options.send == PIDFD)
		side->target_fd = syscall(SYS_pidfd_open, pid, 0);
	return side->target_fd < 0 ? -errno : 0;
}

int side_end(struct klat_run *run, int err)
{
	return err != -EAGAIN ? err
			      : klat_skip(run, "the kernel refuses one more pending signal: raise "
					       "the limit (ulimit -i)");
}

bool side_has_mismatch(const struct side *side, int value)
{
	return side->received != side->number || side->code != ways[options.send].code ||
	       side->from != side->target_pid || (options.send == SIGQUEUE && side->value != value);
}

bool side_has_pending(const struct side *side)
{
	sigset_t pending;

	return sigpending(&pending) || sigismember(&pending, side->number);
}
