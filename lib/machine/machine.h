/* SPDX-License-Identifier: MIT */
/* The CPUs, their counter, scheduling and idle states, and what describes the machine. */
#ifndef KLAT_MACHINE_H
#define KLAT_MACHINE_H

#include "arch/isa.h"
#include "base/base.h"

#define KLAT_MAX_CPU 8192

/* Of every thread. The default of 8 MiB would be locked, or refused, as a whole. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KLAT_STACK_SIZE (1 << 20)
#else
#define KLAT_STACK_SIZE (64 << 10)
#endif

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

/* counter.c */
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
int klat_halt_poll_hold(struct klat_run *run, struct klat_halt_poll *hold, int64_t ns);
int klat_halt_poll_release(struct klat_run *run, struct klat_halt_poll *hold);
void klat_halt_poll_leave(const struct klat_halt_poll *hold);
/* -1 where it cannot be read. */
int64_t klat_halt_poll_ns(void);
/* After a latency request of 0, under which every idle CPU polls: let the limits that it has left
 * behind run out, so that the next run does not meet them. */
void klat_halt_poll_settle(void);
/* How often an idle CPU has polled for work, and was put into any other state; false where the
 * kernel does not tell. */
bool klat_idle_entries(int cpu, int64_t *polls, int64_t *halts);

/* environment.c */
/*
 * Copy what describes the machine into the directory `session`, which messages call `name`. 0, or
 * -errno after klat_error() if a copy cannot be written.
 */
int klat_environment_capture(struct klat_run *run, int session, const char *name);

#endif
