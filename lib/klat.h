/* SPDX-License-Identifier: MIT */
/*
 * klat.h - everything a benchmark needs from libklat.
 *
 * A benchmark defines one struct, klat_benchmark. The library has main() and does the rest: options
 * and help, placement, pinning, priorities, calibration, sample buffers, evidence, statistics,
 * output and the record.
 *
 * Life of a run. The supervising process parses the options, calls configure(), places the CPUs,
 * maps the shared memory and forks the measured process. The measured process calls setup(), runs
 * the workers that setup() added, and calls teardown(). The supervisor then calls verify(), prints
 * and records. With two processes, the supervisor reports a crash or a hang, the measured address
 * space runs on no other CPUs, and the kernel closes what the measured process holds.
 *
 * Unless said otherwise: functions return 0 or -errno; a function describes its error with
 * klat_error() or klat_skip() before it returns; times are ticks of the counter of arch.h.
 */
#ifndef KLAT_H
#define KLAT_H

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "arch.h"
#include "evidence.h"
#include "option.h"

#define KLAT_CACHE_LINE 64
#define KLAT_MAX_METRICS 8
#define KLAT_ALIGNED __attribute__((aligned(KLAT_CACHE_LINE)))
#define KLAT_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define KLAT_PRINTF(text, arguments) __attribute__((format(printf, text, arguments)))

struct klat_run;
struct klat_worker;

/* Samples */

struct klat_metric {
	const char *name;
	const char *summary; /* what the stamps enclose, in one line */
	/*
	 * Whether the number of instructions between the stamps has a meaning, if the whole run is
	 * on one CPU. Counted mode measures these metrics only; emulated mode measures none. A
	 * metric that is not measurable is recorded with its evidence and without samples.
	 */
	bool path_length;
	/*
	 * For `klat lab explain`: the functions whose stamps begin and end a sample, separated by
	 * spaces. If a sample is the mean of two such windows, mean_of is 2. With from_deadline, a
	 * sample begins at a deadline after the first stamp. Without ends_in, klat cannot explain
	 * the metric.
	 */
	const char *begins_in, *ends_in;
	int mean_of;
	bool from_deadline;
	/*
	 * The role of the worker that takes the end stamp of each sample, or several roles,
	 * separated by spaces. Series i is of the worker with index i. For `klat explain`, a sample
	 * must be one interval. It ends at this worker's last end stamp before its next iteration,
	 * or where klat_sample_ended() says. If klat cannot trace it, untraceable says why.
	 */
	const char *taken_by, *untraceable;
	/* A sample is the longest of several gaps, in which the worker does not run. klat explain
	 * then splits all gaps that are above the limit: see klat_note_gap(). */
	bool gaps;
};

#define KLAT_WINDOWS(begins, ends) .begins_in = (begins), .ends_in = (ends)
/* Both stamps of a sample are in one function, and a worker of this role takes them. */
#define KLAT_WITHIN(function, role) KLAT_WINDOWS(function, function), .taken_by = (role)

/*
 * The samples of one series of the metric with this index. Element i is iteration i, also in the
 * warm-up and in the tail, so the loop needs no branch. `series` is 0, except for metrics with
 * several samples per iteration.
 */
uint64_t *klat_series(const struct klat_run *run, int metric, int64_t series);

/* For configure(): this run records `metric`, with `series` samples per iteration. */
void klat_use_metric(struct klat_run *run, int metric, int64_t series);

/* Call this in configure() if klat cannot trace `metric` with these options. */
void klat_cannot_trace(struct klat_run *run, int metric);

/* What a benchmark may read of a run. The library keeps the rest behind run->library. */
struct klat_run {
	const struct klat_benchmark *benchmark;
	void *state;
	int64_t iterations, warmup; /* configure() may change them if they are not given; warmup is
				       at least 1 */
	bool iterations_given, warmup_given;
	bool soak;         /* the run lasts for a given time, in laps: see klat_next() */
	int64_t lead, end; /* see klat_end() */
	int64_t again;     /* the first iteration of a lap: see klat_goes_on() */
	int pair, pairs;   /* see .pairs: its number from 0, and how many there are */
	int *cpus;         /* run->cpus[place] */
	int cpu_count;
	bool cpus_given;    /* by --cpus, cpu_count of them */
	bool one_cpu;       /* all places are the same CPU, as far as configure() can know */
	bool distinct_cpus; /* configure() may set it: the roles spin and cannot share a CPU */
	bool ordinary;      /* configure() may set it: every worker under an ordinary policy */
	int64_t runtime_ns, period_ns; /* of --policy deadline:RUNTIME:PERIOD, else 0 */
	int low_priority;
	int most_workers; /* configure() may set it; default: the rows of the table, or else one per
			     place, and one more. With 1 there is no tail: see klat_end(). */
	int patience;     /* the run ends after this many seconds without an iteration; configure()
			     may raise it */
	double counter_khz; /* set for verify(), and for the workers if needs_frequency is set */
	const struct klat_worker *table; /* see klat_use_workers() */
	int table_count;
	struct klat_worker *workers;
	int worker_count;
	struct klat_library *library;
	struct klat_outcome *outcome; /* status and reason */
	uint64_t inject;              /* ticks; see klat_inject() */
};

/* Iterations */

/*
 * A body repeats one iteration, from klat_first() up to klat_end():
 *
 *     -warmup ...      -lead ... -1   0 ... iterations - 1   the tail
 *     warm-up ---------------------   timed --------------   untimed
 *                      observed ----------------------------------------
 *
 * Other work of klat at the edges of the timed part would change samples. Work before it leaves the
 * caches cold, so a worker's counters are read before the lead. Work after it keeps other workers
 * from their CPU, so all workers run a tail until each has taken its last stamp.
 *
 * The lead has four iterations: more do not make the caches warmer. The tail has two: a worker that
 * waits for another can be no further ahead. A lone worker needs no tail. With --pairs, laps of
 * twelve iterations follow the timed part. If the warm-up has fewer than four iterations, all of
 * them are lead; programs with long iterations use that.
 */
static inline int64_t klat_first(const struct klat_run *run)
{
	return -run->warmup;
}

/* The iteration after the last one. */
static inline int64_t klat_end(const struct klat_run *run)
{
	return run->end;
}

/* Whether the iteration is a sample. */
static inline bool klat_is_sample(const struct klat_run *run, int64_t i)
{
	return i >= 0 && i < run->iterations;
}

/* The number of iterations of the body. Interrupts are counted over these. */
static inline int64_t klat_made(const struct klat_run *run)
{
	return klat_end(run) - klat_first(run);
}

/* The number of observed iterations. The counters of a worker and evidence cover these. */
static inline int64_t klat_observed(const struct klat_run *run)
{
	return klat_end(run) + run->lead;
}

/* Workers */

#include "worker.h"

/*
 * After the last iteration. In a soak: begin the next lap. With --pairs: begin another lap of the
 * tail, if a pair still takes samples; all workers of a pair get the same answers. Else return
 * false.
 */
bool klat_begin_lap(struct klat_worker *worker);

/* Whether a body has another iteration, `*i`. A soak fills the sample buffers in laps: after the
 * last element, this function sets `*i` to 0, and the next lap begins. With --pairs, laps only make
 * the tail longer. */
static inline bool klat_goes_on(struct klat_worker *worker, int64_t *i)
{
	if (*i < klat_end(worker->run))
		return true;
	*i = worker->run->again;
	return klat_begin_lap(worker);
}

/* The kernel's counts for the calling thread. */
static inline struct rusage klat_thread_usage(void)
{
	struct rusage usage = { 0 };

	getrusage(RUSAGE_THREAD, &usage);
	return usage;
}

void klat_observed_part_begins(struct klat_worker *worker);
/* Before an iteration: klat_slow_check() if the worker is watched, klat_rest() if it spins. */
void klat_attend(struct klat_worker *worker, int64_t i);
/* If sample i - 1 of the watched series is above the limit, keep its trace. klat_attend() calls
 * this function. If a body takes other end stamps before its next iteration, it must call this
 * function before these stamps. */
void klat_slow_check(struct klat_worker *worker, int64_t i);
/* For a metric with .gaps: record a gap of `length` ticks that ends at the last end stamp. */
void klat_note_gap(struct klat_worker *worker, uint64_t length);

/* klat_iteration() for a worker that did not take sample i - 1. */
static inline bool klat_iteration_of_others(struct klat_worker *worker, int64_t i)
{
	bool begins = i == worker->observed_from;

	if (__builtin_expect(begins, 0))
		klat_observed_part_begins(worker);
	__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
	return begins;
}

/* For a body that does not loop by klat_next(): the first statement of each iteration, outside the
 * stamps. True if the observed part begins here. */
static inline bool klat_iteration(struct klat_worker *worker, int64_t i)
{
	if (__builtin_expect(worker->attends, 0))
		klat_attend(worker, i);
	return klat_iteration_of_others(worker, i);
}

/* Begin iteration `*i` of a body, if it has one. The loop of a body is:
 *
 *     for (int64_t i = klat_first(run); klat_next(worker, &i); i++)
 */
static inline bool klat_next(struct klat_worker *worker, int64_t *i)
{
	if (!klat_goes_on(worker, i))
		return false;
	klat_iteration(worker, *i);
	return true;
}

/* Whether the observed part began with this iteration, for programs with their own counts. */
static inline bool klat_observed_from(const struct klat_worker *worker, int64_t i)
{
	return i == worker->observed_from;
}

/*
 * Sleep between iterations, for `ns` or until CLOCK_MONOTONIC has reached `ns`. The voluntary
 * switches of the sleep stay out of the evidence. A signal handler does not shorten klat_sleep();
 * it ends klat_sleep_until(), which then returns -EINTR.
 */
void klat_sleep(struct klat_worker *worker, int64_t ns);
int klat_sleep_until(struct klat_worker *worker, int64_t ns);

/* The same around any other wait that is not part of the event. */
void klat_rest_begins(struct klat_worker *worker);
void klat_rest_ends(struct klat_worker *worker);

/* A spinning real-time thread that never rests uses up the runtime of its class
 * (sched_rt_runtime_us, 95 % of a second), and the kernel stops it for 50 ms. */
#define KLAT_SPIN_NS 40000000
#define KLAT_REST_NS 6000000

/* Between iterations: sleep KLAT_REST_NS if the worker has not slept here for KLAT_SPIN_NS, longer
 * in an emulator. True if it slept. A worker without a real-time priority never sleeps here. */
bool klat_rest(struct klat_worker *worker);

/*
 * Spin until *word is at least `value` (wrap-safe). The worker rests meanwhile as in klat_rest(),
 * so that two runs on the same CPUs do not block each other. NULL: the caller is not a worker.
 * Returns -ETIMEDOUT after two seconds, or two minutes in an emulator, where CPUs take turns.
 */
int klat_spin_until(struct klat_worker *worker, const uint32_t *word, uint32_t value);

/*
 * A meeting point of `parties` workers: wait as in klat_spin_until() until all have called this for
 * the meeting with this number. Meetings count from 0. Only they write `arrivals`, which begins at
 * 0.
 */
int klat_meet(struct klat_worker *worker, uint32_t *arrivals, int parties, uint32_t number);

/* The result is within 1 % if the frequency is not known yet. Not for use between two stamps. */
int64_t klat_ns_to_ticks(const struct klat_run *run, int64_t ns);

static inline double klat_ticks_to_ns(const struct klat_run *run, double ticks)
{
	return ticks * 1e6 / run->counter_khz;
}

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
	worker->ended = now;
	return now;
}

/* Call this after the stamps of an iteration if the sample of this series ended at `end`, and not
 * at the last end stamp. */
static inline void klat_sample_ended(struct klat_worker *worker, const uint64_t *series,
				     uint64_t end)
{
	if (worker->watched == series)
		worker->ended = end;
}

/* Whether the counter measures time: not in an emulator. verify() checks this before it concludes
 * anything from the length of a sample. */
bool klat_timed(void);
/* Whether the counter counts instructions: mode counted in docs/session.md. */
bool klat_counted(void);
/* The counter's step in ticks, and whether it is above a tenth of a short system call. */
int64_t klat_counter_quantum(void);
bool klat_counter_is_coarse(void);

/* The run */

enum klat_status {
	KLAT_OK,
	KLAT_DISTURBED,
	KLAT_INVALID,
	KLAT_SKIPPED,
	KLAT_ERROR,
};

/*
 * A figure that was published for the same event. --published shows it beside the run's mean. A
 * sweep shows it if `params` names the swept option. `metric` may also be a count that is a figure,
 * see klat_count(). `params` is "name=value;…" of the options that a run must have, or NULL.
 */
struct klat_published {
	const char *metric;
	const char *params;
	double value;
	const char *unit;  /* "ns" or "cycles" */
	const char *about; /* system, machine, and how the figure differs from klat's */
};

struct klat_benchmark {
	const char *name;
	const char *summary;     /* one line */
	const char *description; /* paragraphs for --help and the man page: what is timed, what is
				    not */
	const char *examples;    /* lines "command\tcomment" */
	const struct klat_option *options;
	int option_count;
	void *values; /* the options struct */
	size_t values_size;
	const struct klat_metric *metrics;
	int metric_count;
	const struct klat_published *published;
	int published_count;
	size_t state_size; /* of the struct that workers share as worker->state; zeroed */
	/* The program can soak. Its bodies loop by klat_next() or klat_goes_on(). verify() reads no
	 * samples. It reads the state only in these bytes: int64_t counts that never decrease. */
	bool soaks;
	size_t counts_at, counts_size;
	/*
	 * The program has --pairs N: its workers exist N times, in one process. Each pair is a
	 * struct klat_run with its own state, workers, CPUs and series, and functions get the run
	 * of a pair: setup(), verify(), teardown() and, as worker->run, the bodies. They loop by
	 * klat_next() or klat_goes_on(), and the workers of a pair wait for each other. The first
	 * worker of a pair waits for the other pairs before its observed part, and the tail lasts
	 * until all pairs have their samples. A fault is planted in the last pair alone.
	 */
	bool pairs;
	int64_t iterations, warmup; /* 500 and 50 unless set */
	int policy;                 /* SCHED_FIFO unless set */
	bool ordinary;              /* SCHED_OTHER unless --policy is given */
	bool takes_deadline;        /* --policy deadline fits: workers are threads and sleep */
	int high_priority;          /* default of --policy's priority; 50 unless set */
	bool needs_frequency;       /* calibrate before the workers start, not after they end */
	bool counts_others;    /* other tasks and interrupts on the run's CPUs are the event: they
				  are counted, and do not disturb the run */
	const char *faults[4]; /* faults for --plant besides the library's own */

	const struct klat_worker *workers; /* see klat_use_workers() */
	int worker_count;

	/*
	 * Check the options against each other. Optional. Set what differs from the tables: the
	 * metrics (default: all, in one series) and run->cpu_count (the places of the workers). A
	 * program with KLAT_LOW workers sets run->low_priority.
	 */
	int (*configure)(struct klat_run *run);
	/* In the measured process: acquire resources; change and add workers. Optional. */
	int (*setup)(struct klat_run *run);
	/* In the supervisor: state the evidence with klat_require() and klat_count(). Optional. */
	void (*verify)(struct klat_run *run);
	/* In the measured process, also after a failed setup(), but not after a failed body.
	 * Optional. */
	void (*teardown)(struct klat_run *run);
};

/* For the initialiser of struct klat_benchmark: tables with lengths, and the options struct. */
#define KLAT_OPTIONS(table)                                                                        \
	.options = (table), .option_count = KLAT_ARRAY_SIZE(table), .values = &options,            \
	.values_size = sizeof(options)
#define KLAT_METRICS(table)                                                                        \
	.metrics = (table),                                                                        \
	.metric_count = KLAT_ARRAY_SIZE(table) + sizeof(struct {                                   \
				_Static_assert(KLAT_ARRAY_SIZE(table) <= KLAT_MAX_METRICS,         \
					       "more than KLAT_MAX_METRICS");                      \
			})
#define KLAT_PUBLISHED(table) .published = (table), .published_count = KLAT_ARRAY_SIZE(table)
#define KLAT_WORKERS(table) .workers = (table), .worker_count = KLAT_ARRAY_SIZE(table)
#define KLAT_STATE(type) .state_size = sizeof(type)

/* Each program defines its own. */
extern const struct klat_benchmark klat_benchmark;

/*
 * --inject: a known spin inside the timed path, in half of the iterations. The difference between
 * the medians of the two halves must be the spin.
 *
 * The iterations are those whose number has an odd count of ones in binary (1, 2, 4, 7, 8, 11,
 * ...), the Thue-Morse sequence. An event may alternate by itself, as an event loop does with the
 * kernel's objects. A rhythm of 2, 4, 8, ... is spread over both halves evenly, and so is a drift.
 */
static inline void klat_inject(const struct klat_run *run, int64_t i)
{
	if (__builtin_expect(run->inject != 0, 0) && __builtin_parityll(i))
		klat_spin(run->inject);
}

/* The seed of a run's random numbers: from the plan's seed and the run's number, both recorded. */
uint64_t klat_seed(const struct klat_run *run);

/* SplitMix64 (Steele, Lea and Flood 2014). */
static inline uint64_t klat_draw(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* Whether --plant asked for this fault. The evidence must refute a run with a planted fault. */
bool klat_planted(const struct klat_run *run, const char *fault);

/* For configure(): how many CPUs the run may use without --cpus, or -errno. */
int klat_available_cpus(void);

/* Start a thread that is not a worker, under SCHED_OTHER. 0 or -errno. */
int klat_thread_start(pthread_t *thread, int cpu, void *(*body)(void *), void *argument);

/* Whether the text is a whole number in the range, in decimal digits. */
bool klat_parse_number(const char *text, int64_t minimum, int64_t maximum, int64_t *number);
/* A format for printf(). Arguments: the option's name, its minimum, its maximum, the wrong text. */
#define KLAT_NOT_A_NUMBER "--%s takes a whole number from %lld to %lld, not '%s'"

/* The start of a file of /proc or /sys, by one read(). Its size, or -1. */
ssize_t klat_read_small(const char *path, char *text, size_t size);

/* Describe a failure: what was tried, on what, and what to do. Return -EINVAL, -ENOTSUP, and
 * -`error`. In the format of klat_error(), %m stands for the text of `error`. */
int klat_usage(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
int klat_skip(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
int klat_error(struct klat_run *run, int error, const char *format, ...) KLAT_PRINTF(3, 4);

/* For `what`, threads or processes that the kernel did not start. Skips the run if a limit is
 * reached. */
int klat_cannot_start(struct klat_run *run, int error, const char *what);

/* For setup(): skips the run if so much memory or, with `huge`, huge pages are not available. */
int klat_need_memory(struct klat_run *run, int64_t bytes, bool huge);
/* The size of a transparent huge page. Not positive: this kernel has none. */
int64_t klat_huge_page_bytes(void);

/* For setup(): raise the soft limit on open files. Skips the run if the hard limit is lower. */
int klat_allow_files(struct klat_run *run, int64_t files);

/*
 * Make a namespace, as in "a network namespace", and enter it; `flag` is of clone(2). Root needs no
 * user namespace for this. Any other user becomes root in a new user namespace, if the system
 * allows one; otherwise the run is skipped.
 */
int klat_enter_namespace(struct klat_run *run, int flag, const char *what);

#endif
