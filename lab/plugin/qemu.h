/* SPDX-License-Identifier: MIT */
/*
 * QEMU's plugin API, versions 1 (QEMU 7.2) to 7 (QEMU 11.1):
 * https://www.qemu.org/docs/master/devel/tcg-plugins.html. Debian 12 ships no header, so this file
 * declares the functions, and qemu.c looks them up by name.
 */
#ifndef KLAT_PLUGIN_QEMU_H
#define KLAT_PLUGIN_QEMU_H

#include <stddef.h>
#include <stdint.h>

/* The beginning of qemu_info_t. */
struct qemu_info {
	const char *target;
	struct {
		int oldest, newest;
	} version;
};

/* enum qemu_plugin_cb_flags */
#define NO_REGISTERS 0
/* enum qemu_plugin_mem_rw. QEMU 7.2 makes no call if a plugin asks for reads only. */
#define ANY_ACCESS 3

typedef void on_execution(unsigned cpu, void *data);
typedef void on_access(unsigned cpu, uint32_t access, uint64_t address, void *data);

/* Functions that are the same in all versions. */
struct qemu_functions {
	void (*at_block)(void *block, on_execution *call, int flags, void *data);
	void (*at_instruction)(void *instruction, on_execution *call, int flags, void *data);
	void (*at_access)(void *instruction, on_access *call, int flags, int kind, void *data);
	size_t (*length)(const void *block);
	void *(*instruction)(const void *block, size_t index);
	uint64_t (*address)(const void *instruction);
	size_t (*size)(const void *instruction);
	/* Where QEMU has mapped the guest's memory with the instruction. NULL in a device. */
	const char *(*host)(const void *instruction);
};
extern struct qemu_functions qemu;

/* Looks up the functions. Returns 0, or -1 after a message. Call it before the functions below. */
int qemu_connect(const struct qemu_info *info);

/* Calls `translated` for each block that QEMU translates, and `ended` when QEMU ends. */
void qemu_call_back(uint64_t plugin, void (*translated)(void *block), void (*ended)(void));

/* Returns an instruction's bytes, in `buffer` or in QEMU's own memory. */
const void *qemu_bytes(const void *instruction, void *buffer, size_t size);

/* Makes QEMU count each execution of the instruction, at its start. */
void qemu_count(void *instruction);

/* The number of instructions that a CPU started. Valid once the CPU executes. */
uint64_t *qemu_counter(unsigned cpu);

#endif
