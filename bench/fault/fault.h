/* SPDX-License-Identifier: MIT */
/* What touches, what is touched, and who helps. */
#ifndef FAULT_H
#define FAULT_H

#include "klat.h"

enum { FAULT };
enum { ANONYMOUS, CACHED, SHARED, COPY_ON_WRITE, HUGE, USERFAULTFD };

enum { MAX_THREADS = 1024 };

/* The largest page of any architecture. */
#define MAX_PAGE 65536
/* Faults between two renewals. */
#define MAX_SPOTS 124

/* memory.c */
/* The memory of one thread. Each spot is the address of one fault. */
struct area {
	char *spots[MAX_SPOTS];
	int count, kind;
	bool random;
	size_t page, last; /* spot + last is the last page that the fault must map */
	char *base;
	size_t size, table, window; /* of each table, the first window stays mapped */
	int tables, advice;
	uint64_t seed;
};

/* Bytes of memory that an area of this kind needs. */
int64_t area_bytes(int kind);
/* Map it, with all page tables. `small`: without huge pages. 0 or -errno. */
int area_make(struct area *area, int kind, bool small);
/* Make each spot fault again, in a new order if it is random. 0 or -errno. */
int area_renew(struct area *area);
void area_touch(const struct area *area, char *page);

/* helpers.c */
/* A thread of SCHED_OTHER that maps and unmaps memory, without touching it. */
struct mapper {
	pthread_t thread;
	bool started, end;
	uint32_t may_begin, is_running;
	int error;       /* errno of what ended it early */
	int64_t *mapped; /* counts how many times */
};

/* For setup() and teardown(). */
int mapper_start(struct klat_run *run, struct mapper *mapper, int place);
void mapper_end(struct mapper *mapper);
/* For a worker: wait until the mapper runs, if there is one. 0 or -errno. */
int mapper_await(struct klat_worker *worker, struct mapper *mapper);

/* For setup(): a descriptor that serves the faults of areas. -errno after klat_skip(). */
int uffd_open(struct klat_run *run);
int uffd_register(int uffd, const struct area *area);
/* Wait for a fault and map a page there. 0 or -errno. */
int uffd_serve(int uffd, size_t page);

extern struct options {
	int64_t threads;
	int kind, random;
	bool mapper;
} options;

struct state {
	struct {
		uint64_t begin, end; /* of this thread's fault in this iteration */
	} KLAT_ALIGNED stamps[MAX_THREADS];
	uint32_t arrivals KLAT_ALIGNED;
	int uffd;
	struct mapper mapper;
	/* Counts that never decrease, warm-up included. */
	struct counts {
		int64_t touches, faults;  /* in complete rounds */
		int64_t missing, surplus; /* faults of a round less, or more, than its touches */
		int64_t met;              /* samples during which another thread faulted */
	} KLAT_ALIGNED counts[MAX_THREADS];
	int64_t mapped; /* by the mapper */
};

/* touch.c */
int toucher(struct klat_worker *worker);

#endif
