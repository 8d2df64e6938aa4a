/* SPDX-License-Identifier: MIT */
/* Private network namespaces, made in a child process. */
#include "net/net.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int klat_net_in_child(struct klat_run *run, int (*body)(struct klat_run *run))
{
	pid_t pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0ul);
	int status;

	if (pid < 0)
		return klat_cannot_start(run, errno, "the process that makes the network");
	if (!pid)
		_exit(body(run) ? 1 : 0);
	if (waitpid(pid, &status, 0) < 0)
		return klat_error(run, errno,
				  "cannot wait for the process that makes the network: "
				  "%m");
	if (WIFSIGNALED(status))
		return klat_error(run, EIO, "signal %d killed the process that makes the network",
				  WTERMSIG(status));
	return WEXITSTATUS(status) ? -EIO : 0;
}

int klat_net_enter(struct klat_run *run, int namespace)
{
	if (setns(namespace, CLONE_NEWNET))
		return klat_error(run, errno, "cannot enter the network namespace: %m");
	return 0;
}
