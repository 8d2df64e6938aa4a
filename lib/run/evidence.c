/* SPDX-License-Identifier: MIT */
/* Did the kernel do what was timed, and nothing else? Counters before and after the run, and the
 * checks that all programs share. */
#include "run/run.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void take_steal(struct klat_snapshot *snapshot)
{
	char *text = klat_read_stat(), *rest = text, *line;
	int64_t times[KLAT_STAT_TIMES];
	int cpu;

	for (cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		snapshot->steal[cpu] = -1;
	while ((line = strsep(&rest, "\n")))
		if (klat_stat_line(line, &cpu, times) && cpu < KLAT_MAX_CPU)
			snapshot->steal[cpu] = times[KLAT_STAT_TIMES - 1];
	free(text);
}

/* The sum over the CPUs of the run, each counted once. */
static void take_halt_poll(struct klat_snapshot *snapshot, const struct klat_run *run)
{
	snapshot->halt_poll_ns = klat_halt_poll_ns();
	snapshot->polls = snapshot->halts = 0;
	klat_for_each_cpu(cpu, run) {
		int64_t polls, halts;

		if (!klat_idle_entries(cpu, &polls, &halts)) {
			snapshot->polls = -1;
			return;
		}
		snapshot->polls += polls;
		snapshot->halts += halts;
	}
}

/* Only a rise matters: CPUs of one core or package show the same counts, and each is added. */
static int64_t thermal_throttles(const struct klat_run *run)
{
	static const char *const names[] = { "core", "package" };
	int64_t sum = 0;

	klat_for_each_cpu(cpu, run) {
		for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++) {
			const int64_t count =
				klat_read_count(klat_path("/sys/devices/system/cpu/cpu%d/"
							  "thermal_throttle/%s_throttle_count",
							  cpu, names[i]));

			sum += count > 0 ? count : 0;
		}
	}
	return sum;
}

void klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run)
{
	klat_clocks_take(&snapshot->clocks);
	klat_interrupts_take(snapshot, run);
	take_steal(snapshot);
	snapshot->throttled = klat_cgroup_throttled();
	snapshot->thermal_throttles = thermal_throttles(run);
	/* An SMI stops all CPUs at once, so one CPU's count is enough. */
	snapshot->smi = klat_arch_smi_count(run->cpus[0]);
	for (int name = 0; name < KLAT_SETTINGS; name++)
		klat_setting_read(name, snapshot->settings[name]);
	if (run->library->common.guest_halt_poll >= 0)
		take_halt_poll(snapshot, run);
}

void klat_thread_self(int64_t *migrations, int64_t *wait_ns)
{
	*migrations = klat_count_in("/proc/thread-self/sched", "nr_migrations");
	*wait_ns = klat_count_in("/proc/thread-self/schedstat", " ");
}

/* Check each worker alone: the sleeps of one cannot replace the sleeps of another. A role has one
 * reason, that of the worker that slept least. */
static void judge_sleepers(struct klat_run *run, const struct klat_worker *first)
{
	const int64_t observed = klat_observed(run);
	int64_t missed = INT64_MIN, waits = 0;

	klat_for_each_worker(worker, run) {
		const bool preempts = run->one_cpu && !worker->competes;
		int64_t slept = worker->voluntary + (preempts ? worker->involuntary : 0);
		int64_t needed = observed + worker->unsampled - worker->unneeded_sleeps;

		if (strcmp(worker->role, first->role) || needed - slept <= missed)
			continue;
		waits = needed;
		missed = waits - slept;
	}
	/* One wait at each edge may be counted outside. The edges have no samples. */
	if (!klat_is_met(KLAT_MOSTLY, observed - missed + 1, observed))
		klat_invalid(run, "in %lld of %lld iterations the %s was woken before it slept",
			     (long long)missed, (long long)waits, first->noun);
}

static void judge_sleeps(struct klat_run *run, const struct klat_worker *worker)
{
	if (worker->sleeps == KLAT_MOSTLY && !worker->index)
		judge_sleepers(run, worker);
	else if (worker->sleeps != KLAT_MOSTLY &&
		 !klat_is_met(worker->sleeps, worker->voluntary, klat_observed(run)))
		klat_invalid(
			run, "the %s slept although it must not (sleeps: %lld, iterations: %lld)",
			worker->noun, (long long)worker->voluntary, (long long)klat_observed(run));
}

static void judge_worker(struct klat_run *run, const struct klat_worker *worker)
{
	int64_t faults = worker->minor_faults + worker->major_faults - worker->expected_faults;
	struct klat_policy wanted = run->library->policy;
	struct klat_policy_text wanted_text, obtained_text;

	wanted.priority = worker->priority;
	wanted_text = klat_policy_text(&wanted);
	obtained_text = klat_policy_obtained(worker);
	if (worker->strayed)
		klat_invalid(run, "the %s was seen on another CPU than %d", worker->noun,
			     worker->cpu);
	if (!worker->pinned)
		klat_invalid(run, "the %s was not held to CPU %d", worker->noun, worker->cpu);
	/* Only end stamps prove the CPU, and some roles do not take one in each iteration. */
	if (worker->migrations > 0)
		klat_invalid(run, "the %s was moved between CPUs", worker->noun);
	if (worker->policy_obtained != wanted.policy ||
	    strcmp(wanted_text.text, obtained_text.text) != 0)
		klat_invalid(run, "the %s ran under %s instead of %s", worker->noun,
			     obtained_text.text, wanted_text.text);
	if (faults > 0)
		klat_invalid(run, "%lld page faults in the timed part of the %s", (long long)faults,
			     worker->noun);
	judge_sleeps(run, worker);
}

/*
 * The kernel stops a SCHED_FIFO or SCHED_RR thread that does not sleep: by throttling for the rest
 * of the period, and since Linux 6.12 by a turn of the fair server while an ordinary task waits.
 * Both take 50 ms by default. The longest sample then exceeds the shortest by about 50 ms. No other
 * cause adds as much.
 */
static void judge_throttling(struct klat_run *run)
{
	const int64_t period = klat_read_count("/proc/sys/kernel/sched_rt_period_us"),
		      runtime = klat_read_count("/proc/sys/kernel/sched_rt_runtime_us"),
		      group = klat_cgroup_stop_us();
	/* There is no throttling if the runtime is the whole period, or -1. */
	int64_t stop_us = period > 0 && runtime >= 0 && runtime < period ? period - runtime : 0,
		server_ns = 0, shortest_ns;
	bool throttles;
	uint64_t longest = 0;

	if (!klat_policy_has_priority(run->library->policy.policy))
		return;
	klat_for_each_cpu(cpu, run)
		server_ns = MAX(server_ns, klat_server_ns(cpu));
	if (group && (!stop_us || group < stop_us))
		stop_us = group;
	throttles = stop_us > 0;
	shortest_ns = throttles ? 1000 * stop_us : server_ns;
	if (server_ns)
		shortest_ns = MIN(shortest_ns, server_ns);
	klat_for_each_metric(m, run) {
		const struct klat_summary *summary = &run->library->summaries[m];

		if (klat_samples_kept(run, m) && summary->max - summary->min > longest)
			longest = summary->max - summary->min;
	}
	if (shortest_ns && klat_ticks_to_ns(run, longest) > shortest_ns * 8 / 10)
		klat_disturbed(run, "a sample is as long as %s%s%s (see klat doctor)",
			       throttles ? "real-time throttling" : "",
			       throttles && server_ns ? " or " : "",
			       server_ns ? "a turn of the kernel's server for ordinary tasks" : "");
}

void klat_judge_clock_rate(struct klat_run *run, int metric, int64_t set_before_ns)
{
	enum { DRIFT_PPM = 200 }; /* a free-running oscillator drifts less */
	const struct klat_clocks *before = &run->library->before.clocks,
				 *after = &run->library->after.clocks;
	const struct klat_summary *summary = &run->library->summaries[metric];
	const int64_t raw_ns = after->raw_ns - before->raw_ns,
		      ahead_ns = after->at_ns - before->at_ns - raw_ns,
		      ppm = raw_ns > 0 ? llround(1e6 * ahead_ns / raw_ns) : 0,
		      median = summary->p50_known ? summary->p50 : summary->mean_milli / 1000;
	const double share =
		fabs(1e-6 * ppm * set_before_ns) / MAX(klat_ticks_to_ns(run, median), 1);

	if (!klat_timed() || !klat_samples_kept(run, metric))
		return;
	klat_count(run, "clock_ppm", ppm);
	if (llabs(ppm) >= DRIFT_PPM && share >= 0.05 && !klat_timer_follows_clock())
		(share >= 0.1 ? klat_invalid : klat_disturbed)(
			run,
			"a program corrects the clock by %+lld ppm (adjtimex): this moves the "
			"expiry by %.1f %% of the median (wait until the clock is correct)",
			(long long)ppm, 100 * share);
}

int64_t klat_stolen(const struct klat_run *run, const struct klat_snapshot *before,
		    const struct klat_snapshot *after)
{
	int64_t stolen = 0;

	klat_for_each_cpu(cpu, run) {
		if (before->steal[cpu] < 0 || after->steal[cpu] < 0)
			return -1;
		/* Some hypervisors correct the count downwards. */
		stolen += MAX(after->steal[cpu] - before->steal[cpu], 0);
	}
	return stolen;
}

static void judge_suspension(struct klat_run *run)
{
	const struct klat_clocks *before = &run->library->before.clocks,
				 *after = &run->library->after.clocks;
	const int64_t ms = klat_suspended_ms(before, after);

	if (ms > 0)
		klat_invalid(run, "the machine was suspended for %lld ms", (long long)ms);
	else if (klat_was_suspended(before, after))
		klat_invalid(run, "the machine began to suspend, which stops every thread, and "
				  "gave up");
}

/* A guest can move to a host with another counter frequency after the calibration. The two readings
 * can come from two CPUs. */
static void judge_frequency(struct klat_run *run)
{
	enum { OFFSET_NS = 20000 }; /* between the counters of two CPUs, at most */
	const struct klat_clocks *before = &run->library->before.clocks,
				 *after = &run->library->after.clocks;
	const struct klat_counter *counter = &run->library->counter;
	const double ns = after->raw_ns - before->raw_ns,
		     khz = 1e6 * (after->ticks - before->ticks) / ns,
		     quantum_ns = 1e6 * counter->quantum / counter->khz,
		     error = (before->width_ns + after->width_ns + OFFSET_NS + quantum_ns) / ns;

	/* A suspension can stop the counter, set it to 0 or let it go on. */
	if (klat_timed() && ns > 0 && !klat_was_suspended(before, after) &&
	    fabs(khz / counter->khz - 1) > 0.001 + error)
		klat_invalid(run, "the counter ran at %.0f kHz, and was calibrated at %.0f kHz",
			     khz, counter->khz);
}

static void judge_machine(struct klat_run *run)
{
	const struct klat_library *library = run->library;

	if (klat_stolen(run, &library->before, &library->after) > 0)
		klat_disturbed(run, "CPU time stolen by the hypervisor");
	if (library->before.smi >= 0 && library->after.smi > library->before.smi)
		klat_disturbed(run, "system-management interrupts");
	if (library->after.thermal_throttles > library->before.thermal_throttles)
		klat_disturbed(run, "thermal throttling slowed CPUs of the run");
	for (int name = 0; name < KLAT_SETTINGS; name++) {
		const char *then = library->before.settings[name],
			   *now = library->after.settings[name];

		/* A change of the list of CPUs stops all CPUs, but only for a short time. */
		if (*then && *now && strcmp(then, now))
			(name == KLAT_ONLINE ? klat_disturbed
					     : klat_invalid)(run, "the %s changed from %s to %s",
							     klat_settings[name].noun, then, now);
	}
}

static void judge_halt_poll(struct klat_run *run)
{
	const struct klat_library *library = run->library;
	int64_t held = library->common.guest_halt_poll, polls, halts;

	if (held < 0)
		return;
	if (library->before.halt_poll_ns != held || library->after.halt_poll_ns != held)
		klat_invalid(run,
			     "guest_halt_poll_ns was %lld at the start and %lld at the end instead "
			     "of %lld: another program set it",
			     (long long)library->before.halt_poll_ns,
			     (long long)library->after.halt_poll_ns, (long long)held);
	if (library->before.polls < 0 || library->after.polls < 0)
		return;
	polls = library->after.polls - library->before.polls;
	halts = library->after.halts - library->before.halts;
	klat_require(run,
		     { "idle_polls", polls, held ? KLAT_COUNTED : KLAT_RARELY, klat_made(run),
		       .reason =
			       "idle CPUs polled {got} times despite --guest-halt-poll 0: another "
			       "program requests a latency of 0, or raised the limits before" });
	klat_count(run, "halts_per_1000_iterations", halts * 1000 / klat_made(run));
}

static void judge_pair(struct klat_run *pair)
{
	klat_for_each_worker(worker, pair)
		judge_worker(pair, worker);
	klat_surplus_judge_pair(pair);
	klat_wakeups_count(pair);
}

void klat_evidence_judge(struct klat_run *run)
{
	/* First, so that the reason names the stop: the other tests see the stop as a preemption
	 * and as a wait. */
	judge_suspension(run);
	klat_deadline_judge(run);
	klat_judge_pairs(run, judge_pair);
	klat_surplus_judge(run);
	/* An emulator's counter follows the host's clock or the count of instructions, whatever its
	 * CPUID says. */
	if (klat_timed() && !run->library->counter.invariant)
		klat_invalid(run, "the time-stamp counter is not invariant");
	judge_throttling(run);
	judge_frequency(run);
	judge_machine(run);
	judge_halt_poll(run);
	klat_busy_count(run);
	klat_interrupts_count(run);
}
