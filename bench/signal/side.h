/* SPDX-License-Identifier: MIT */
/* The options, and one side of a round trip: how it sends and how it receives. */
#ifndef SIGNAL_SIDE_H
#define SIGNAL_SIDE_H

#include "klat.h"

#include <signal.h>

enum { SENDER, RECEIVER }; /* workers */
enum { TGKILL, KILL, SIGQUEUE, PIDFD };
enum { SIGWAITINFO, HANDLER, SIGNALFD };

extern struct options {
	int send, receive, process;
} options;

struct side;

/* The call fails with -1 and errno. */
typedef int (*send_fn)(const struct side *side, int value);

struct side {
	send_fn send;
	int (*receive)(struct side *side); /* 0 or -errno */
	int number, fd;                    /* of its own signal; a signalfd */
	sigset_t set, others;              /* its own signal; what sigsuspend() blocks */
	pid_t pid;                         /* of its process; 0 until that has started */
	int target_number, target_fd;      /* the other side's */
	pid_t target_pid, target_tid;
	volatile int received, code, from, value; /* the last signal that it received */
} KLAT_ALIGNED;

/* For setup(): both sides, before any worker starts. 0 or -errno. */
int sides_prepare(const struct klat_run *run, struct side sides[2]);
/* For a worker, before its loop: 0 or -errno. */
int side_aim(struct side *side, pid_t pid, pid_t tid);
/* The function that sends by this call. */
send_fn send_by(int way);
/* The return value of a worker whose loop ended with `err`. */
int side_end(struct klat_run *run, int err);
/* Whether the last signal is not the one that the other side sent with this value. */
bool side_has_mismatch(const struct side *side, int value);
/* Whether a further signal of this side is pending. */
bool side_has_pending(const struct side *side);

#endif
