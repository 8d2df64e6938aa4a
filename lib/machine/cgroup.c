/* SPDX-License-Identifier: MIT */
/* The cgroups of this process, as far as they are visible. */
#include "machine/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };
_Static_assert(PATH_SIZE + 128 <= KLAT_PATH_SIZE, "a file of a cgroup has a path");

/*
 * The directory of the cgroup `path` in the hierarchy with this controller; `unified` is version 2.
 * See proc_pid_mountinfo(5): field 4 is the mounted cgroup, field 5 the mount point. Returns the
 * length of the mount point, or 0.
 */
static size_t find_directory(const char *mounts, const char *controller, bool unified,
			     const char *path, char *directory)
{
	for (const char *line = mounts; line; line = strchr(line, '\n')) {
		char root[PATH_SIZE], point[PATH_SIZE], type[16], options[PATH_SIZE];
		const char *rest, *below;
		size_t length;

		line += *line == '\n';
		if (sscanf(line, "%*d %*d %*s %4095s %4095s", root, point) != 2)
			continue;
		rest = strstr(line, " - ");
		if (!rest || sscanf(rest, " - %15s %*s %4095s", type, options) != 2 ||
		    strcmp(type, unified ? "cgroup2" : "cgroup") != 0 ||
		    (!unified && !klat_has_word(options, ',', controller)))
			continue;
		length = strcmp(root, "/") ? strlen(root) : 0;
		/* If the cgroup is outside the mount, its nearest visible ancestor is the mount. */
		below = strncmp(path, root, length) || !strchr("/", path[length]) ? ""
										  : path + length;
		snprintf(directory, PATH_SIZE, "%s%s", point, strcmp(below, "/") ? below : "");
		/* Another mount can cover this one. */
		if (!access(directory, F_OK))
			return strlen(point);
	}
	return 0;
}

bool klat_cgroups_visit(const char *controller,
			void (*visit)(const char *directory, void *argument), void *argument)
{
	char *mounts = klat_read_file("/proc/self/mountinfo"),
	     *text = klat_read_file("/proc/self/cgroup"), *rest = text, *line, directory[PATH_SIZE];
	bool visited = false;

	/* "4:cpu,cpuacct:/path", and "0::/path" of version 2. */
	while (mounts && (line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':'),
		     *path = controllers ? strchr(controllers + 1, ':') : NULL;
		bool unified;
		size_t top;

		if (!path)
			continue;
		*path++ = 0;
		unified = !*++controllers;
		if (!unified && !klat_has_word(controllers, ',', controller))
			continue;
		top = find_directory(mounts, controller, unified, path, directory);
		for (char *slash; top; *slash = 0) {
			if (visit)
				visit(directory, argument);
			visited = true;
			slash = strrchr(directory, '/');
			if (!slash || (size_t)(slash - directory) < top)
				break;
		}
	}
	free(mounts);
	free(text);
	return visited;
}

bool klat_cgroup_is_namespaced(void)
{
	const ino_t first_namespace = 0xeffffffb; /* PROC_CGROUP_INIT_INO */
	struct stat status;

	return !stat("/proc/self/ns/cgroup", &status) && status.st_ino != first_namespace;
}

bool klat_cgroup_is_v1_root(const char *directory)
{
	return !access(klat_path("%s/release_agent", directory), F_OK);
}

bool klat_cgroup_is_hidden(void)
{
	char *text, *rest, *line;
	bool below_root = klat_cgroup_is_namespaced();

	if (klat_cgroups_visit("cpu", NULL, NULL))
		return false;
	text = rest = klat_read_file("/proc/self/cgroup");
	while ((line = strsep(&rest, "\n")))
		below_root |= *line && strcmp(strchrnul(line, '/'), "/") != 0;
	free(text);
	return below_root;
}

/* The budget of CONFIG_RT_GROUP_SCHED, in version 1. Not of the root, whose budget is
 * sched_rt_runtime_us. */
static void add_stop(const char *directory, void *argument)
{
	const int64_t period = klat_read_count(klat_path("%s/cpu.rt_period_us", directory)),
		      runtime = klat_read_count(klat_path("%s/cpu.rt_runtime_us", directory));
	int64_t *const shortest = argument;

	if (runtime < 0 || runtime >= period || klat_cgroup_is_v1_root(directory))
		return;
	if (!*shortest || period - runtime < *shortest)
		*shortest = period - runtime;
}

int64_t klat_cgroup_stop_us(void)
{
	int64_t shortest = 0;

	klat_cgroups_visit("cpu", add_stop, &shortest);
	return shortest;
}

/* A cgroup without the CPU controller counts nothing. */
static void add_throttled(const char *directory, void *sum)
{
	const int64_t count = klat_count_in(klat_path("%s/cpu.stat", directory), "nr_throttled");

	*(int64_t *)sum += count > 0 ? count : 0;
}

int64_t klat_cgroup_throttled(void)
{
	int64_t sum = 0;

	return klat_cgroups_visit("cpu", add_throttled, &sum) ? sum : -1;
}
