/* SPDX-License-Identifier: MIT */
/*
 * A plugin for QEMU. Records which instructions a guest with one CPU executes between stamps.
 *
 * Arguments:
 *
 *     out=FILE        the file to write: see stream.h
 *     window=N        the kind of window, 0 to 63, for the open= and close= that follow
 *     open=ADDRESS    the instruction at this address is a stamp that opens a window
 *     close=ADDRESS   the instruction at this address is a stamp that closes a window
 *     from=N, to=N    write only the paths to the stamps with these numbers, counted from 0
 *     halt=BYTES      the instruction that waits for an interrupt, in hexadecimal digits
 *     switch=BYTES    the code in which the scheduler changes stacks, in hexadecimal digits
 *     ram=TEXT        where the guest's memory is: see tasks.h
 *
 * Recording pauses while no window is open. A path has the instructions between two stamps: the
 * translation blocks in order, each with the number of instructions that the CPU started. A fault
 * or an access to a device ends a block early. The plugin writes each path once, and later its
 * number. It only counts the instructions of paths outside from= and to=.
 *
 * The plugin changes nothing in the guest. A boot with the plugin repeats the boot without it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu.h"
#include "stream.h"
#include "tasks.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_STAMPS 64
/* The limit of a path without from= and to=: about eight million instructions. A loop of eventloop
 * has five million. If a program leaves a window open, the path to the next program's first stamp
 * can be longer. */
#define MAX_PATH_WORDS (1 << 21)

static struct {
	struct {
		uint64_t address;
		uint64_t opens, closes; /* a bit for each kind of window */
	} stamps[MAX_STAMPS];
	unsigned stamp_count;
	unsigned kind;     /* the kind of window for the next open= and close= */
	uint64_t from, to; /* numbers of stamps */
	unsigned char halt[8];
	size_t halt_size;
	bool has_output;
} wanted = { .to = UINT64_MAX };

static struct {
	uint64_t *counter;   /* counts started instructions */
	uint64_t ordinal;    /* the number of the next stamp */
	uint64_t task;       /* the address of the task's saved stack pointer; 0: unknown */
	uint64_t open;       /* a bit for each kind of window: it is open */
	bool kept;           /* a window is open, and the path will be written */
	bool halted;         /* the CPU halted in the current block */
	bool idle;           /* the CPU halted since the last stamp */
	uint64_t begun;      /* the counter at the last stamp */
	struct block *block; /* the current block */
	uint64_t entered;    /* the counter at the block's start, or at the last stamp in it */
	uint32_t skipped;    /* the block's instructions before that stamp */
} now;

/* Adds the executed instructions of the current block to the path. */
static void leave_block(void)
{
	uint64_t executed = *now.counter - now.entered;
	bool halted = now.halted;

	now.halted = false;
	if (!now.block || !now.kept)
		return;
	if (!now.skipped && executed == now.block->length)
		path_add_whole(now.block);
	else if (executed)
		path_add_part(now.block, now.skipped, (uint32_t)executed);
	if (halted)
		path_add_idle();
	if (path_words() > MAX_PATH_WORDS && wanted.to == UINT64_MAX)
		now.kept = false;
}

static void add_task(void)
{
	char comm[COMM_BYTES];

	if (!now.task)
		return;
	task_name(now.task, comm);
	path_add_switch(now.task, comm);
}

static void at_stamp(unsigned cpu, void *data)
{
	struct arrival arrival = { .stamp = (uint32_t)(uintptr_t)data };
	uint64_t opens = wanted.stamps[arrival.stamp].opens;
	uint64_t closes = wanted.stamps[arrival.stamp].closes;

	(void)cpu;
	if (!now.open && !opens)
		return;
	if (now.open)
		arrival.instructions = *now.counter - now.begun;
	if (now.kept)
		leave_block();
	if (now.kept)
		arrival.path = path_number();
	else if (now.open && now.idle)
		arrival.path = NOT_KEPT_HALTED;
	put_arrival(&arrival);
	path_begin();
	/* The rest of this block belongs to the next path. */
	now.skipped += (uint32_t)(*now.counter - now.entered);
	now.entered = now.begun = *now.counter;
	now.open = (now.open & ~closes) | opens;
	now.idle = false;
	now.ordinal++;
	now.kept = now.open && now.ordinal >= wanted.from && now.ordinal <= wanted.to;
	if (now.kept)
		add_task();
}

static void at_block(unsigned cpu, void *data)
{
	if (!now.counter)
		now.counter = qemu_counter(cpu);
	leave_block();
	now.skipped = 0;
	now.block = data;
	now.entered = *now.counter;
}

static void at_switch(unsigned cpu, uint32_t access, uint64_t address, void *data)
{
	(void)cpu;
	(void)access;
	(void)data;
	task_switched_to(address);
	now.task = address;
	if (now.kept)
		add_task();
}

static void at_halt(unsigned cpu, void *data)
{
	(void)cpu;
	(void)data;
	now.halted = now.idle = true;
}

static bool halts(const void *instruction)
{
	unsigned char buffer[sizeof(wanted.halt)];

	return wanted.halt_size && qemu.size(instruction) == wanted.halt_size &&
	       !memcmp(qemu_bytes(instruction, buffer, wanted.halt_size), wanted.halt,
		       wanted.halt_size);
}

static void instrument(void *instruction)
{
	uint64_t address = qemu.address(instruction);

	qemu_count(instruction);
	for (uintptr_t s = 0; s < wanted.stamp_count; s++)
		if (wanted.stamps[s].address == address)
			qemu.at_instruction(instruction, at_stamp, NO_REGISTERS, (void *)s);
	if (halts(instruction))
		qemu.at_instruction(instruction, at_halt, NO_REGISTERS, NULL);
	if (task_switches(qemu.host(instruction), address, qemu.size(instruction)))
		qemu.at_access(instruction, at_switch, NO_REGISTERS, ANY_ACCESS, NULL);
}

static void at_translation(void *translated)
{
	size_t length = qemu.length(translated);
	size_t bytes = size_words(length) * sizeof(uint32_t);
	struct block *block = checked(calloc(1, sizeof(*block) + bytes));

	block->length = (uint32_t)length;
	block->address = qemu.address(qemu.instruction(translated, 0));
	qemu.at_block(translated, at_block, NO_REGISTERS, block);
	for (size_t i = 0; i < length; i++) {
		void *instruction = qemu.instruction(translated, i);

		block->sizes[i / 4] |= (uint32_t)qemu.size(instruction) << 8 * (i % 4);
		instrument(instruction);
	}
}

/* Returns the number of bytes. */
static size_t take_bytes(const char *digits, unsigned char *bytes, size_t most)
{
	size_t size = 0;

	while (size < most && sscanf(digits + 2 * size, "%2hhx", &bytes[size]) == 1)
		size++;
	return size;
}

static int add_stamp(uint64_t address, bool opens)
{
	uint64_t kind = UINT64_C(1) << wanted.kind;
	unsigned at = 0;

	while (at < wanted.stamp_count && wanted.stamps[at].address != address)
		at++;
	if (at == MAX_STAMPS) {
		fprintf(stderr, "klat: the plugin takes at most %d stamps\n", MAX_STAMPS);
		return -1;
	}
	if (at == wanted.stamp_count)
		wanted.stamps[wanted.stamp_count++].address = address;
	*(opens ? &wanted.stamps[at].opens : &wanted.stamps[at].closes) |= kind;
	return 0;
}

static int take_argument(const char *name, const char *value)
{
	unsigned char code[MAX_SWITCH_BYTES];

	if (!strcmp(name, "out")) {
		wanted.has_output = true;
		return stream_open(value);
	}
	if (!strcmp(name, "from"))
		wanted.from = strtoull(value, NULL, 0);
	else if (!strcmp(name, "to"))
		wanted.to = strtoull(value, NULL, 0);
	else if (!strcmp(name, "halt"))
		wanted.halt_size = take_bytes(value, wanted.halt, sizeof(wanted.halt));
	else if (!strcmp(name, "ram"))
		tasks_in_file(value);
	else if (!strcmp(name, "switch"))
		tasks_switch_in(code, take_bytes(value, code, sizeof(code)));
	else if (!strcmp(name, "window"))
		wanted.kind = strtoul(value, NULL, 0) % 64;
	else if (!strcmp(name, "open") || !strcmp(name, "close"))
		return add_stamp(strtoull(value, NULL, 0), *name == 'o');
	else {
		fprintf(stderr, "klat: the plugin cannot take %s=%s\n", name, value);
		return -1;
	}
	return 0;
}

EXPORT int qemu_plugin_install(uint64_t plugin, const struct qemu_info *info, int argc, char **argv)
{
	if (qemu_connect(info))
		return -1;
	for (int i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (value)
			*value++ = 0;
		if (take_argument(argv[i], value ? value : ""))
			return -1;
	}
	if (!wanted.has_output) {
		fputs("klat: the plugin needs out=FILE\n", stderr);
		return -1;
	}
	qemu_call_back(plugin, at_translation, stream_close);
	return 0;
}
