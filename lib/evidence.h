/* SPDX-License-Identifier: MIT */
/* Part of klat.h: did the kernel do what was timed? verify() states, and the library judges. */
#ifndef KLAT_EVIDENCE_H
#define KLAT_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct klat_run;

/* Properties of a thread that another program can change: see traits.c. The first four are those
 * that sched_getattr(2) reads. */
enum {
	KLAT_POLICY,
	KLAT_NICE,
	KLAT_CLAMPS,
	KLAT_SLICE,
	KLAT_SLACK,
	KLAT_FILTERS,
	KLAT_CGROUP,
	KLAT_CPU_LIMIT,
	KLAT_TRAITS
};

enum { KLAT_TRAIT_UNKNOWN = -1, KLAT_TASK_PATH = 40 };

struct klat_traits {
	int64_t values[KLAT_TRAITS];
};

/* The library's account of a worker's time in its observed part. */
struct klat_account {
	int file;                  /* descriptor of /proc/thread-self/schedstat, or -1 */
	bool traced;               /* by another process, before or after the body */
	bool probed;               /* another program's probe stopped its process */
	char task[KLAT_TASK_PATH]; /* its directory in /proc; empty if it has none there */
	struct klat_traits traits; /* before the body */
	bool ended;                /* the body did */
	const char *changed;       /* what another program changed of the thread, or NULL */
	int64_t cpu_ns, waited_ns; /* waited_ns: for its CPU; -1 if the kernel does not report it */
	int64_t elapsed_ns;
	int64_t start_cpu_ns, start_waited_ns, start_ns;
	/* Under SCHED_DEADLINE, see deadline.c. overruns and throttled count iterations. The
	 * others are the CPU time, the wait and the overrun of the last iteration. */
	int64_t overruns, throttled;
	int64_t last_cpu_ns, last_waited_ns;
	bool overran;
};

/* How the count of an event compares to `wanted`. */
enum klat_rule {
	KLAT_COUNTED, /* nothing is required */
	KLAT_EXACTLY,
	KLAT_AT_LEAST,
	KLAT_AT_MOST,
	KLAT_NEVER,  /* it is 0 */
	KLAT_MOSTLY, /* at least 99 % of `wanted`; below, too many samples show another event */
	KLAT_RARELY, /* at most 1 % of `wanted` */
};

/* A value of most_sleeps: any number. For workers that compete, and if the program judges the
 * sleeps. */
#define KLAT_ANY_SLEEPS (-1)

/*
 * A requirement of the evidence. verify() states them, and the library judges. A run
 * that does not meet a requirement is invalid.
 */
struct klat_requirement {
	const char *name; /* the count is recorded under this name; NULL: it is not recorded */
	int64_t got;
	enum klat_rule rule;
	int64_t wanted;
	const char *reason; /* if not met: a sentence. It may contain {got} and {wanted}. */
	bool disturbs;      /* if not met, the run is disturbed instead */
	bool unless;        /* this run does not have this row */
};

/* State requirements: klat_require(run, { name, got, rule, wanted, .reason = … }, …). */
#define klat_require(run, ...)                                                                     \
	klat_require_all(run, (const struct klat_requirement[]){ __VA_ARGS__ },                    \
			 KLAT_ARRAY_SIZE(((const struct klat_requirement[]){ __VA_ARGS__ })))
void klat_require_all(struct klat_run *run, const struct klat_requirement *table, size_t count);

/* Test a rule without recording a count. */
bool klat_is_met(enum klat_rule rule, int64_t got, int64_t wanted);

/*
 * Record a count in the evidence column, without a requirement. `name` must be a literal. A
 * name that ends in "_ticks" (a time) or contains "_per_" (a rate) makes the count a figure: sweeps
 * show it, and modes in which it has no meaning leave it out. With --pairs, klat adds up the counts
 * and the figures in "_per_second", and takes the mean of other figures.
 */
void klat_count(struct klat_run *run, const char *name, int64_t value);
/* The mean of `total` over `parts`, rounded to a whole number. */
void klat_count_mean(struct klat_run *run, const char *name, int64_t total, int64_t parts);

/* Add a struct that holds nothing but int64_t to another one. */
void klat_add_counts(void *sum, const void *counts, size_t size);

/* Increase of a row of /proc/interrupts over all klat_made() iterations, on a CPU and on every CPU
 * that the run did not use. -1 if there is no such row, or the CPU was offline. */
int64_t klat_interrupts(const struct klat_run *run, const char *row, int cpu);
int64_t klat_interrupts_elsewhere(const struct klat_run *run, const char *row);
/* The same for all interrupts that wake sleepers on this CPU. */
int64_t klat_wake_interrupts(const struct klat_run *run, int cpu);
/* For a body, before its iterations: count interrupts from now on, those of all workers. */
void klat_interrupts_restart(struct klat_run *run);

/*
 * For configure(), if `metric` subtracts stamps of different CPUs. The library bounds the offset
 * between the counters of the run's CPUs, before and after the run. The run is invalid if the bound
 * exceeds 10 % of the metric's median.
 */
void klat_bound_offset(struct klat_run *run, int metric);

/*
 * For verify(), if `metric` counts from the deadline of a timer. `set_before_ns` is the longest
 * time from setting the timer device to the deadline. A program that corrects the clock by 200 ppm
 * or more (NTP, adjtimex(2)) moves the expiry by this rate times `set_before_ns`. The run is
 * disturbed if that is 5 % of the median, and invalid from 10 % on.
 */
void klat_judge_clock_rate(struct klat_run *run, int metric, int64_t set_before_ns);

/* The kernel's count after the first `name` and a colon or blanks. -1 if there is none. */
int64_t klat_count_after(const char *text, const char *name);
/* klat_count_after() of the first 8 KiB of a file of /proc or /sys. -1 also if it cannot be read.
 */
int64_t klat_count_in(const char *path, const char *name);

#endif
