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

static const char *mode;

const char *klat_mode(void)
{
	static const char *const names[] = { [KLAT_ARCH_HARDWARE] = "hardware",
					     [KLAT_ARCH_VIRTUAL] = "virtual",
					     [KLAT_ARCH_EMULATED] = "emulated" };

	if (!mode) {
		mode = names[klat_arch_machine()];
		if (klat_arch_machine() == KLAT_ARCH_EMULATED && lab_says_counted())
			mode = "counted";
	}
	return mode;
}

void klat_mode_assume(const char *assumed)
{
	mode = assumed;
}
