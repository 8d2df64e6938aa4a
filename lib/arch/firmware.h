/* SPDX-License-Identifier: MIT */
/* For an ISA whose CPUs do not say what machine they are in: firmware.c. */
#ifndef KLAT_FIRMWARE_H
#define KLAT_FIRMWARE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether one of the strings of this property of the device tree is `wanted`. */
bool klat_arch_tree_has(const char *property, const char *wanted);

/* Whether the device tree or DMI describes a virtual machine. Some hypervisors describe none. */
bool klat_arch_described_virtual(void);

/*
 * Whether the device tree is that of QEMU's board "virt" with an emulated CPU. On arm64 QEMU gives
 * an emulated CPU the name of its model, and a CPU of a hypervisor the name "arm,arm-v8", or
 * "arm,armv8" in newer QEMU. Only -cpu cortex-a53 and cortex-a57 keep their names under KVM, and
 * are taken for emulated. On riscv64 an emulated board has a CLINT, a device of machine mode. A
 * guest of KVM has no machine mode.
 */
bool klat_arch_described_emulated(void);

/* klat_arch_interrupt_row() by the descriptions that arm64 and riscv64 share. `timer` ends the row
 * of the local timer. They have no row of TLB shootdowns. */
int klat_arch_described_row(const char *line, const char *timer);

#endif
