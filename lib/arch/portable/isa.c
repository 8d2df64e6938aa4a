/* SPDX-License-Identifier: MIT */
/* Any ISA: from files of the kernel. */
#include "arch/isa.h"

#include <stdio.h>
#include <string.h>

static bool cannot_count;

void klat_arch_count_instructions(void)
{
	cannot_count = true;
}

const char *klat_arch_missing(void)
{
	return cannot_count ? "klat cannot count instructions on this architecture" : NULL;
}

const char *klat_arch_counter(void)
{
	return "clock_monotonic_raw";
}

bool klat_arch_clock_step(int64_t (*read_clock)(void), int64_t *ns, uint64_t *ticks)
{
	(void)read_clock;
	(void)ns;
	(void)ticks;
	return false;
}

/* The kernel corrects its clock for frequency changes and idle states of the hardware. */
bool klat_arch_counter_invariant(void)
{
	return true;
}

bool klat_arch_counter_traced(void)
{
	return false;
}

int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES])
{
	(void)frequencies;
	return 0;
}

bool klat_arch_frequency_given(void)
{
	return false;
}

bool klat_arch_pm_open(void)
{
	return false;
}

int64_t klat_arch_pm_read(void)
{
	return 0;
}

void klat_arch_pm_close(void)
{
}

/* A device tree names the hypervisor. On x86 a flag in /proc/cpuinfo does. Neither
 * distinguishes an emulator from a hypervisor. */
enum klat_arch_machine klat_arch_machine(void)
{
	FILE *file = fopen("/proc/device-tree/hypervisor/compatible", "re");
	bool is_virtual = file;
	char line[8192];

	if (!file)
		file = fopen("/proc/cpuinfo", "re");
	while (file && !is_virtual && fgets(line, sizeof(line), file))
		is_virtual = strstr(line, " hypervisor");
	if (file)
		fclose(file);
	return is_virtual ? KLAT_ARCH_VIRTUAL : KLAT_ARCH_HARDWARE;
}

int64_t klat_arch_smi_count(int cpu)
{
	(void)cpu;
	return -1;
}

/* klat does not know, so it expects interrupts. */
int klat_arch_broadcast_cpus(void)
{
	return 0;
}

/* Rows have other names on each ISA. The description at the end is the same. */
int klat_arch_interrupt_row(const char *line)
{
	static const char *const descriptions[KLAT_IRQ_ROWS] = { "Rescheduling interrupts",
								 "Function call interrupts",
								 "TLB shootdowns",
								 "Local timer interrupts" };

	for (int row = 0; row < KLAT_IRQ_ROWS; row++)
		if (strstr(line, descriptions[row]))
			return row;
	return -1;
}
