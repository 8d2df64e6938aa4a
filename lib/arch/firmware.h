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

/* klat_arch_interrupt_row() by the descriptions that arm64 and riscv64 share. `timer` ends the row
 * of the local timer. They have no row of TLB shootdowns. */
int klat_arch_described_row(const char *line, const char *timer);

#endif
