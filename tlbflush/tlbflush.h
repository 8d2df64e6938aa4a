/* SPDX-License-Identifier: MIT */
/* One initiator with its responders, or several initiators. */
#ifndef TLBFLUSH_H
#define TLBFLUSH_H

#include "klat.h"

#define PAGE 4096l
#define TABLE (512 * PAGE) /* what one page table maps */
#define MAX_RESPONDERS 4095

enum {
	INITIATOR,
	INTERRUPTION,
	TOGETHER
};
enum {
	MUNMAP,
	MPROTECT,
	MADVISE,
	MEMBARRIER
};

struct options {
	int64_t responders, initiators, pages; /* with initiators there are no responders */
	int operation, sleeping, freed;
};

struct contender {
	uint64_t begin, end; /* of its operation in this iteration */
	int64_t operations;  /* done, warm-up included */
	int64_t met;         /* timed operations that overlapped with another contender's */
} KLAT_ALIGNED;

struct state {
	char *pages KLAT_ALIGNED;
	uint32_t mapped KLAT_ALIGNED;   /* generation whose pages are there */
	uint32_t finished KLAT_ALIGNED; /* generation whose operation is over */
	uint32_t arrived KLAT_ALIGNED;  /* responders that have written to the pages, or contenders
					   at meeting points; summed over all iterations */
	struct {
		/* Samples in which this responder saw an interruption. In an emulator, an
		 * interruption clears its mark. */
		int64_t interrupted;
		/* Observed operations during which this responder slept, by the kernel's count. */
		int64_t slept;
	} KLAT_ALIGNED responders[MAX_RESPONDERS];
	struct contender contenders[MAX_RESPONDERS + 1];
};

/* pages.c: 0 or -errno. */
int make_pages(const struct options *o, char **pages);
void touch_pages(const struct options *o, char *pages);
/* The initiator's touches in iteration `i`. */
void touch_first(struct klat_worker *worker, int64_t i, char *pages);
int operate(const struct options *o, char *pages);
/* For setup(): what the operation needs once in a process. 0 or -errno. */
int allow_operation(const struct options *o);
/* Shootdowns that one iteration sends to each CPU, by operate() and restore(). */
int64_t flushes_of(const struct options *o);
/* If `expected` are sent, more shootdowns than this come from other processes as well. */
int64_t most_flushes(const struct options *o, int64_t expected);
int restore(const struct options *o, char *pages);

/* contention.c */
int contender(struct klat_worker *worker);
void verify_contention(struct klat_run *run);

#endif
