/* SPDX-License-Identifier: MIT */
/* The CPUs of a run. */
#include "run/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int klat_place_given(struct klat_run *run, const char *list)
{
	klat_cpu_set online;

	run->library->on_one_cpu = !strcmp(list, "one");
	if (run->library->on_one_cpu)
		return 0;
	run->cpu_count = klat_cpus_parse(list, &run->cpus);
	if (run->cpu_count < 0)
		return klat_usage(
			run,
			"--cpus takes a list, for example 2,3 or 4-7, or the word one, not '%s'",
			list);
	for (int i = 0; i < run->cpu_count; i++) {
		if (klat_cpu_is_usable(run->cpus[i]))
			continue;
		if (klat_cpus_online(&online) || !klat_cpu_in(&online, run->cpus[i]))
			return klat_usage(run,
					  "--cpus: CPU %d does not exist or is offline (%d online)",
					  run->cpus[i], klat_cpu_weight(&online));
		return klat_usage(run,
				  "--cpus: CPU %d is outside the cpuset of this control group or "
				  "container; choose another, or widen the cpuset",
				  run->cpus[i]);
	}
	run->cpus_given = true;
	return 0;
}

bool klat_place_has(const struct klat_run *run, int cpu)
{
	for (int i = 0; i < run->cpu_count; i++)
		if (run->cpus[i] == cpu)
			return true;
	return false;
}

bool klat_place_is_repeated(const struct klat_run *run, int place)
{
	for (int i = 0; i < place; i++)
		if (run->cpus[i] == run->cpus[place])
			return true;
	return false;
}

int klat_place_next(const struct klat_run *run, int *place)
{
	while (*place < run->cpu_count && klat_place_is_repeated(run, *place))
		++*place;
	return *place < run->cpu_count ? run->cpus[(*place)++] : -1;
}

static bool are_one(const struct klat_run *run)
{
	for (int i = 1; i < run->cpu_count; i++)
		if (run->cpus[i] != run->cpus[0])
			return false;
	return true;
}

bool klat_place_is_one_cpu(const struct klat_run *run)
{
	return run->cpus_given ? are_one(run)
			       : run->library->on_one_cpu || klat_machine_has_one_cpu();
}

/* Without a list of CPUs, all roles share one CPU if the machine has no other, or with --cpus one.
 */
static bool shares_one_cpu(const struct klat_run *run)
{
	return run->one_cpu && !run->cpus_given && !run->distinct_cpus;
}

int klat_place_possible(struct klat_run *run, klat_cpu_set *allowed)
{
	int available, err = klat_cpus_allowed(allowed);

	if (err)
		return klat_error(run, -err, "cannot read the affinity mask: %m");
	available = klat_cpu_weight(allowed);
	if (run->cpus_given || run->cpu_count <= available || shares_one_cpu(run))
		return 0;
	return klat_skip(
		run, "needs %d CPUs and may use %d%s", run->cpu_count, available,
		run->distinct_cpus ? "" : "; --cpus with a number repeated puts roles on one CPU");
}

int klat_place(struct klat_run *run)
{
	klat_cpu_set allowed;
	int err = klat_place_possible(run, &allowed);

	if (err)
		return err;
	if (!run->cpus_given) {
		int distinct = shares_one_cpu(run) ? 1 : run->cpu_count;

		run->cpus = malloc(run->cpu_count * sizeof(*run->cpus));
		err = run->cpus ? klat_cpus_place(&allowed, distinct, run->cpus) : -ENOMEM;
		if (err)
			return klat_error(run, -err, "cannot choose CPUs: %m");
		for (int i = distinct; i < run->cpu_count; i++)
			run->cpus[i] = run->cpus[0];
	}
	run->one_cpu = are_one(run);
	run->library->placement = klat_cpus_relation(run->cpus, run->cpu_count);
	return run->library->placement ? 0 : klat_error(run, ENOMEM, "cannot place the run: %m");
}
