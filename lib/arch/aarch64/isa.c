/* SPDX-License-Identifier: MIT */
/* arm64: registers that a user program may read, and what firmware describes. */
#include "arch/isa.h"

#include "arch/firmware.h"

#include <stdio.h>
#include <sys/auxv.h>

#ifndef HWCAP_CPUID
#define HWCAP_CPUID (1 << 11)
#endif
#ifndef HWCAP2_ECV
#define HWCAP2_ECV (1 << 19)
#endif

bool klat_arch_self_synchronised;

/* Before main(): the stamps depend on it. The kernel says what all CPUs have. */
__attribute__((constructor)) static void find_stamp(void)
{
	klat_arch_self_synchronised = getauxval(AT_HWCAP2) & HWCAP2_ECV;
}

static double frequency_hz(void)
{
	uint64_t hz;

	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
	return hz;
}

static bool cannot_count;

static void take_turns(uint64_t turns)
{
	__asm__ volatile("1:\tsubs %0, %0, #1\n\tb.ne 1b" : "+r"(turns) : : "cc");
}

/* In an emulator that counts instructions, each advances a counter of 1 GHz by one. */
void klat_arch_count_instructions(void)
{
	cannot_count = !klat_arch_counts(take_turns);
}

const char *klat_arch_missing(void)
{
	if (cannot_count)
		return "the counter does not count instructions here: QEMU must run with -cpu "
		       "max,cntfrq=1000000000 -icount shift=0";
	if (__rseq_size || klat_arch_machine() == KLAT_ARCH_EMULATED)
		return NULL;
	return "the C library has not registered rseq, which proves the CPU of a stamp: the kernel "
	       "needs CONFIG_RSEQ, and GLIBC_TUNABLES must not disable it";
}

const char *klat_arch_counter(void)
{
	return "cntvct_el0";
}

int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES])
{
	frequencies[0] = (struct klat_arch_frequency){ "cntfrq_el0", frequency_hz() / 1e3 };
	return 1;
}

/*
 * The implementer in MIDR_EL1 is 0, "reserved for software use", on QEMU's CPU `max`. The kernel
 * reads the register for the program. Another emulated CPU has the implementer of a real one. Then
 * only a device tree shows the emulator.
 */
enum klat_arch_machine klat_arch_machine(void)
{
	if (getauxval(AT_HWCAP) & HWCAP_CPUID) {
		uint64_t midr;

		__asm__("mrs %0, midr_el1" : "=r"(midr));
		if (!(midr >> 24 & 0xff))
			return KLAT_ARCH_EMULATED;
	}
	if (klat_arch_described_emulated())
		return KLAT_ARCH_EMULATED;
	return klat_arch_described_virtual() ? KLAT_ARCH_VIRTUAL : KLAT_ARCH_HARDWARE;
}

int klat_arch_interrupt_row(const char *line)
{
	return klat_arch_described_row(line, "arch_timer");
}
