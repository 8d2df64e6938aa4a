// SPDX-License-Identifier: MIT
/*
 * seccomp-delay N COMMAND...: runs COMMAND under a seccomp filter of N BPF instructions besides the
 * one that allows, which every system call of it passes from then on. A cost in the kernel's own
 * path, for validation.
 *
 * The filter loads an argument of the system call: the kernel computes beforehand which calls a
 * filter allows whatever their arguments, and skips it for these, so a filter without such a load
 * costs nothing. The other instructions are multiplications, each of which waits for the one
 * before; as nothing waits for the last, a processor does the first few tens beside other work, and
 * only further instructions add time. N = 0 installs none.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST (BPF_MAXINSNS - 1)

/* 0 or -errno. */
static int install(unsigned int n)
{
	struct sock_filter load =
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
	struct sock_filter multiply = BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 0x9e3779b9);
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_filter filter[BPF_MAXINSNS];
	struct sock_fprog program = { .len = n + 1, .filter = filter };

	filter[0] = load;
	for (unsigned int i = 1; i < n; i++)
		filter[i] = multiply;
	filter[n] = allow;
	/* Needed without privilege only, and kept off set-user-ID programs with it. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		return -errno;
	return 0;
}

int main(int argc, char **argv)
{
	char *end;
	long n;
	int error;

	if (argc < 3) {
		fprintf(stderr, "usage: seccomp-delay N COMMAND...\n");
		return 2;
	}
	errno = 0;
	n = strtol(argv[1], &end, 10);
	if (errno || end == argv[1] || *end || n < 0 || n > MOST) {
		fprintf(stderr, "seccomp-delay: %s is no number of instructions from 0 to %d\n",
			argv[1], MOST);
		return 2;
	}
	error = n ? install(n) : 0;
	if (error) {
		fprintf(stderr, "seccomp-delay: cannot install a filter: %s\n", strerror(-error));
		return 1;
	}
	execvp(argv[2], argv + 2);
	fprintf(stderr, "seccomp-delay: %s: %s\n", argv[2], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
