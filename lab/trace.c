/* SPDX-License-Identifier: MIT */
/*
 * A plugin of QEMU: which instructions a guest of one CPU executes between stamps.
 *
 * A stamp is an instruction whose address is given, as open=ADDRESS or close=ADDRESS. It opens or
 * closes a window; after window=N, that of the kind N, from 0 to 63. Recording pauses while no
 * window is open. What was executed between two stamps is a path: its translation blocks in order,
 * each with the number of instructions that were started in it, as a fault or an access to a device
 * ends a block early. A path that came before is written as its number. With from=N and to=N, only
 * the paths that lead to these stamps are written; all others are counted.
 *
 * The output, out=FILE, is a stream of little-endian 32-bit words; scripts/klat/explain/trace.py
 * describes and reads it. A plugin changes nothing in the guest: a boot with it repeats the one
 * without it.
 *
 * The interface: https://www.qemu.org/docs/master/devel/tcg-plugins.html. Distributions ship no
 * header for QEMU 7.2, and its version 2 counts instructions by another function, so what is used
 * is declared here and looked up by name. KLAT_PLUGIN_API says which version QEMU asks for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The beginning of qemu_info_t. */
struct info {
	const char *target;
	struct {
		int oldest, newest;
	} version;
};

/* qemu_plugin_u64 of version 2. */
struct counter {
	void *scoreboard;
	size_t offset;
};

enum {
	NO_REGISTERS = 0, /* enum qemu_plugin_cb_flags */
	ADD = 0,          /* enum qemu_plugin_op */
	ANY_ACCESS = 3    /* enum qemu_plugin_mem_rw: QEMU 7.2 does not call for reads alone */
};

typedef void on_execution(unsigned cpu, void *data);
typedef void on_access(unsigned cpu, uint32_t access, uint64_t address, void *data);

static struct {
	void (*at_translation)(uint64_t id, void (*call)(uint64_t id, void *block));
	void (*at_exit)(uint64_t id, void (*call)(uint64_t id, void *data), void *data);
	void (*at_block)(void *block, on_execution *call, int flags, void *data);
	void (*at_instruction)(void *instruction, on_execution *call, int flags, void *data);
	void (*at_access)(void *instruction, on_access *call, int flags, int kind, void *data);
	size_t (*length)(const void *block);
	void *(*instruction)(const void *block, size_t index);
	uint64_t (*address)(const void *instruction);
	size_t (*size)(const void *instruction);
	/* From version 3 on it fills the buffer; before, it returned where the bytes are. */
	uintptr_t (*bytes)(const void *instruction, void *buffer, size_t size);
	/* Version 1. */
	void (*count)(void *instruction, int operation, void *counter, uint64_t value);
	/* From version 2 on. */
	void (*count_by_cpu)(void *instruction, int operation, struct counter, uint64_t value);
	void *(*new_scoreboard)(size_t size);
	void *(*scoreboard_of)(void *scoreboard, unsigned cpu);
} qemu;

static const struct {
	const char *name;
	void *into;
	bool optional;
} functions[] = {
	{ "qemu_plugin_register_vcpu_tb_trans_cb", &qemu.at_translation, false },
	{ "qemu_plugin_register_atexit_cb", &qemu.at_exit, false },
	{ "qemu_plugin_register_vcpu_tb_exec_cb", &qemu.at_block, false },
	{ "qemu_plugin_register_vcpu_insn_exec_cb", &qemu.at_instruction, false },
	{ "qemu_plugin_register_vcpu_mem_cb", &qemu.at_access, false },
	{ "qemu_plugin_tb_n_insns", &qemu.length, false },
	{ "qemu_plugin_tb_get_insn", &qemu.instruction, false },
	{ "qemu_plugin_insn_vaddr", &qemu.address, false },
	{ "qemu_plugin_insn_size", &qemu.size, false },
	{ "qemu_plugin_insn_data", &qemu.bytes, false },
	{ "qemu_plugin_register_vcpu_insn_exec_inline", &qemu.count, true },
	{ "qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu", &qemu.count_by_cpu, true },
	{ "qemu_plugin_scoreboard_new", &qemu.new_scoreboard, true },
	{ "qemu_plugin_scoreboard_find", &qemu.scoreboard_of, true },
};

EXPORT int qemu_plugin_version = 1;

/* Records, each a word that names it. trace.py has the words that follow. */
enum {
	HEAD = 0x74616c6b, /* "klat" */
	BLOCK = 'B',
	PATH = 'P',
	STAMP = 'S',
	END = 'E'
};
#define FORMAT 1

/* Words of a path besides a block's number, doubled: its lowest bit tells that part of it ran. */
enum {
	IDLE = 0xfffffff0,
	SWITCH,
	REPEAT
};
/* Instead of the number of a path that is not wanted, if the CPU halted in it. */
#define NOT_KEPT_HALTED 0xffffffff

struct block {
	uint64_t address;
	uint32_t number;       /* from 1; 0 before its first path */
	uint32_t length, size; /* instructions, bytes */
};

struct path {
	uint64_t hash[2];
	uint32_t number;
};

#define MAX_STAMPS 64

/* x86-64: Documentation/arch/x86/x86_64/mm.rst of the kernel. */
#define KERNEL_IMAGE 0xffffffff80000000
#define DIRECT_MAP_ALIGN (UINT64_C(1) << 39)
/* Less than a task_struct, so that no neighbour's comm is found. */
#define MOST_BEHIND_COMM 8000
#define COMM_WORDS 4

static struct {
	FILE *file;
	bool failed;
	uint32_t blocks, paths;
} out;

static struct {
	uint64_t address;
	uint64_t opens, closes; /* a bit for each kind of window */
} stamps[MAX_STAMPS];
static unsigned stamp_count;
static unsigned kind; /* of window, for the next stamps among the arguments */

/* The instruction of the scheduler that reads the next task's stack pointer, or 0. */
static uint64_t switch_address;

/* The guest's memory in this process, mapped from a file whose name has the text of ram=TEXT. Task
 * names are read from it. */
static struct {
	char *text;
	const char *at;
	uint64_t size;
} ram;
static uint64_t task;       /* that runs: the address of its saved stack pointer; 0: not known */
static int64_t comm_offset; /* of a task's name from its saved stack pointer; 0: not known */

/* The instruction that halts the CPU until an interrupt comes. */
static struct {
	unsigned char bytes[8];
	size_t size;
} halt;
static bool fills_buffer;

static struct {
	uint64_t fixed; /* version 1 adds to it */
	struct counter by_cpu;
	uint64_t *at;
} counter;

/* Ordinals of stamps. */
static uint64_t ordinal, from, to = UINT64_MAX;

static struct {
	uint64_t open;       /* the kinds of window that are open */
	bool kept;           /* and its path is wanted */
	bool halted;         /* in the current block */
	bool idle;           /* since the last stamp */
	uint64_t begun;      /* the counter at the last stamp */
	struct block *block; /* the one that executes */
	uint64_t entered;    /* the counter when it began, or at a stamp in it */
	uint32_t skipped;    /* its instructions before that stamp */
} now;

static struct {
	uint32_t *words;
	size_t count, room;
	uint32_t whole;    /* the last word, if that is a whole block */
	uint32_t repeated; /* the block that the REPEAT at the end is of */
} path;

/* The stamp that came last, until another one comes: a thread that spins stamps many times. */
static struct {
	uint32_t stamp, path;
	uint64_t instructions, times;
} last;

static struct {
	struct path *slots;
	size_t room;
} known;

static void *checked(void *memory)
{
	if (memory)
		return memory;
	fputs("klat: no memory for the trace\n", stderr);
	abort();
}

static void put(const uint32_t *words, size_t count)
{
	if (out.failed || fwrite(words, sizeof(*words), count, out.file) == count)
		return;
	out.failed = true;
	fprintf(stderr, "klat: the trace cannot be written: %s\n", strerror(errno));
}

#define PUT(...)                                                                                   \
	do {                                                                                       \
		const uint32_t words[] = { __VA_ARGS__ };                                          \
		put(words, sizeof(words) / sizeof(*words));                                        \
	} while (0)
#define HALVES(value) (uint32_t)(value), (uint32_t)((uint64_t)(value) >> 32)

static uint32_t number_of(struct block *block)
{
	if (!block->number) {
		block->number = ++out.blocks;
		PUT(BLOCK, HALVES(block->address), block->length, block->size);
	}
	return block->number;
}

static void add_word(uint32_t word)
{
	if (path.count == path.room) {
		path.room = path.room ? 2 * path.room : 4096;
		path.words = checked(realloc(path.words, path.room * sizeof(*path.words)));
	}
	path.words[path.count++] = word;
	path.whole = path.repeated = 0;
}

static void add_whole(uint32_t word)
{
	if (word == path.repeated) {
		path.words[path.count - 1]++;
	} else if (word == path.whole) {
		add_word(REPEAT);
		add_word(1);
		path.repeated = word;
	} else {
		add_word(word);
		path.whole = word;
	}
}

/* Add what has been executed of the current block. */
static void leave_block(void)
{
	uint64_t executed = *counter.at - now.entered;
	bool halted = now.halted;

	now.halted = false;
	if (!now.block || !now.kept)
		return;
	if (!now.skipped && executed == now.block->length) {
		add_whole(2 * number_of(now.block));
	} else if (executed) {
		add_word(2 * number_of(now.block) + 1);
		add_word(now.skipped << 16 | (uint32_t)executed);
	}
	if (halted)
		add_word(IDLE);
}

/* The mixing step of SplitMix64. */
static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

static struct path *slot_of(const uint64_t hash[2])
{
	size_t at = hash[0] & (known.room - 1);

	while (known.slots[at].number &&
	       memcmp(known.slots[at].hash, hash, sizeof(known.slots[at].hash)))
		at = (at + 1) & (known.room - 1);
	return &known.slots[at];
}

static void grow_known(void)
{
	struct path *old = known.slots;
	size_t room = known.room;

	known.room = room ? 2 * room : 1024;
	known.slots = checked(calloc(known.room, sizeof(*known.slots)));
	for (size_t i = 0; i < room; i++)
		if (old[i].number)
			*slot_of(old[i].hash) = old[i];
	free(old);
}

/* Of the path up to here. Two paths are taken for one with a chance of 2^-128. */
static uint32_t path_number(void)
{
	uint64_t hash[2] = { path.count, ~(uint64_t)path.count };
	struct path *slot;

	for (size_t i = 0; i < path.count; i++) {
		hash[0] = mixed(hash[0] + path.words[i] + 0x9e3779b97f4a7c15);
		hash[1] = mixed(hash[1] ^ path.words[i]);
	}
	if (2 * (size_t)out.paths >= known.room)
		grow_known();
	slot = slot_of(hash);
	if (!slot->number) {
		memcpy(slot->hash, hash, sizeof(slot->hash));
		slot->number = ++out.paths;
		PUT(PATH, (uint32_t)path.count);
		put(path.words, path.count);
	}
	return slot->number;
}

static void put_last(void)
{
	if (last.times)
		PUT(STAMP, last.stamp, last.path, HALVES(last.instructions), HALVES(last.times));
	last.times = 0;
}

/* QEMU maps it after it has loaded the plugin. */
static void find_ram(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long start, end;

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, ram.text) && sscanf(line, "%lx-%lx", &start, &end) == 2 &&
		    end - start > ram.size) {
			ram.at = (const char *)start;
			ram.size = end - start;
		}
	if (maps)
		fclose(maps);
}

/* The guest's memory at a kernel address, or NULL. Of both parts of the kernel's address space that
 * map memory in one piece: the image, and the direct map, whose base is a multiple of 2^39. */
static const char *memory_at(uint64_t address, size_t size)
{
	uint64_t physical =
		address >= KERNEL_IMAGE ? address - KERNEL_IMAGE : address & (DIRECT_MAP_ALIGN - 1);

	return physical < ram.size && ram.size - physical >= size ? ram.at + physical : NULL;
}

/* task_struct has its comm some kilobytes before the saved stack pointer. Two tasks of each kernel
 * have a name that is known. */
static void find_comm(uint64_t address)
{
	static const char *const known_names[] = { "kthreadd", "swapper/0" };
	const char *field = memory_at(address, 1);

	for (int64_t back = 0; field && back < MOST_BEHIND_COMM && back <= field - ram.at;
	     back += 4)
		for (size_t i = 0; i < sizeof(known_names) / sizeof(*known_names); i++)
			if (!strcmp(field - back, known_names[i])) {
				comm_offset = -back;
				return;
			}
}

static void add_task(void)
{
	const char *name =
		comm_offset ? memory_at(task + comm_offset, sizeof(uint32_t[COMM_WORDS])) : NULL;
	uint32_t comm[COMM_WORDS] = { 0 };

	if (!task)
		return;
	if (name)
		memcpy(comm, name, sizeof(comm));
	add_word(SWITCH);
	add_word((uint32_t)task);
	add_word((uint32_t)(task >> 32));
	for (size_t i = 0; i < COMM_WORDS; i++)
		add_word(comm[i]);
}

static void at_stamp(unsigned cpu, void *data)
{
	uint32_t stamp = (uint32_t)(uintptr_t)data, number = 0;
	uint64_t instructions = now.open ? *counter.at - now.begun : 0;

	(void)cpu;
	if (!now.open && !stamps[stamp].opens)
		return;
	if (now.open && now.kept) {
		leave_block();
		number = path_number();
	} else if (now.open && now.idle) {
		number = NOT_KEPT_HALTED;
	}
	if (last.times &&
	    (stamp != last.stamp || number != last.path || instructions != last.instructions))
		put_last();
	last.stamp = stamp;
	last.path = number;
	last.instructions = instructions;
	last.times++;
	path.count = path.whole = path.repeated = 0;
	/* What is left of this block belongs to the next path. */
	now.skipped += (uint32_t)(*counter.at - now.entered);
	now.entered = now.begun = *counter.at;
	now.open = (now.open & ~stamps[stamp].closes) | stamps[stamp].opens;
	now.idle = false;
	ordinal++;
	now.kept = now.open && ordinal >= from && ordinal <= to;
	if (now.kept)
		add_task();
}

static void at_block(unsigned cpu, void *data)
{
	if (!counter.at)
		counter.at = qemu.scoreboard_of(counter.by_cpu.scoreboard, cpu);
	leave_block();
	now.skipped = 0;
	now.block = data;
	now.entered = *counter.at;
}

static void at_switch(unsigned cpu, uint32_t access, uint64_t address, void *data)
{
	(void)cpu;
	(void)access;
	(void)data;
	if (ram.text && !ram.at)
		find_ram();
	if (!comm_offset)
		find_comm(address);
	task = address;
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
	unsigned char buffer[sizeof(halt.bytes)];
	const void *bytes = buffer;

	if (!halt.size || qemu.size(instruction) != halt.size)
		return false;
	if (fills_buffer)
		qemu.bytes(instruction, buffer, halt.size);
	else
		bytes = (const void *)qemu.bytes(instruction, NULL, 0);
	return !memcmp(bytes, halt.bytes, halt.size);
}

static void at_translation(uint64_t id, void *translated)
{
	struct block *block = checked(calloc(1, sizeof(*block)));

	(void)id;
	block->length = (uint32_t)qemu.length(translated);
	block->address = qemu.address(qemu.instruction(translated, 0));
	qemu.at_block(translated, at_block, NO_REGISTERS, block);
	for (size_t i = 0; i < block->length; i++) {
		void *instruction = qemu.instruction(translated, i);
		uint64_t address = qemu.address(instruction);

		block->size = (uint32_t)(address + qemu.size(instruction) - block->address);
		if (qemu.count_by_cpu)
			qemu.count_by_cpu(instruction, ADD, counter.by_cpu, 1);
		else
			qemu.count(instruction, ADD, &counter.fixed, 1);
		for (uintptr_t s = 0; s < stamp_count; s++)
			if (stamps[s].address == address)
				qemu.at_instruction(instruction, at_stamp, NO_REGISTERS, (void *)s);
		if (halts(instruction))
			qemu.at_instruction(instruction, at_halt, NO_REGISTERS, NULL);
		if (address == switch_address)
			qemu.at_access(instruction, at_switch, NO_REGISTERS, ANY_ACCESS, NULL);
	}
}

static void at_exit(uint64_t id, void *data)
{
	(void)id;
	(void)data;
	put_last();
	PUT(END, out.blocks, out.paths, HALVES(ordinal));
	if (fclose(out.file) && !out.failed)
		fprintf(stderr, "klat: the trace cannot be written: %s\n", strerror(errno));
}

/* Before QEMU reads it. */
__attribute__((constructor)) static void choose_version(void)
{
	const char *asked = getenv("KLAT_PLUGIN_API");

	if (asked)
		qemu_plugin_version = atoi(asked);
}

static int add_stamp(uint64_t address, bool opens)
{
	unsigned at = 0;

	while (at < stamp_count && stamps[at].address != address)
		at++;
	if (at == MAX_STAMPS)
		return -1;
	if (at == stamp_count)
		stamps[stamp_count++].address = address;
	*(opens ? &stamps[at].opens : &stamps[at].closes) |= UINT64_C(1) << kind;
	return 0;
}

static int take_argument(char *name)
{
	char *value = strchr(name, '=');

	if (!value)
		return -1;
	*value++ = 0;
	if (!strcmp(name, "out")) {
		out.file = fopen(value, "wb");
		if (!out.file)
			fprintf(stderr, "klat: %s: %s\n", value, strerror(errno));
		return out.file ? 0 : -1;
	}
	if (!strcmp(name, "from"))
		from = strtoull(value, NULL, 0);
	else if (!strcmp(name, "to"))
		to = strtoull(value, NULL, 0);
	else if (!strcmp(name, "halt"))
		while (halt.size < sizeof(halt.bytes) &&
		       sscanf(value + 2 * halt.size, "%2hhx", &halt.bytes[halt.size]) == 1)
			halt.size++;
	else if (!strcmp(name, "ram"))
		ram.text = checked(strdup(value));
	else if (!strcmp(name, "switch"))
		switch_address = strtoull(value, NULL, 0);
	else if (!strcmp(name, "window"))
		kind = strtoul(value, NULL, 0) % 64;
	else if (!strcmp(name, "open") || !strcmp(name, "close"))
		return add_stamp(strtoull(value, NULL, 0), *name == 'o');
	else
		return -1;
	return 0;
}

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int argc, char **argv)
{
	fills_buffer = info->version.newest >= 3;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *found = dlsym(RTLD_DEFAULT, functions[i].name);

		if (!found && !functions[i].optional) {
			fprintf(stderr, "klat: this QEMU has no %s\n", functions[i].name);
			return -1;
		}
		memcpy(functions[i].into, &found, sizeof(found));
	}
	if (qemu.count_by_cpu) {
		counter.by_cpu.scoreboard = qemu.new_scoreboard(sizeof(uint64_t));
	} else if (qemu.count) {
		counter.at = &counter.fixed;
	} else {
		fputs("klat: this QEMU's plugins cannot count instructions\n", stderr);
		return -1;
	}
	for (int i = 0; i < argc; i++)
		if (take_argument(argv[i])) {
			fprintf(stderr, "klat: %s is no argument of the plugin\n", argv[i]);
			return -1;
		}
	if (!out.file)
		return -1;
	PUT(HEAD, FORMAT);
	qemu.at_translation(id, at_translation);
	qemu.at_exit(id, at_exit, NULL);
	return 0;
}
