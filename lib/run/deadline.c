/* SPDX-License-Identifier: MIT */
/*
 * SCHED_DEADLINE: in each period the kernel gives the thread its runtime. If the thread uses more,
 * the kernel stops it until the next period. A thread of this policy cannot be pinned. It starts on
 * its CPU, and stays there until the kernel stops it: after the stop, the kernel prefers a CPU
 * without other work (push_dl_task()). So a worker has this policy in its body only.
 */
#include "run/run.h"

#include <errno.h>
#include <sched.h>

#define OVERRAN "in {got} of {wanted} iterations the thread used more CPU time than its runtime"

static int refused(struct klat_run *run, int err)
{
	const struct klat_policy *policy = &run->library->policy;
	const struct klat_policy_text text = klat_policy_text(policy);
	klat_cpu_set online, allowed;

	if (err == -EBUSY)
		return klat_error(run, EBUSY,
				  "%s refused: other deadline threads and sched_rt_runtime_us "
				  "leave less than %.3g %% of a CPU; ask for less runtime",
				  text.text, 100.0 * policy->runtime_ns / policy->period_ns);
	if (err == -EINVAL)
		return klat_error(
			run, EINVAL,
			"%s refused: the kernel takes periods of %lld to %lld us "
			"(kernel.sched_deadline_period_min_us and _max_us)",
			text.text,
			(long long)klat_read_count("/proc/sys/kernel/sched_deadline_period_min_us"),
			(long long)klat_read_count(
				"/proc/sys/kernel/sched_deadline_period_max_us"));
	if (err != -EPERM)
		return klat_error(run, -err, "%s refused: %m", text.text);
	if (!klat_cpus_online(&online) && !klat_cpus_allowed(&allowed))
		for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
			if (klat_cpu_in(&online, cpu) && !klat_cpu_in(&allowed, cpu))
				return klat_skip(
					run,
					"%s refused: the thread may not use CPU %d, and the "
					"kernel demands every CPU of the root domain; run outside "
					"this cpuset, or make it a partition, and as root",
					text.text, cpu);
	return klat_error(run, EPERM,
			  "%s refused: %m; run as root; kernel.sched_rt_runtime_us must not be 0",
			  text.text);
}

int klat_deadline_enter(struct klat_worker *worker)
{
	const int err = klat_deadline_set(&worker->run->library->policy);

	if (err)
		return refused(worker->run, err);
	klat_traits_read_scheduling(&worker->account.traits, 0);
	return 0;
}

int klat_deadline_try(struct klat_run *run)
{
	klat_cpu_set before;
	int err;

	if (klat_cpus_allowed(&before))
		return klat_error(run, errno, "cannot read the affinity mask: %m");
	klat_cpu_pin(run->cpus[0]);
	err = klat_policy_try(&run->library->policy);
	if (err)
		refused(run, err);
	klat_cpus_allow(&before);
	return err;
}

bool klat_deadline_is_held(const struct klat_worker *worker)
{
	return klat_is_deadline(worker->run) ? sched_getcpu() == worker->cpu
					     : klat_cpu_is_pinned(worker->cpu);
}

void klat_deadline_count(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct klat_account *account = &worker->account;
	const bool is_observed = worker->iteration >= worker->observed_from;
	int64_t cpu_ns, waited_ns;
	bool overran;

	klat_account_read(worker, &cpu_ns, &waited_ns);
	overran = account->last_cpu_ns && cpu_ns - account->last_cpu_ns > run->runtime_ns;
	account->overruns += is_observed && overran;
	/* A thread waits for its CPU during a stop. If it sleeps before the stop, the wait is in
	 * the next iteration. A shorter wait is an ordinary wakeup. */
	account->throttled += is_observed && (overran || account->overran) &&
			      waited_ns - account->last_waited_ns > run->period_ns / 20;
	account->last_cpu_ns = cpu_ns;
	account->last_waited_ns = waited_ns;
	account->overran = overran;
}

void klat_deadline_judge(struct klat_run *run)
{
	int64_t overruns = 0, throttled = 0;
	bool waits_known = true;

	if (!klat_is_deadline(run))
		return;
	klat_for_each_worker(worker, run) {
		overruns += worker->account.overruns;
		throttled += worker->account.throttled;
		waits_known &= worker->account.waited_ns >= 0;
	}
	klat_require(run,
		     { "overruns", overruns, KLAT_RARELY, klat_observed(run), .reason = OVERRAN },
		     { NULL, overruns, KLAT_NEVER, klat_observed(run), OVERRAN, .disturbs = true },
		     { "throttled", throttled, KLAT_NEVER, klat_observed(run),
		       "in {got} of {wanted} iterations the kernel stopped the thread until its "
		       "next period",
		       .disturbs = true, .unless = !waits_known });
}
