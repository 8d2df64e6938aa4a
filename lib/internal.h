/* SPDX-License-Identifier: MIT */
/* What the modules of libklat share with each other and with no benchmark. One block per module, in
 * the order of a run. */
#ifndef KLAT_INTERNAL_H
#define KLAT_INTERNAL_H

#include "klat.h"

#include "arch/isa.h"

#include <jansson.h>

#ifndef KLAT_VERSION
#define KLAT_VERSION "unknown"
#endif
#ifndef KLAT_COMMIT
#define KLAT_COMMIT "unknown"
#endif

#define KLAT_SCHEMA 1
#define KLAT_MAX_CPU 8192
#define KLAT_REASON_SIZE 512

/* Of every thread. The default of 8 MiB would be locked, or refused, as a whole. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KLAT_STACK_SIZE (1 << 20)
#else
#define KLAT_STACK_SIZE (64 << 10)
#endif

/* options.c */
struct klat_common {
	const char *cpus, *policy, *record, *label, *plant, *check_for;
	int64_t iterations, warmup, dma_latency, guest_halt_poll, inject_ns, run, order, seed;
	bool csv, json, quiet, published, help, version, print_man, print_completion,
		print_published;
};

/* Parse argv into `common` and run->options. 0, or -EINVAL after a line on stderr. */
int klat_options_parse(struct klat_run *run, struct klat_common *common, int argc, char **argv);
void klat_options_help(const struct klat_benchmark *benchmark, FILE *out);
void klat_options_man(const struct klat_benchmark *benchmark, FILE *out);
void klat_options_completion(const struct klat_benchmark *benchmark, FILE *out);
/* Paragraphs of `text` (separated by newlines) wrapped into columns `indent` to 79, starting where
 * the cursor is: at `column`. */
void klat_print_wrapped(FILE *out, const char *text, int indent, int column);
/* "name=value;…" of all that shapes the measurement. 0, or -ENAMETOOLONG. */
int klat_options_params(const struct klat_run *run, const struct klat_common *common, char *text,
			size_t size);

/* check.c: the options are checked for a machine that is not this one, and nothing is measured.
 * `machine` is "MODE:CPUS". 0, or -EINVAL after a line on stderr. */
int klat_check_for(const struct klat_run *run, const char *machine);

/* cpu.c */
typedef struct {
	unsigned long bits[KLAT_MAX_CPU / (8 * sizeof(unsigned long))];
} klat_cpu_set;

/* The CPUs this process may use without asking: its inherited affinity mask. */
int klat_cpus_allowed(klat_cpu_set *set);
int klat_cpus_online(klat_cpu_set *set);
/* From here on these two answer CPUs 0 to count - 1. */
void klat_cpus_assume(int count);
void klat_cpu_remove(klat_cpu_set *set, int cpu);
bool klat_cpu_in(const klat_cpu_set *set, int cpu);
int klat_cpu_weight(const klat_cpu_set *set);
/*
 * "2,3", "0-3", "1,1": in the order given, repetitions kept. Returns the count, or -EINVAL for text
 * that is no list, -ERANGE for a CPU number that cannot exist; *cpus is malloc'ed.
 */
int klat_cpus_parse(const char *text, int **cpus);
/*
 * Choose `count` CPUs of `allowed`: distinct physical cores before siblings, one last-level cache
 * before one node before the rest, and not CPU 0 (where interrupts and housekeeping gather) while
 * there is a choice. -ENOSPC when there are too few.
 */
int klat_cpus_place(const klat_cpu_set *allowed, int count, int *cpus);
/* "one-cpu", "same-core", "same-llc", "same-node" or "cross-node": the farthest pair. */
const char *klat_cpus_relation(const int *cpus, int count);
int klat_cpu_node(int cpu);
/* Pin the calling thread; -EIO when the read-back disagrees. */
int klat_cpu_pin(int cpu);
/* Whether a cpuset keeps this process from an online CPU. An affinity mask does not. */
bool klat_cpu_is_forbidden(int cpu);
/* Let the calling thread use these. */
void klat_cpus_allow(const klat_cpu_set *set);

/* tsc.c */
struct klat_counter {
	double khz, uncertainty_ppm;
	double second_khz, difference_ppm; /* second_khz is 0 where there is no second method */
	char second_method[32];
	bool independent; /* the second figure comes from somewhere else than the first */
	bool invariant;
	int64_t quantum;
};

/* The smallest of many empty brackets on the calling CPU. */
uint64_t klat_counter_floor(struct klat_worker *worker);
/* By how much klat_spin() lasts longer than it is asked to, mean, seen from outside. */
uint64_t klat_spin_excess(void);
/* Greatest common divisor of many counter increments. */
int64_t klat_counter_quantum(void);
/* How far a CPU's counter is ahead of another's: from `low` to `high` ticks. */
struct klat_offset {
	int64_t low, high;
};

#define KLAT_ANY_OFFSET ((struct klat_offset){ INT64_MIN, INT64_MAX })

/*
 * Take from `offset`, of cpu_b's counter from cpu_a's, what a ping-pong under this policy rules
 * out. Nothing may be left: then low > high.
 */
struct klat_policy;
int klat_counter_narrow_offset(int cpu_a, int cpu_b, const struct klat_policy *policy,
			       struct klat_offset *offset);
/*
 * The largest |offset| between any two of these counters, each of which is so far ahead of the same
 * other; UINT64_MAX where no offset is possible, because one of them did not keep its own.
 */
uint64_t klat_counter_offset_bound(const struct klat_offset *offsets, int count);

/* frequency.c */
/* About 200 ms against CLOCK_MONOTONIC_RAW, and whatever second source there is, independent ones
 * first. */
void klat_counter_calibrate(struct klat_counter *tsc);
/* From two readings of the ACPI PM timer, less than a turn apart; 0 where it stands still. */
double klat_frequency_of_pm(uint64_t tsc_ticks, int64_t first, int64_t last);
/* From the raw clock's figure and what NTP makes of that clock; 0 where it is not synchronised. */
struct timex;
double klat_frequency_of_ntp(double khz, const struct timex *state);
/* Whether a second figure by this method says anything that the kernel's clock, made from this
 * clock source, does not; `told`: the kernel took its frequency from CPUID or a hypervisor. */
bool klat_frequency_independent(const char *method, const char *clock_source, bool told);

/* mode.c */
/* "hardware", "virtual", "emulated" or "counted". */
const char *klat_mode(void);
/* From here on klat_mode() answers this. */
void klat_mode_assume(const char *assumed);

/* measurable.c */
bool klat_machine_has_one_cpu(void);
bool klat_emulated(void);
/* "instructions" in counted mode, else "ticks". */
const char *klat_unit(void);
/* Whether any figure of this run, which has been placed, means something. */
bool klat_figures(const struct klat_run *run);
/* Whether the metric's samples of this run, which has been placed, are numbers that mean something.
 */
bool klat_measurable(const struct klat_run *run, int metric);

/* sched.c */
struct klat_policy {
	int policy; /* SCHED_FIFO, SCHED_RR or SCHED_OTHER */
	int priority;
	bool asked; /* by --policy: then it is that or an error */
};

/* -EINVAL for text that is no policy; a missing priority leaves policy->priority. */
int klat_policy_parse(const char *text, struct klat_policy *policy);
const char *klat_policy_name(int policy);
/* Try the policy on the calling thread and undo it. */
int klat_policy_try(int policy, int priority);
/* Lock what exists; what is mapped later is not. -errno when refused. */
int klat_memory_lock(void);
/* Keep CPU exit latency at most `us` until the returned descriptor is closed. */
int klat_latency_hold(int64_t us);

/* haltpoll.c */
struct klat_halt_poll {
	bool open;
	int file;       /* of the value, locked */
	int64_t before; /* what is put back */
	int lifeline;   /* a pipe, at whose end the guard does so */
	pid_t guard;
};

/*
 * Hold the guest's halt polling at `ns`, from CPUs that do not poll, until release() or until the
 * caller has ended, however; a forked process leaves that to it by leave(). What is put back is
 * what was there, though somebody else may have set it meanwhile: see the evidence.
 */
int klat_halt_poll_hold(struct klat_run *run, int64_t ns);
int klat_halt_poll_release(struct klat_run *run);
void klat_halt_poll_leave(const struct klat_run *run);
/* -1 where it cannot be read. */
int64_t klat_halt_poll_ns(void);
/* After a latency request of 0, under which every idle CPU polls: let the limits that it has left
 * behind run out, so that the next run does not meet them. */
void klat_halt_poll_settle(void);
/* How often an idle CPU has polled for work, and was put into any other state; false where the
 * kernel does not tell. */
bool klat_idle_entries(int cpu, int64_t *polls, int64_t *halts);

/* How many iterations of each belong to the timed ones: see klat_end(). */
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
/* Fault the buffers into the calling process: a fork has none of the pages that are shared. */
void klat_samples_prefault(const struct klat_run *run);
/* The timed samples of all series, one after the other. */
void klat_samples_copy(const struct klat_run *run, int metric, uint64_t *out);
int64_t klat_samples_count(const struct klat_run *run, int metric);
/* How many of these are kept and shown: none of a metric that is not measurable. */
int64_t klat_samples_kept(const struct klat_run *run, int metric);

/* worker.c */
int klat_workers_run(struct klat_run *run);

/* evidence.c */
struct klat_irq_row {
	char name[8];
	int64_t *count; /* by CPU number, KLAT_MAX_CPU of them; NULL when the row is absent */
};

/* As the record names them. */
extern const char *const klat_irq_names[KLAT_IRQ_ROWS];

struct klat_snapshot {
	int64_t irq[KLAT_IRQ_ROWS][KLAT_MAX_CPU];
	bool irq_present[KLAT_IRQ_ROWS];
	int64_t steal[KLAT_MAX_CPU]; /* clock ticks of sysconf(_SC_CLK_TCK) */
	int64_t smi;                 /* -1: cannot be read */
	/* Of a run that holds the guest's halt polling; polls is -1 where the kernel does not tell.
	 */
	int64_t halt_poll_ns, polls, halts;
	int highest_cpu;
};

void klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run);
/* Own rows of /proc/thread-self: migrations and wait time since the thread started; -1 where
 * absent. */
void klat_thread_self(int64_t *migrations, int64_t *wait_ns);
/* What holds for every benchmark: pinning, policy, faults, strayed stamps, steal, throttling, SMIs.
 */
void klat_evidence_judge(struct klat_run *run);

/* busy.c */
struct klat_busy {
	int64_t at_ns;
	int64_t busy_ns; /* of the run's CPUs together; -1 where the kernel does not tell */
	int64_t step_ns; /* its granularity */
	int64_t own_ns;  /* CPU time of the run's threads and processes */
};

/* In the measured process, by its first thread. */
void klat_busy_take(struct klat_busy *busy, const struct klat_run *run);
void klat_busy_count(struct klat_run *run);

/* wakeups.c */
/* How the workers that others wake were woken. */
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

/* proc.c */
/* A whole file of /proc or /sys, malloc'ed; NULL if it cannot be read. */
char *klat_read_file(const char *path);
/* The beginning of a small file, for small stacks: without stdio. Its size, or -1. */
ssize_t klat_read_small(const char *path, char *text, size_t size);

/* files.c */
/* Open a directory in another one. make() makes a missing one. A descriptor, or -errno: -ELOOP for
 * a link. */
int klat_directory_enter(int directory, const char *name);
int klat_directory_make(int directory, const char *name);
/*
 * Open a regular file below `directory` without following a link. `flags` may hold O_CREAT, which
 * makes missing directories as well, and O_TRUNC. A descriptor, or -errno: klat_file_error() says
 * why, and what to do.
 */
int klat_file_open(int directory, const char *path, int flags);
const char *klat_file_error(int error);
/* The whole file, malloc'ed; -EFBIG if it is larger than `limit` bytes. */
int klat_file_read(int directory, const char *path, size_t limit, char **text, size_t *size);
/* Write a draft, sync it, rename it. An existing file keeps its owner and mode. */
int klat_file_replace(int directory, const char *name, const void *data, size_t size);
int klat_write_whole(int descriptor, const void *data, size_t size);

/* directory.c */
/* Open the directory of --record; make missing directories. -errno after klat_error(). */
int klat_record_directory(struct klat_run *run);

/* lock.c */
/* flock() with a time limit. -EWOULDBLOCK after the limit. */
int klat_lock(int file, int limit_ms);
/* "process 1234 (name)", or "another process" if it is unknown. */
void klat_lock_holder(int file, char *text, size_t size);

/* record.c, session.c, environment.c */
/*
 * Open the session directory for recording, creating it when there is none, and take from it or
 * give it the calibration. Returns a directory descriptor, or -errno after klat_error().
 */
int klat_session_join(struct klat_run *run);
/* Wait up to LOCK_LIMIT_MS for the session's lock. A signal during the wait ends the program. 0, or
 * -errno after klat_error(). */
int klat_session_lock(struct klat_run *run, int session);
/* Append the samples and rows of the run. All signals that end a process are held off meanwhile. */
int klat_record_append(struct klat_run *run, int session);
/* The rows of the run as in runs.csv, malloc'ed. `first` is where its samples begin in the file. */
char *klat_record_rows(struct klat_run *run, int64_t first);
extern const char klat_record_header[];
/* 0, or -errno after klat_error() if a copy cannot be written. */
int klat_environment_capture(struct klat_run *run, int session);

/* output.c */
void klat_output_text(struct klat_run *run, FILE *out);
int klat_output_json(struct klat_run *run, FILE *out);
/* The table of published figures, whatever the options. */
int klat_output_published(const struct klat_benchmark *benchmark, FILE *out);

/* signals.c */
void klat_signals_hold(const struct klat_run *run);
/* As before klat_signals_hold(). */
void klat_signals_release(void);
/* Between the two, a signal ends the program at once. */
void klat_signals_open(void);
void klat_signals_close(void);
/* Wait for a signal: its number, SIGCHLD among them, or -1 after `limit`. */
int klat_signals_wait(const struct timespec *limit);
/* Say that nothing was recorded, and end by this signal. */
_Noreturn void klat_signals_end(int number);

/* status.c, run.c */
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

	enum klat_status status;
	char reason[KLAT_REASON_SIZE];
	struct klat_count *counts; /* of the supervisor alone */
	int count_count;
	char params[1024];
	const char *placement;

	bool memory_locked;
	bool offset_wanted;
	int offset_metric;
	struct klat_offset *offsets; /* by place, from the first; of the supervisor alone */

	struct klat_halt_poll halt_poll;

	pthread_barrier_t barrier;
	bool barrier_used;
	int worker_capacity;
	struct klat_snapshot before, after;
	struct klat_busy busy_before, busy_after;
	int64_t start_ns, start_monotonic_ns, elapsed_ns;
	uint64_t floor;
	pid_t ended_pid;         /* a worker's process that ended before its body did, or 0 */
	int ended_signal;        /* by which it was killed, or 0 */
	int64_t measured_memory; /* peak resident bytes of the measured process */
};

/* Whether there is something to judge, print and record, the run being neither skipped nor an
 * error. */
static inline bool klat_has_result(const struct klat_run *run)
{
	return run->library->status < KLAT_SKIPPED;
}

const char *klat_status_name(enum klat_status status);
/* One line on stderr, prefixed with the program's name. */
void klat_warn(const struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);

#endif
