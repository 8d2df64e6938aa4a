/* SPDX-License-Identifier: MIT */
/*
 * Linked into copies of the programs below build/planted, which believe the environment about their
 * mode, the machine's CPUs and its /sys. Only the linker can make such a copy: the programs
 * themselves ask the machine, so that no setting can make them record what is not so.
 */
#include "run/run.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *__real_klat_mode(void);
const char *__wrap_klat_mode(void);
int __real_klat_cpus_online(klat_cpu_set *set);
int __wrap_klat_cpus_online(klat_cpu_set *set);
const char *__real_klat_arch_missing(void);
const char *__wrap_klat_arch_missing(void);
bool __real_klat_arch_counter_invariant(void);
bool __wrap_klat_arch_counter_invariant(void);
int __real_klat_arch_broadcast_cpus(void);
int __wrap_klat_arch_broadcast_cpus(void);
void __real_klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run);
void __wrap_klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run);
bool __real_klat_planted(const struct klat_run *run, const char *fault);
bool __wrap_klat_planted(const struct klat_run *run, const char *fault);
void __real_klat_clocks_take(struct klat_clocks *clocks);
void __wrap_klat_clocks_take(struct klat_clocks *clocks);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

const char *__wrap_klat_mode(void)
{
	const char *planted = getenv("KLAT_TEST_MODE");

	return planted ? planted : __real_klat_mode();
}

/* In a planted mode "counted", this machine's counter still measures time. */
const char *__wrap_klat_arch_missing(void)
{
	return getenv("KLAT_TEST_MODE") ? NULL : __real_klat_arch_missing();
}

/* QEMU's emulated CPU does not declare its counter invariant. The counter is the host's. */
bool __wrap_klat_arch_counter_invariant(void)
{
	return getenv("KLAT_TEST_MODE") || __real_klat_arch_counter_invariant();
}

/* KLAT_TEST_FLUSHES: from how many CPUs on the kernel broadcasts flushes, ':', and how many percent
 * of the interrupts for them /proc/interrupts shows. */
int __wrap_klat_arch_broadcast_cpus(void)
{
	const char *planted = getenv("KLAT_TEST_FLUSHES");

	return planted ? atoi(planted) : __real_klat_arch_broadcast_cpus();
}

void __wrap_klat_snapshot_take(struct klat_snapshot *snapshot, const struct klat_run *run)
{
	static const int rows[] = { KLAT_IRQ_TLB, KLAT_IRQ_CAL };
	const char *planted = getenv("KLAT_TEST_FLUSHES");
	static int64_t first[KLAT_IRQ_ROWS][KLAT_MAX_CPU];

	__real_klat_snapshot_take(snapshot, run);
	for (int r = 0; r < 2 && planted; r++)
		for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++) {
			int64_t *count = &snapshot->irq[rows[r]][cpu];

			if (!first[rows[r]][cpu])
				first[rows[r]][cpu] = *count;
			*count = first[rows[r]][cpu] + (*count - first[rows[r]][cpu]) *
							       atol(strchr(planted, ':') + 1) / 100;
		}
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
	klat_cpu_add(set, cpu);
	return 0;
}

/* A program that asks in its loop may do so between two stamps. */
bool __wrap_klat_planted(const struct klat_run *run, const char *fault)
{
	for (int i = 0; i < run->worker_count; i++)
		if (__atomic_load_n(&run->workers[i].iteration, __ATOMIC_RELAXED) > 0)
			abort();
	return __real_klat_planted(run, fault);
}

/* KLAT_TEST_SUSPENDED: a file with the seconds for which the machine was suspended. */
void __wrap_klat_clocks_take(struct klat_clocks *clocks)
{
	const char *path = getenv("KLAT_TEST_SUSPENDED");
	char text[32];

	__real_klat_clocks_take(clocks);
	if (path && klat_read_line(path, text, sizeof(text)))
		clocks->boot_ns += atoll(text) * KLAT_NS_PER_S;
}

/* KLAT_TEST_SYS: a directory in place of /sys. */
int __wrap_open(const char *path, int flags, ...)
{
	const char *sys = getenv("KLAT_TEST_SYS");
	char elsewhere[512];
	va_list arguments;
	int mode;

	va_start(arguments, flags);
	mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
	va_end(arguments);
	if (!sys || strncmp(path, "/sys/", 5))
		return __real_open(path, flags, mode);
	snprintf(elsewhere, sizeof(elsewhere), "%s/%s", sys, path + 5);
	return __real_open(elsewhere, flags, mode);
}
