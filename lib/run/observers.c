/* SPDX-License-Identifier: MIT */
/* Programs that observe the run, so that its samples contain their work: perf, and tracers. */
#include "run/run.h"

#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the process has opened a perf event. */
static bool has_perf_event(pid_t pid)
{
	DIR *directory = opendir(klat_path("/proc/%d/fd", pid));
	const struct dirent *entry;
	bool found = false;

	while (directory && !found && (entry = readdir(directory))) {
		char target[32];
		ssize_t size =
			readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);

		target[size > 0 ? size : 0] = 0;
		found = !strcmp(target, "anon_inode:[perf_event]");
	}
	if (directory)
		closedir(directory);
	return found;
}

/* perf counts or traces its child processes and their descendants. */
static void judge_profiler(struct klat_run *run)
{
	bool profiled = false;

	for (pid_t pid = getppid(); pid > 1 && !profiled; pid = klat_read_stat_field(pid, 4))
		profiled = has_perf_event(pid);
	if (profiled)
		klat_invalid(run, "a profiler (perf) observes this process (run it without perf)");
}

/* Daemons trace these events all the time: errors of hardware and of devices (rasdaemon). A run
 * causes none of them. */
static bool is_of_daemons(const char *event)
{
	static const char *const names[] = {
		"ras:",
		"memory_failure:",
		"mce:",
		"cxl:",
		"devlink:",
		"block:",
		"net:net_dev_xmit_timeout",
		"signal:signal_generate",
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++)
		if (!strncmp(event, names[i], strlen(names[i])))
			return true;
	return false;
}

/* Whether the kernel walks the stack at each such event, which takes longer than short events: by
 * an option of the trace, or by a trigger of the event (`system:name`). */
static bool has_stacks(const char *directory, const char *event)
{
	const int system = (int)strcspn(event, ":");
	char option[8], *triggers, *rest, *line;
	bool found = false;

	if (klat_read_line(klat_path("%s/options/stacktrace", directory), option, sizeof(option)) &&
	    !strcmp(option, "1"))
		return true;
	if (!event[system])
		return false;
	triggers = klat_read_file(klat_path("%s/events/%.*s/%s/trigger", directory, system, event,
					    event + system + 1));
	for (rest = triggers; !found && (line = strsep(&rest, "\n"));)
		found = !strncmp(line, "stacktrace", strlen("stacktrace"));
	free(triggers);
	return found;
}

/* The number of events that this trace has recorded on the run's CPUs. */
static int64_t events_of(const struct klat_run *run, const char *directory)
{
	static const char *const parts[] = { "entries", "\noverrun", "\nread events" };
	int64_t sum = 0;

	klat_for_each_cpu(cpu, run) {
		const char *path = klat_path("%s/per_cpu/cpu%d/stats", directory, cpu);

		for (size_t i = 0; i < KLAT_ARRAY_SIZE(parts); i++)
			sum += MAX(0, klat_count_in(path, parts[i]));
	}
	return sum;
}

/* set_event lists the events that the kernel's trace, or one of its instances, contains, also those
 * with a trigger. If every second sample contains an event, the median contains its time. */
static void judge_events(struct klat_run *run, const char *directory)
{
	char *events = klat_read_file(klat_path("%s/set_event", directory)), *rest = events, *event,
	     *example = NULL;
	bool stacks = false;

	while (!stacks && (event = strsep(&rest, "\n")))
		if (*event && !is_of_daemons(event)) {
			stacks = has_stacks(directory, event);
			example = stacks || !example ? event : example;
		}
	if (stacks)
		klat_invalid(run, "the kernel records stacks at events, for example %s (see %s)",
			     example, klat_path("%s/set_event", directory));
	else if (example)
		(2 * run->library->traced_events >= klat_observed(run)
			 ? klat_invalid
			 : klat_disturbed)(run, "the kernel traces events, for example %s (see %s)",
					   example, klat_path("%s/set_event", directory));
	free(events);
}

static void judge_tracer(struct klat_run *run, const char *directory)
{
	const char *path = klat_path("%s/current_tracer", directory);
	char tracer[64];

	if (klat_read_line(path, tracer, sizeof(tracer)) && strcmp(tracer, "nop") != 0)
		klat_invalid(run, "the kernel's tracer %s is on (write nop to %s)", tracer, path);
}

/* Whether the system itself traces this function. systemd and the drivers of input devices attach
 * BPF programs to such functions; the last two names are systemd-nsresourced's. A livepatch (flag
 * I) changes the kernel itself: see `livepatch` in docs/session.md. */
static bool is_of_system(const char *function)
{
	static const char *const attached[] = { "bpf_lsm_", "__hid_bpf_", "free_user_ns ",
						"retire_userns_sysctls " };
	const char *flags = strstr(function, ") ");

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(attached); i++)
		if (!strncmp(function, attached[i], strlen(attached[i])))
			return true;
	return flags && !strncmp(flags + 3, " I", 2);
}

/* The functions at whose start the kernel calls something else: a tracer, a probe, or BPF. No event
 * shows them. */
static void judge_functions(struct klat_run *run, const char *directory)
{
	const char *path = klat_path("%s/enabled_functions", directory);
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	bool judged = false;

	while (file && !judged && getline(&line, &size, file) > 0) {
		judged = !is_of_system(line);
		if (judged)
			klat_disturbed(run,
				       "the kernel traces functions, for example %.*s (see %s)",
				       (int)strcspn(line, " \n"), line, path);
	}
	if (file)
		fclose(file);
	free(line);
}

/* Call this function for the kernel's trace and each instance, without that of a traced run. */
static void visit_traces(const struct klat_run *run,
			 void (*visit)(const char *directory, void *argument), void *argument)
{
	const char *instance = run->library->common.trace_instance;
	glob_t files;

	if (glob("/sys/kernel/tracing{,/instances/*}/set_event", GLOB_BRACE, NULL, &files) &&
	    glob("/sys/kernel/debug/tracing{,/instances/*}/set_event", GLOB_BRACE, NULL, &files))
		return;
	for (size_t i = 0; i < files.gl_pathc; i++) {
		char *directory = strdupa(files.gl_pathv[i]);

		*strrchr(directory, '/') = 0;
		if (instance && !strcmp(basename(directory), basename(instance)))
			continue;
		visit(directory, argument);
	}
	globfree(&files);
}

/* Tracers, traced functions and events of other programs. */
static void judge_trace(const char *directory, void *argument)
{
	struct klat_run *run = argument;

	judge_tracer(run, directory);
	judge_functions(run, directory);
	judge_events(run, directory);
}

struct event_sum {
	const struct klat_run *run;
	int64_t events;
};

static void add_events(const char *directory, void *argument)
{
	struct event_sum *sum = argument;
	char first[2];

	if (klat_read_line(klat_path("%s/set_event", directory), first, sizeof(first)))
		sum->events = MAX(0, sum->events) + events_of(sum->run, directory);
}

/* How many events other traces have had from the run's CPUs; -1 if no trace has events. */
static int64_t events_until_now(const struct klat_run *run)
{
	struct event_sum sum = { .run = run, .events = -1 };

	visit_traces(run, add_events, &sum);
	return sum.events;
}

/* Before the workers begin. */
void klat_observers_take(struct klat_run *run)
{
	run->library->is_event_traced = events_until_now(run) >= 0;
}

/* `sign` is -1 where the observed part of a worker begins, and 1 where it ends. */
void klat_observers_count(const struct klat_worker *worker, int sign)
{
	struct klat_library *library = worker->run->library;

	if (library->is_event_traced && worker == library->pairs->workers)
		library->traced_events += sign * events_until_now(worker->run);
}

void klat_observers_judge(struct klat_run *run)
{
	judge_profiler(run);
	visit_traces(run, judge_trace, run);
}
