/* SPDX-License-Identifier: MIT */
/*
 * klat.h - everything a benchmark needs from libklat.
 *
 * A benchmark fills in one struct klat_benchmark and calls klat_main(). The library does the rest:
 * options and help, placement, pinning, priorities, calibration, sample buffers, evidence,
 * statistics, output and the record.
 *
 * Life of a run. The supervising process parses the options, calls configure(), places the CPUs,
 * maps the shared memory and forks the measured process. That one calls setup(), starts the workers
 * that setup() added, waits for them and calls teardown(). The supervisor then calls verify() on
 * what it finds in the shared memory, and prints and records. A crash or a hang of the measured
 * process is therefore an error that is reported, its address space has only ever run on the CPUs
 * of the measurement, and whatever it holds of the machine (tun device, network namespace, latency
 * request) is closed by the kernel with it.
 *
 * Unless said otherwise, functions return 0 or -errno, times are ticks of the counter of arch.h,
 * and errors have been described with klat_error() or klat_skip() before they are returned.
 */
#ifndef KLAT_H
#define KLAT_H

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "arch.h"

#define KLAT_CACHE_LINE 64
#define KLAT_MAX_METRICS 8
#define KLAT_ALIGNED __attribute__((aligned(KLAT_CACHE_LINE)))
#define KLAT_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define KLAT_PRINTF(text, arguments) __attribute__((format(printf, text, arguments)))

struct klat_run;
struct klat_worker;

/* Options */

enum klat_option_type {
	KLAT_INTEGER, /* int64_t, checked against minimum and maximum */
	KLAT_CHOICE,  /* int, an index into choices */
	KLAT_TEXT,    /* const char *, NULL when not given */
	KLAT_FLAG,    /* bool */
};

/*
 * One row gives parsing with range checks, --help, the man page's OPTIONS and shell completion. The
 * value lives at `offset` in the program's own options struct, which starts as a copy of the
 * benchmark's `defaults`.
 */
struct klat_option {
	const char *name;
	const char *argument; /* as shown in --help; NULL for a flag */
	const char *help;
	enum klat_option_type type;
	size_t offset;
	int64_t minimum, maximum;
	const char *const *choices; /* NULL-terminated */
	bool unrecorded; /* does not shape the measurement: stays out of the record's params */
};

/* Samples */

struct klat_metric {
	const char *name;
	const char *summary; /* what the stamps enclose, in one line */
	/*
	 * Whether the instructions between the stamps mean something too, where the whole run is on
	 * one CPU: in counted mode all else is not measurable, in emulated mode nothing is. What is
	 * not is recorded with its evidence, and without a sample.
	 */
	bool path_length;
};

/*
 * The samples of one series: element i is timed iteration i, those before and after take the
 * warm-up and the tail, so that the loop needs no branch. `metric` indexes the benchmark's table;
 * `series` is 0 but for metrics with several samples an iteration.
 */
uint64_t *klat_series(const struct klat_run *run, int metric, int64_t series);

/* For configure(): this run records `metric`, with `series` samples an iteration. */
void klat_use_metric(struct klat_run *run, int metric, int64_t series);

/* What a benchmark may read of a run. The library keeps the rest behind run->library. */
struct klat_run {
	const struct klat_benchmark *benchmark;
	void *options;
	void *state;
	int64_t iterations, warmup; /* configure() may choose others where they are not given; of
				       warm-up there is one at least */
	bool iterations_given, warmup_given;
	int64_t lead, end; /* see klat_end() */
	int *cpus;         /* run->cpus[place] */
	int cpu_count;
	bool cpus_given; /* by --cpus, cpu_count of them */
	bool one_cpu;    /* all places are the same CPU, as far as configure() can know */
	bool ordinary;   /* configure() may set it: every worker under SCHED_OTHER */
	int low_priority;
	int most_workers; /* configure() may raise it above its default of one a place and one more
			   */
	int patience; /* seconds without an iteration after which the run is given up; configure()
			 may raise it */
	double counter_khz; /* known to verify(), and to the workers where the benchmark
			     * needs_frequency
			     */
	struct klat_worker *workers;
	int worker_count;
	struct klat_library *library;
	struct klat_outcome *outcome; /* status and reason; see klat_invalid() and klat_error() */
	uint64_t inject;              /* ticks; see klat_inject() */
};

/* Iterations */

/*
 * A body repeats one and the same iteration, from klat_first() up to klat_end():
 *
 *     -warmup ...      -lead ... -1   0 ... iterations - 1   the tail
 *     warm-up ---------------------   timed --------------   untimed
 *                      observed ----------------------------------------
 *
 * klat does no other work at the edges of the timed part. Work between two iterations leaves the
 * caches cold for the next ones, so a worker's counters are read before the last iterations of the
 * warm-up, the lead. Work after the body can keep other workers from their CPU, so all workers run
 * a tail without samples, until each of them has taken its last stamp. Evidence is counted over the
 * observed iterations.
 *
 * Four iterations of lead make the caches as warm as they become; two of tail are as far as one
 * worker can be ahead of another where they wait for each other. A warm-up of fewer than four,
 * which is for long iterations, is all lead.
 */
static inline int64_t klat_first(const struct klat_run *run)
{
	return -run->warmup;
}

/* The one after the last. */
static inline int64_t klat_end(const struct klat_run *run)
{
	return run->end;
}

/* Whether the iteration is a sample. */
static inline bool klat_is_sample(const struct klat_run *run, int64_t i)
{
	return i >= 0 && i < run->iterations;
}

/* How many the body makes: what is counted for the whole run, as interrupts are, belongs to these.
 */
static inline int64_t klat_made(const struct klat_run *run)
{
	return klat_end(run) - klat_first(run);
}

/* How many are observed: the counters of a worker belong to these. */
static inline int64_t klat_observed(const struct klat_run *run)
{
	return klat_end(run) + run->lead;
}

/* Workers */

enum klat_priority {
	KLAT_HIGH, /* the priority of --policy */
	KLAT_LOW,  /* the program's lower one, where it has two roles */
};

/*
 * One pinned real-time thread, or process, of the measurement. It lives in memory that all
 * processes of the run share. The body reads `run`, `state`, `index` and `cpu`; the rest belongs to
 * the library. `state` is run->state: the struct of the benchmark's `state_size`, one for all
 * workers, zeroed before setup(). The body returns 0, or -errno, which ends the measured process at
 * once.
 */
struct klat_worker {
	struct klat_run *run;
	void *state;
	const char *role;
	const char *noun; /* of the role in messages; setup() sets it if the role is an adjective */
	int index;        /* among the workers of its role */
	int cpu;
	int priority;
	bool process; /* a forked process instead of a thread */
	bool woken;   /* another worker wakes this one: see wakeups in docs/record.md */
	int (*body)(struct klat_worker *worker);

	uint32_t cpu_identity; /* of its CPU, as end stamps give it */
	uint32_t strayed;      /* non-zero once an end stamp was taken on another CPU */
	int64_t iteration, observed_from;
	int64_t spin_began; /* ns, see klat_rest() */

	pthread_t thread;
	pid_t tid;
	int result;
	int policy_obtained, priority_obtained;
	bool pinned;
	uint64_t floor;
	int64_t expected_faults;
	int64_t unsampled; /* observed iterations besides klat_observed(), of the program's own */
	int64_t expected_switches; /* involuntary ones that the body asks for, by sched_yield() */
	int64_t voluntary, involuntary, minor_faults, major_faults; /* observed */
	int64_t migrations, wait_ns; /* -1 where the kernel does not tell */
	int64_t rests;               /* voluntary switches of sleeps, not in `voluntary` */
	int64_t wakeups;             /* voluntary switches of the body, warm-up included */
	int64_t start_voluntary, start_involuntary, start_minor, start_major, start_rests;
} KLAT_ALIGNED;

/*
 * For setup(): add a worker on run->cpus[place]. Workers start together once setup() has returned,
 * each pinned and at its priority from its first instruction. `index` numbers the workers of a
 * role. Never returns NULL: it aborts if setup() adds more than run->most_workers.
 */
struct klat_worker *klat_worker_add(struct klat_run *run, const char *role, int place,
				    enum klat_priority priority,
				    int (*body)(struct klat_worker *worker));

/* Every role, from run->workers[0] on, for verify(). */
struct klat_worker *klat_worker_find(struct klat_run *run, const char *role, int index);

void klat_observed_part_begins(struct klat_worker *worker);

/*
 * First statement of every iteration of a body, outside the stamps: notes that the worker still
 * makes progress, and true where the observed part begins, for a program that counts by itself.
 */
static inline bool klat_iteration(struct klat_worker *worker, int64_t i)
{
	bool begins = i == worker->observed_from;

	if (__builtin_expect(begins, 0))
		klat_observed_part_begins(worker);
	__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
	return begins;
}

/*
 * Sleep between iterations, for `ns` or until CLOCK_MONOTONIC has reached `ns`. The kernel's count
 * of the worker's voluntary switches is read before and after, and the switches of the sleep stay
 * out of the evidence. A signal handler does not shorten klat_sleep(); it ends klat_sleep_until(),
 * which then returns -EINTR.
 */
void klat_sleep(struct klat_worker *worker, int64_t ns);
int klat_sleep_until(struct klat_worker *worker, int64_t ns);

/* The same around any other wait that is not part of the event. */
void klat_rest_begins(struct klat_worker *worker);
void klat_rest_ends(struct klat_worker *worker);

/*
 * Sleep 6 ms if the worker has not slept here for 40 ms; true if it slept. Call it between
 * iterations. Without it, a spinning real-time thread uses up the runtime of its class
 * (sched_rt_runtime_us, 95 % of a second), and the kernel stops it for 50 ms. In an emulator the
 * sleep grows with the time since the last one. A worker without a real-time priority never sleeps
 * here.
 */
bool klat_rest(struct klat_worker *worker);

/*
 * Spin until *word is at least `value` (wrap-safe). Returns -ETIMEDOUT after about two seconds, or
 * two minutes in an emulator, where CPUs take turns. The worker rests meanwhile as in klat_rest():
 * otherwise two runs on the same CPUs could wait for each other's spinners for ever. `worker` is
 * NULL if the caller is not a worker.
 */
int klat_spin_until(struct klat_worker *worker, const uint32_t *word, uint32_t value);

/*
 * For limits and spins: `ns` in ticks, before the first iteration. Within 1 % where the frequency
 * is not known yet.
 */
uint64_t klat_ns_to_ticks(const struct klat_run *run, int64_t ns);

/* Spin for this many ticks. */
static inline void klat_spin(uint64_t ticks)
{
	uint64_t begin = klat_ticks();

	while (klat_ticks() - begin < ticks)
		;
}

/* Stamps: klat_stamp_begin() and klat_ticks() are in arch.h. */

/* The CPU identity proves for every sample that the worker is on its CPU. */
static inline uint64_t klat_stamp_end(struct klat_worker *worker)
{
	uint32_t cpu_identity;
	uint64_t now = klat_arch_stamp_end(&cpu_identity);

	worker->strayed |= cpu_identity ^ worker->cpu_identity;
	return now;
}

/*
 * Whether the counter tells time, which in an emulator it does not: what verify() concludes from
 * the length of a sample has to ask.
 */
bool klat_timed(void);
/* Whether it counts instructions, in an emulator: docs/record.md, mode counted. */
bool klat_counted(void);

/* The run */

enum klat_status {
	KLAT_OK,
	KLAT_DISTURBED,
	KLAT_INVALID,
	KLAT_SKIPPED,
	KLAT_ERROR,
};

/*
 * A figure that was published for the same event, shown beside the run's mean by --published, and
 * in the table and the plot of a sweep over an option that its params name. `metric` may also be a
 * count that is a figure, see klat_count(). `params` is "name=value;…" of the options that the run
 * has to have had, or NULL.
 */
struct klat_published {
	const char *metric;
	const char *params;
	double value;
	const char *unit;  /* "ns" or "cycles" */
	const char *about; /* system, machine, and what makes it another number than ours */
};

struct klat_benchmark {
	const char *name;
	const char *summary;     /* one line */
	const char *description; /* paragraphs for --help and the man page: what is timed, what is
				    not */
	const char *examples;    /* lines "command\tcomment" */
	const struct klat_option *options;
	int option_count;
	const void *defaults; /* the options struct */
	size_t options_size;
	const struct klat_metric *metrics;
	int metric_count;
	const struct klat_published *published;
	int published_count;
	size_t state_size; /* of the struct that workers share as worker->state; zeroed */
	int64_t iterations, warmup;
	int policy;            /* SCHED_FIFO or SCHED_RR */
	int high_priority;     /* default of --policy's priority */
	bool distinct_cpus;    /* roles that spin for each other cannot share a CPU */
	bool needs_frequency;  /* while it measures; the others leave the calibration for afterwards
				*/
	const char *faults[4]; /* what --plant offers besides the library's own */

	/*
	 * Check the options against each other, say how many CPUs the roles take (run->cpu_count)
	 * and which metrics are used. Also in KLAT_LOW programs: set run->low_priority.
	 */
	int (*configure)(struct klat_run *run);
	/* In the measured process: acquire what is needed, add the workers. */
	int (*setup)(struct klat_run *run);
	/* In the supervisor: judge the evidence with klat_invalid(), klat_disturbed(),
	 * klat_count(). */
	int (*verify)(struct klat_run *run);
	/* In the measured process, also after a failed setup(), but not after a failed body.
	 * Optional. */
	void (*teardown)(struct klat_run *run);
};

/* For its initialiser: the tables with their lengths, and the values that options start with. */
#define KLAT_OPTIONS(table, standard)                                                              \
	.options = (table), .option_count = KLAT_ARRAY_SIZE(table), .defaults = &(standard),       \
	.options_size = sizeof(standard)
#define KLAT_METRICS(table)                                                                        \
	.metrics = (table),                                                                        \
	.metric_count = KLAT_ARRAY_SIZE(table) + sizeof(struct {                                   \
				_Static_assert(KLAT_ARRAY_SIZE(table) <= KLAT_MAX_METRICS,         \
					       "more than KLAT_MAX_METRICS");                      \
			})
#define KLAT_PUBLISHED(table) .published = (table), .published_count = KLAT_ARRAY_SIZE(table)

int klat_main(const struct klat_benchmark *benchmark, int argc, char **argv);

/*
 * --inject: a known spin on half of the iterations, placed by each program inside its timed path,
 * so that anyone can see the program recover it (medians of the one half against the other).
 *
 * Those whose number has an odd count of ones in binary (1, 2, 4, 7, 8, 11, ...), which is the
 * Thue-Morse sequence: an event may alternate by itself, as an event loop's does with the kernel's
 * objects, and any rhythm of 2, 4, 8, ... falls into both halves alike; so does a drift.
 */
static inline void klat_inject(const struct klat_run *run, int64_t i)
{
	if (__builtin_expect(run->inject != 0, 0) && __builtin_parityll(i))
		klat_spin(run->inject);
}

/*
 * What a run draws from: the plan's seed and the run's number, both recorded, so that the same run
 * draws the same again.
 */
uint64_t klat_seed(const struct klat_run *run);

/* SplitMix64 (Steele, Lea and Flood 2014). */
static inline uint64_t klat_draw(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* True where --plant asked for this fault, a deliberate spoiling that the evidence has to catch. */
bool klat_planted(const struct klat_run *run, const char *fault);

/* Evidence */

/*
 * A count of the program's own, for the record's evidence column. `name` must be a literal. One
 * that ends in "_ticks", a time, or has "_per_" in it, a rate, is a figure besides: sweeps show it,
 * and it is left out where none means anything.
 */
void klat_count(struct klat_run *run, const char *name, int64_t value);

void klat_invalid(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
void klat_disturbed(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);

/* Increase of a row of /proc/interrupts on a CPU over all klat_made() iterations; -1 where there is
 * no such row. */
int64_t klat_interrupts(const struct klat_run *run, const char *row, int cpu);
/* The same over every CPU that the run did not use. */
int64_t klat_interrupts_elsewhere(const struct klat_run *run, const char *row);

/* Interrupts by which other CPUs wake what sleeps on this one, likewise; -1 where the kernel does
 * not tell. */
int64_t klat_wake_interrupts(const struct klat_run *run, int cpu);

/*
 * The limit for all evidence that is counted over a run: the named event happened in at least 99 %
 * of the iterations. Below that, too many samples are of another event, and the run is invalid.
 */
static inline bool klat_is_enough(int64_t seen, int64_t expected)
{
	return seen * 100 >= expected * 99;
}

/* The same for what should not happen: at most 1 %. */
static inline bool klat_is_rare(int64_t seen, int64_t expected)
{
	return seen * 100 <= expected;
}

/*
 * Each worker of the role slept for enough iterations, or the run is invalid. On one CPU a side
 * that is preempted by the one it woke need not sleep, so there all its switches count.
 */
void klat_verify_slept(struct klat_run *run, const char *role);

/*
 * For configure(): stamps of different CPUs will be subtracted, so bound the offset between the
 * counters of any two of the run before and after, and call the run invalid where the bound exceeds
 * 10 % of the metric's median.
 */
void klat_bound_offset(struct klat_run *run, int metric);

/* For configure(): how many CPUs the run may use without --cpus, or -errno. */
int klat_available_cpus(void);

/* Describe a failure: what was tried, on what, and what to do. Return -EINVAL, -ENOTSUP, and
 * -`error`. */
int klat_usage(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
int klat_skip(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
int klat_error(struct klat_run *run, int error, const char *format, ...) KLAT_PRINTF(3, 4);

/* For `what`, threads or processes that the kernel did not start: skipped where a limit is reached.
 */
int klat_cannot_start(struct klat_run *run, int error, const char *what);

#endif
