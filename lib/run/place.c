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

bool klat_place_is_one(const struct klat_run *run)
{
	for (int i = 1; i < run->cpu_count; i++)
		if (run->cpus[i] != run->cpus[0])
			return false;
	return true;
}

bool klat_place_is_one_cpu(const struct klat_run *run)
{
	return run->cpus_given ? klat_place_is_one(run)
			       : run->library->on_one_cpu || klat_machine_has_one_cpu();
}

/* Without a list of CPUs, all roles of a pair share one CPU if the machine has no other, or with
 * --cpus one. */
static bool shares_one_cpu(const struct klat_run *run)
{
	return run->one_cpu && !run->cpus_given && !run->distinct_cpus;
}

/* How many CPUs klat chooses for each pair. */
static int distinct_count(const struct klat_run *run)
{
	return shares_one_cpu(run) ? 1 : run->cpu_count / run->pairs;
}

int klat_place_possible(struct klat_run *run, klat_cpu_set *allowed)
{
	const int needed = run->pairs * distinct_count(run);
	int available, err = klat_cpus_allowed(allowed);
	char isolated[512];

	if (err)
		return klat_error(run, -err, "cannot read the affinity mask: %m");
	available = klat_cpu_weight(allowed);
	if (run->cpus_given || needed <= available)
		return 0;
	/* The kernel removes isolated CPUs from the affinity mask of ordinary processes. */
	if (!klat_read_line("/sys/devices/system/cpu/isolated", isolated, sizeof(isolated)))
		*isolated = 0;
	return klat_skip(
		run, "needs %d CPUs and may use %d%s%s%s", needed, available,
		*isolated ? "; --cpus can also name the isolated CPUs: " : "", isolated,
		run->distinct_cpus ? "" : "; --cpus with a number repeated puts roles on one CPU");
}

/* Choose the CPUs of each pair by the rule for one pair, from those that no earlier pair has. */
static int choose(struct klat_run *run, klat_cpu_set *allowed)
{
	const int count = run->cpu_count / run->pairs, distinct = distinct_count(run);

	run->cpus = malloc(run->cpu_count * sizeof(*run->cpus));
	if (!run->cpus)
		return -ENOMEM;
	for (int *cpus = run->cpus; cpus < run->cpus + run->cpu_count; cpus += count) {
		int err = klat_cpus_place(allowed, distinct, cpus);

		if (err)
			return err;
		for (int i = 0; i < count; i++) {
			cpus[i] = cpus[i < distinct ? i : 0];
			klat_cpu_remove(allowed, cpus[i]);
		}
	}
	return 0;
}

/* The distance between the CPUs of the first pair, and their types. Pairs that are placed
 * differently have different events: 0, or -errno after klat_skip(). */
static int find_placement(struct klat_run *run)
{
	const int count = run->cpu_count / run->pairs;
	const char *placement = klat_cpus_relation(run->cpus, count);
	const char *first = strdupa(placement ?: "");

	for (int pair = 1; placement && pair < run->pairs; pair++) {
		const int *cpus = run->cpus + pair * count;

		placement = klat_cpus_relation(cpus, count);
		if (placement && strcmp(placement, first))
			return klat_skip(
				run,
				"all pairs need one placement: pair %d would be %s (first "
				"CPU: %d), and pair 1 is %s; give --cpus, or fewer --pairs",
				pair + 1, placement, *cpus, first);
	}
	run->library->placement = placement;
	return placement ? 0 : klat_error(run, ENOMEM, "cannot place the run: %m");
}

int klat_place(struct klat_run *run)
{
	klat_cpu_set allowed;
	int err = klat_place_possible(run, &allowed);

	if (err)
		return err;
	err = run->cpus_given ? 0 : choose(run, &allowed);
	if (err)
		return klat_error(run, -err, "cannot choose CPUs: %m");
	run->one_cpu = klat_place_is_one(run);
	return find_placement(run);
}
