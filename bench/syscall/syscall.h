/* SPDX-License-Identifier: MIT */
/* The calls of an iteration, and the control that they reach the kernel. */
#ifndef SYSCALL_H
#define SYSCALL_H

#include "klat.h"

#include <time.h>

/* All results fit an int, and some of the functions return no more. */
typedef int (*vdso_function)(long, long, long, long, long);

/* How an iteration makes its calls. CACHED is the planted fault: the expected result, and no call.
 */
enum way { BY_FOUR, BY_SIX, BY_FUNCTION, CACHED };

struct request {
	long number, arguments[6];
	long expected;
};

/* What an iteration calls: one request, or a pair. */
struct call {
	struct request requests[2];
	int count;
	enum way way;
	vdso_function function; /* BY_FUNCTION: in place of the system call */
};

static inline __attribute__((always_inline)) long request(const struct request *of, enum way way,
							  vdso_function function)
{
	const long *arguments = of->arguments;

	switch (way) {
	case BY_FOUR:
		return klat_arch_syscall(of->number, arguments[0], arguments[1], arguments[2],
					 arguments[3]);
	case BY_SIX:
		return klat_arch_syscall_of_six(of->number, arguments);
	case BY_FUNCTION:
		return function(arguments[0], arguments[1], arguments[2], arguments[3],
				arguments[4]);
	case CACHED:
		break;
	}
	return of->expected;
}

/* calls.c */
extern const char *const call_names[];
enum {
	GETPPID,
	GETTID,
	SCHED_YIELD,
	CLOSE_BAD,
	WRITE_NULL,
	READ_ZERO,
	FUTEX_WAKE_NONE,
	CLOCK_GETTIME,
	STAT,
	OPEN_CLOSE,
	READ_FILE,
	WRITE_FILE,
	SEND_RECV,
	MMAP_MUNMAP,
	SELECT,
	POLL,
	EPOLL_WAIT,
	GETCPU,
	GETRANDOM,
	MSEAL,
	VDSO_CLOCK_GETTIME,
	VDSO_GETCPU,
	VDSO_GETRANDOM,
};

#define MAX_BYTES 65536
#define MAX_DESCRIPTORS 1000

struct options {
	int64_t batch, bytes, descriptors;
	int call, process;
};
extern struct options options;

/* What the calls work on. */
struct objects {
	int null, zero, file, epoll, sockets[2];
	int ready[MAX_DESCRIPTORS]; /* descriptors that can be read */
	int above;                  /* the highest of them, plus one */
	char *pages;                /* of the worker */
	char bytes[MAX_BYTES] KLAT_ALIGNED, received[MAX_BYTES] KLAT_ALIGNED;
	char outcome[16 * MAX_DESCRIPTORS] KLAT_ALIGNED; /* of select(), poll() and epoll_wait() */
	struct timespec time, no_time;
	uint32_t futex, cpu, node;
};

/* Whether the call enters the kernel. */
bool call_enters(int call);
/* Whether the option has a meaning for the call. */
bool call_has_bytes(int call);
bool call_has_descriptors(int call);
/* For setup(). */
int objects_open(struct klat_run *run, struct objects *objects);
/* In the worker, because its parent, its id and its memory depend on --caller. */
int call_describe(struct klat_worker *worker, struct objects *objects, struct call *call);
/* Map what the vDSO's getrandom() keeps in memory of the calling process. */
int call_map_random(struct klat_run *run, struct call *call);
/* Before the first call, and after the last: whether the calls had their effects. */
void call_prepare(struct objects *objects);
bool call_took_effect(const struct klat_worker *worker, struct objects *objects);
/* This thread's reads or writes, by /proc/thread-self/io. -1 if the kernel does not count them, or
 * if the call is neither. */
int64_t call_count_by_kernel(void);
bool call_reads(void);

/* vdso.c */
/* The kernel's function of this name in every process. NULL if there is none. */
vdso_function vdso_find(const char *name);

/* control.c */
#define CONTROL_CALLS 100

/*
 * Make the calls of CONTROL_CALLS iterations in a new process, under a seccomp filter that refuses
 * `number` and the second call of a pair. Returns how many calls the filter refused, or -1 without
 * filters. *refused is in memory that the process shares.
 */
int64_t control(struct klat_run *run, const struct call *call, int number, int64_t *refused);

#endif
