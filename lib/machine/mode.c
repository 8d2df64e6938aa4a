/* SPDX-License-Identifier: MIT */
/* The mode of docs/record.md. klat_mode() has a file of its own, so that the linker can replace it
 * in a test. */
#include "machine/machine.h"

#include <string.h>

/* A guest cannot see whether its emulator counts instructions. The lab that boots it says so. */
static bool lab_says_counted(void)
{
	char line[4096];

	return klat_read_line("/proc/cmdline", line, sizeof(line)) &&
	       strstr(line, "klat.mode=counted");
}

static const char *find_mode(void)
{
	switch (klat_arch_machine()) {
	case KLAT_ARCH_HARDWARE:
		return "hardware";
	case KLAT_ARCH_VIRTUAL:
		return "virtual";
	default:
		return lab_says_counted() ? "counted" : "emulated";
	}
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
