/* SPDX-License-Identifier: MIT */
/* Which figures have a meaning in which mode. */
#include "machine/machine.h"

#include <string.h>

bool klat_timed(void)
{
	return !strcmp(klat_mode(), "hardware") || !strcmp(klat_mode(), "virtual");
}

bool klat_counted(void)
{
	return !strcmp(klat_mode(), "counted");
}

bool klat_emulated(void)
{
	return !strcmp(klat_mode(), "emulated");
}

const char *klat_unit(void)
{
	return klat_counted() ? "instructions" : "ticks";
}

bool klat_machine_has_one_cpu(void)
{
	klat_cpu_set online;

	return !klat_cpus_online(&online) && klat_cpu_weight(&online) == 1;
}

/* An emulator runs its CPUs in turns, and the instructions of each turn advance the counters of all
 * CPUs. */
bool klat_figures(const struct klat_run *run)
{
	return klat_counted() ? run->one_cpu && klat_machine_has_one_cpu() : klat_timed();
}

bool klat_measurable(const struct klat_run *run, int metric)
{
	return klat_figures(run) &&
	       (!klat_counted() || run->benchmark->metrics[metric].path_length);
}
