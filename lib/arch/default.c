/* SPDX-License-Identifier: MIT */
/* The functions of isa.h that do the same on most ISAs. A function in isa.c of an ISA replaces the
 * one here. */
#include "arch/isa.h"

#define DEFAULT __attribute__((weak))

DEFAULT bool klat_arch_clock_step(int64_t (*read_clock)(void), int64_t *ns, uint64_t *ticks)
{
	(void)read_clock;
	(void)ns;
	(void)ticks;
	return false;
}

/* The architecture guarantees one rate, or the kernel corrects its clock. */
DEFAULT bool klat_arch_counter_invariant(void)
{
	return true;
}

DEFAULT bool klat_arch_counter_traced(void)
{
	return false;
}

/* Firmware gives it. */
DEFAULT bool klat_arch_frequency_given(void)
{
	return true;
}

DEFAULT bool klat_arch_pm_open(void)
{
	return false;
}

DEFAULT int64_t klat_arch_pm_read(void)
{
	return 0;
}

DEFAULT void klat_arch_pm_close(void)
{
}

/* Firmware can interrupt the kernel. No counter shows it. */
DEFAULT int64_t klat_arch_smi_count(int cpu)
{
	(void)cpu;
	return -1;
}

/* The hardware or a call of firmware flushes the TLBs. A kernel that sends interrupts instead
 * counts them as function calls. */
DEFAULT int klat_arch_broadcast_cpus(void)
{
	return 1;
}
