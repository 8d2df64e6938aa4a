/* SPDX-License-Identifier: MIT */
/*
 * A process, or a thread, from its start to its end, on one CPU.
 *
 * Timed: what `metrics` says. The child inherits the CPU and the policy of the parent.
 * Not timed: the parent's memory, the arguments of the executed program.
 *
 * Traps:
 * - The child gets the CPU when the parent waits. So `start` contains the parent's return from the
 *   call and its way into waitpid() or pthread_join(), except where the kernel stops the parent
 *   until then (vfork, posix_spawn).
 * - After a fork each page that parent or child writes is copied at its first fault. These faults
 *   belong to the event, in both. Memory that was locked or prefaulted faults as well. Stacks begin
 *   at a random address, and the frames of a loop would be on one page or on two. So the loop
 *   begins near the top of a page, and what it writes to is at a fixed place.
 */
#include "spawn.h"

#include <alloca.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the parent, for each fork. */
enum { MOST_FAULTS = 64, PAGE = 4096 };

static struct options {
	int64_t resident;
	int what, huge;
} options = { .resident = 1 };

struct state {
	struct child *child; /* mapped by all processes */
	int descriptor;
	struct resident resident;
	int64_t children;                         /* reaped, warm-up included */
	int64_t strangers, misended, misnumbered; /* of another process, status, iteration */
	int64_t misplaced; /* children that share memory and should not, or the reverse */
	int64_t left;      /* children that were not reaped */
	int64_t started;   /* processes and threads by the kernel's count; -1: unknown */
	int64_t faults;    /* of the parent, observed */
	int32_t last;      /* the child before */
};

static const struct klat_option option_table[] = {
	{ "what",
	  "fork: fork(); vfork: a process in the parent's memory, until whose end the parent "
	  "stops; clone: the same while the parent goes on; thread: pthread_create(); "
	  "posix_spawn: a program; exec: fork() and execve()",
	  KLAT_CHOICE(what, "fork", "vfork", "clone", "thread", "posix_spawn", "exec") },
	{ "resident", "memory that the parent has written to", KLAT_INTEGER(resident, 0, 1 << 20),
	  .argument = "MB" },
	{ "huge", "that memory has huge pages", KLAT_CHOICE(huge, "no", "yes") },
};

static const struct klat_metric metrics[] = {
	[START] = { "start", "call until the child's first stamp", .path_length = true,
		    KLAT_WINDOWS("spawn_children", "child_main begin_program"),
		    .taken_by = "parent",
		    .untraceable = "the child takes its end stamp; explain reaped" },
	[REAPED] = { "reaped", "call until the child has ended and is waited for",
		     .path_length = true, KLAT_WITHIN("spawn_children", "parent") },
};

static int configure(struct klat_run *run)
{
	if (klat_planted(run, "unreaped"))
		options.what = FORK;
	if (options.huge && !options.resident)
		return klat_usage(run, "--huge yes needs --resident");
	run->patience += options.resident / 256;
	klat_use_metric(run, START, 1);
	klat_use_metric(run, REAPED, 1);
	klat_cannot_trace(run, START);
	return 0;
}

/* The child's id, 0 for a thread, or -errno. */
static inline __attribute__((always_inline)) int start_child(struct birth *birth, int what)
{
	pid_t pid;

	if (what == VFORK || what == CLONE)
		return clone_child(birth, what == VFORK ? CLONE_VFORK : 0);
	if (what == THREAD)
		return -pthread_create(&birth->thread, NULL, child_main, birth);
	if (what == POSIX_SPAWN)
		return -posix_spawn(&pid, "/proc/self/exe", NULL, NULL, birth->arguments, environ)
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
	const bool shares =
		options.what == VFORK || options.what == CLONE || options.what == THREAD;

	state->children++;
	state->strangers += child->pid == worker->tid || child->pid == state->last ||
			    (pid && child->pid != pid);
	state->misended += code != number % CODES;
	state->misnumbered += child->number != number;
	state->misplaced += (birth->number == -1) != shares;
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

/* The library, which reads the count of faults next, writes to the stack above and below. */
__attribute__((no_sanitize("address", "thread"))) static void own_stack(char *frame)
{
	for (int at = -512; at <= 1024; at += 512)
		__atomic_fetch_or(frame + at, 0, __ATOMIC_RELAXED);
}

static int64_t nanoseconds(struct timeval time)
{
	return time.tv_sec * 1000000000 + time.tv_usec * 1000;
}

static int parent(struct klat_worker *worker)
{
	struct state *state = worker->state;
	const int what = options.what;
	/* Not on the stack: see above. */
	static struct birth birth;
	struct rusage usage;
	char *padding;
	int64_t started;
	int err =
		birth_prepare(&birth, state->descriptor)
			?: resident_make(worker, options.resident, options.huge, &state->resident);

	if (err)
		return err;
	birth.child = state->child;
	birth.is_leaving = what != THREAD && !klat_planted(worker->run, "call");
	/* The library's handler would run at the end of each child. */
	signal(SIGCHLD, SIG_DFL);
	started = klat_count_in("/proc/stat", "\nprocesses");
	padding = alloca(((uintptr_t)__builtin_frame_address(0) - PAGE * 3 / 4) % PAGE);
	__atomic_store_n(padding, 0, __ATOMIC_RELAXED);
	err = spawn_all(worker, &birth);
	state->started = started < 0 ? -1 : klat_count_in("/proc/stat", "\nprocesses") - started;
	while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
		state->left++;
	getrusage(RUSAGE_CHILDREN, &usage);
	worker->children_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
	own_stack(__builtin_frame_address(0));
	state->faults += klat_thread_usage().ru_minflt;
	if (what == FORK || what == EXEC)
		worker->expected_faults = state->faults;
	return err;
}

/*
 * A process of one thread, as most programs that fork are. In a program of several threads, a child
 * of posix_spawn() that ends soon would wake another thread: its signal comes while the parent has
 * blocked all signals.
 */
static const struct klat_worker workers[] = {
	/* It sleeps until the program begins, and until the child has ended. */
	{ "parent", .body = parent, .spins = KLAT_ALWAYS, .sleeps = KLAT_MOSTLY, .most_sleeps = 2,
	  .process = true },
};

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	int err = klat_need_memory(run, options.resident << 20);

	if (err)
		return err;
#ifdef __SANITIZE_THREAD__
	if (options.what == VFORK || options.what == CLONE)
		return klat_skip(run, "this build does not support two processes in one memory");
#endif
	/* An executed program keeps the descriptor, and no memory. */
	state->descriptor = memfd_create("klat-spawn", 0);
	if (state->descriptor < 0 || ftruncate(state->descriptor, sizeof(*state->child)))
		return klat_error(run, errno, "cannot make memory that a program inherits: %m");
	state->child = mmap(NULL, sizeof(*state->child), PROT_READ | PROT_WRITE, MAP_SHARED,
			    state->descriptor, 0);
	if (state->child == MAP_FAILED)
		return klat_error(run, errno, "cannot map shared memory: %m");
	return 0;
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const int64_t made = klat_made(run), kib = options.resident << 10,
		      observed = klat_observed(run);
	const bool copies = options.what == FORK || options.what == EXEC;

	klat_require(
		run,
		{ "children", state->children, KLAT_EXACTLY, made,
		  .reason = "{got} children were waited for in {wanted} iterations" },
		{ "started", state->started, KLAT_AT_LEAST, made,
		  "the kernel started only {got} processes or threads in {wanted} iterations",
		  .unless = state->started < 0 },
		{ NULL, state->strangers, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} iterations had no new process" },
		{ NULL, state->misended, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} children ended with another status" },
		{ NULL, state->misnumbered, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} children named another iteration" },
		{ NULL, state->misplaced, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} children shared memory with the parent, or did not, "
			    "against --what" },
		{ NULL, state->left, KLAT_NEVER, .reason = "{got} children were not waited for" },
		{ "parent_faults", state->faults, copies ? KLAT_AT_MOST : KLAT_COUNTED,
		  MOST_FAULTS * observed,
		  .reason = "the parent had {got} page faults, and at most {wanted} copy what it "
			    "writes to" },
		{ "resident_kib", state->resident.kib, KLAT_AT_LEAST, kib,
		  .reason = "only {got} KiB of {wanted} were resident",
		  .unless = !kib || state->resident.kib < 0 },
		{ "huge_kib", state->resident.huge_kib, KLAT_EXACTLY, options.huge ? kib : 0,
		  .reason = "{got} KiB instead of {wanted} had huge pages",
		  .unless = !kib || state->resident.huge_kib < 0 });
}

const struct klat_benchmark klat_benchmark = {
	.name = "spawn",
	.summary = "a process or a thread, from its start to its end, on one CPU",
	.description =
		"A pinned thread starts a child, which ends at once, and waits for it. start ends "
		"at the child's first stamp, reaped when waitpid() or pthread_join() returns. The "
		"child runs on the same CPU, under the same policy. It gets the CPU when the "
		"parent waits, so start contains the parent's way into the wait. With vfork and "
		"posix_spawn the kernel stops the parent first.\n\n"
		"vfork is clone(CLONE_VM | CLONE_VFORK) on a stack of its own, as in "
		"posix_spawn(); clone is the same without CLONE_VFORK. posix_spawn and exec "
		"execute this program again: start contains the dynamic linker, up to the first "
		"function of the program. thread uses the C library's stacks again.\n\n"
		"--resident gives the parent memory that it has written to. A fork copies its page "
		"tables: one entry for each page, or with --huge yes for each huge page. The "
		"memory is not locked. After a fork, parent and child copy each page that they "
		"write to: these faults belong to the event.\n\n"
		"Evidence: each child had a new id, wrote the number of its iteration, ended with "
		"the status that belongs to it, and shared the parent's memory or did not. None is "
		"left. The kernel counted as many new processes and threads. A run without "
		"real-time policy is less steady: the child can preempt the parent.",
	.examples = "spawn\tfork()\n"
		    "spawn --what thread\tpthread_create() and pthread_join()\n"
		    "spawn --resident 256\ta fork of a program with 256 MB\n"
		    "spawn --resident 256 --huge yes\tthe same in huge pages\n"
		    "spawn --what posix_spawn\ta program, without copying memory",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.faults = { "call", "unreaped", "status" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
