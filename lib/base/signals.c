/* SPDX-License-Identifier: MIT */
/*
 * The signals that end a program. They are blocked, so that a run is recorded whole or not at all,
 * and taken in two places: where the program waits for the measured process (klat_signals_wait()),
 * and where it waits for anything else (between klat_signals_open() and klat_signals_close()).
 */
#include "base/base.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const int ending[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
static sigset_t held, before;
static char farewell[128];

static void say_farewell(void)
{
	ssize_t written = write(STDERR_FILENO, farewell, strlen(farewell));

	(void)written;
}

static void on_ending(int number)
{
	say_farewell();
	/* SA_RESETHAND: its default action follows when this handler returns. */
	raise(number);
}

void klat_signals_hold(const struct klat_run *run)
{
	snprintf(farewell, sizeof(farewell), "%s: interrupted, nothing recorded\n",
		 run->benchmark->name);
	signal(SIGCHLD, SIG_DFL);
	/* A write beyond the limit on file sizes then fails, as on a full disk. */
	signal(SIGXFSZ, SIG_IGN);
	sigemptyset(&held);
	sigaddset(&held, SIGCHLD);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(ending); i++) {
		struct sigaction action;

		/* One that the caller ignores (nohup) stays ignored: blocked, it would become
		 * pending. */
		if (!sigaction(ending[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&held, ending[i]);
	}
	sigprocmask(SIG_BLOCK, &held, &before);
}

void klat_signals_release(void)
{
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void set_handlers(void (*handler)(int number))
{
	const struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESETHAND };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(ending); i++)
		if (sigismember(&held, ending[i]))
			sigaction(ending[i], &action, NULL);
}

void klat_signals_open(void)
{
	set_handlers(on_ending);
	klat_signals_release();
}

void klat_signals_close(void)
{
	sigprocmask(SIG_BLOCK, &held, NULL);
	set_handlers(SIG_DFL);
}

void klat_signals_ignore(void)
{
	set_handlers(SIG_IGN);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(ending); i++)
		sigdelset(&held, ending[i]);
}

int klat_signals_wait(const struct timespec *limit)
{
	const int number = sigtimedwait(&held, NULL, limit);

	return number > 0 ? number : errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

void klat_signals_end(int number)
{
	say_farewell();
	signal(number, SIG_DFL);
	raise(number);
	klat_signals_release();
	_exit(128 + number);
}
