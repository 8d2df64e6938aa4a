/* SPDX-License-Identifier: MIT */
/* The preemption model in effect, by the kernel's version, debugfs, command line and configuration.
 */
#include "base/base.h"

#include <string.h>

static const char *debugfs, *command_line, *config;

static bool planted_line(const char *path, char *line, size_t size)
{
	const char *text = strstr(path, "cmdline") ? command_line : debugfs;

	snprintf(line, size, "%s", text);
	return *text;
}

static char *planted_file(const char *path)
{
	return *config && strstr(path, "/boot/config-") ? strdup(config) : NULL;
}

#define klat_read_line planted_line
#define klat_read_file planted_file
#include "machine/kernel.c"
#undef klat_read_line
#undef klat_read_file

#include "support.h"

void set_up(void)
{
	debugfs = command_line = config = "";
}

static void assert_model(const char *release, const char *version, const char *model)
{
	struct utsname names = { 0 };

	snprintf(names.release, sizeof(names.release), "%s", release);
	snprintf(names.version, sizeof(names.version), "#1 SMP %s 2026", version);
	assert_string_equal(klat_preemption(&names), model);
}

TEST(an_rt_kernel_says_so_with_a_blank_before_linux_5_0)
{
	config = "CONFIG_PREEMPT=y\nCONFIG_PREEMPT_LAZY=y\nCONFIG_PREEMPT_RT_FULL=y\n";
	assert_model("4.14.5-rt9", "PREEMPT RT", "rt");
	assert_model("6.1.0-rt", "PREEMPT_RT Debian", "rt");
	config = "";
	assert_model("4.14.5", "PREEMPT RTL", "full");
}

TEST(an_rt_kernel_can_be_lazy_too)
{
	debugfs = "full (lazy)";
	assert_model("7.3.4-rt", "PREEMPT_RT", "rt-lazy");
	debugfs = "(full) lazy";
	command_line = "preempt=lazy";
	assert_model("7.3.4-rt", "PREEMPT_RT", "rt");
	debugfs = "";
	assert_model("7.3.4-rt", "PREEMPT_RT", "rt-lazy");
	assert_model("6.12.1-rt", "PREEMPT_RT", "rt");
}

TEST(linux_takes_the_last_model_that_it_has)
{
	command_line = "ro preempt=full preempt=none";
	assert_model("6.1.0", "PREEMPT_DYNAMIC", "none");
	assert_model("7.3.4", "PREEMPT_DYNAMIC", "full");
	command_line = "preempt=voluntary preempt=lazy -- preempt=full";
	assert_model("6.12.9", "PREEMPT_DYNAMIC", "voluntary");
	assert_model("6.13.0", "PREEMPT_DYNAMIC", "lazy");
	command_line = "module.preempt=full preempt=fuller";
	assert_model("6.13.0", "PREEMPT_DYNAMIC", "unknown");
}

TEST(debugfs_is_believed_before_the_command_line)
{
	debugfs = "full (lazy)";
	command_line = "preempt=full";
	assert_model("7.3.4", "PREEMPT_DYNAMIC", "lazy");
}

TEST(a_kernel_with_one_model_ignores_the_command_line)
{
	command_line = "preempt=none";
	assert_model("5.10.0", "PREEMPT", "full");
	assert_model("6.14.0", "PREEMPT_LAZY", "lazy");
	config = "# of 5.15\nCONFIG_PREEMPT_DYNAMIC=y\n";
	assert_model("5.15.0", "PREEMPT", "none");
	config = "# of 5.10\nCONFIG_PREEMPT_VOLUNTARY=y\n";
	assert_model("5.10.0", "Debian", "voluntary");
}
