/* SPDX-License-Identifier: MIT */
/* The status of a run, with the reasons for it, and messages on stderr. */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

const char *klat_status_name(enum klat_status status)
{
	static const char *const names[] = { "ok", "disturbed", "invalid", "skipped", "error" };

	return names[status];
}

/* User input may contain a newline; a message is one line. */
static void say(const struct klat_run *run, const char *format, va_list arguments, const char *end)
{
	char line[KLAT_REASON_SIZE + 256];

	vsnprintf(line, sizeof(line), format, arguments);
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	fprintf(stderr, "%s: %s%s\n", run->benchmark->name, line, end);
}

void klat_warn(const struct klat_run *run, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(run, format, arguments, "");
	va_end(arguments);
}

static void set_status(struct klat_run *run, enum klat_status status, const char *format,
		       va_list arguments)
{
	struct klat_outcome *outcome = run->outcome;
	char reason[KLAT_REASON_SIZE];
	size_t length;

	if (status < outcome->status)
		return;
	vsnprintf(reason, sizeof(reason), format, arguments);
	/* A semicolon separates the reasons of a run. An error has one reason. */
	for (char *c = reason; status < KLAT_SKIPPED && (c = strchr(c, ';'));)
		*c = ',';
	if (status > outcome->status)
		outcome->reason[0] = 0;
	outcome->status = status;
	if (strstr(outcome->reason, reason))
		return;
	length = strlen(outcome->reason);
	snprintf(outcome->reason + length, sizeof(outcome->reason) - length, "%s%s",
		 length ? "; " : "", reason);
}

#define SET_STATUS(status)                                                                         \
	do {                                                                                       \
		va_list arguments;                                                                 \
                                                                                                   \
		va_start(arguments, format);                                                       \
		set_status(run, status, format, arguments);                                        \
		va_end(arguments);                                                                 \
	} while (0)

void klat_invalid(struct klat_run *run, const char *format, ...)
{
	SET_STATUS(KLAT_INVALID);
}

void klat_disturbed(struct klat_run *run, const char *format, ...)
{
	SET_STATUS(KLAT_DISTURBED);
}

int klat_skip(struct klat_run *run, const char *format, ...)
{
	SET_STATUS(KLAT_SKIPPED);
	return -ENOTSUP;
}

int klat_error(struct klat_run *run, int error, const char *format, ...)
{
	char advised[KLAT_REASON_SIZE];

	/* A call that the kernel lacks or forbids, or that a seccomp filter refuses. */
	if ((error == ENOSYS || error == EPERM) && !strchr(format, ';')) {
		snprintf(advised, sizeof(advised),
			 "%s; a container or service may refuse a system call (seccomp): strace -f "
			 "shows which one",
			 format);
		format = advised;
	}
	errno = error;
	SET_STATUS(KLAT_ERROR);
	return error ? -error : -EIO;
}

int klat_cannot_start(struct klat_run *run, int error, const char *what)
{
	if (error == EAGAIN || error == ENOMEM)
		return klat_skip(run,
				 "cannot start %s: a limit (ulimit -u, pids.max, "
				 "kernel.threads-max) or memory is exhausted",
				 what);
	return klat_error(run, error, "cannot start %s: %m", what);
}

int klat_usage(struct klat_run *run, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(run, format, arguments, "; see --help");
	va_end(arguments);
	return -EINVAL;
}
