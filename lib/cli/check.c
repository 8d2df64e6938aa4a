/* SPDX-License-Identifier: MIT */
/* --check-for: checks the options of a run without running it, for a guest or on this machine. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

static const char *const modes[] = { "virtual", "emulated", "counted" };

int klat_check_for(const struct klat_run *run, const char *machine)
{
	size_t length = strcspn(machine, ":");
	int count = 0, end = 0;

	if (machine[length])
		sscanf(machine + length + 1, "%5d%n", &count, &end);
	if (!machine[length] || (count > 0 && count <= KLAT_MAX_CPU && !machine[length + 1 + end]))
		for (size_t i = 0; i < KLAT_ARRAY_SIZE(modes); i++)
			if (strlen(modes[i]) == length && !strncmp(modes[i], machine, length)) {
				klat_mode_assume(modes[i]);
				klat_cpus_assume(count);
				return 0;
			}
	klat_warn(run, "--check-for takes MODE or MODE:CPUS, as in counted:1, not '%s'", machine);
	return -EINVAL;
}
