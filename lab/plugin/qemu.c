/* SPDX-License-Identifier: MIT */
#include "qemu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ADD 0 /* enum qemu_plugin_op */

/* Versions of the plugin API in which a function or its signature changed. */
enum { COUNTS_BY_CPU = 2, COPIES_BYTES = 3, CALLS_WITHOUT_ID = 7 };

/* qemu_plugin_u64 */
struct counter {
	void *scoreboard;
	size_t offset;
};

struct qemu_functions qemu;

/* Functions that changed. The name of each form says which versions have it. */
static struct {
	union {
		void (*until_6)(uint64_t plugin, void (*call)(uint64_t plugin, void *block));
		void (*from_7)(uint64_t plugin, void (*call)(void *block, void *data), void *data);
	} at_translation;
	union {
		void (*until_6)(uint64_t plugin, void (*call)(uint64_t, void *data), void *data);
		void (*from_7)(uint64_t plugin, void (*call)(void *data), void *data);
	} at_exit;
	union {
		const void *(*until_2)(const void *instruction);
		size_t (*from_3)(const void *instruction, void *buffer, size_t size);
	} bytes;
	void (*count_until_1)(void *instruction, int operation, void *counter, uint64_t value);
	void (*count_from_2)(void *instruction, int operation, struct counter, uint64_t value);
	void *(*new_scoreboard)(size_t size);
	void *(*entry_of)(void *scoreboard, unsigned cpu);
} changed;

static const struct {
	const char *name;
	void *into;
	int first, last; /* versions that have the function */
} functions[] = {
	{ "qemu_plugin_register_vcpu_tb_exec_cb", &qemu.at_block, 1, 7 },
	{ "qemu_plugin_register_vcpu_insn_exec_cb", &qemu.at_instruction, 1, 7 },
	{ "qemu_plugin_register_vcpu_mem_cb", &qemu.at_access, 1, 7 },
	{ "qemu_plugin_tb_n_insns", &qemu.length, 1, 7 },
	{ "qemu_plugin_tb_get_insn", &qemu.instruction, 1, 7 },
	{ "qemu_plugin_insn_vaddr", &qemu.address, 1, 7 },
	{ "qemu_plugin_insn_size", &qemu.size, 1, 7 },
	{ "qemu_plugin_insn_haddr", &qemu.host, 1, 7 },
	{ "qemu_plugin_register_vcpu_tb_trans_cb", &changed.at_translation, 1, 7 },
	{ "qemu_plugin_register_atexit_cb", &changed.at_exit, 1, 7 },
	{ "qemu_plugin_insn_data", &changed.bytes, 1, 7 },
	{ "qemu_plugin_register_vcpu_insn_exec_inline", &changed.count_until_1, 1, 1 },
	{ "qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu", &changed.count_from_2, 2, 7 },
	{ "qemu_plugin_scoreboard_new", &changed.new_scoreboard, 2, 7 },
	{ "qemu_plugin_scoreboard_find", &changed.entry_of, 2, 7 },
};

static int version;
static uint64_t only_counter; /* version 1 has one counter for all CPUs */
static void *counters;
static struct {
	void (*translated)(void *block);
	void (*ended)(void);
} calls;

/* QEMU refuses a plugin whose version it does not support. */
EXPORT int qemu_plugin_version = 1;

/* Runs before QEMU reads qemu_plugin_version. */
__attribute__((constructor)) static void declare_version(void)
{
	const char *asked = getenv("KLAT_PLUGIN_API");

	if (asked)
		qemu_plugin_version = atoi(asked);
}

int qemu_connect(const struct qemu_info *info)
{
	version = info->version.newest;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *found = dlsym(RTLD_DEFAULT, functions[i].name);

		if (version < functions[i].first || version > functions[i].last)
			continue;
		if (!found) {
			fprintf(stderr, "klat: this QEMU has no %s\n", functions[i].name);
			return -1;
		}
		memcpy(functions[i].into, &found, sizeof(found));
	}
	if (!qemu.at_block) {
		fprintf(stderr, "klat: version %d of QEMU's plugin API is not known\n", version);
		return -1;
	}
	if (version >= COUNTS_BY_CPU)
		counters = changed.new_scoreboard(sizeof(uint64_t));
	return 0;
}

static void translated_until_6(uint64_t plugin, void *block)
{
	(void)plugin;
	calls.translated(block);
}

static void translated_from_7(void *block, void *data)
{
	(void)data;
	calls.translated(block);
}

static void ended_until_6(uint64_t plugin, void *data)
{
	(void)plugin;
	(void)data;
	calls.ended();
}

static void ended_from_7(void *data)
{
	(void)data;
	calls.ended();
}

void qemu_call_back(uint64_t plugin, void (*translated)(void *block), void (*ended)(void))
{
	calls.translated = translated;
	calls.ended = ended;
	if (version >= CALLS_WITHOUT_ID) {
		changed.at_translation.from_7(plugin, translated_from_7, NULL);
		changed.at_exit.from_7(plugin, ended_from_7, NULL);
	} else {
		changed.at_translation.until_6(plugin, translated_until_6);
		changed.at_exit.until_6(plugin, ended_until_6, NULL);
	}
}

const void *qemu_bytes(const void *instruction, void *buffer, size_t size)
{
	if (version < COPIES_BYTES)
		return changed.bytes.until_2(instruction);
	changed.bytes.from_3(instruction, buffer, size);
	return buffer;
}

void qemu_count(void *instruction)
{
	if (version >= COUNTS_BY_CPU)
		changed.count_from_2(instruction, ADD, (struct counter){ counters, 0 }, 1);
	else
		changed.count_until_1(instruction, ADD, &only_counter, 1);
}

uint64_t *qemu_counter(unsigned cpu)
{
	return version >= COUNTS_BY_CPU ? changed.entry_of(counters, cpu) : &only_counter;
}
