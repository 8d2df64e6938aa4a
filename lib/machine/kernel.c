/* SPDX-License-Identifier: MIT */
/* The kernel's version, its preemption model, and what its scheduler grants to ordinary tasks. */
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static const char *const models[] = { "full", "lazy", "voluntary", "none", NULL };

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

const struct klat_setting klat_settings[KLAT_SETTINGS] = {
	[KLAT_SCHEDULER] = { "sched_ext scheduler", "/sys/kernel/sched_ext/root/ops" },
	[KLAT_PREEMPTION] = { "preemption model", "/sys/kernel/debug/sched/preempt" },
	[KLAT_CLOCK_SOURCE] = { "clock source", KLAT_CLOCK_SOURCE_FILE },
	[KLAT_ONLINE] = { "list of online CPUs", KLAT_ONLINE_FILE },
};

static bool has_ext_scheduler(void)
{
	char state[32];

	klat_read_line("/sys/kernel/sched_ext/state", state, sizeof(state));
	return *state && strcmp(state, "disabled");
}

void klat_setting_in(enum klat_setting_name name, const char *text, char value[KLAT_SETTING_SIZE])
{
	const char *model = name == KLAT_PREEMPTION ? klat_preemption_in(text) : NULL;

	snprintf(value, KLAT_SETTING_SIZE, "%.*s", (int)strcspn(text, "\n"),
		 name == KLAT_PREEMPTION ? model ?: "" : text);
	if (name == KLAT_SCHEDULER && !*value)
		strcpy(value, "none");
	/* The same counter, in the first seconds after the boot. */
	if (name == KLAT_CLOCK_SOURCE && !strcmp(value, "tsc-early"))
		strcpy(value, "tsc");
}

void klat_setting_read(enum klat_setting_name name, char value[KLAT_SETTING_SIZE])
{
	char line[KLAT_SETTING_SIZE] = "";

	if (name != KLAT_SCHEDULER || has_ext_scheduler())
		klat_read_line(klat_settings[name].file, line, sizeof(line));
	klat_setting_in(name, line, value);
}

const char *klat_preemption_in(const char *line)
{
	char word[32];

	for (size_t i = 0; models[i]; i++) {
		snprintf(word, sizeof(word), "(%s)", models[i]);
		if (strstr(line, word))
			return models[i];
	}
	return NULL;
}

const char *klat_shown_preemption(void)
{
	char line[256];

	klat_read_line(klat_settings[KLAT_PREEMPTION].file, line, sizeof(line));
	return klat_preemption_in(line);
}

static int64_t server_file(const char *server, int cpu, const char *file)
{
	return klat_read_count(klat_path("/sys/kernel/debug/sched/%s/cpu%d/%s", server, cpu, file));
}

int64_t klat_server_ns(int cpu)
{
	const int64_t default_ns = 50000000;
	struct utsname names;
	/* A sched_ext scheduler has the ordinary tasks, and a server of its own. */
	const bool is_ext = has_ext_scheduler();
	const char *server = is_ext ? "ext_server" : "fair_server";

	/* Unreadable, or 0 until the server's first turn. */
	if (server_file(server, cpu, "period") > 0)
		return server_file(server, cpu, "runtime");
	uname(&names);
	return klat_kernel_version(names.release) >=
			       (is_ext ? KLAT_KERNEL(7, 0) : KLAT_KERNEL(6, 12))
		       ? default_ns
		       : 0;
}

bool klat_timer_follows_clock(void)
{
	char device[32], clock[32];
	struct utsname names;

	uname(&names);
	klat_read_line("/sys/devices/system/clockevents/clockevent0/current_device", device,
		       sizeof(device));
	klat_read_line(KLAT_CLOCK_SOURCE_FILE, clock, sizeof(clock));
	return !strcmp(device, "lapic-deadline") && !strcmp(clock, "tsc") &&
	       klat_kernel_version(names.release) >= KLAT_KERNEL(7, 1);
}

/* The model that the kernel's version and configuration name. */
static const char *built_preemption(const struct utsname *names, const char *config)
{
	if (strstr(config, "\nCONFIG_PREEMPT_LAZY=y\n") || strstr(names->version, "PREEMPT_LAZY"))
		return "lazy";
	if (strstr(config, "\nCONFIG_PREEMPT_VOLUNTARY=y\n"))
		return "voluntary";
	if (strstr(config, "\nCONFIG_PREEMPT_NONE=y\n"))
		return "none";
	return strstr(names->version, "PREEMPT") ? "full" : "unknown";
}

/* Linux takes the last preempt= whose model it has, and ignores the others. */
static const char *chosen_preemption(const struct utsname *names)
{
	const int version = klat_kernel_version(names->release);
	const char *model = "unknown";
	char line[4096] = "", *rest = line, *word;

	if (klat_is_in_proc("/proc/cmdline"))
		klat_read_line("/proc/cmdline", line, sizeof(line));
	while ((word = strsep(&rest, " \t")) && strcmp(word, "--"))
		for (size_t i = 0; models[i]; i++)
			if (!strncmp(word, "preempt=", 8) && !strcmp(word + 8, models[i]) &&
			    (i == 0 || (i == 1 ? version >= KLAT_KERNEL(6, 13)
					       : version < KLAT_KERNEL(7, 0))))
				model = models[i];
	return model;
}

const char *klat_preemption(const struct utsname *names)
{
	const char *shown = klat_shown_preemption();

	if (klat_is_rt(names->version))
		return strcmp(shown ? shown : chosen_preemption(names), "lazy") ? "rt" : "rt-lazy";
	if (shown)
		return shown;
	char *config = klat_read_file(klat_path("/boot/config-%.100s", names->release));
	const char *text = config ? config : "";
	/* Before Linux 5.18, only the configuration says so. */
	const bool dynamic = strstr(names->version, "PREEMPT_DYNAMIC") ||
			     strstr(text, "\nCONFIG_PREEMPT_DYNAMIC=y\n");
	const char *model = dynamic ? chosen_preemption(names) : built_preemption(names, text);

	free(config);
	return model;
}
