/* SPDX-License-Identifier: MIT */
/*
 * What happened besides the event. If the evidence counts more than the event needs, the run is
 * disturbed. The run is invalid if the surplus can have moved the median: see docs/statuses.md.
 */
#include "run/run.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

void klat_account_read(const struct klat_worker *worker, int64_t *cpu_ns, int64_t *waited_ns)
{
	char text[96];
	/* Time on the CPU and of waiting for it, in ns: Documentation/scheduler/sched-stats.rst. */
	ssize_t size = worker->account.file < 0
			       ? -1
			       : pread(worker->account.file, text, sizeof(text) - 1, 0);

	*cpu_ns = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	text[size > 0 ? size : 0] = 0;
	*waited_ns = klat_count_after(text, " ");
}

bool klat_is_traced(const char *path)
{
	return klat_count_in(path, "\nTracerPid:") > 0;
}

bool klat_is_probed(void)
{
	char *maps = klat_read_file("/proc/self/maps");
	const bool is_probed = maps && strstr(maps, "[uprobes");

	free(maps);
	return is_probed;
}

/* Each of `count` other events can change one sample. */
typedef void (*verdict_fn)(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);

static verdict_fn verdict_of(const struct klat_run *run, int64_t count)
{
	return 2 * count >= klat_observed(run) ? klat_invalid : klat_disturbed;
}

static void judge_counts(struct klat_run *run)
{
	const int64_t throttled =
		run->library->before.throttled < 0
			? 0
			: run->library->after.throttled - run->library->before.throttled;
	const int64_t stops = run->library->stops;

	if (stops > 0)
		verdict_of(run, stops)(run,
				       "the process was stopped %lld time%s, by a signal, a "
				       "tracer or the freezer",
				       (long long)stops, stops == 1 ? "" : "s");
	/* A quota applies to ordinary threads. */
	if (throttled > 0 && !klat_is_real_time(run))
		verdict_of(run, throttled)(run,
					   "the CPU quota of the cgroup stopped its threads "
					   "%lld time%s",
					   (long long)throttled, throttled == 1 ? "" : "s");
}

/* Whether another worker may preempt this one. Workers of equal priority switch when they sleep,
 * and none runs for a whole SCHED_RR quantum. */
static bool has_superior(const struct klat_run *run, const struct klat_worker *worker)
{
	klat_for_each_worker(other, run)
		if (other->cpu == worker->cpu && other->priority > worker->priority)
			return true;
	return false;
}

/* The shortest median of any metric. */
static double shortest_median_ns(const struct klat_run *run)
{
	uint64_t shortest = 0;

	klat_for_each_metric(m, run) {
		const struct klat_summary *summary = &run->library->summaries[m];
		const uint64_t typical = summary->p50_known ? summary->p50 : summary->min;

		if (klat_samples_kept(run, m) && (!shortest || typical < shortest))
			shortest = typical;
	}
	return klat_ticks_to_ns(run, shortest);
}

/* A thread of higher priority preempted the worker, or the kernel did so for threads of lower
 * priority. That time is in a sample. Less than 5 % of a sample means nothing, as with interrupts:
 * the kernel's watchdog takes some microseconds of each CPU every 4 s. */
static void judge_preemptions(struct klat_run *run, const struct klat_worker *worker)
{
	const int64_t surplus = worker->involuntary - worker->expected_switches,
		      waited_ns = worker->account.waited_ns;
	const bool brief = waited_ns > 0 && waited_ns * 20 < shortest_median_ns(run);

	if (klat_is_real_time(run) && surplus > 0 && !brief && !has_superior(run, worker) &&
	    !klat_emulated())
		verdict_of(run, surplus)(run, "the %s was preempted", worker->noun);
}

/* The spin locks of a PREEMPT_RT kernel sleep, so an event can have more sleeps than its own. */
static bool locks_sleep(void)
{
	struct utsname names;

	return !uname(&names) && klat_is_rt(names.version);
}

/* More sleeps show a tracer outside the PID namespace, a stop of one thread, or a lock that another
 * process held, for example mmap_lock. Locks of the kernel add a few sleeps. Unneeded sleeps are
 * allowed: the kernel may sleep until a deadline that has passed. */
static void judge_more_sleeps(struct klat_run *run, const struct klat_worker *worker)
{
	const int64_t waits = klat_observed(run) + worker->unsampled,
		      most = worker->most_sleeps ?: worker->sleeps == KLAT_MOSTLY,
		      surplus = worker->voluntary - waits * most;

	/* judge_sleeps() limits the sleeps under the other rules. */
	if ((worker->sleeps == KLAT_MOSTLY || worker->sleeps == KLAT_COUNTED) &&
	    most != KLAT_ANY_SLEEPS && surplus * 20 > waits && !locks_sleep())
		verdict_of(run, surplus)(run, "the %s slept %lld times in %lld iterations",
					 worker->noun, (long long)worker->voluntary,
					 (long long)waits);
}

/* The metric with the longest median: its samples contain most of the waits. */
struct longest_metric {
	double median_ns, sum_ns;
	double excess_ns; /* how far the samples above twice the median exceed it, added up */
	int64_t longer;   /* the number of samples above 1.25 times the median */
};

static void add_samples(struct longest_metric *longest, uint64_t median, uint64_t sample,
			int64_t count)
{
	longest->sum_ns += (double)sample * count;
	if (sample / 2 > median)
		longest->excess_ns += (double)(sample - median) * count;
	if (sample > median + median / 4)
		longest->longer += count;
}

static struct longest_metric longest_of(const struct klat_run *run)
{
	const struct klat_histogram *histograms = run->library->soak.histograms;
	struct longest_metric longest = { 0 };
	uint64_t median = 0;
	int metric = -1, parts;

	klat_for_each_metric(m, run) {
		const struct klat_summary *summary = &run->library->summaries[m];
		uint64_t typical = summary->p50_known ? summary->p50 : summary->max;

		if (!klat_samples_kept(run, m) || typical <= median)
			continue;
		median = typical;
		metric = m;
	}
	if (metric < 0)
		return longest;
	for (int64_t i = 0; histograms && i < histograms[metric].distinct; i++)
		add_samples(&longest, median, histograms[metric].pairs[i].value,
			    histograms[metric].pairs[i].count);
	for (int64_t i = 0; !histograms && i < run->iterations; i++)
		add_samples(&longest, median, klat_series(run, metric, 0)[i], 1);
	if (histograms) {
		const int64_t series = run->library->metrics[metric].series;

		longest.sum_ns /= series;
		longest.excess_ns /= series;
		longest.longer /= series;
	}
	/* A sample can be the mean of two directions. */
	parts = run->benchmark->metrics[metric].mean_of ?: 1;
	longest.median_ns = klat_ticks_to_ns(run, median) * parts;
	longest.sum_ns = klat_ticks_to_ns(run, longest.sum_ns) * parts;
	longest.excess_ns = klat_ticks_to_ns(run, longest.excess_ns) * parts;
	return longest;
}

/* The time of other tasks on the run's CPUs. INT64_MAX if the kernel does not count it in ns. */
static int64_t time_of_others(const struct klat_run *run)
{
	const struct klat_busy *before = &run->library->busy_before,
			       *after = &run->library->busy_after;

	if (before->busy_ns < 0 || after->busy_ns < 0 || after->step_ns != 1)
		return INT64_MAX;
	return after->busy_ns - before->busy_ns - (after->own_ns - before->own_ns);
}

/*
 * How long other tasks kept a worker from its CPU. The kernel's waits also contain the exit from an
 * idle state, so no wait exceeds the time of other tasks. They also contain the waits of the
 * workers of one CPU for each other:
 *
 * - `alone` is the worker's waits, less the time of the CPU's other workers, and of the children;
 * - `shared` is the time in which a worker of this CPU waited, and none of them ran. The kernel
 *   counts no waits of children that have ended: klat takes the time of other tasks instead.
 */
struct waits {
	int64_t alone, shared;
	int tasks; /* on this CPU: workers and their children */
};

static struct waits waits_of(const struct klat_run *run, const struct klat_worker *worker)
{
	const int64_t others = time_of_others(run);
	int64_t cpu_ns = 0, waited_ns = 0;
	struct waits waits = { 0 };

	klat_for_each_worker(other, run)
		if (other->cpu == worker->cpu) {
			waits.tasks += other->children_ns ? 2 : 1;
			cpu_ns += other->account.cpu_ns + other->children_ns;
			waited_ns += other->children_ns ? others : other->account.waited_ns;
		}
	waits.alone = worker->account.waited_ns - (cpu_ns - worker->account.cpu_ns);
	waits.shared = worker->account.elapsed_ns - cpu_ns;
	/* Alone on its CPU, a worker may sleep in that time. */
	waits.shared = MIN(waits.shared, MIN(waited_ns, others));
	waits.alone = MIN(waits.alone, others);
	return waits;
}

static bool has_neighbours(const struct klat_run *run)
{
	const struct klat_neighbours *neighbours = &run->library->neighbours;

	return klat_timed() &&
	       !klat_is_met(KLAT_RARELY, neighbours->ran_ns, neighbours->elapsed_ns);
}

/*
 * Waits in a few samples, or outside the samples, do not move the median. So they are subtracted
 * before the waits are compared with the median.
 *
 * The limit on the sum allows 10 us for each iteration, because the kernel counts up to 10 us of a
 * wakeup as a wait. So the waits of iterations below 10 us never exceed it. Then samples above
 * twice the median show that other tasks ran.
 */
static void judge_waits(struct klat_run *run, const struct klat_worker *worker,
			const struct longest_metric *longest)
{
	const struct waits waits = waits_of(run, worker);
	const int64_t observed = klat_observed(run);
	const bool ordinary = !klat_is_real_time(run);
	const double all = longest->median_ns * observed,
		     outside = worker->account.elapsed_ns - longest->sum_ns,
		     base_limit = 4e6 + (ordinary ? all / 20 : 0),
		     visible = MIN(worker->children_ns ? waits.shared : waits.alone,
				   longest->excess_ns);
	double share = 0;
	bool frequent = false;

	if (worker->account.waited_ns < 0 || (worker->competes && ordinary))
		return;
	/* A sleep or a preemption is followed by one wait. */
	if (all && !worker->kernel_threads && !has_superior(run, worker) &&
	    2 * (worker->voluntary + worker->involuntary) >= observed) {
		const double inside = waits.shared - (outside > 0 ? outside : 0);

		share = (inside - longest->excess_ns) / all;
		/* A single long wait is an outlier. */
		frequent = waits.tasks > 1 && !ordinary && !run->library->common.under_load &&
			   longest->longer * 20 > observed && inside * 20 > longest->sum_ns;
	}
	/* An ordinary load delays a worker alone on its CPU. That delay is measured. */
	if (share >= 0.2 && (waits.tasks > 1 || has_neighbours(run)))
		klat_invalid(run,
			     "other tasks kept the %s from CPU %d for %.0f %% of the median sample",
			     worker->noun, worker->cpu, 100 * share);
	else if (share >= 0.2 || frequent || waits.alone > base_limit + 1e4 * observed ||
		 (ordinary && visible > base_limit))
		klat_disturbed(run, "the %s was kept waiting for its CPU", worker->noun);
}

/*
 * An interrupt with its softirq takes a few microseconds. One interrupt changes a sample that is
 * shorter than LENGTH_NS; only several change a longer sample. The counts cover the whole run. The
 * share of the time that the samples cover estimates how many interrupts are in samples. Metrics
 * with shorter samples have fewer interrupts in them.
 */
#define LENGTH_NS 100000

static void judge_interrupts(struct klat_run *run, const struct longest_metric *longest)
{
	const struct klat_library *library = run->library;
	const double elapsed_ns = library->after.clocks.at_ns - library->before.clocks.at_ns,
		     share = longest->sum_ns / elapsed_ns,
		     interrupts = klat_other_interrupts(run) * (share > 0 && share < 1 ? share : 1),
		     length = longest->median_ns / LENGTH_NS;
	const int64_t samples = interrupts / (length > 1 ? length : 1);

	if (samples * 20 > klat_observed(run))
		verdict_of(run, samples)(
			run,
			"about %.0f interrupts from devices or other programs are in the samples "
			"(--under-load allows them)",
			interrupts);
}

static void judge_others(struct klat_run *run)
{
	const struct longest_metric longest = longest_of(run);

	/* A guest in an emulator runs nothing but the test, and its instructions count as
	 * nanoseconds. */
	klat_for_each_worker(worker, run) {
		judge_preemptions(run, worker);
		if (klat_timed())
			judge_waits(run, worker, &longest);
	}
	if (klat_timed() && !run->library->common.under_load)
		judge_interrupts(run, &longest);
}

void klat_surplus_judge_pair(struct klat_run *run)
{
	klat_for_each_worker(worker, run) {
		if (worker->account.traced)
			klat_invalid(run,
				     "another process traces the %s (run it without the tracer)",
				     worker->noun);
		if (worker->account.probed)
			klat_invalid(run,
				     "a uprobe of another program stopped the %s (remove it; perf "
				     "probe --list and bpftool link list probes)",
				     worker->noun);
		if (worker->account.changed)
			klat_invalid(run, "the %s of the %s changed during the run",
				     worker->account.changed, worker->noun);
		judge_more_sleeps(run, worker);
	}
	if (!run->benchmark->counts_others)
		judge_others(run);
}

void klat_surplus_judge(struct klat_run *run)
{
	judge_counts(run);
	if (!run->benchmark->counts_others && has_neighbours(run))
		klat_disturbed(run, "real-time tasks of other programs ran on its CPUs "
				    "(ps -eLo rtprio,psr,comm lists them)");
	klat_observers_judge(run);
}
