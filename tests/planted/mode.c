/* SPDX-License-Identifier: MIT */
/*
 * Linked into copies of the programs below build/planted, which believe the environment about their
 * mode and the machine's CPUs. Only the linker can make such a copy: the programs themselves ask
 * the machine, so that no setting can make them record what is not so.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

const char *__real_klat_mode(void);
const char *__wrap_klat_mode(void);
int __real_klat_cpus_online(klat_cpu_set *set);
int __wrap_klat_cpus_online(klat_cpu_set *set);

const char *__wrap_klat_mode(void)
{
	const char *planted = getenv("KLAT_TEST_MODE");

	return planted ? planted : __real_klat_mode();
}

/* KLAT_TEST_CPU: the only CPU there is. */
int __wrap_klat_cpus_online(klat_cpu_set *set)
{
	const char *only = getenv("KLAT_TEST_CPU");
	int cpu;

	if (!only)
		return __real_klat_cpus_online(set);
	cpu = atoi(only);
	memset(set, 0, sizeof(*set));
	set->bits[cpu / (8 * sizeof(long))] |= 1UL << cpu % (8 * sizeof(long));
	return 0;
}
