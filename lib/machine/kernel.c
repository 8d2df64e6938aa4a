/* SPDX-License-Identifier: MIT */
/* The kernel's version, and what its scheduler grants to ordinary tasks. */
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

const char *const klat_preemption_models[] = { "full", "lazy", "voluntary", "none", NULL };

int klat_kernel_version(const char *release)
{
	int major = 0, minor = 0;

	sscanf(release, "%d.%d", &major, &minor);
	return KLAT_KERNEL(major, minor);
}

/* Before Linux 5.0, the version of RT kernels has a blank: PREEMPT RT. */
bool klat_is_rt(const char *version)
{
	static const char *const words[] = { "PREEMPT_RT", "PREEMPT RT" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(words); i++) {
		const char *end = strstr(version, words[i]);

		if (end && strchr(" ", end[strlen(words[i])]))
			return true;
	}
	return false;
}

void klat_scheduler(char *name, size_t size)
{
	char state[32];

	*name = 0;
	klat_read_line("/sys/kernel/sched_ext/state", state, sizeof(state));
	if (*state && strcmp(state, "disabled"))
		klat_read_line(KLAT_SCHEDULER_FILE, name, size);
}

const char *klat_shown_preemption(void)
{
	char line[256], word[32];

	klat_read_line("/sys/kernel/debug/sched/preempt", line, sizeof(line));
	for (size_t i = 0; klat_preemption_models[i]; i++) {
		snprintf(word, sizeof(word), "(%s)", klat_preemption_models[i]);
		if (strstr(line, word))
			return klat_preemption_models[i];
	}
	return NULL;
}

static int64_t server_file(const char *server, int cpu, const char *file)
{
	char path[128], line[32];

	snprintf(path, sizeof(path), "/sys/kernel/debug/sched/%s/cpu%d/%s", server, cpu, file);
	return klat_read_line(path, line, sizeof(line)) ? strtoll(line, NULL, 10) : 0;
}

int64_t klat_server_ns(int cpu)
{
	const int64_t default_ns = 50000000;
	struct utsname names;
	char scheduler[64];

	/* A sched_ext scheduler has the ordinary tasks, and a server of its own. */
	klat_scheduler(scheduler, sizeof(scheduler));
	const char *server = *scheduler ? "ext_server" : "fair_server";

	/* Unreadable, or 0 until the server's first turn. */
	if (server_file(server, cpu, "period") > 0)
		return server_file(server, cpu, "runtime");
	uname(&names);
	return klat_kernel_version(names.release) >=
			       (*scheduler ? KLAT_KERNEL(7, 0) : KLAT_KERNEL(6, 12))
		       ? default_ns
		       : 0;
}
