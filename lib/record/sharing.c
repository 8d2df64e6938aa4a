/* SPDX-License-Identifier: MIT */
/* How the process shares caches, memory bandwidth and cores with others: resctrl and core
 * scheduling. */
#include "record/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static void add(json_t *object, const char *name, const char *value)
{
	json_object_set_new(object, name, json_string(value) ?: json_string("not UTF-8"));
}

/* "  L3:0=fffff;1=fffff". Numbers are padded with blanks. */
static void add_schema(json_t *object, char *line)
{
	char *resource = line + strspn(line, " "), *value = strchr(resource, ':'), *end;

	if (!value)
		return;
	*value++ = 0;
	end = value;
	for (const char *at = value; *at; at++)
		if (*at != ' ')
			*end++ = *at;
	*end = 0;
	add(object, klat_path("resctrl.%s", resource), value);
}

void klat_resctrl_add(json_t *object, const char *groups, const char *mount_point)
{
	char group[512], *schemata = NULL, *rest, *line;
	const char *const name = group + strlen("res:");

	if (!klat_read_line(groups, group, sizeof(group)) || strncmp(group, "res:", name - group))
		return;
	if (*name)
		schemata = klat_read_file(klat_path("%s/%s/schemata", mount_point, name));
	add(object, "resctrl", *name ? name : "none");
	for (rest = schemata; (line = strsep(&rest, "\n"));)
		add_schema(object, line);
	free(schemata);
}

static void add_core_scheduling(json_t *object)
{
	enum { SCHED_CORE = 62, SCHED_CORE_GET = 0, THIS_THREAD = 0 };
	uint64_t cookie = 0;

	/* EINVAL: the kernel has no core scheduling. ENODEV: no core has several threads. */
	if (!prctl(SCHED_CORE, SCHED_CORE_GET, 0, THIS_THREAD, &cookie) || errno == EINVAL ||
	    errno == ENODEV)
		add(object, "core_scheduling", cookie ? "cookie" : "none");
}

void klat_sharing_add(json_t *object)
{
	klat_resctrl_add(object, "/proc/self/cpu_resctrl_groups", "/sys/fs/resctrl");
	add_core_scheduling(object);
}
