/* SPDX-License-Identifier: MIT */
/*
 * The types of cores of a hybrid machine, the fastest first.
 *
 * - Intel: the kernel lists the CPUs of each type for perf. Efficient cores without the last-level
 *   cache of the others are low-power cores, which older kernels do not list apart.
 * - Others: by each CPU's speed, which the kernel's scheduler or the firmware shows, and by arm64's
 *   identification register. Cores of one type differ in speed too (preferred cores, turbo), so a
 *   gap of more than a tenth between two speeds separates types. AMD's preferred cores differ by 2
 *   to 6 %. Its dense cores are a quarter slower.
 */
#include "machine/machine.h"

#include <stdlib.h>
#include <string.h>

#define CPU "/sys/devices/system/cpu/cpu%d/"

static const char *const intel_names[] = { "core", "atom", "lowpower" };
enum { CORE, ATOM, LOW_POWER, INTEL_TYPES };

int klat_core_type(const struct klat_core_types *types, int cpu)
{
	for (int type = 0; type < types->count; type++)
		if (klat_cpu_in(&types->cpus[type], cpu))
			return type;
	return 0;
}

static bool read_cpu_file(int cpu, const char *file, char *line, size_t size)
{
	return klat_read_line(klat_path(CPU "%s", cpu, file), line, size);
}

static int cache_levels(int cpu)
{
	char file[64], line[16];
	int index = -1;

	do
		snprintf(file, sizeof(file), "cache/index%d/shared_cpu_list", ++index);
	while (read_cpu_file(cpu, file, line, sizeof(line)));
	return index;
}

/* Move the efficient cores with fewer levels of caches than others of them. */
static void separate_low_power(klat_cpu_set *sets)
{
	int most = 0;

	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(&sets[ATOM], cpu) && cache_levels(cpu) > most)
			most = cache_levels(cpu);
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++) {
		if (klat_cpu_in(&sets[ATOM], cpu) && cache_levels(cpu) < most)
			klat_cpu_add(&sets[LOW_POWER], cpu);
		if (klat_cpu_in(&sets[LOW_POWER], cpu))
			klat_cpu_remove(&sets[ATOM], cpu);
	}
}

static bool read_intel_types(struct klat_core_types *types)
{
	klat_cpu_set sets[INTEL_TYPES];
	bool listed = false;

	for (int i = 0; i < INTEL_TYPES; i++)
		listed |= !klat_cpus_read(klat_path("/sys/devices/cpu_%s/cpus", intel_names[i]),
					  &sets[i]);
	if (!listed)
		return false;
	separate_low_power(sets);
	for (int i = 0; i < INTEL_TYPES; i++)
		if (klat_cpu_weight(&sets[i])) {
			types->cpus[types->count] = sets[i];
			strcpy(types->names[types->count++], intel_names[i]);
		}
	return true;
}

struct core {
	int cpu;
	long speed, part; /* 0: unknown */
};

static int compare_cores(const void *a, const void *b)
{
	const struct core *x = a, *y = b;

	if (x->speed != y->speed)
		return x->speed < y->speed ? 1 : -1;
	/* Arm's part numbers grow with the size of the cores of one generation. */
	if (x->part != y->part)
		return x->part < y->part ? 1 : -1;
	return x->cpu - y->cpu;
}

static struct core read_core(int cpu, const char *speed_file)
{
	/* Implementer and part, without variant and revision. */
	const long part_bits = 0xff00fff0, fastest = 1 << 24;
	struct core core = { .cpu = cpu };
	char line[64];

	if (read_cpu_file(cpu, speed_file, line, sizeof(line)))
		core.speed = strtol(line, NULL, 10);
	if (core.speed < 0 || core.speed > fastest)
		core.speed = 0;
	if (read_cpu_file(cpu, "regs/identification/midr_el1", line, sizeof(line)))
		core.part = strtol(line, NULL, 16) & part_bits;
	return core;
}

static void name_by_rank(struct klat_core_types *types)
{
	const int last = types->count - 1;

	for (int rank = 0; rank <= last; rank++)
		snprintf(types->names[rank], sizeof(types->names[rank]),
			 !rank          ? "big"
			 : rank == last ? "little"
			 : last == 2    ? "middle"
					: "middle-%d",
			 rank);
}

/* If there are too many types, the last one has the rest. */
static void read_speeds(struct klat_core_types *types, const klat_cpu_set *online)
{
	int count = 0, weight = klat_cpu_weight(online), type;
	struct core *cores = calloc(weight, sizeof(*cores)), slowest[KLAT_CORE_TYPES];
	const char *file = "acpi_cppc/highest_perf";
	char line[64];

	if (!cores)
		return;
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(online, cpu) &&
		    read_cpu_file(cpu, "cpu_capacity", line, sizeof(line)))
			file = "cpu_capacity";
	for (int cpu = 0; cpu < KLAT_MAX_CPU; cpu++)
		if (klat_cpu_in(online, cpu))
			cores[count++] = read_core(cpu, file);
	qsort(cores, count, sizeof(*cores), compare_cores);
	for (int i = 0; i < count && (cores[i].speed || cores[i].part); i++) {
		for (type = 0; type < types->count; type++)
			if (slowest[type].part == cores[i].part &&
			    10 * slowest[type].speed <= 11 * cores[i].speed)
				break;
		if (type == KLAT_CORE_TYPES - 1)
			type--;
		else if (type == types->count)
			types->count++;
		slowest[type] = cores[i];
		klat_cpu_add(&types->cpus[type], cores[i].cpu);
	}
	free(cores);
	name_by_rank(types);
}

void klat_core_types_read(struct klat_core_types *types)
{
	klat_cpu_set rest;

	memset(types, 0, sizeof(*types));
	if (klat_cpus_online(&rest))
		return;
	if (!read_intel_types(types))
		read_speeds(types, &rest);
	if (types->count < 2)
		types->count = 0;
	for (int type = 0; type < types->count; type++)
		for (size_t i = 0; i < KLAT_ARRAY_SIZE(rest.bits); i++)
			rest.bits[i] &= ~types->cpus[type].bits[i];
	if (types->count && klat_cpu_weight(&rest)) {
		types->cpus[types->count] = rest;
		strcpy(types->names[types->count++], "unknown");
	}
}
