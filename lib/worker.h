/* SPDX-License-Identifier: MIT */
/* Part of klat.h: the threads and processes of a run. */
#ifndef KLAT_WORKER_H
#define KLAT_WORKER_H

enum klat_priority {
	KLAT_HIGH, /* the priority of --policy */
	KLAT_LOW,  /* the lower priority of a program with two roles */
};

/* When a worker never leaves its CPU idle, so that it must rest between iterations. */
enum klat_spins { KLAT_ON_ONE_CPU = 1, KLAT_ALWAYS };

/*
 * One pinned real-time thread, or process, of the measurement. It lives in memory that all
 * processes of the run share. A benchmark states the first part, in a table or for
 * klat_worker_add(); setup() may change what follows `place`, but not raise a rank. The body reads
 * `run`, `state`, `index`, `cpu`, and the `tid` of any worker, which are known before the first
 * body begins; the rest belongs to the library. `state` is run->state: the struct of the
 * benchmark's `state_size`, one for all workers, zeroed before setup(). The body returns 0, or
 * -errno, which ends the measured process at once.
 */
struct klat_worker {
	const char *role;
	const char *noun; /* of the role in messages, if the role is an adjective */
	int (*body)(struct klat_worker *worker);
	int place; /* its CPU is run->cpus[place] */
	enum klat_priority rank : 8;
	/* How often the body sleeps, apart from klat_sleep() and klat_rest(). KLAT_MOSTLY: in at
	 * least 99 % of the iterations. On one CPU, preemptions count as well, because the wakee
	 * can preempt the waker. */
	enum klat_rule sleeps : 8;
	enum klat_spins spins : 8; /* klat_next() then calls klat_rest() */
	bool process;              /* a forked process instead of a thread */
	bool woken;                /* another worker wakes this one: see wakeups in docs/runs.md */
	bool kernel_threads;       /* interrupt threads and softirqs do a part of the event */
	bool competes;    /* for its CPU, with other threads of the program. Under an ordinary
			     policy its waits are then a part of the event. */
	int nice;         /* under an ordinary policy; 0: as inherited */
	int64_t slice_ns; /* its time slice, under an ordinary policy; 0: as inherited */
	int most_sleeps;  /* in an iteration; 0: once with KLAT_MOSTLY, else never */
	int timers;       /* interrupts of its timers in an iteration, besides those of sleeps */

	struct klat_run *run;
	void *state;
	int index; /* among the workers of its role */
	int cpu;
	int priority;
	uint32_t cpu_identity;   /* its CPU, in the form that an end stamp reads */
	uint32_t strayed;        /* non-zero if the worker took an end stamp on another CPU */
	uint64_t ended;          /* the last end stamp; see klat_sample_ended() */
	const uint64_t *watched; /* the series whose slow samples klat traces, or NULL */
	bool attends;            /* klat_next() has more to do than to count */
	int64_t iteration, observed_from;
	int64_t laps, spin_began; /* laps: klat_begin_lap(). ns: klat_rest(). */
	uint32_t decided;         /* the laps of its pair, in the first worker: klat_begin_lap() */
	pthread_t thread;
	pid_t tid;
	int result, policy_obtained, priority_obtained;
	int64_t runtime_obtained, period_obtained; /* ns, of SCHED_DEADLINE; else 0 */
	bool pinned;
	uint64_t floor;
	int64_t expected_faults;
	int64_t other_faults;      /* for a soak: unexpected minor faults, plus a constant; or -1 */
	int64_t unsampled;         /* observed iterations that klat_observed() does not count */
	int64_t unneeded_sleeps;   /* observed waits whose event was due before, so that the worker
				      may sleep or not */
	int64_t children_ns;       /* CPU time of processes that the body started on its CPU and
				      waited for */
	int64_t expected_switches; /* involuntary switches that the body causes by sched_yield() */
	int64_t voluntary, involuntary, minor_faults, major_faults; /* observed */
	int64_t migrations, wait_ns; /* -1 if the kernel does not report them */
	int64_t rests;               /* voluntary switches of sleeps, not in `voluntary` */
	int64_t slept_ns;            /* in klat_sleep() */
	int64_t before_rest;         /* voluntary switches when the current sleep began; -1: none */
	int64_t wakeups;             /* voluntary switches of the body, warm-up included */
	struct klat_account account;
	int64_t start_voluntary, start_involuntary, start_minor, start_major, start_rests,
		start_slept_ns;
} KLAT_ALIGNED;

/* For configure(): this table of workers instead of the benchmark's. */
#define klat_use_workers(run, table) klat_use_table(run, table, KLAT_ARRAY_SIZE(table))
void klat_use_table(struct klat_run *run, const struct klat_worker *table, int count);

/*
 * For setup(): add a copy of this worker to those of the table. Workers start together after
 * setup() has returned, each pinned and at its priority from its first instruction. Never returns
 * NULL: it aborts if there are more than run->most_workers.
 */
#define KLAT_WORKER(...) (&(const struct klat_worker){ __VA_ARGS__ })
struct klat_worker *klat_worker_add(struct klat_run *run, const struct klat_worker *row);

#define klat_for_each_worker(worker, run)                                                          \
	for (struct klat_worker *worker = (run)->workers;                                          \
	     worker < (run)->workers + (run)->worker_count; worker++)

/* For verify(): the worker of that role and index. */
struct klat_worker *klat_worker_find(struct klat_run *run, const char *role, int index);

#endif
