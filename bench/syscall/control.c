/* SPDX-License-Identifier: MIT */
/* The filter stays until its process ends, and it slows down every system call. So a child installs
 * it. */
#include "syscall.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel returns no such error. */
#define CONTROL_ERROR 2013

static int install_filter(int number, int second)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | CONTROL_ERROR),
	};
	const struct sock_fprog filter = { KLAT_ARRAY_SIZE(code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
			       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)
		       ? -errno
		       : 0;
}

int64_t control(struct klat_run *run, const struct call *call, int number, int64_t *refused)
{
	const int second = call->count > 1 ? call->requests[1].number : number;
	struct call here = *call;
	int64_t count = 0;
	pid_t pid;

	*refused = -1;
	pid = fork();
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (pid)
		return *refused;
	/* The measured process has its state elsewhere, and the first call draws a key from the
	 * kernel. */
	if (call->way == BY_FUNCTION && options.call == VDSO_GETRANDOM) {
		if (call_map_random(run, &here))
			_exit(1);
		request(&here.requests[0], BY_FUNCTION, here.function);
	}
	if (install_filter(number, second))
		_exit(1);
	for (int i = 0; i < CONTROL_CALLS; i++)
		for (int r = 0; r < here.count; r++)
			count += request(&here.requests[r], here.way, here.function) ==
				 -CONTROL_ERROR;
	*refused = count;
	_exit(0);
}
