/* SPDX-License-Identifier: MIT */
/* What programs ask the kernel for: open files and namespaces. */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

int klat_allow_files(struct klat_run *run, int64_t files)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= (rlim_t)files)
		return 0;
	if (limit.rlim_max < (rlim_t)files)
		return klat_skip(
			run,
			"needs %lld open files, and the hard limit is %lld: raise it (ulimit -Hn)",
			(long long)files, (long long)limit.rlim_max);
	limit.rlim_cur = files;
	return setrlimit(RLIMIT_NOFILE, &limit)
		       ? klat_error(run, errno, "cannot raise the limit on open files: %m")
		       : 0;
}

void klat_lift_real_time(void)
{
	static const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct rlimit limit;

	if (!setrlimit(RLIMIT_RTTIME, &unlimited) || getrlimit(RLIMIT_RTTIME, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_RTTIME, &limit);
}

/* A clause about the limit that may be the cause of this signal; empty if none can. */
static void describe_limit(bool real_time, int signal, char *text, size_t size)
{
	struct rlimit limit;

	*text = 0;
	if (signal != SIGXCPU && signal != SIGKILL)
		return;
	if (real_time && !getrlimit(RLIMIT_RTTIME, &limit) && limit.rlim_max != RLIM_INFINITY)
		snprintf(
			text, size,
			"; the cause may be the hard limit RLIMIT_RTTIME (%llu us without a "
			"sleep), which klat could not lift: raise it (prlimit --rttime=unlimited), "
			"or ask for --policy other",
			(unsigned long long)limit.rlim_max);
	else if (!getrlimit(RLIMIT_CPU, &limit) && limit.rlim_cur != RLIM_INFINITY)
		snprintf(text, size,
			 "; RLIMIT_CPU allows a process %llu s of CPU time: raise it (ulimit -t)",
			 (unsigned long long)limit.rlim_cur);
	else if (signal == SIGKILL)
		snprintf(text, size,
			 "; the kernel also kills a process if memory is exhausted (limit of the "
			 "memory cgroup, dmesg)");
}

int klat_killed(struct klat_run *run, const char *who, int signal, bool real_time)
{
	char cause[256];

	describe_limit(real_time, signal, cause, sizeof(cause));
	return klat_error(run, EIO, "%s was killed by signal %d (%s)%s", who, signal,
			  strsignal(signal), cause);
}

int klat_allow_more_files(struct klat_run *run, int64_t more)
{
	DIR *directory = opendir("/proc/self/fd");
	struct rlimit limit;

	if (directory) {
		while (readdir(directory))
			more++;
		closedir(directory);
	} else if (errno == EMFILE && !getrlimit(RLIMIT_NOFILE, &limit)) {
		more += limit.rlim_cur;
	}
	return klat_allow_files(run, more);
}

int klat_enter_namespace(struct klat_run *run, int flag, const char *what)
{
	int err;

	if (!unshare(flag))
		return 0;
	err = errno;
	if (err == EPERM && !unshare(CLONE_NEWUSER | flag))
		return 0;
	return klat_skip(run, "cannot make %s (%s): run as root, or allow user namespaces", what,
			 strerror(err));
}
