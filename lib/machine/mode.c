/* SPDX-License-Identifier: MIT */
/* How far time can be trusted here. One function in a file of its own, so that a test can take its
 * place by the linker. */
#include "internal.h"

#include <cpuid.h>
#include <string.h>

#define HYPERVISOR_LEAF 0x40000000u

static const char *find_mode(void)
{
	unsigned int a, b, c, d, id[3];
	char line[4096];
	bool counted = false;
	FILE *file;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 31))
		return "hardware";
	__cpuid(HYPERVISOR_LEAF, a, id[0], id[1], id[2]);
	if (memcmp(id, "TCGTCGTCGTCG", sizeof(id)))
		return "virtual";
	/* Nothing inside an emulated guest tells whether its counter counts instructions: only who
	 * booted it knows. */
	file = fopen("/proc/cmdline", "re");
	if (file) {
		counted = fgets(line, sizeof(line), file) && strstr(line, "klat.mode=counted");
		fclose(file);
	}
	return counted ? "counted" : "emulated";
}

static const char *mode;

const char *klat_mode(void)
{
	if (!mode)
		mode = find_mode();
	return mode;
}

void klat_mode_assume(const char *assumed)
{
	mode = assumed;
}
