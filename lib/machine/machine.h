/* SPDX-License-Identifier: MIT */
/* The CPUs, their counter, scheduling and idle states, and what describes the machine. */
#ifndef KLAT_MACHINE_H
#define KLAT_MACHINE_H

#include "arch/isa.h"
#include "base/base.h"

#define KLAT_MAX_CPU 8192

/* The stack of each thread. mlockall() would lock the default of 8 MiB as a whole, or fail. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KLAT_STACK_SIZE (1 << 20)
#else
#define KLAT_STACK_SIZE (64 << 10)
#endif

/* kernel.c */
#define KLAT_KERNEL(major, minor) ((major)*1000 + (minor))
/* The version in a release, for example 7.3.4+deb13-amd64, in the form of KLAT_KERNEL(). */
int klat_kernel_version(const char *release);
/* Whether the kernel sets the timer device by the corrected clock. True since Linux 7.1 on most x86
 * machines (CLOCK_EVT_FEAT_CLOCKSOURCE_COUPLED). */
bool klat_timer_follows_clock(void);
/* Whether a kernel with this uname().version is PREEMPT_RT. */
bool klat_is_rt(const char *version);
/* The model in parentheses, as in "none voluntary (full)"; NULL without one. */
const char *klat_preemption_in(const char *line);
/* The model that a kernel with PREEMPT_DYNAMIC shows in debugfs; NULL if it shows none. Root can
 * switch it at any time. */
const char *klat_shown_preemption(void);
/*
 * Settings that root or the kernel itself can change while the machine runs. The kernel changes the
 * clock source if it no longer trusts the counter.
 */
enum klat_setting_name {
	KLAT_SCHEDULER,
	KLAT_PREEMPTION,
	KLAT_CLOCK_SOURCE,
	KLAT_ONLINE,
	KLAT_SETTINGS
};
enum { KLAT_SETTING_SIZE = 4096 }; /* a list of CPUs can be long */
extern const struct klat_setting {
	const char *noun, *file;
} klat_settings[KLAT_SETTINGS];
#define KLAT_CLOCK_SOURCE_FILE "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define KLAT_ONLINE_FILE "/sys/devices/system/cpu/online"
/* The value in effect; empty if the kernel does not show it. */
void klat_setting_read(enum klat_setting_name name, char value[KLAT_SETTING_SIZE]);
/* The value in the text of its file. */
void klat_setting_in(enum klat_setting_name name, const char *text, char value[KLAT_SETTING_SIZE]);
/*
 * The preemption model in effect. A kernel with PREEMPT_DYNAMIC shows it in debugfs only. Without
 * debugfs, preempt= of the command line shows it. Other kernels ignore that word. For an RT kernel:
 * `rt`, or since Linux 6.13 `rt-lazy` if debugfs or preempt= shows `lazy`.
 */
struct utsname;
const char *klat_preemption(const struct utsname *names);
/*
 * How long the kernel lets ordinary tasks run on this CPU, each second, in place of a real-time
 * thread that does not sleep. 0: never. Without debugfs, the default of the kernel's version.
 */
int64_t klat_server_ns(int cpu);

/* cpu.c */
typedef struct {
	unsigned long bits[KLAT_MAX_CPU / (8 * sizeof(unsigned long))];
} klat_cpu_set;

/* The CPUs of the inherited affinity mask. */
int klat_cpus_allowed(klat_cpu_set *set);
int klat_cpus_online(klat_cpu_set *set);
/* The CPUs of a file with one list. 0 or -errno. */
int klat_cpus_read(const char *path, klat_cpu_set *set);
/* Make both functions above return CPUs 0 to count - 1 from now on. */
void klat_cpus_assume(int count);
void klat_cpu_add(klat_cpu_set *set, int cpu);
void klat_cpu_remove(klat_cpu_set *set, int cpu);
bool klat_cpu_in(const klat_cpu_set *set, int cpu);
int klat_cpu_weight(const klat_cpu_set *set);
/*
 * Parse "2,3", "0-3" or "1,1". Keeps order and repetitions. Returns the number of CPUs, -EINVAL if
 * the text is not a list, or -ERANGE if no CPU can have the number. The caller frees *cpus.
 */
int klat_cpus_parse(const char *text, int **cpus);
/*
 * Choose `count` CPUs of `allowed`: of the fastest type of cores that has so many, else of several
 * types. Distinct physical cores come before siblings, and CPUs behind one last-level cache before
 * CPUs of one node before the rest. CPU 0 comes last, because interrupts and housekeeping gather
 * there. Returns -ENOSPC if there are too few.
 */
int klat_cpus_place(const klat_cpu_set *allowed, int count, int *cpus);
/*
 * The relation of the pair that is farthest apart: "one-cpu", "same-core", "same-llc",
 * "same-llc-unknown-node", "same-node", "unknown-node" or "cross-node". On a machine with several
 * types of cores the types follow, in the order of the CPUs: "same-llc:core+atom". The next call
 * overwrites the text. NULL if memory is exhausted.
 */
const char *klat_cpus_relation(const int *cpus, int count);
/* -1 if it is unknown. */
int klat_cpu_node(int cpu);
/* Pin the calling thread. -EIO if the affinity that is read back differs. */
int klat_cpu_pin(int cpu);
/* Whether the calling thread may use this CPU and no other. */
bool klat_cpu_is_pinned(int cpu);
/* Whether the CPU is online and no cpuset forbids it to this process. An affinity mask forbids
 * nothing. */
bool klat_cpu_is_usable(int cpu);
/* Set the affinity of the calling thread. */
int klat_cpus_allow(const klat_cpu_set *set);

/* core_types.c */
#define KLAT_CORE_TYPES 8

struct klat_core_types {
	int count; /* 0 if all cores are of one type */
	klat_cpu_set cpus[KLAT_CORE_TYPES];
	char names[KLAT_CORE_TYPES][16];
};

/* The machine's types of cores, the fastest first. "unknown" comes last. */
void klat_core_types_read(struct klat_core_types *types);
/* The index of a CPU's type. 0 if all cores are of one type. */
int klat_core_type(const struct klat_core_types *types, int cpu);

/* cgroup.c */
/* Call visit() for the directory of each cgroup that can limit this process by the controller
 * ("cpu", "memory"): the process's cgroup, then its visible ancestors. visit() can be NULL. False
 * if no cgroup is visible. */
bool klat_cgroups_visit(const char *controller,
			void (*visit)(const char *directory, void *argument), void *argument);
/* Whether the process is in a cgroup that this mount namespace does not show. */
bool klat_cgroup_is_hidden(void);
/* Whether the process is in a cgroup namespace other than the first one. */
bool klat_cgroup_is_namespaced(void);
/* Whether the directory is the root of a hierarchy of version 1: only the root has release_agent.
 */
bool klat_cgroup_is_v1_root(const char *directory);
/* How long the real-time budget of a cgroup stops its threads: the shortest stop of the visible
 * cgroups. 0 if none has a budget. */
int64_t klat_cgroup_stop_us(void);
/* How often a CPU quota stopped this process's cgroup or one of its ancestors: the sum. -1 if
 * unknown. */
int64_t klat_cgroup_throttled(void);

/* counter.c */
struct klat_counter {
	double khz, uncertainty_ppm;
	double second_khz, difference_ppm; /* second_khz is 0 if there is no second method */
	char second_method[32];
	bool independent; /* the two figures come from different sources */
	bool invariant;
	int64_t quantum;
};

/*
 * The counter's step in ticks, from gaps of various lengths between two readings: their greatest
 * common divisor. A step may be a fraction, as that of a clock of 24 MHz in nanoseconds: the
 * largest number of which each gap is a multiple, rounded down or up. The result is rounded up. It
 * can be a tenth too large if all gaps are tens of such steps. A fraction below 4 gives 1. Sorts
 * the gaps.
 */
int64_t klat_counter_step(uint64_t *gaps, int count);
/* The smallest of many empty brackets on the calling CPU. */
uint64_t klat_counter_floor(struct klat_worker *worker);
/* The mean time by which klat_spin() exceeds its argument, by stamps around the call. */
uint64_t klat_spin_excess(void);
/* The loop of klat_pause(), and how many of its turns take `ticks`, on a counter with this step. */
void klat_take_turns(uint64_t turns);
uint64_t klat_turns_within(uint64_t ticks, int64_t step);
/* The lead of one CPU's counter over another's is between `low` and `high` ticks. */
struct klat_offset {
	int64_t low, high;
};

#define KLAT_ANY_OFFSET ((struct klat_offset){ INT64_MIN, INT64_MAX })

/*
 * Narrow `offset`, the lead of cpu_b's counter over cpu_a's, by a ping-pong under this policy. If
 * no offset fits all rounds, low > high afterwards.
 */
struct klat_policy;
int klat_counter_narrow_offset(int cpu_a, int cpu_b, const struct klat_policy *policy,
			       struct klat_offset *offset);
/*
 * The largest |offset| between any two counters. Each element is the lead over one common counter.
 * UINT64_MAX if no offset is possible, because an offset changed.
 */
uint64_t klat_counter_offset_bound(const struct klat_offset *offsets, int count);

/* frequency.c */
/* Whether a step of `quantum` ticks at this frequency is coarse: see klat_counter_is_coarse(). */
bool klat_frequency_is_coarse(int64_t quantum, double khz);
/* Calibrate for 200 ms against CLOCK_MONOTONIC_RAW, and against a second source if there is one. An
 * independent source is preferred. */
void klat_counter_calibrate(struct klat_counter *tsc);
/* From two readings of the ACPI PM timer, less than one wraparound apart. 0 if it does not run. */
double klat_frequency_of_pm(uint64_t tsc_ticks, int64_t first, int64_t last);
/* The raw clock's figure, corrected by NTP's rate. 0 if the clock is not synchronised. */
struct timex;
double klat_frequency_of_ntp(double khz, const struct timex *state);
/* Any counter has 1 kHz to 10^12 kHz. */
bool klat_frequency_is_possible(double khz);
/* Whether a second figure by this method is independent of the kernel's clock, which runs on this
 * clock source. `given`: the kernel has its frequency from CPUID or a hypervisor. */
bool klat_frequency_independent(const char *method, const char *clock_source, bool given);

/* mode.c */
/* "hardware", "virtual", "emulated" or "counted". */
const char *klat_mode(void);
/* Make klat_mode() return this from now on. */
void klat_mode_assume(const char *assumed);

/* measurable.c */
bool klat_machine_has_one_cpu(void);
bool klat_emulated(void);
/* "instructions" in counted mode, else "ticks". */
const char *klat_unit(void);
/* Whether any figure of this run has a meaning. Call it after placement. */
bool klat_figures(const struct klat_run *run);
/* Whether the metric's samples have a meaning in this run. Call it after placement. */
bool klat_measurable(const struct klat_run *run, int metric);

/* The timer slack of the run's threads and processes: the kernel's default. */
#define KLAT_TIMER_SLACK_NS 50000

/* sched.c */
struct klat_policy {
	int policy; /* SCHED_FIFO, SCHED_RR, SCHED_OTHER, SCHED_BATCH or SCHED_DEADLINE */
	int priority;
	bool asked;                    /* given by --policy: no fallback */
	int64_t runtime_ns, period_ns; /* of SCHED_DEADLINE, else 0 */
};

/* -EINVAL if the text is not a policy, -ERANGE if no kernel has a SCHED_DEADLINE with these times.
 * Without a priority, policy->priority stays. */
int klat_policy_parse(const char *text, struct klat_policy *policy);
const char *klat_policy_name(int policy);
/* As in "fifo:50", "other:0" and "deadline:200us:1ms". */
struct klat_policy_text {
	char text[64];
};
struct klat_policy_text klat_policy_text(const struct klat_policy *policy);
/* SCHED_FIFO and SCHED_RR. */
bool klat_policy_has_priority(int policy);
bool klat_policy_is_real_time(int policy);
/* The kernel's struct sched_attr, which C libraries define in different headers or not at all. */
struct klat_scheduling {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period; /* runtime: the time slice of an ordinary thread */
	uint32_t util_min, util_max;        /* 0 where the kernel has no clamps */
};
bool klat_scheduling_read(pid_t thread, struct klat_scheduling *scheduling);
/* Give the calling thread an ordinary policy, a nice value and a time slice; 0: as they are.
 * -EOPNOTSUPP if the kernel ignores the time slice, -EACCES if it ignores the nice value. */
int klat_scheduling_set(int policy, int nice, int64_t slice_ns);
/* Give the calling thread SCHED_DEADLINE. The kernel refuses it to a thread that may not use every
 * CPU of its root domain, so this allows the thread every CPU. */
int klat_deadline_set(const struct klat_policy *policy);
/* Leave SCHED_DEADLINE: give the calling thread the highest SCHED_FIFO priority, and pin it to this
 * CPU. Nothing preempts the thread in between, so it stays where it is. */
void klat_deadline_leave(int cpu);
#define KLAT_HIGHEST_PRIORITY 99
/* Try the policy on the calling thread and undo it. */
int klat_policy_try(const struct klat_policy *policy);
/* Start a thread with a small stack. With NULL it has the caller's CPUs. 0 or -errno. */
int klat_thread_create(pthread_t *thread, const klat_cpu_set *cpus, int policy, int priority,
		       void *(*body)(void *), void *argument);
/* Lock the present mappings, not later ones. -errno if refused. */
int klat_memory_lock(void);
/* Keep CPU exit latency at most `us` until the returned descriptor is closed. */
int klat_latency_hold(int64_t us);
/* The lowest exit latency that programs and drivers request, in us; -1: unknown. A driver can have
 * a request for a short time. So the function waits up to 10 ms for `expected` or no request. */
#define KLAT_LATENCY_UNLIMITED 2000000000 /* PM_QOS_CPU_LATENCY_DEFAULT_VALUE */
int32_t klat_latency_request(int32_t expected);

/* haltpoll.c */
struct klat_halt_poll {
	bool open;
	int file;       /* holds the value; locked */
	int64_t before; /* the value to restore */
	int lifeline;   /* a pipe: the guard restores the value when it closes */
	pid_t guard;
};

/*
 * Hold the guest's halt polling at `ns`, beginning on CPUs that do not poll. The previous value is
 * restored by release(), or when the caller ends for any reason. A forked process calls leave(), so
 * that it does not restore the value. The evidence shows whether another process set it during the
 * run.
 */
int klat_halt_poll_hold(struct klat_run *run, struct klat_halt_poll *hold, int64_t ns);
int klat_halt_poll_release(struct klat_run *run, struct klat_halt_poll *hold);
void klat_halt_poll_leave(const struct klat_halt_poll *hold);
/* -1 if it cannot be read. */
int64_t klat_halt_poll_ns(void);
/* Wait until the CPUs of the run halt without polling first, whatever ran before. */
void klat_halt_poll_settle(const struct klat_run *run);
/* How often an idle CPU has polled, and how often it has entered another state. False if the kernel
 * does not count this. */
bool klat_idle_entries(int cpu, int64_t *polls, int64_t *halts);

/* environment.c */
/*
 * Copy what describes the machine into the directory `session`, which messages call `name`. 0, or
 * -errno after klat_error() if a copy cannot be written.
 */
int klat_environment_capture(struct klat_run *run, int session, const char *name);

#endif
