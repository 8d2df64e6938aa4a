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
 */
#include "spawn.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of the parent, for each fork. */
enum { MOST_FAULTS = 64 };

struct options options = { .resident = 1 };

static const struct klat_option option_table[] = {
	{ "what",
	  "fork: fork(); vfork: a process in the parent's memory, and the parent stops until it "
	  "ends; clone: the same, and the parent goes on; thread: pthread_create(); posix_spawn: a "
	  "program; exec: fork() and execve()",
	  KLAT_CHOICE(what, "fork", "vfork", "clone", "thread", "posix_spawn", "exec") },
	{ "resident", "memory that the parent has written to", KLAT_INTEGER(resident, 0, 1 << 20),
	  .argument = "MIB" },
	{ "huge", "that memory has huge pages", KLAT_CHOICE(huge, "no", "yes") },
};

static const struct klat_metric metrics[] = {
	[START] = { "start", "call until the child's first stamp", .path_length = true,
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
	int err = klat_need_memory(run, options.resident << 20, options.huge);

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
	const struct counts *counts = &state->counts;
	const int64_t made = klat_made(run), kib = options.resident << 10,
		      observed = klat_observed(run),
		      faults = run->soak ? run->workers->minor_faults : state->faults;
	const bool copies = options.what == FORK || options.what == EXEC;

	klat_require(
		run,
		{ "children", counts->children, run->soak ? KLAT_MOSTLY : KLAT_EXACTLY, made,
		  .reason = "{got} children were waited for in {wanted} iterations" },
		{ "started", state->started, KLAT_AT_LEAST, made,
		  "the kernel started only {got} processes or threads in {wanted} iterations",
		  .unless = run->soak || state->started < 0 },
		{ NULL, counts->strangers, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} iterations had no new process" },
		{ NULL, counts->misended, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} children ended with another status" },
		{ NULL, counts->misnumbered, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} children named another iteration" },
		{ NULL, counts->misplaced, KLAT_NEVER, made,
		  .reason = "{got} of {wanted} children shared memory with the parent, or did not, "
			    "against --what" },
		{ NULL, state->left, KLAT_NEVER, .reason = "{got} children were not waited for" },
		{ "parent_faults", faults, copies ? KLAT_AT_MOST : KLAT_COUNTED,
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
		"left. The kernel counted at least as many new processes and threads. A run "
		"without "
		"real-time policy is less steady: the child can preempt the parent.",
	.examples = "spawn\tfork()\n"
		    "spawn --what thread\tpthread_create() and pthread_join()\n"
		    "spawn --resident 64\ta fork of a program with 64 MiB\n"
		    "spawn --resident 64 --huge yes\tthe same in huge pages\n"
		    "spawn --what posix_spawn\ta program, without copying memory",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.soaks = true,
	.counts_at = offsetof(struct state, counts),
	.counts_size = sizeof(struct counts),
	.faults = { "call", "unreaped", "status" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
