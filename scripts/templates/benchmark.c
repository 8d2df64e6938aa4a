/* SPDX-License-Identifier: MIT */
/*
 * One system call that does next to nothing. Timed: getppid(), from before it to after it. Not
 * timed: anything else. The trap: glibc caches some calls of this kind (getpid() once was one), so
 * the call is made by number.
 *
 * That is what a benchmark's opening comment says. Put your own event in place of this one;
 * lib/klat.h has everything that you may use.
 */
#include "klat.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CALL
};

struct options {
	int64_t repeat;
};

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "repeat", "N", "calls in each sample", KLAT_INTEGER, AT(repeat), 1, 1000, NULL, false },
};

static const struct options defaults = { .repeat = 1 };

static const struct klat_metric metrics[] = {
	[CALL] = { "call", "before to after the system call, on one CPU", true },
};

/* In the supervisor, before anything else: how many CPUs, which metrics. */
static int configure(struct klat_run *run)
{
	run->cpu_count = 1;
	klat_use_metric(run, CALL, 1);
	return 0;
}

/* On its own CPU, at its priority. */
static int caller(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	uint64_t *samples = klat_series(run, CALL, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint64_t begin;

		klat_iteration(worker, i);
		klat_rest(worker);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		for (int64_t r = 0; r < o->repeat; r++)
			syscall(SYS_getppid);
		samples[i] = klat_stamp_end(worker) - begin;
	}
	return 0;
}

/* In the measured process: acquire what is needed, add the workers. */
static int setup(struct klat_run *run)
{
	klat_worker_add(run, "caller", 0, KLAT_HIGH, caller);
	return 0;
}

/* In the supervisor, afterwards: was the event that which the name says? */
static int verify(struct klat_run *run)
{
	const struct klat_worker *worker = klat_worker_find(run, "caller", 0);

	if (worker->voluntary)
		klat_invalid(run, "a call that cannot sleep slept %lld times",
			     (long long)worker->voluntary);
	return 0;
}

static const struct klat_benchmark benchmark = {
	.name = "NAME",
	.summary = "a system call that does next to nothing",
	.description = "Times getppid(), which is the way into the kernel and out of it again.",
	.examples = "NAME\tone call\nNAME --repeat 100\ta hundred in each sample",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&benchmark, argc, argv);
}
