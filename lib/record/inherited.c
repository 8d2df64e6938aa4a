/* SPDX-License-Identifier: MIT */
/* What a process inherits from its parent or the dynamic linker, and what can change the time of
 * its system calls and wakeups. */
#include "record/record.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <net/if.h>
#include <sched.h>
#include <sha256.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { VALUES_SIZE = 512 };

/* By the kernel's names in /proc/self/status. Older kernels do not have all of them. */
static const char *const status_lines[] = { "Mems_allowed_list",         "Seccomp",
					    "Seccomp_filters",           "Speculation_Store_Bypass",
					    "SpeculationIndirectBranch", "THP_enabled" };
/* The variables that change the code of the C library. klat_libraries() shows the effect of
 * variables that only choose libraries. */
static const char *const variables[] = {
	"GLIBC_TUNABLES",         "LD_AUDIT",        "LD_BIND_NOT",      "LD_PROFILE",
	"MALLOC_ARENA_MAX",       "MALLOC_CHECK_",   "MALLOC_MMAP_MAX_", "MALLOC_PERTURB_",
	"MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "UV_USE_IO_URING",  "MALLOC_TRIM_THRESHOLD_",
};

static KLAT_PRINTF(3, 4) void add(json_t *object, const char *name, const char *format, ...)
{
	char value[1025];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(value, sizeof(value), format, arguments);
	va_end(arguments);
	json_object_set_new(object, name, json_string(value) ?: json_string("not UTF-8"));
}

/* The number of marks in the first line that have text behind them. */
static int parts_of(const char *text, char mark)
{
	int count = 0;

	for (; *text && *text != '\n'; text++)
		count += text[0] == mark && text[1] && text[1] != '\n';
	return count;
}

static void add_status(json_t *object)
{
	char *text = klat_read_file("/proc/self/status"), *rest = text, *line;

	while ((line = strsep(&rest, "\n"))) {
		char *value = strchr(line, ':');

		if (!value)
			continue;
		*value++ = 0;
		for (size_t i = 0; i < KLAT_ARRAY_SIZE(status_lines); i++)
			if (!strcmp(line, status_lines[i]))
				add(object, line, "%s", value + strspn(value, " \t"));
		/* The kernel numbers each new task in every namespace, and prints a tab and the
		 * number. */
		if (!strcmp(line, "NSpid"))
			add(object, "pid_namespaces", "%d", parts_of(value, '\t'));
	}
	free(text);
}

/* What a cgroup sets for its threads. `other_file` is that of version 1. An idle group has the
 * weight 0, in version 1 the weight 3. */
static const struct setting {
	const char *file, *initial, *other_file, *other_initial, *period;
} settings[] = {
	{ "cpu.max", "max", "cpu.cfs_quota_us", "-1", "cpu.cfs_period_us" },
	{ "cpu.weight", "100", "cpu.shares", "1024", NULL },
	{ "cpu.uclamp.min", "0.00", "cpu.uclamp.min", "0.00", NULL },
	{ "cpu.uclamp.max", "max", "cpu.uclamp.max", "max", NULL },
	{ "cpuset.cpus.partition", "member", "cpuset.cpus.partition", "member", NULL },
	{ KLAT_INHERITED_RT, "0", KLAT_INHERITED_RT, "0", "cpu.rt_period_us" },
};

struct group_values {
	char text[VALUES_SIZE];
};

static bool has_file(const char *directory, const char *name)
{
	return !access(klat_path("%s/%s", directory, name), F_OK);
}

/* Whether the file has another value than a new cgroup. */
static bool read_setting(const char *directory, const char *file, const char *initial, char *text,
			 size_t size)
{
	return klat_read_line(klat_path("%s/%s", directory, file), text, size) &&
	       (strncmp(text, initial, strlen(initial)) != 0 ||
		!strchr(" ", text[strlen(initial)]));
}

static void append_value(const char *directory, const struct setting *setting,
			 struct group_values *values)
{
	const size_t length = strlen(values->text);
	char text[64], period[32];

	if (!read_setting(directory, setting->file, setting->initial, text, sizeof(text)) &&
	    !read_setting(directory, setting->other_file, setting->other_initial, text,
			  sizeof(text)))
		return;
	snprintf(values->text + length, VALUES_SIZE - length, "%s%s", length ? ", " : "", text);
	if (setting->period &&
	    klat_read_line(klat_path("%s/%s", directory, setting->period), period, sizeof(period)))
		snprintf(values->text + strlen(values->text), VALUES_SIZE - strlen(values->text),
			 " %s", period);
}

static void append_values(const char *directory, void *argument)
{
	struct group_values *values = argument;

	/* The root of version 1 shows the budget of the whole system. */
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(settings); i++)
		if (strcmp(settings[i].file, KLAT_INHERITED_RT) ||
		    !klat_cgroup_is_v1_root(directory))
			append_value(directory, &settings[i], &values[i]);
}

/* The settings of the cgroup and of its visible ancestors. */
static void add_group(json_t *object)
{
	struct group_values values[KLAT_ARRAY_SIZE(settings)] = { 0 };

	const char *const none = klat_cgroup_is_hidden() ? "unknown" : "none";

	klat_cgroups_visit("cpu", append_values, values);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(settings); i++)
		add(object, settings[i].file, "%s", *values[i].text ? values[i].text : none);
}

static const char hidden_by_mount[] = " below the top of a mount";

/* How many levels have a file or the memory controller, or lack PSI. */
struct levels {
	int weights, shares, runtimes; /* cpu.weight, cpu.shares, cpu.rt_runtime_us */
	int without_pressure;
	int memory_levels;                     /* memory.max, of version 2 */
	bool is_v1, has_v1_root, has_runtimes; /* version 1, the root of its hierarchy in sight */
	int top_without_pressure;              /* the highest level alone */
	bool has_v2_root, v2_root_has_memory;  /* version 2, with the memory controller */
};

static void count_level(const char *directory, void *argument)
{
	struct levels *levels = argument;
	char pressure[8], controllers[256];

	/* The root of version 1 has the files of a level too, but is no level. */
	levels->is_v1 |= has_file(directory, "cpu.shares");
	levels->memory_levels += has_file(directory, "memory.max");
	levels->has_runtimes |= has_file(directory, "cpu.rt_runtime_us");
	if (!has_file(directory, "cgroup.type") &&
	    klat_read_line(klat_path("%s/cgroup.controllers", directory), controllers,
			   sizeof(controllers))) {
		levels->has_v2_root = true;
		levels->v2_root_has_memory = klat_has_word(controllers, ' ', "memory");
	}
	if (klat_cgroup_is_v1_root(directory)) {
		levels->has_v1_root = true;
		return;
	}
	levels->weights += has_file(directory, "cpu.weight");
	levels->shares += has_file(directory, "cpu.shares");
	levels->runtimes += has_file(directory, "cpu.rt_runtime_us");
	/* Not the root of version 2, which has no cgroup.type. */
	if (has_file(directory, "cgroup.type")) {
		levels->top_without_pressure =
			read_setting(directory, "cgroup.pressure", "1", pressure, sizeof(pressure));
		levels->without_pressure += levels->top_without_pressure;
	}
}

/* Whether the kernel has the memory controller. /proc/cgroups does not list it without
 * CONFIG_MEMCG_V1. The root of version 2 may be out of sight: the files that can be delegated then
 * show whether the kernel was built with it. */
static bool has_memory_controller(const struct levels *levels)
{
	char *text = klat_read_file("/proc/cgroups"),
	     *files = klat_read_file("/sys/kernel/cgroup/delegate");
	const char *row = text ? strstr(text, "\nmemory\t") : NULL;
	bool has = files && strstr(files, "\nmemory.");

	if (row)
		has = strchrnul(row + 1, '\n')[-1] == '1';
	else if (levels->has_v2_root)
		has = levels->v2_root_has_memory;
	free(text);
	free(files);
	return has;
}

/* Records whether the kernel charges this process's memory to a cgroup other than the root, and to
 * how many levels. `groups` is /proc/self/cgroup. `path_note` says which levels of a path there are
 * hidden, `v2_note` says it for the files of version 2. */
static void add_memory_group(json_t *object, const char *groups, const struct levels *levels,
			     const char *path_note, const char *v2_note)
{
	const char *const v1 = groups ? strstr(groups, "memory:/") : NULL;
	const char *const note = v1 ? path_note : v2_note;
	const int depth = v1 ? parts_of(strchr(v1, '/'), '/') : levels->memory_levels;
	const bool is_child = depth || (v1 && *note);

	if (!is_child && !v1 && !has_memory_controller(levels))
		return;
	if (!is_child && !v1 && *note) {
		add(object, "memory_cgroup", "unknown");
		return;
	}
	add(object, "memory_cgroup", "%s", is_child ? "child" : "root");
	add(object, "memory_cgroup_depth", "%d%s", depth, note);
}

/*
 * How far the cgroup is from the root. A switch updates pressure stall information (PSI) in these
 * levels of version 2 unless cgroup.pressure is 0. The kernel schedules an ordinary task in all
 * levels with the CPU controller, and a real-time task in those with a real-time runtime.
 * A cgroup namespace other than the first one hides the levels above it.
 */
static void add_depths(json_t *object)
{
	char *text = klat_read_file("/proc/self/cgroup"), *unified;
	const char *note = "", *v1_note, *v2_note;
	struct levels levels = { 0 };

	if (klat_cgroup_is_namespaced())
		note = " below the root of a cgroup namespace";
	klat_cgroups_visit("cpu", count_level, &levels);
	unified = text ? strstr(text, "0::/") : NULL;
	v1_note = *note || levels.has_v1_root ? note : hidden_by_mount;
	v2_note = *note || levels.has_v2_root || !unified || !parts_of(unified + 3, '/')
			  ? note
			  : hidden_by_mount;
	if (levels.weights || levels.is_v1)
		add(object, "cpu_cgroup_depth", "%d%s", levels.weights + levels.shares,
		    levels.is_v1 ? v1_note : v2_note);
	if (levels.has_runtimes)
		add(object, "rt_cgroup_depth", "%d%s", levels.runtimes, v1_note);
	if (unified && !access("/proc/pressure/cpu", F_OK)) {
		int count = -levels.without_pressure;

		/* The path does not count the root of a namespace. */
		if (*note)
			count += levels.top_without_pressure;
		count += parts_of(unified + 3, '/');
		add(object, "cgroup_depth", "%d%s", count, note);
	}
	add_memory_group(object, text, &levels, note, v2_note);
	free(text);
}

/* The lowest request of other programs and drivers in /dev/cpu_dma_latency. */
static void add_latency(json_t *object)
{
	const int32_t us = klat_latency_request(KLAT_LATENCY_UNLIMITED);

	if (us == KLAT_LATENCY_UNLIMITED)
		add(object, KLAT_INHERITED_LATENCY, "none");
	else if (us >= 0)
		add(object, KLAT_INHERITED_LATENCY, "%" PRId32, us);
}

/* The largest packet on the loopback device, where transport sends. */
static void add_mtu(json_t *object)
{
	const int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo" };

	if (file >= 0 && !ioctl(file, SIOCGIFMTU, &request))
		add(object, "lo_mtu", "%d", request.ifr_mtu);
	if (file >= 0)
		close(file);
}

/* A time slice and a utilization clamp that somebody requested. The kernel does not tell a
 * requested slice from its default: request the default, read it, and restore the slice. */
static void add_scheduling(json_t *object)
{
	/* Kernels before 5.3 have no clamps, and write no value for them. */
	struct klat_scheduling inherited = { 0 }, ordinary;

	if (!klat_scheduling_read(0, &inherited))
		return;
	/* By default a real-time thread has the highest clamp. Without clamps, both are 0. */
	if (inherited.util_max && (inherited.util_min > 0 || inherited.util_max < 1024) &&
	    !(inherited.priority && inherited.util_min == 1024))
		add(object, "uclamp", "%u to %u", inherited.util_min, inherited.util_max);
	else
		add(object, "uclamp", "none");
	if (inherited.policy != SCHED_OTHER && inherited.policy != SCHED_BATCH)
		return;
	ordinary = inherited;
	ordinary.runtime = 0;
	if (syscall(SYS_sched_setattr, 0, &ordinary, 0) || !klat_scheduling_read(0, &ordinary))
		return;
	if (ordinary.runtime == inherited.runtime) {
		add(object, "slice_ns", "none");
		return;
	}
	syscall(SYS_sched_setattr, 0, &inherited, 0);
	add(object, "slice_ns", "%" PRIu64, inherited.runtime);
}

static void add_memory(json_t *object)
{
	enum {
		GET_SPECULATION_CTRL = 52,
		SPEC_L1D_FLUSH = 2,
		SPEC_ENABLED = 1 | 2, /* PR_SPEC_PRCTL, PR_SPEC_ENABLE */
		GET_MEMORY_MERGE = 68
	};
	const int merge = prctl(GET_MEMORY_MERGE, 0, 0, 0, 0),
		  flush = prctl(GET_SPECULATION_CTRL, SPEC_L1D_FLUSH, 0, 0, 0);
	unsigned long nodes[64] = { 0 };
	int mode;

	if (merge >= 0)
		add(object, "memory_merge", "%d", merge != 0);
	if (flush >= 0)
		add(object, "L1D_flush", "%d", flush == SPEC_ENABLED);
	if (syscall(SYS_get_mempolicy, &mode, nodes, sizeof(nodes) * 8, NULL, 0))
		return;
	if (mode)
		add(object, "mempolicy", "mode %d, nodes %#lx", mode, nodes[0]);
	else
		add(object, "mempolicy", "none");
}

/* Autogroups share the CPU by the nice values of the groups. */
static void add_autogroup(json_t *object)
{
	char enabled[8], group[64];
	int nice = 0;

	if (klat_read_line("/proc/sys/kernel/sched_autogroup_enabled", enabled, sizeof(enabled)) &&
	    strcmp(enabled, "0") && klat_read_line("/proc/self/autogroup", group, sizeof(group)))
		sscanf(group, "/autogroup-%*u nice %d", &nice);
	add(object, "autogroup_nice", "%d", nice);
}

json_t *klat_inherited(void)
{
	json_t *object = json_object();
	struct rlimit limit;
	int nice, execution = personality(0xffffffff);

	errno = 0;
	nice = getpriority(PRIO_PROCESS, 0);
	if (!errno)
		add(object, "nice", "%d", nice);
	if (execution != -1)
		add(object, "personality", "%#x", (unsigned)execution);
	if (!getrlimit(RLIMIT_CPU, &limit) && limit.rlim_cur != RLIM_INFINITY)
		add(object, "cpu_limit", "%llu", (unsigned long long)limit.rlim_cur);
	else
		add(object, "cpu_limit", "none");
	add_autogroup(object);
	add_status(object);
	add_scheduling(object);
	add_memory(object);
	add_group(object);
	add_depths(object);
	add_latency(object);
	add_mtu(object);
	klat_security_add(object);
	klat_sharing_add(object);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(variables); i++)
		add(object, variables[i], "%s", getenv(variables[i]) ?: "none");
	return object;
}

/* The build id in the notes of a segment: the first 8 bytes. */
static bool print_build_id(FILE *out, const char *notes, size_t size)
{
	while (size >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const void *)notes;
		const size_t name = (note->n_namesz + 3) & ~3u,
			     length = sizeof(*note) + name + ((note->n_descsz + 3) & ~3u);
		const unsigned char *id = (const unsigned char *)(note + 1) + name;

		if (length > size)
			return false;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
		    !memcmp(note + 1, "GNU", 4)) {
			fputc(' ', out);
			for (size_t i = 0; i < note->n_descsz && i < 8; i++)
				fprintf(out, "%02x", id[i]);
			return true;
		}
		notes += length;
		size -= length;
	}
	return false;
}

/* The length of a path without its name. It skips /usr: its directories are often those of /. */
static size_t directory_of(const char **path)
{
	*path += strncmp(*path, "/usr/", 5) ? 0 : 4;
	return strrchr(*path, '/') - *path;
}

/*
 * Libraries that no timed code calls, and the linker, which belongs to the C library. Outside the C
 * library's directory, a library of such a name can define functions that timed code calls.
 */
static bool is_untimed(const struct dl_phdr_info *library, const char *name)
{
	static const char *const prefixes[] = { "libjansson.so", "libm.so", "libmd.so",
						"libnuma.so" };
	const char *path = library->dlpi_name;
	const size_t length = directory_of(&path);
	Dl_info libc;

	if (!strncmp(name, "ld-linux", 8))
		return library->dlpi_addr == getauxval(AT_BASE);
	if (!dladdr(stdout, &libc) || !strchr(libc.dli_fname, '/') ||
	    directory_of(&libc.dli_fname) != length || strncmp(path, libc.dli_fname, length) != 0)
		return false;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static int print_library(struct dl_phdr_info *info, size_t size, void *out)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	char hash[SHA256_DIGEST_STRING_LENGTH];
	bool has_id = false;

	(void)size;
	/* The program has no name here, and the vDSO has no path. */
	if (!slash || is_untimed(info, slash + 1))
		return 0;
	fprintf(out, "%s%s", ftell(out) ? ", " : "", slash + 1);
	for (int i = 0; i < info->dlpi_phnum && !has_id; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		has_id = segment->p_type == PT_NOTE &&
			 print_build_id(out, (const char *)info->dlpi_addr + segment->p_vaddr,
					segment->p_memsz);
	}
	if (!has_id && SHA256File(info->dlpi_name, hash))
		fprintf(out, " %.16s", hash);
	return 0;
}

json_t *klat_libraries(void)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	json_t *libraries;

	if (!out)
		return NULL;
	dl_iterate_phdr(print_library, out);
	fclose(out);
	libraries = json_stringn(text, strnlen(text, 4000));
	free(text);
	return libraries ?: json_string("not UTF-8");
}
