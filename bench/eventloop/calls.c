/* SPDX-License-Identifier: MIT */
/* ptrace() stops the child at each entry to the kernel and at each return. That is much slower than
 * the calls, so nothing is timed here. It needs no privilege. */
#include "calls.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACE_REFUSED 255

static void child(int (*action)(void *argument), void *argument)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(TRACE_REFUSED);
	raise(SIGSTOP);
	_exit(-action(argument));
}

/* Count until the child ends. */
static int follow(pid_t pid, const volatile int *phase, int phases, int64_t *counts, int *status)
{
	bool inside = false;

	for (;;) {
		int signal = 0;

		if (WIFSTOPPED(*status) && WSTOPSIG(*status) == (SIGTRAP | 0x80)) {
			inside = !inside;
			if (inside && *phase < phases)
				counts[*phase]++;
		} else if (WIFSTOPPED(*status) && WSTOPSIG(*status) != SIGSTOP) {
			signal = WSTOPSIG(*status);
		}
		if (ptrace(PTRACE_SYSCALL, pid, NULL, signal) || waitpid(pid, status, 0) < 0)
			return -errno;
		if (!WIFSTOPPED(*status))
			return 0;
	}
}

int calls_count(int (*action)(void *argument), void *argument, const volatile int *phase,
		int phases, int64_t *counts)
{
	int status, err;
	pid_t pid = fork();

	if (!pid)
		child(action, argument);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	if (WIFEXITED(status))
		return -EPERM;
	err = ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
		      ? -errno
		      : follow(pid, phase, phases, counts, &status);
	if (err) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return err;
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
