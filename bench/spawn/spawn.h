/* SPDX-License-Identifier: MIT */
/* What starts, what a child does, and the memory of the parent. */
#ifndef SPAWN_H
#define SPAWN_H

#include "klat.h"

enum { START, REAPED };
enum { FORK, VFORK, CLONE, THREAD, POSIX_SPAWN, EXEC, CALL };

/* What the child says of itself, in memory that it shares with the parent. */
struct child {
	uint64_t began; /* its first stamp */
	uint32_t cpu_identity;
	int32_t pid; /* its thread's id */
	int64_t number;
	int32_t error; /* of execve() */
};

/* In the parent's own memory: a child that shares it with the parent sets `number` to -1. */
struct birth {
	struct child *child;
	int64_t number;
	int code; /* the child ends with this status */
	bool is_leaving;
	pthread_t thread;
	pthread_attr_t attributes; /* of a thread */
	char *stack;               /* its end */
	char *arguments[4];
};

enum { CODES = 128, NUMBER_SIZE = 24 };

/* children.c */
/* Of an executed program: variables of the caller would change how long its start takes. */
extern char *const no_environment[];
/* A stack and arguments. `descriptor` is that of the child's memory. 0 or -errno. */
int birth_prepare(struct birth *birth, int descriptor);
/* The start of any child but that of an executed program. Does not return, except as a thread. */
void *child_main(void *birth);
int child_execute(struct birth *birth);
int clone_child(struct birth *birth, int flags);
/* The CPU time of all children that were waited for. */
int64_t children_ns(void);

/* resident.c: map memory and write to each page. 0 or -errno. */
struct resident {
	int64_t huge_kib, kib; /* by the kernel's account; -1 if it is unknown */
};
int resident_make(struct klat_worker *parent, int64_t mib, bool huge, struct resident *resident);

extern struct options {
	int64_t resident;
	int what, huge;
} options;

struct state {
	struct child *child; /* mapped by all processes */
	int descriptor;
	struct resident resident;
	struct counts {
		int64_t children; /* reaped, warm-up included */
		/* of another process, status, iteration */
		int64_t strangers, misended, misnumbered;
		int64_t misplaced; /* children that share memory and should not, or the reverse */
	} counts;
	int64_t left;    /* children that were not reaped */
	int64_t started; /* processes and threads by the kernel's count; -1: unknown */
	int64_t faults;  /* of the parent, observed */
	int32_t last;    /* the child before */
};

/* parent.c */
int parent(struct klat_worker *worker);

#endif
