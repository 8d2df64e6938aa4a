/* SPDX-License-Identifier: MIT */
/* How far time can be trusted here. klat_mode() is alone in its file so that a test can replace it
 * by the linker. */
#include "machine/machine.h"

#include <string.h>

/* A guest cannot see whether its emulator counts instructions. The lab that boots it says so. */
static bool lab_says_counted(void)
{
	FILE *file = fopen("/proc/cmdline", "re");
	char line[4096];
	bool counted;

	if (!file)
		return false;
	counted = fgets(line, sizeof(line), file) && strstr(line, "klat.mode=counted");
	fclose(file);
	return counted;
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
