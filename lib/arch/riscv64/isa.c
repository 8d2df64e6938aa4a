/* SPDX-License-Identifier: MIT */
/* riscv64: the device tree, /proc/cpuinfo, and what firmware tells the kernel. */
#include "arch/isa.h"

#include "arch/firmware.h"

#include <stdio.h>
#include <string.h>

const char *klat_arch_missing(void)
{
	if (__rseq_size || klat_arch_machine() == KLAT_ARCH_EMULATED)
		return NULL;
	return "the C library has not registered rseq, which proves the CPU of a stamp: the kernel "
	       "needs CONFIG_RSEQ, and GLIBC_TUNABLES must not disable it";
}

/* By the architecture. */
bool klat_arch_counter_invariant(void)
{
	return true;
}

bool klat_arch_counter_traced(void)
{
	return false;
}

/* A property of one cell, which is big-endian. */
int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES])
{
	FILE *file = fopen("/proc/device-tree/cpus/timebase-frequency", "re");
	unsigned char cell[4] = { 0 };
	uint32_t hz = 0;

	if (file && fread(cell, 1, sizeof(cell), file) == sizeof(cell))
		hz = (uint32_t)cell[0] << 24 | cell[1] << 16 | cell[2] << 8 | cell[3];
	if (file)
		fclose(file);
	frequencies[0] = (struct klat_arch_frequency){ "device_tree", hz / 1e3 };
	return 1;
}

/* By firmware. */
bool klat_arch_frequency_given(void)
{
	return true;
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

/*
 * In a CPU's vendor id, 0 says that no company made it: QEMU's CPUs have it. The board
 * "riscv-virtio" is QEMU's, too. With a real CPU's vendor, it is a virtual machine on this CPU. A
 * file without "hart" is that of another ISA's kernel, below an emulator of one process.
 */
enum klat_arch_machine klat_arch_machine(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	bool is_riscv = !file, is_nobody = false, is_user_mode = false;
	char line[8192];

	while (file && fgets(line, sizeof(line), file)) {
		is_riscv |= !strncmp(line, "hart", 4);
		is_nobody |= !strncmp(line, "mvendorid", 9) && strstr(line, ": 0x0\n");
		is_user_mode |= !strncmp(line, "uarch", 5) && strstr(line, ": qemu\n");
	}
	if (file)
		fclose(file);
	if (!is_riscv || is_user_mode ||
	    (is_nobody && klat_arch_tree_has("compatible", "riscv-virtio")))
		return KLAT_ARCH_EMULATED;
	return klat_arch_described_virtual() ? KLAT_ARCH_VIRTUAL : KLAT_ARCH_HARDWARE;
}

/* Firmware in machine mode interrupts the kernel unseen. No counter tells. */
int64_t klat_arch_smi_count(int cpu)
{
	(void)cpu;
	return -1;
}

int klat_arch_interrupt_row(const char *line)
{
	return klat_arch_described_row(line, "riscv-timer");
}
