/* SPDX-License-Identifier: MIT */
/*
 * Timed: getppid(), from before the call to after it. Not timed: the check of its result. The trap:
 * glibc can cache a result, so the program calls by number. Say these three things of your event.
 */
#include "klat.h" /* it and its parts document every function */

#include <sys/syscall.h>
#include <unistd.h>

/* What the workers share: worker->state and run->state. It starts as zeros. */
struct state {
	int64_t answered; /* iterations whose call returned the right result */
};

static const struct klat_metric metrics[] = {
	{ "call", "the system call", .path_length = true, KLAT_WITHIN("caller", "caller") },
};

static int caller(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const long number = klat_planted(run, "skip") ? -1 : SYS_getppid, parent = getppid();
	struct state *state = worker->state;
	uint64_t *samples = klat_series(run, 0, 0);

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		const uint64_t begin = klat_stamp_begin();

		klat_inject(run, i);
		const long result = syscall(number);
		samples[i] = klat_stamp_end(worker) - begin;
		state->answered += result == parent;
	}
	return 0;
}

static const struct klat_worker workers[] = {
	{ "caller", .body = caller, .spins = KLAT_ALWAYS, .sleeps = KLAT_NEVER },
};

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;

	klat_require(run, { "answered", state->answered, KLAT_MOSTLY, klat_made(run),
			    .reason = "{got} of {wanted} iterations returned the right result" });
}

const struct klat_benchmark klat_benchmark = {
	.name = "NAME",
	.summary = "a system call that does next to nothing",
	.description = "Times getppid(): the way into the kernel and out of it.",
	.examples = "NAME\tone call\nNAME --iterations 10000\tmore samples",
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.faults = { "skip" }, /* --plant skip: another call, so that a test sees verify() object */
	.verify = verify,
};
