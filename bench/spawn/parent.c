/* SPDX-License-Identifier: MIT */
/*
 * The parent: it starts a child and waits for it.
 *
 * Trap: after a fork each page that parent or child writes is copied at its first fault. These
 * faults belong to the event, in both. Memory that was locked or prefaulted faults as well. Stacks
 * begin at a random address, and the frames of a loop would be on one page or on two. So the loop
 * begins near the top of a page, and what it writes to is at a fixed place.
 */
#include "spawn.h"

#include <alloca.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* The child's id, 0 for a thread, or -errno. */
static inline __attribute__((always_inline)) int start_child(struct birth *birth, int what)
{
	pid_t pid;

	if (what == VFORK || what == CLONE)
		return clone_child(birth, what == VFORK ? CLONE_VFORK : 0);
	if (what == THREAD)
		return -pthread_create(&birth->thread, &birth->attributes, child_main, birth);
	if (what == POSIX_SPAWN)
		return -posix_spawn(&pid, "/proc/self/exe", NULL, NULL, birth->arguments,
				    no_environment)
			       ?: pid;
	if (what == CALL) {
		child_main(birth);
		return 0;
	}
	pid = fork();
	if (pid)
		return pid < 0 ? -errno : pid;
	if (what == EXEC)
		child_execute(birth);
	child_main(birth);
	return 0;
}

/* The status with which the child ended, or -errno. */
static inline __attribute__((always_inline)) int reap(const struct birth *birth, int what, int pid,
						      bool leaves)
{
	siginfo_t info;
	void *code = (void *)(intptr_t)birth->code;
	int status;

	if (what == CALL)
		return birth->code;
	if (what == THREAD)
		return -pthread_join(birth->thread, &code) ?: (intptr_t)code;
	if (leaves)
		return waitid(P_PID, pid, &info, WEXITED | WNOWAIT) ? -errno : info.si_status;
	if (waitpid(pid, &status, 0) != pid)
		return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : CODES;
}

static void examine(struct klat_worker *worker, const struct birth *birth, int64_t number, int pid,
		    int code)
{
	struct state *state = worker->state;
	const struct child *child = state->child;
	struct counts *counts = &state->counts;
	const bool shares =
		options.what == VFORK || options.what == CLONE || options.what == THREAD;

	counts->children++;
	counts->strangers += child->pid == worker->tid || child->pid == state->last ||
			     (pid && child->pid != pid);
	counts->misended += code != number % CODES;
	counts->misnumbered += child->number != number;
	counts->misplaced += (birth->number == -1) != shares;
	state->last = child->pid;
	worker->strayed |= child->cpu_identity ^ worker->cpu_identity;
}

static int fail(struct klat_worker *worker, int pid, int code)
{
	const struct state *state = worker->state;

	if (pid < 0)
		return klat_cannot_start(worker->run, -pid, "a child");
	return state->child->error ? klat_error(worker->run, state->child->error,
						"cannot execute /proc/self/exe: %m")
				   : code;
}

static inline __attribute__((always_inline)) int
spawn_children(struct klat_worker *worker, struct birth *birth, const int what, const bool leaves)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *start = klat_series(run, START, 0), *reaped = klat_series(run, REAPED, 0);
	const bool wrong = klat_planted(run, "status");
	int64_t number = 0;

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++, number++) {
		uint64_t begin, end;
		int pid, code;

		if (klat_observed_from(worker, i))
			state->faults = -klat_thread_usage().ru_minflt;
		birth->number = number;
		birth->code = (number + wrong) % CODES;
		if (what == POSIX_SPAWN || what == EXEC)
			snprintf(birth->arguments[2], NUMBER_SIZE, "%lld", (long long)number);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		pid = start_child(birth, what);
		code = pid < 0 ? pid : reap(birth, what, pid, leaves);
		end = klat_stamp_end(worker);
		if (code < 0 || state->child->error)
			return fail(worker, pid, code);
		start[i] = state->child->began - begin;
		reaped[i] = end - begin;
		klat_sample_ended(worker, start, state->child->began);
		klat_sample_ended(worker, reaped, end);
		examine(worker, birth, number, pid, code);
		if (run->soak)
			worker->children_ns = children_ns();
	}
	return 0;
}

/* Each loop has its own code. */
static __attribute__((noinline)) int spawn_all(struct klat_worker *worker, struct birth *birth)
{
	const bool leaves = klat_planted(worker->run, "unreaped");

	if (klat_planted(worker->run, "call"))
		return spawn_children(worker, birth, CALL, false);
	switch (options.what) {
	case FORK:
		return leaves ? spawn_children(worker, birth, FORK, true)
			      : spawn_children(worker, birth, FORK, false);
	case VFORK:
		return spawn_children(worker, birth, VFORK, false);
	case CLONE:
		return spawn_children(worker, birth, CLONE, false);
	case THREAD:
		return spawn_children(worker, birth, THREAD, false);
	case POSIX_SPAWN:
		return spawn_children(worker, birth, POSIX_SPAWN, false);
	default:
		return spawn_children(worker, birth, EXEC, false);
	}
}

/* These pages must not fault between the two counts of faults: the library writes to them. */
__attribute__((no_sanitize("address", "thread"))) static void touch_stack(char *frame)
{
	for (int at = -512; at <= 1024; at += 512)
		__atomic_fetch_or(frame + at, 0, __ATOMIC_RELAXED);
}

int parent(struct klat_worker *worker)
{
	struct state *state = worker->state;
	const int what = options.what;
	/* Not on the stack: see above. */
	static struct birth birth;
	char *padding;
	int64_t started;
	int err =
		birth_prepare(&birth, state->descriptor)
			?: resident_make(worker, options.resident, options.huge, &state->resident);

	if (err)
		return err;
	birth.child = state->child;
	if (what == FORK || what == EXEC)
		worker->other_faults = 0;
	birth.is_leaving = what != THREAD && !klat_planted(worker->run, "call");
	/* The library's handler would run at the end of each child. */
	signal(SIGCHLD, SIG_DFL);
	started = klat_count_in("/proc/stat", "\nprocesses");
	padding = alloca(1 + ((uintptr_t)__builtin_frame_address(0) - PAGE * 3 / 4) % PAGE);
	__atomic_store_n(padding, 0, __ATOMIC_RELAXED);
	err = spawn_all(worker, &birth);
	state->started = started < 0 ? -1 : klat_count_in("/proc/stat", "\nprocesses") - started;
	while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		state->left++;
	worker->children_ns = children_ns();
	touch_stack(__builtin_frame_address(0));
	state->faults += klat_thread_usage().ru_minflt;
	if (what == FORK || what == EXEC)
		worker->expected_faults = state->faults;
	return err;
}
