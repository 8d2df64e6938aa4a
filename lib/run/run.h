/* SPDX-License-Identifier: MIT */
/* One run: samples, workers, evidence, supervision and judgement. */
#ifndef KLAT_RUN_H
#define KLAT_RUN_H

#include "machine/machine.h"

/* The values of the library's own options. */
struct klat_common {
	const char *cpus, *policy, *record, *label, *plant, *check_for;
	const char *trace_metric, *trace_instance, *trace_output;
	int64_t iterations, warmup, dma_latency, guest_halt_poll, inject_ns, run, order, seed;
	int64_t trace_above_ns;
	bool csv, json, quiet, published, help, version, print_benchmark;
};

/* Iterations of the lead and of the tail: see klat_end(). */
enum {
	KLAT_LEAD = 4,
	KLAT_TAIL = 2
};

/* samples.c */
struct klat_series {
	bool used;
	int64_t series;
	uint64_t *base;
};

int klat_samples_map(struct klat_run *run);
/* Fault the buffers into the calling process: a forked process has no page tables for shared
 * memory. */
void klat_samples_prefault(const struct klat_run *run);
/* Copy the timed samples of all series, one series after the other. */
void klat_samples_copy(const struct klat_run *run, int metric, uint64_t *out);
int64_t klat_samples_count(const struct klat_run *run, int metric);
/* The number of samples to keep and show: 0 for a metric that is not measurable. */
int64_t klat_samples_kept(const struct klat_run *run, int metric);

/* slow.c: docs/explaining.md, "On a real machine". */
struct klat_slow {
	int instance, output;  /* directory of the tracing instance; file of the kept traces */
	int tracing_on;        /* the instance's file */
	uint64_t limit;        /* ticks */
	int64_t samples, kept; /* above the limit */
	int64_t settled;       /* from this iteration on, a copy no longer affects a sample */
	int64_t after_copy;    /* above the limit, before that */
	int error;             /* the first one: no trace is kept after it */
	char buffer[64 << 10];
};

/* The metric of --trace-metric, or the run's first that can be watched. -1: there is none. */
int klat_slow_metric(const struct klat_run *run);
/* After setup(), if --trace-above is given: open the instance and the file, and choose the worker
 * that watches. */
int klat_slow_watch(struct klat_run *run);
/* After the workers: describe them in the file. */
int klat_slow_finish(struct klat_run *run);

/* worker.c */
int klat_workers_run(struct klat_run *run);

/* evidence.c */
struct klat_irq_row {
	char name[8];
	int64_t *count; /* KLAT_MAX_CPU counts, by CPU number; NULL if the row is absent */
};

/* As the record names them. */
extern const char *const klat_irq_names[KLAT_IRQ_ROWS];

struct klat_snapshot {
	int64_t irq[KLAT_IRQ_ROWS][KLAT_MAX_CPU];
	bool irq_present[KLAT_IRQ_ROWS];
	int64_t steal[KLAT_MAX_CPU]; /* clock ticks of sysconf(_SC_CLK_TCK) */
	int64_t smi;                 /* -1: cannot be read */
	/* If the run holds the guest's halt polling. polls is -1 if the kernel does not count. */
	int64_t halt_poll_ns, polls, halts;
	int highest_cpu;
};

void klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run);
/* The clock ticks that the hypervisor took from the run's CPUs. */
int64_t klat_stolen(const struct klat_run *run);
/* From /proc/thread-self: migrations and wait time since the thread started, -1 if absent. */
void klat_thread_self(int64_t *migrations, int64_t *wait_ns);
/* The checks of every benchmark, from pinning to SMIs. */
void klat_evidence_judge(struct klat_run *run);

/* busy.c */
struct klat_busy {
	int64_t at_ns;
	int64_t busy_ns; /* sum over the run's CPUs; -1 if the kernel does not count */
	int64_t step_ns; /* granularity of busy_ns */
	int64_t own_ns;  /* CPU time of the run's threads and processes */
};

/* Called by the first thread of the measured process. */
void klat_busy_take(struct klat_busy *busy, const struct klat_run *run);
void klat_busy_count(struct klat_run *run);

/* wakeups.c */
/* Count how the workers that others wake were woken. */
void klat_wakeups_count(struct klat_run *run);

/* summary.c */
struct klat_summary {
	int64_t n;
	unsigned __int128 mean_milli, stddev_milli; /* thousandths, rounded down */
	bool stddev_known;
	uint64_t min, max;
	uint64_t p50, p90, p99;
	bool p50_known, p90_known, p99_known;
};

/* Statistics of n >= 1 samples, exact integers as docs/record.md defines them. Sorts `samples`. */
void klat_summarise(uint64_t *samples, int64_t n, struct klat_summary *summary);
/* "123.456" */
void klat_milli_text(unsigned __int128 milli, char *text, size_t size);

/* run.c */
struct klat_count {
	const char *name;
	int64_t value;
};

struct klat_library {
	struct klat_common common;
	struct klat_policy policy;
	struct klat_counter counter;
	struct klat_series metrics[KLAT_MAX_METRICS];
	struct klat_summary summaries[KLAT_MAX_METRICS];
	uint64_t *samples; /* the mapping behind all series */
	size_t samples_size;
	int metrics_used;

	struct klat_outcome outcome;
	struct klat_count *counts; /* in the supervisor only */
	int count_count;
	char params[1024];
	const char *placement;

	bool memory_locked;
	bool offset_wanted;
	int offset_metric;
	struct klat_offset *offsets; /* by place, relative to the first; in the supervisor only */

	struct klat_halt_poll halt_poll;
	struct klat_slow slow;

	pthread_barrier_t barrier;
	int worker_capacity;
	struct klat_snapshot before, after;
	struct klat_busy busy_before, busy_after;
	int64_t start_ns, start_monotonic_ns, elapsed_ns;
	uint64_t floor;
	pid_t ended_pid;         /* a worker's process that ended before its body did, or 0 */
	int ended_signal;        /* the signal that killed it, or 0 */
	int64_t measured_memory; /* peak resident bytes of the measured process */
};

/* Make a run, with its options and state, in memory that the measured process shares. Returns NULL
 * after a line on stderr. */
struct klat_run *klat_run_make(const struct klat_benchmark *benchmark);
/* Frees what the supervisor allocated; the shared memory stays. */
void klat_run_free(struct klat_run *run);
/* Sets lead and end, see klat_end(). The fault "edges" makes klat work at both edges of the timed
 * part: for tests of the order of samples. */
void klat_run_set_edges(struct klat_run *run);
/* Place, measure and judge. */
int klat_run_perform(struct klat_run *run);

/* place.c */
/* Take run->cpus from the list of --cpus. -EINVAL after klat_usage(). */
int klat_place_given(struct klat_run *run, const char *list);
/*
 * Whether all roles are on one CPU, as far as known before configure(): --cpus names one CPU, or
 * the machine has only one, as in counted mode.
 */
bool klat_place_is_one_cpu(const struct klat_run *run);
/* Whether the `allowed` CPUs, which it reads, are enough. 0, or -errno after klat_skip() or
 * klat_error(). */
int klat_place_possible(struct klat_run *run, klat_cpu_set *allowed);
/* Choose the CPUs of a run without --cpus. */
int klat_place(struct klat_run *run);
/* Whether the run uses this CPU. */
bool klat_place_has(const struct klat_run *run, int cpu);
/* Whether an earlier place has the same CPU. */
bool klat_place_is_repeated(const struct klat_run *run, int place);

/* offsets.c: before and after the run. If an offset changed in between, no offset is possible. */
int klat_offsets_narrow(struct klat_run *run);
void klat_offsets_judge(struct klat_run *run);

/* supervise.c */
/* Run the measurement in a child process. Does not return if a signal ends the program. */
int klat_supervise(struct klat_run *run);

/* judge.c */
int klat_run_judge(struct klat_run *run);

#endif
