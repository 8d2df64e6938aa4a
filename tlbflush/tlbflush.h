/* SPDX-License-Identifier: MIT */
/* One initiator with its responders, or several initiators. */
#ifndef TLBFLUSH_H
#define TLBFLUSH_H

#include "klat.h"

#define PAGE 4096l
#define TABLE (512 * PAGE) /* what one page table maps */
#define MAX_RESPONDERS 4095

enum { INITIATOR, INTERRUPTION, TOGETHER };
enum { MUNMAP, MPROTECT, MADVISE, MEMBARRIER };

extern struct options {
	int64_t responders, initiators, pages; /* with initiators there are no responders */
	int operation, sleeping, freed;
} options;

struct contender {
	uint64_t begin, end; /* of its operation in this iteration */
	int64_t operations;  /* done, warm-up included */
	int64_t met;         /* timed operations that overlapped with another contender's */
} KLAT_ALIGNED;

struct state {
	char *pages KLAT_ALIGNED;
	bool proves;                     /* the responders prove some of the operations */
	uint32_t mapped KLAT_ALIGNED;    /* generation whose pages are there */
	uint32_t finished KLAT_ALIGNED;  /* generation whose operation is over */
	uint32_t arrived KLAT_ALIGNED;   /* responders that have written to the pages, or contenders
					    at meeting points; summed over all iterations */
	uint32_t forbidden KLAT_ALIGNED; /* generation whose proof may begin */
	uint32_t proved KLAT_ALIGNED;    /* proofs by all responders, and how many the initiator
					    waits for */
	uint32_t proofs_due;
	struct {
		/* Samples in which this responder saw an interruption. In an emulator, an
		 * interruption clears its mark. */
		int64_t interrupted;
		/* Observed operations during which this responder slept, by the kernel's count. */
		int64_t slept;
		/* Operations after which this responder tried to access the pages without having
		 * slept since it wrote to them, and those after which it could. */
		int64_t proofs, stale;
	} KLAT_ALIGNED responders[MAX_RESPONDERS];
	struct contender contenders[MAX_RESPONDERS + 1];
};

/* pages.c: 0 or -errno. */
int make_pages(char **pages);
void touch_pages(char *pages);
/* The initiator's touches in iteration `i`. */
void touch_first(struct klat_worker *worker, int64_t i, char *pages);
int operate(char *pages);
/* Shootdowns that one iteration sends to each CPU, by operate() and restore(). */
int64_t flushes_of(void);
/* If `expected` are sent, more shootdowns than this come from other processes as well. */
int64_t most_flushes(int64_t expected);
int restore(char *pages);
/* mprotect(): 0 or -errno. */
int protect(char *pages, int access);

/* proof.c */
/* How many proofs a run of so many operations needs. */
int64_t least_proofs(int64_t operations);
/* For setup(): the responders run, and can prove some of the operations. 0, or the result of
 * klat_error(). */
int prepare_proofs(struct klat_run *run);
/* After operate(), on each side. `stale`: the fault of this name is planted. `sleeps` are the
 * voluntary switches of the responder before the operation. 0 or -errno. */
int await_proofs(struct klat_worker *initiator, uint32_t generation, bool stale);
int prove(struct klat_worker *responder, uint32_t generation, int64_t sleeps);

/* delivery.c */
/* Before the first iteration, while other workers spin: 0 or -errno. */
int settle_delivery(struct klat_worker *initiator, char *pages);
/* With `expected` flushes of each responder. */
void verify_delivery(struct klat_run *run, int64_t expected);

/* contention.c */
int contender(struct klat_worker *worker);
void verify_contention(struct klat_run *run);

#endif
