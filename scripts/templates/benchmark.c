/* SPDX-License-Identifier: MIT */
/*
 * One system call that does next to nothing. Timed: getppid(), from before the call to after it.
 * Not timed: the check of its result. The trap: glibc can cache a result, so the program calls by
 * number.
 *
 * A benchmark's opening comment says these three things. Put your event in place of this one.
 * lib/klat.h, lib/option.h and lib/evidence.h document every function that you may use.
 */
#include "klat.h"

#include <sys/syscall.h>
#include <unistd.h>

enum {
	CALL
};

struct options {
	int64_t repeat;
};

/* What the workers share: worker->state and run->state point to the one copy. It starts as zeros.
 */
struct state {
	int64_t answered; /* iterations whose calls returned the right result */
};

static const struct options defaults = { .repeat = 1 };

static const struct klat_option options[] = {
	{ .name = "repeat", .help = "calls in each sample", KLAT_INTEGER(repeat, 1, 1000) },
};

static const struct klat_metric metrics[] = {
	[CALL] = { "call", "before to after the system call, on one CPU", .path_length = true },
};

/* In the supervisor, before anything else: how many CPUs, which metrics. */
static int configure(struct klat_run *run)
{
	run->cpu_count = 1;
	klat_use_metric(run, CALL, 1);
	return 0;
}

/* One worker, on its own CPU, at its priority. */
static int caller(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	const bool skip = klat_planted(run, "skip");
	const long parent = getppid();
	uint64_t *samples = klat_series(run, CALL, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		long result = -1;
		uint64_t begin;

		klat_iteration(worker, i);
		klat_rest(worker);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		for (int64_t r = 0; r < o->repeat && !skip; r++)
			result = syscall(SYS_getppid);
		samples[i] = klat_stamp_end(worker) - begin;
		state->answered += result == parent;
	}
	return 0;
}

/* In the measured process: allocate what the run needs, add the workers. */
static int setup(struct klat_run *run)
{
	klat_worker_add(run, "caller", 0, KLAT_HIGH, caller)->sleeps = KLAT_NEVER;
	return 0;
}

/* In the supervisor, after the run: did the timed event take place? */
static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const struct klat_requirement evidence[] = {
		{ "answered", state->answered, KLAT_MOSTLY, klat_made(run),
		  .reason = "{got} of {wanted} iterations returned the right result" },
	};

	klat_require(run, evidence);
}

const struct klat_benchmark klat_benchmark = {
	.name = "NAME",
	.summary = "a system call that does next to nothing",
	.description = "Times getppid(): the way into the kernel and out of it.",
	.examples = "NAME\tone call\nNAME --repeat 100\ta hundred in each sample",
	KLAT_OPTIONS(options),
	KLAT_METRICS(metrics),
	.state_size = sizeof(struct state),
	.faults = { "skip" }, /* --plant skip: times nothing, so that a test sees verify() object */
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
