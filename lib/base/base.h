/* SPDX-License-Identifier: MIT */
/* Files, locks, signals, clocks, and the status of a run. */
#ifndef KLAT_BASE_H
#define KLAT_BASE_H

#include "klat.h"

#include <sys/param.h>

#ifndef KLAT_VERSION
#define KLAT_VERSION "unknown"
#endif
#ifndef KLAT_COMMIT
#define KLAT_COMMIT "unknown"
#endif

#define KLAT_REASON_SIZE 512

/* status.c */
struct klat_outcome {
	enum klat_status status;
	char reason[KLAT_REASON_SIZE];
};

/* Whether the run was neither skipped nor failed: then it is judged, printed and recorded. */
static inline bool klat_has_result(const struct klat_run *run)
{
	return run->outcome->status < KLAT_SKIPPED;
}

const char *klat_status_name(enum klat_status status);
/* The gravest status wins. Reasons of the same status are joined, each once. */
void klat_invalid(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
void klat_disturbed(struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);
/* One line on stderr, prefixed with the program's name. */
void klat_warn(const struct klat_run *run, const char *format, ...) KLAT_PRINTF(2, 3);

/* proc.c */
/* A path, formatted as by printf(). It is valid until the end of the enclosing block; the body of
 * an if or a loop without braces is a block, too. */
enum { KLAT_PATH_SIZE = 4352 };
#define klat_path(...) klat_print_path((char[KLAT_PATH_SIZE]){ "" }, __VA_ARGS__)
const char *klat_print_path(char path[KLAT_PATH_SIZE], const char *format, ...) KLAT_PRINTF(2, 3);
/* A whole file, for example of /proc or /sys, malloc'ed; NULL if it cannot be read. */
char *klat_read_file(const char *path);
/* The first line of a file, without newline. False, with an empty line, if it cannot be read. */
bool klat_read_line(const char *path, char *line, size_t size);
/* The number at `*text`, which then moves behind it. Blanks and a colon may precede it. -1 if there
 * is none, or if it is too large. */
int64_t klat_next_count(const char **text);
/* The only number of a file. -1 if there is none. */
int64_t klat_read_count(const char *path);
/* A number of /proc/PID/stat. `field` is its place in proc_pid_stat(5), 4 or higher. -1 if it
 * cannot be read. */
int64_t klat_read_stat_field(pid_t pid, int field);
/* False for a file of another file system, which covers the kernel's. */
bool klat_is_in_proc(const char *path);
/* /proc/stat, malloc'ed. NULL if it cannot be read, or if another file system covers it: lxcfs
 * shows a container's own times there, under other numbers of CPUs. */
char *klat_read_stat(void);

/* Whether `word` is in a list with this separator. A newline can end the list. */
bool klat_has_word(const char *list, char separator, const char *word);
/* Continue a hash (FNV) with a text, which may be NULL. */
uint64_t klat_hash(uint64_t hash, const char *text);
/* For qsort(): ascending by a uint64_t, which may be the first member of a struct. */
int klat_compare_values(const void *a, const void *b);

enum {
	KLAT_STAT_TIMES = 8 /* user, nice, system, idle, iowait, irq, softirq, steal */
};

/* The times of "cpu3 25 0 ...". False for another line, and for a kernel that does not count. */
bool klat_stat_line(const char *line, int *cpu, int64_t times[static KLAT_STAT_TIMES]);

/* files.c */
/* Open a directory in another one. make() makes a missing one. A descriptor, or -errno: -ELOOP for
 * a link. */
int klat_directory_enter(int directory, const char *name);
int klat_directory_make(int directory, const char *name);
/*
 * Open a regular file below `directory` without following a link. `flags` may hold O_CREAT, which
 * makes missing directories as well, and O_TRUNC. A descriptor, or -errno: klat_file_error() says
 * why, and what to do.
 */
int klat_file_open(int directory, const char *path, int flags);
const char *klat_file_error(int error);
/* The whole file, malloc'ed; -EFBIG if it is larger than `limit` bytes. */
int klat_file_read(int directory, const char *path, size_t limit, char **text, size_t *size);
/* Write a draft, sync it, rename it. An existing file keeps its owner and mode. */
int klat_file_replace(int directory, const char *name, const void *data, size_t size);
int klat_write_whole(int descriptor, const void *data, size_t size);

/* resources.c */
/* klat_allow_files() for `more` files than are open now. */
int klat_allow_more_files(struct klat_run *run, int64_t more);

/* Lift the limit on the CPU time of real-time threads that do not sleep, as far as allowed. */
void klat_lift_real_time(void);
/* klat_error() for a process of the run that a signal killed. The message names the limit that may
 * be the cause. */
int klat_killed(struct klat_run *run, const char *who, int signal, bool real_time);

/* lock.c */
/* flock() with a time limit. -EWOULDBLOCK after the limit. */
int klat_lock(int file, int limit_ms);
/* "process 1234 (name)", or "another process" if it is unknown. */
void klat_lock_holder(int file, char *text, size_t size);

/* signals.c */
void klat_signals_hold(const struct klat_run *run);
/* As before klat_signals_hold(). */
void klat_signals_release(void);
/* Between the two, a signal ends the program at once. */
void klat_signals_open(void);
void klat_signals_close(void);
/* Ignore the signals that end the program, from now on. */
void klat_signals_ignore(void);
/* Wait for a signal: its number, SIGCHLD among them, 0 after `limit`, or -errno. */
int klat_signals_wait(const struct timespec *limit);
/* Say that nothing was recorded, and end by this signal. */
_Noreturn void klat_signals_end(int number);

#endif
