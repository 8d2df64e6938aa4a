/* SPDX-License-Identifier: MIT */
/* Context switches: what can be chosen, and the evidence. turns.c has the event. */
#include "switch.h"

#include <sched.h>

enum {
	THREAD,
	PROCESS
};
static const char *const peers[] = { "thread", "process", NULL };
static const char *const ways[] = { "yield", "futex", NULL };

static const struct options defaults = { 0 };

static const struct klat_option options[] = {
	{ .name = "peer", .help = "what the other side is", KLAT_CHOICE(peer, peers) },
	{ .name = "by",
	  .help = "how a side leaves the CPU: sched_yield(), or FUTEX_WAKE and FUTEX_WAIT",
	  KLAT_CHOICE(by, ways) },
};

static const struct klat_metric metrics[] = {
	[SWITCH] = { "switch", "one side leaves until the other runs, on their one CPU", true },
};

static int configure(struct klat_run *run)
{
	run->cpu_count = 1;
	klat_use_metric(run, SWITCH, 1);
	return 0;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	struct klat_worker *other;

	klat_worker_add(run, "first", 0, KLAT_HIGH, first)->noun = "first side";
	if (klat_planted(run, "alone")) {
		state->ready = 1;
		return 0;
	}
	other = klat_worker_add(run, "second", 0, KLAT_HIGH, second);
	other->noun = "second side";
	other->process = o->peer == PROCESS;
	return 0;
}

static int verify(struct klat_run *run)
{
	const struct state *state = run->state;
	int64_t switches = 0, least = INT64_MAX, wanted = klat_observed(run);

	for (int i = 0; i < run->worker_count; i++) {
		int64_t own = run->workers[i].voluntary + run->workers[i].involuntary;

		switches += own;
		least = own < least ? own : least;
	}
	klat_count(run, "switches", switches);
	klat_count(run, "unanswered", state->unanswered);
	/* Each side leaves in every second iteration. */
	if (!klat_is_enough(run->worker_count * least + 1, wanted))
		klat_invalid(run,
			     "the kernel switched %lld times in %lld iterations, and only %lld "
			     "times away from one side",
			     (long long)switches, (long long)wanted, (long long)least);
	if (!klat_is_rare(state->unanswered, wanted))
		klat_invalid(run,
			     "in %lld of %lld iterations sched_yield() returned without "
			     "switching",
			     (long long)state->unanswered, (long long)wanted);
	if (switches * 100 > wanted * 101 + 1000)
		klat_disturbed(run, "other threads ran between the two sides");
	return 0;
}

static const struct klat_benchmark benchmark = {
	.name = "switch",
	.summary = "context switch between two threads, or processes, of one CPU",
	.description =
		"Two equal threads on one CPU take turns. Each sample is one switch: from before "
		"one side calls sched_yield() to after the other side's call has returned. The "
		"next switch goes the other way. With --by futex the side that leaves wakes the "
		"other and waits, so a sample contains two more calls.\n\n"
		"With --peer process the second side has its own address space. The difference "
		"to --peer thread is the cost of changing it, because nothing else differs: both "
		"use the kind of futex that processes can share. The later cost, in caches and "
		"TLB, shows only in programs that use much memory.\n\n"
		"Evidence: the kernel counted a switch for each sample, and no yield returned "
		"without a switch. Only under a real-time policy do two yielding threads "
		"alternate; under --policy other a yield is a request.",
	.examples = "switch\tbetween two threads, by sched_yield()\n"
		    "switch --peer process\tbetween two processes\n"
		    "switch --by futex --policy other\tas ordinary threads hand over",
	KLAT_OPTIONS(options),
	KLAT_METRICS(metrics),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.faults = { "alone" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&benchmark, argc, argv);
}
