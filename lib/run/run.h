/* SPDX-License-Identifier: MIT */
/* One run: samples, workers, evidence, supervision and judgement. */
#ifndef KLAT_RUN_H
#define KLAT_RUN_H

#include "machine/machine.h"
#include "run/clocks.h"

/* The values of the library's own options. */
struct klat_common {
	const char *cpus, *policy, *record, *label, *plant, *check_for;
	const char *trace_metric, *trace_instance, *trace_output;
	int64_t iterations, warmup, dma_latency, guest_halt_poll, inject_ns, run, order, seed;
	int64_t trace_above_ns, trace_bytes;
	int64_t soak_s, segment_s, limit_ns;
	int64_t pairs;
	int64_t together; /* programs that soak at the same time, each on its own CPUs; or 0 */
	bool stop_above, under_load;
	bool csv, json, quiet, published, help, version, print_benchmark;
};

/* Iterations of the lead and of the tail: see klat_end(). Some programs use 2, 3 or 4 objects in
 * turn. A lap is a multiple of KLAT_TURNS, so that each begins with the same object. */
enum { KLAT_LEAD = 4, KLAT_TAIL = 2, KLAT_TURNS = 12 };

/* samples.c */
struct klat_series {
	bool used, untraceable;
	int64_t series, of_pair; /* of all pairs, and of one */
	int64_t stride;
	uint64_t *base;
};

/* The indices of the metrics that the run uses. */
#define klat_for_each_metric(metric, run)                                                          \
	for (int metric = 0; metric < (run)->benchmark->metric_count; metric++)                    \
		if (!(run)->library->metrics[metric].used) {                                       \
		} else

/* Use all metrics, unless configure() chose some. */
void klat_use_default_metrics(struct klat_run *run);
int klat_samples_map(struct klat_run *run);
/* Copy the timed samples of all series, one series after the other. */
void klat_samples_copy(const struct klat_run *run, int metric, uint64_t *out);
int64_t klat_samples_count(const struct klat_run *run, int metric);
/* The number of samples to keep and show: 0 for a metric that is not measurable. */
int64_t klat_samples_kept(const struct klat_run *run, int metric);

/* slow.c: docs/slow-samples.md. */
struct klat_slow {
	int metric;
	int instance, output;  /* directory of the tracing instance; file of the kept traces */
	int tracing_on;        /* the instance's file of this name */
	uint64_t limit;        /* in ticks */
	int64_t checked, next; /* number of checked samples; index of the first unchecked one */
	int64_t samples, kept; /* number of samples above the limit, and of those with a trace */
	int64_t written;       /* number of bytes in the output */
	int64_t settled;       /* first iteration that the last copy no longer affects */
	int64_t after_copy;    /* number of samples above the limit before `settled` */
	int error;             /* the first error: no trace is kept after it */
	int gap_count;         /* of the last iteration: see klat_note_gap() */
	struct {
		uint64_t begin, end;
	} gaps[4096];
	char buffer[64 << 10];
};

/* Choose the metric: that of --trace-metric, or the run's first metric that klat can explain. If
 * there is none, returns the result of klat_usage(). */
int klat_slow_choose(struct klat_run *run);
/* 0, or -errno after klat_skip() if the run is traced and no trace clock reads the counter. */
int klat_slow_possible(struct klat_run *run);
/* With --trace-above, after setup(): open the instance and the file, and choose the worker that
 * checks its samples. */
int klat_slow_watch(struct klat_run *run);
/* Keep the trace of the sample that ends a soak. Without --trace-above, do nothing. */
void klat_slow_keep_last(struct klat_worker *worker, int64_t index, uint64_t sample);
/* After the workers have ended: describe them in the file. */
int klat_slow_finish(struct klat_run *run);

/* worker.c */
/* The worker that takes the samples of this series, or NULL. */
struct klat_worker *klat_worker_of(struct klat_run *run, int metric, int64_t series);
int klat_workers_run(struct klat_run *run);

/* traits.c */
/* The calling thread's directory in /proc, which can belong to another PID namespace. */
bool klat_task_path(char path[static KLAT_TASK_PATH]);
/* Read a file in the directory `task`, which is from klat_task_path(). Returns its size; or -1,
 * with an empty text. */
ssize_t klat_task_read(const char *task, const char *name, char *text, size_t size);
/* klat_count_in() of a file of the directory `task`; -1 if `task` is empty. */
int64_t klat_task_count(const char *task, const char *file, const char *name);
/* Store the policy that the thread has now. 0: the calling thread. */
void klat_worker_read_policy(struct klat_worker *worker, pid_t thread);
struct klat_policy_text klat_policy_obtained(const struct klat_worker *worker);
/* Each reads one part of the traits; the first is a single system call. 0: the calling thread. */
void klat_traits_read_scheduling(struct klat_traits *traits, pid_t thread);
void klat_traits_read_task(struct klat_traits *traits, const char *task);
/* The name of a trait that changed, or NULL. */
const char *klat_traits_changed(const struct klat_traits *before, const struct klat_traits *after);
/* For the supervisor: records changes now, because a program can undo them before the end. */
void klat_traits_watch(struct klat_run *run);

/* deadline.c */
/* Whether the workers have SCHED_DEADLINE. */
static inline bool klat_is_deadline(const struct klat_run *run)
{
	return run->runtime_ns;
}
/* Give the calling worker the run's SCHED_DEADLINE. */
int klat_deadline_enter(struct klat_worker *worker);
/* Try this on the CPU of the run and undo it. */
int klat_deadline_try(struct klat_run *run);
/* Whether the calling worker is pinned, or, under SCHED_DEADLINE, still on its CPU. End stamps and
 * the count of migrations prove the rest. */
bool klat_deadline_is_held(const struct klat_worker *worker);
/* At the end of an iteration: what it used of its runtime, and whether that stopped the worker. */
void klat_deadline_count(struct klat_worker *worker);
void klat_deadline_judge(struct klat_run *run);

/* stop_detector.c */
/*
 * A thread that sleeps in a read while the workers run. Whatever stops the process (a signal, a
 * tracer, the freezer) ends this sleep, and another one follows.
 */
struct klat_stop_detector {
	pthread_t thread;
	int pipe[2];
	char task[KLAT_TASK_PATH]; /* see klat_task_path() */
	bool started, runs;
	int status;     /* its status file; -1 if unreadable */
	int64_t before; /* its sleeps before the read */
};

/* If it cannot start, no stop is counted. */
void klat_stop_detector_start(struct klat_stop_detector *detector, int cpu);
/* After the snapshots: adds the stops of the process to library->stops. After a stop, takes the
 * clocks of the second snapshot again, because the kernel counts a failed suspension late. */
void klat_stop_detector_end(struct klat_run *run);
/* The detector's sleeps since it started; -1 if unknown. */
int64_t klat_stop_detector_sleeps(const struct klat_run *run);

/* evidence.c */
/* Sums that the record does not contain: numbered interrupts, and softirqs for devices. */
enum { KLAT_IRQ_DEVICES = KLAT_IRQ_ROWS, KLAT_SOFTIRQS, KLAT_IRQ_SUMS };
/* Of /proc/interrupts and /proc/softirqs together. */
enum { KLAT_MOST_ROWS = 512 };

/* As the record names them. */
extern const char *const klat_irq_names[KLAT_IRQ_ROWS];

struct klat_snapshot {
	int64_t irq[KLAT_IRQ_SUMS][KLAT_MAX_CPU]; /* -1: the CPU is offline */
	bool irq_present[KLAT_IRQ_SUMS];
	uint64_t interrupts_hash; /* of /proc/interrupts; 0: not read */
	/* If the benchmark counts others: sums over the run's CPUs, without those of 0. */
	struct klat_row {
		char name[24];
		int64_t count;
	} rows[KLAT_MOST_ROWS];
	int row_count;               /* can exceed KLAT_MOST_ROWS */
	int64_t steal[KLAT_MAX_CPU]; /* clock ticks of sysconf(_SC_CLK_TCK); -1: unknown */
	int64_t smi;                 /* -1: cannot be read */
	struct klat_clocks clocks;
	int64_t throttled;         /* see klat_cgroup_throttled() */
	int64_t thermal_throttles; /* of the run's CPUs; only a rise has a meaning */
	/* If the run holds the guest's halt polling. polls is -1 if the kernel does not count. */
	int64_t halt_poll_ns, polls, halts;
	int highest_cpu;
	char settings[KLAT_SETTINGS][KLAT_SETTING_SIZE];
};

void klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run);
/* The clock ticks that the hypervisor took from the run's CPUs. -1: unknown. */
int64_t klat_stolen(const struct klat_run *run, const struct klat_snapshot *before,
		    const struct klat_snapshot *after);
/* From /proc/thread-self: migrations and wait time since the thread started, -1 if absent. */
void klat_thread_self(int64_t *migrations, int64_t *wait_ns);
/* The checks of every benchmark, from pinning to SMIs. */
void klat_evidence_judge(struct klat_run *run);

/* interrupts.c */
void klat_interrupts_take(struct klat_snapshot *snapshot, const struct klat_run *run);
/* Of a benchmark that counts others: the rows of /proc/interrupts and /proc/softirqs that grew on
 * the run's CPUs and are no column of the record. */
void klat_interrupts_count(struct klat_run *run);
/* Interrupts by devices and by other programs, or softirqs, on the run's CPUs. */
int64_t klat_other_interrupts(const struct klat_run *run);

/* neighbours.c */
struct klat_neighbours {
	int64_t ran_ns, elapsed_ns; /* between the last two calls */
	int64_t at_ns;              /* CLOCK_MONOTONIC */
	int64_t taken_at_ticks;     /* since boot, as in /proc/PID/stat */
	int count;
	struct {
		pid_t tid;
		int64_t ns;
	} tasks[256];
};

/* Stores the CPU time of each neighbour, and how long they ran since the call before. Tasks that
 * ended or became neighbours since that call are not counted, because their time is unknown. */
void klat_neighbours_take(struct klat_neighbours *neighbours, const struct klat_run *run);

/* surplus.c */
/* How long the calling worker ran, and how long it waited for its CPU; -1: unknown. */
void klat_account_read(const struct klat_worker *worker, int64_t *cpu_ns, int64_t *waited_ns);
/* Whether a task has a tracer, by its file "status" in /proc. */
bool klat_is_traced(const char *path);
/* Whether a probe (uprobe) of any program stopped this process: the kernel then maps a page into it
 * (kernel/events/uprobes.c, xol_add_vma()). An instruction that the kernel emulates needs no page.
 */
bool klat_is_probed(void);
/* Judge what happened besides the event: to a pair, and to the whole run. */
void klat_surplus_judge_pair(struct klat_run *pair);
void klat_surplus_judge(struct klat_run *run);

/* observers.c */
void klat_observers_judge(struct klat_run *run);
void klat_observers_take(struct klat_run *run);
void klat_observers_count(const struct klat_worker *worker, int sign);

/* busy.c */
struct klat_busy {
	int64_t at_ns;
	int64_t busy_ns; /* sum over the run's CPUs; -1: unknown */
	int64_t step_ns; /* granularity of busy_ns */
	int64_t own_ns;  /* CPU time of the run's threads and processes; -1: unknown */
};

/* Called by the first thread of the measured process. */
void klat_busy_take(struct klat_busy *busy, const struct klat_run *run);
void klat_busy_count(struct klat_run *run);

/* wakeups.c */
/* Count how the workers that others wake were woken. */
void klat_wakeups_count(struct klat_run *run);

/* summary.c */
/* `count` samples of this value. */
struct klat_pair {
	uint64_t value, count;
};

struct klat_summary {
	int64_t n;
	unsigned __int128 mean_milli, stddev_milli; /* thousandths, rounded down */
	bool stddev_known;
	uint64_t min, max;
	uint64_t p50, p90, p99;
	bool p50_known, p90_known, p99_known;
};

/* Statistics of n >= 1 samples, exact integers as docs/samples.md defines them. Sorts `samples`.
 * -ENOMEM if there is no memory. */
int klat_summarise(uint64_t *samples, int64_t n, struct klat_summary *summary);
/* The same of pairs in ascending order of their values. */
void klat_summarise_pairs(const struct klat_pair *pairs, int64_t count,
			  struct klat_summary *summary);
/* The summary of each metric and the floor, in run->library. */
int klat_run_summarise(struct klat_run *run);
/* "123.456" */
void klat_milli_text(unsigned __int128 milli, char *text, size_t size);

/* histogram.c */
#define KLAT_LONGEST 10000

/* A sample that a soak keeps whole. */
struct klat_kept {
	int64_t index; /* of the iteration, from 0 at the start of the soak */
	int64_t series;
	uint64_t value;
	uint64_t ended; /* the end stamp; 0 if unknown */
	/* The state of the evidence: counts of the run, from the segment's start until soon after
	 * the sample. smi is -1 if unknown. involuntary is -1 until the state is read. */
	int64_t involuntary, stolen, smi;
};

struct klat_totals {
	int64_t n, above; /* samples, and those above the limit */
	struct klat_kept worst;
	int64_t worst_ns; /* CLOCK_REALTIME at its end; 0 if unknown */
};

/* The samples of one metric of a soak: each value with its count, and the longest ones whole. */
struct klat_histogram {
	/* Of the segment. */
	struct klat_pair *pairs; /* a hash table with linear probing; ascending after a sort */
	int64_t capacity, distinct;
	int64_t n, above;       /* samples, and those above the limit */
	struct klat_kept *kept; /* a heap: the smallest first */
	int64_t kept_count;
	int64_t unkept; /* samples above the limit that `kept` had no room for */
	/* Of the whole soak. */
	struct klat_kept *longest; /* a heap, too */
	int64_t longest_count;
	struct klat_totals totals, totals_before; /* now, and before the segment */
};

/* 0 or -ENOMEM. klat_histogram_free() may follow a failure. */
int klat_histogram_make(struct klat_histogram *histogram, int64_t capacity);
void klat_histogram_free(struct klat_histogram *histogram);
/* The histogram must not be full. Keeps the sample whole if it is above the limit or among the
 * KLAT_LONGEST longest of the soak until now; at most KLAT_LONGEST samples of a segment. */
void klat_histogram_add(struct klat_histogram *histogram, const struct klat_kept *sample,
			uint64_t limit);
bool klat_histogram_is_full(const struct klat_histogram *histogram);
/* Put the `distinct` pairs in ascending order. Only klat_histogram_clear() may follow. */
void klat_histogram_sort(struct klat_histogram *histogram);
/* Begin the next segment. The figures of the whole soak stay. */
void klat_histogram_clear(struct klat_histogram *histogram);
/* Remove the samples of the segment, which began with iteration `first`, from the figures of the
 * whole soak: the segment is invalid. Only klat_histogram_clear() may follow. */
void klat_histogram_forget(struct klat_histogram *histogram, int64_t first);

/* soak.c, segment.c: docs/soak.md. */
struct klat_soak {
	int64_t lap;     /* iterations of a lap */
	uint64_t *ended; /* the end stamps of a lap, if one worker takes the samples */
	struct klat_worker *stamping;
	uint64_t stop_limit; /* with --stop-above, once the supervisor counts: in ticks */
	pid_t pid;           /* of the measured process */
	int32_t latency_us;  /* klat_latency_request() before the soak */
	/* Only in the supervisor. */
	struct klat_histogram *histograms; /* by metric */
	int64_t began_ns;                  /* CLOCK_REALTIME at the segment's start */
	uint64_t began;                    /* the counter at that time */
	int64_t segments, elapsed_ns;      /* of what is recorded */
	int64_t progress;    /* the largest number that klat_soak_progress() has returned */
	int64_t overwritten; /* iterations of the segment whose samples are lost */
	int unrecorded;      /* -errno if the last segment could not be recorded */
	/* Record the segment that `run` describes: 0 or -errno after klat_error(). */
	int (*record)(struct klat_run *run, int session);
	int session;
	/* Show the progress, once a second. */
	void (*show)(const struct klat_run *run, int64_t seconds);
};

/* With --soak, after configure(): size the laps. 0, or -EINVAL after klat_usage(). */
int klat_soak_prepare(struct klat_run *run);
/* Map the buffer for end stamps. 0, or -errno after klat_error(). */
int klat_soak_map(struct klat_run *run);
/* After setup(): choose the worker whose end stamps are kept. */
void klat_soak_watch(struct klat_run *run);
/* Keep the end stamp of iteration i - 1. Does not return if its sample ends the soak. */
void klat_soak_check(struct klat_worker *worker, int64_t i);
/*
 * In the supervisor: take the samples until the time is over, and kill the measured process.
 * Returns 0; the number of a signal that arrived before the first sample; -ETIMEDOUT without
 * progress; -EIO if the measured process ended by itself; or -errno if a segment could not be
 * recorded.
 */
int klat_soak_follow(struct klat_run *run, int *status, struct rusage *usage);
void klat_soak_free(struct klat_run *run);
/* The iterations since the warm-up of the slowest worker, and of the fastest. */
int64_t klat_soak_progress(const struct klat_run *run);
int64_t klat_soak_farthest(const struct klat_run *run);
/* CLOCK_REALTIME at the end of a sample of the current segment. 0 if it is unknown. */
int64_t klat_soak_time_ns(const struct klat_run *run, const struct klat_kept *sample);

/* The state of the run at one moment. The evidence of a segment is the difference of two. */
struct klat_reading {
	int64_t iterations;
	int64_t sleeps; /* of the stop detector; -1 if unknown */
	int64_t stops;  /* of processes of the run */
	struct klat_snapshot snapshot;
	struct klat_busy busy;
	struct klat_worker *workers;
	char *state;
};
struct klat_reading *klat_reading_make(const struct klat_run *run);
void klat_reading_free(struct klat_reading *reading);
void klat_reading_take(struct klat_reading *reading, const struct klat_run *run);
/* Store the state of the evidence in `sample`: the difference of both readings. */
void klat_reading_state(const struct klat_reading *before, const struct klat_reading *now,
			const struct klat_run *run, struct klat_kept *sample);
/* The first worker that is no longer pinned to its CPU. NULL if there is none. */
const struct klat_worker *klat_reading_unpinned(const struct klat_reading *reading,
						const struct klat_run *run);
/* Judge and record the segment between two readings. Its status, or -errno. */
int klat_segment_end(const struct klat_run *run, const struct klat_reading *before,
		     const struct klat_reading *after, int64_t number);

/* run.c */
struct klat_count {
	const char *name;
	int64_t value;
};

struct klat_library {
	struct klat_common common;
	void *defaults;                     /* of the benchmark's options */
	struct klat_policy policy, refused; /* refused: the default */
	struct klat_counter counter;
	struct klat_series metrics[KLAT_MAX_METRICS];
	struct klat_summary summaries[KLAT_MAX_METRICS]; /* by klat_run_summarise() */
	uint64_t *samples;                               /* the mapping behind all series */
	size_t samples_size;
	int metrics_used;

	struct klat_outcome outcome;
	struct klat_count *counts; /* in the supervisor only */
	int count_count;
	char params[1024];
	const char *placement;
	bool on_one_cpu; /* --cpus one */

	int policy_error, lock_error; /* errno of what the kernel refused, or 0 */
	bool failing;                 /* a worker gives the reason */
	bool offset_wanted;
	int offset_metric;
	struct klat_offset *offsets; /* by place, relative to the first; in the supervisor only */

	struct klat_halt_poll halt_poll;
	struct klat_slow slow;
	struct klat_soak soak;

	pthread_barrier_t barrier;
	struct klat_stop_detector stop_detector;
	int64_t stops;          /* how often the measured process was stopped */
	int64_t traced_events;  /* of other traces, in the first worker's observed part */
	bool is_event_traced;   /* by another program */
	int worker_capacity;    /* of a pair */
	struct klat_run *pairs; /* the run itself, if it is the only pair */
	/* Pairs at the observed part; workers that have ended the timed part; all workers. */
	uint32_t arrived, finished, starting;
	struct klat_snapshot before, after;
	struct klat_busy busy_before, busy_after;
	struct klat_neighbours neighbours;
	int64_t start_ns, start_monotonic_ns, elapsed_ns;
	uint64_t floor;
	pid_t ended_pid;         /* a worker's process that ended before its body did, or 0 */
	int ended_signal;        /* the signal that killed it, or 0 */
	int64_t measured_memory; /* peak resident bytes of the measured process */
};

/* Make a run, with its options and state, in memory that the measured process shares. Returns NULL
 * after a line on stderr. */
struct klat_run *klat_run_make(const struct klat_benchmark *benchmark);
void klat_run_restore_defaults(const struct klat_run *run);
/* Frees what the supervisor allocated; the shared memory stays. Restores the options. */
void klat_run_free(struct klat_run *run);
/* Sets lead and end, see klat_end(). The fault "edges" makes klat work at both edges of the timed
 * part: for tests of the order of samples. */
void klat_run_set_edges(struct klat_run *run);
#define klat_for_each_pair(pair, run)                                                              \
	for (struct klat_run *pair = (run)->library->pairs;                                        \
	     pair < (run)->library->pairs + (run)->pairs; pair++)
/* Place, measure and judge. */
int klat_run_perform(struct klat_run *run);

/* Whether the workers have a real-time policy. */
static inline bool klat_is_real_time(const struct klat_run *run)
{
	return klat_policy_is_real_time(run->library->policy.policy);
}

/* place.c */
/* Take run->cpus from the list of --cpus. For the word "one", klat_place() chooses the CPU. -EINVAL
 * after klat_usage(). */
int klat_place_given(struct klat_run *run, const char *list);
/*
 * Whether all roles are on one CPU, as far as known before configure(): --cpus names one CPU or is
 * "one", or the machine has only one, as in counted mode.
 */
bool klat_place_is_one_cpu(const struct klat_run *run);
/* Read the `allowed` CPUs. 0 if they suffice, or -errno after klat_skip() or klat_error(). */
int klat_place_possible(struct klat_run *run, klat_cpu_set *allowed);
/* Choose the CPUs of a run without a list of CPUs. */
int klat_place(struct klat_run *run);
/* Whether all places are one CPU. */
bool klat_place_is_one(const struct klat_run *run);
/* Whether the run uses this CPU. */
bool klat_place_has(const struct klat_run *run, int cpu);
/* Whether an earlier place has the same CPU. */
bool klat_place_is_repeated(const struct klat_run *run, int place);
/* The next CPU of the run, without repeats; -1 after the last. `*place` starts at 0. */
int klat_place_next(const struct klat_run *run, int *place);
#define klat_for_each_cpu(cpu, run)                                                                \
	for (int cpu##_place = 0, cpu; (cpu = klat_place_next(run, &cpu##_place)) >= 0;)

/* offsets.c: before and after the run. If an offset changed in between, no offset is possible. */
int klat_offsets_narrow(struct klat_run *run);
void klat_offsets_judge(struct klat_run *run);

/* supervise.c: run the measurement in a child process. Does not return if a signal ends the
 * program.
 */
int klat_supervise(struct klat_run *run);
void klat_warn_of_refusals(const struct klat_run *run);
_Noreturn void klat_worker_failed(const struct klat_worker *worker);

/* requirements.c */
/* Judge each pair for itself. A reason names its pair. */
void klat_judge_pairs(struct klat_run *run, void (*judge)(struct klat_run *pair));
int klat_run_judge(struct klat_run *run);

#endif
