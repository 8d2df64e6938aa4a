/* SPDX-License-Identifier: MIT */
/*
 * The child: of a fork, on a stack of its own, as a thread, or as an executed program.
 *
 * A child ends by itself after a few instructions, so no death signal is needed.
 */
#include "spawn.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The name by which the executed program knows that it is a child. */
#define CHILD "klat-spawned"
#define STACK_SIZE 65536
#define THREAD_STACK_SIZE (8l << 20) /* the usual one */

char *const no_environment[] = { NULL };

void *child_main(void *argument)
{
	struct birth *birth = argument;
	uint32_t cpu_identity;
	const uint64_t began = klat_arch_stamp_end(&cpu_identity);
	struct child *child = birth->child;
	const int64_t number = birth->number;

	child->pid = syscall(SYS_gettid);
	child->cpu_identity = cpu_identity;
	child->number = number;
	birth->number = -1;
	__atomic_store_n(&child->began, began, __ATOMIC_RELEASE);
	if (!birth->is_leaving)
		return (void *)(intptr_t)birth->code;
	_exit(birth->code);
}

static int clone_main(void *argument)
{
	child_main(argument);
	return 0;
}

int clone_child(struct birth *birth, int flags)
{
	const int pid = clone(clone_main, birth->stack, flags | CLONE_VM | SIGCHLD, birth);

	return pid < 0 ? -errno : pid;
}

int child_execute(struct birth *birth)
{
	execve("/proc/self/exe", birth->arguments, no_environment);
	birth->child->error = errno;
	_exit(127);
}

int birth_prepare(struct birth *birth, int descriptor)
{
	static char text[16], number[NUMBER_SIZE];
	char *stack =
		mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED)
		return -errno;
	birth->stack = stack + STACK_SIZE;
	/* The C library keeps a stack of this size for the next thread. With a larger `ulimit -s`
	 * it would map a new one. */
	pthread_attr_init(&birth->attributes);
	pthread_attr_setstacksize(&birth->attributes, THREAD_STACK_SIZE);
	snprintf(text, sizeof(text), "%d", descriptor);
	birth->arguments[0] = CHILD;
	birth->arguments[1] = text;
	birth->arguments[2] = number;
	return 0;
}

static int64_t nanoseconds(struct timeval time)
{
	return time.tv_sec * 1000000000 + time.tv_usec * 1000;
}

int64_t children_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_CHILDREN, &usage);
	return nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
}

/* Without the C library, which is not initialised yet. */
__attribute__((no_sanitize("address", "undefined", "thread"))) static int64_t
number_of(const char *text)
{
	int64_t number = 0;

	for (; *text; text++)
		number = 10 * number + *text - '0';
	return number;
}

/* In the executed program: the first function that the dynamic linker calls, before those of the
 * libraries. */
__attribute__((no_sanitize("address", "undefined", "thread"))) static void
begin_program(int argc, char **argv, char **environment)
{
	static const char name[] = CHILD;
	uint32_t cpu_identity;
	const uint64_t began = klat_arch_stamp_end(&cpu_identity);
	struct child child = { .began = began, .cpu_identity = cpu_identity };

	(void)environment;
	if (argc != 3)
		return;
	for (size_t i = 0; i < sizeof(name); i++)
		if (argv[0][i] != name[i])
			return;
	child.pid = syscall(SYS_getpid);
	child.number = number_of(argv[2]);
	syscall(SYS_pwrite64, (int)number_of(argv[1]), &child, sizeof(child), 0l);
	syscall(SYS_exit_group, (int)(child.number % CODES));
}

__attribute__((section(".preinit_array"),
	       used)) static void (*const first)(int, char **, char **) = begin_program;
