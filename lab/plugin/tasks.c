/* SPDX-License-Identifier: MIT */
#include "tasks.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst and Documentation/arch/arm64/memory.rst of the kernel: the
 * direct map begins at a multiple of DIRECT_MAP_ALIGN, and the kernel's image is smaller than
 * IMAGE_BYTES. */
#define DIRECT_MAP_ALIGN (UINT64_C(1) << 39)
#define IMAGE_BYTES (INT64_C(1) << 30)
/* Below this limit, a physical address is an offset in the file. QEMU's machine "pc" has a hole in
 * memory that begins at 3 GiB or later and ends at 4 GiB. */
#define BELOW_HOLE (UINT64_C(3) << 30)
/* Less than the size of a task_struct, so that the search finds no other task's comm. */
#define MOST_BEHIND_COMM 8000

static struct {
	char text[64];  /* a part of its file's name */
	const char *at; /* its mapping in QEMU */
	uint64_t size;
	bool sought;
} ram;

/* The code that changes stacks. */
static struct {
	unsigned char code[MAX_SWITCH_BYTES];
	size_t size;
	uint64_t address; /* of its last instruction; 0: unknown */
	uint64_t offset;  /* of that instruction in the file */
} change;

/* The distance from a task's comm to its saved registers; 0: unknown. */
static uint64_t behind_comm;

void tasks_in_file(const char *text)
{
	snprintf(ram.text, sizeof(ram.text), "%s", text);
}

void tasks_switch_in(const unsigned char *code, size_t size)
{
	memcpy(change.code, code, size);
	change.size = size;
}

/* QEMU maps the memory after it has loaded the plugin. */
static void find_ram(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long start, end;

	ram.sought = true;
	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, ram.text) && sscanf(line, "%lx-%lx", &start, &end) == 2 &&
		    end - start > ram.size) {
			ram.at = (const char *)start;
			ram.size = end - start;
		}
	if (maps)
		fclose(maps);
}

bool task_switches(const char *host, uint64_t address, size_t size)
{
	size_t end;

	if (!change.size || change.address)
		return change.size && address == change.address;
	if (!ram.sought)
		find_ram();
	if (!ram.at || host < ram.at || host >= ram.at + ram.size)
		return false;
	end = (size_t)(host - ram.at) + size;
	if (end < change.size || end > ram.size ||
	    memcmp(ram.at + end - change.size, change.code, change.size))
		return false;
	change.address = address;
	change.offset = end - size;
	return true;
}

/* The guest's memory at a kernel address, or NULL. The kernel maps its image and the direct map
 * each in one piece. */
static const char *memory_at(uint64_t address, size_t size)
{
	int64_t distance = (int64_t)(address - change.address);
	uint64_t offset = address & (DIRECT_MAP_ALIGN - 1);

	if (llabs(distance) < IMAGE_BYTES)
		offset = change.offset + (uint64_t)distance;
	if (offset >= BELOW_HOLE || offset >= ram.size || ram.size - offset < size)
		return NULL;
	return ram.at + offset;
}

/* In task_struct, comm lies at most a few kilobytes before the saved registers. Every kernel
 * has tasks with these two names, so their comm shows the distance. */
static void find_comm(uint64_t address)
{
	static const char *const names[] = { "kthreadd", "swapper/0" };
	const char *field = memory_at(address, 1);

	for (int64_t back = 4; field && back < MOST_BEHIND_COMM && back <= field - ram.at;
	     back += 4)
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			if (!strcmp(field - back, names[i])) {
				behind_comm = (uint64_t)back;
				return;
			}
}

void task_switched_to(uint64_t address)
{
	if (!behind_comm)
		find_comm(address);
}

void task_name(uint64_t address, char comm[COMM_BYTES])
{
	const char *name = behind_comm ? memory_at(address - behind_comm, COMM_BYTES) : NULL;

	memset(comm, 0, COMM_BYTES);
	if (name)
		memcpy(comm, name, COMM_BYTES);
}
