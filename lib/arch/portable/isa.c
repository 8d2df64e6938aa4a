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

int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES])
{
	(void)frequencies;
	return 0;
}

bool klat_arch_frequency_given(void)
{
	return false;
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
