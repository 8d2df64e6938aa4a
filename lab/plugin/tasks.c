/* SPDX-License-Identifier: MIT */
#include "tasks.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* x86-64: Documentation/arch/x86/x86_64/mm.rst of the kernel. */
#define KERNEL_IMAGE 0xffffffff80000000
#define DIRECT_MAP_ALIGN (UINT64_C(1) << 39)
/* Below this limit, a physical address is an offset in the file. QEMU's machine "pc" has a hole in
 * memory that begins at 3 GiB or later and ends at 4 GiB. */
#define BELOW_HOLE (UINT64_C(3) << 30)
/* Less than the size of a task_struct, so that the search finds no other task's comm. */
#define MOST_BEHIND_COMM 8000

static struct {
	char text[64];  /* a part of its file's name */
	const char *at; /* its mapping in QEMU */
	uint64_t size;
} ram;

/* The distance from a task's comm to its saved stack pointer; 0: unknown. */
static uint64_t behind_comm;

void tasks_in_file(const char *text)
{
	snprintf(ram.text, sizeof(ram.text), "%s", text);
}

/* QEMU maps the memory after it has loaded the plugin. */
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

/* The guest's memory at a kernel address, or NULL. The kernel maps its image and the direct map
 * each in one piece. The base of the direct map is a multiple of 2^39. */
static const char *memory_at(uint64_t address, size_t size)
{
	uint64_t physical =
		address >= KERNEL_IMAGE ? address - KERNEL_IMAGE : address & (DIRECT_MAP_ALIGN - 1);

	if (physical >= BELOW_HOLE || physical >= ram.size || ram.size - physical < size)
		return NULL;
	return ram.at + physical;
}

/* In task_struct, comm lies at most a few kilobytes before the saved stack pointer. Every kernel
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
	if (*ram.text && !ram.at)
		find_ram();
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
