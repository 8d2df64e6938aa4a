/* SPDX-License-Identifier: MIT */
/* What programs ask the kernel for: open files and namespaces. */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

int klat_allow_files(struct klat_run *run, int64_t files)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= (rlim_t)files)
		return 0;
	if (limit.rlim_max < (rlim_t)files)
		return klat_skip(run,
				 "needs %lld open files, and the hard limit is %lld: raise it "
				 "(ulimit -Hn)",
				 (long long)files, (long long)limit.rlim_max);
	limit.rlim_cur = files;
	return setrlimit(RLIMIT_NOFILE, &limit)
		       ? klat_error(run, errno, "cannot raise the limit on open files: %m")
		       : 0;
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
