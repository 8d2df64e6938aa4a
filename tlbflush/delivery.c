/* SPDX-License-Identifier: MIT */
/*
 * How the flushes reached the responders. Where the kernel interrupts a CPU to flush its TLB, it
 * counts these interrupts. Where the hardware or firmware delivers the flush, there is no
 * interrupt, and the proofs of proof.c are the evidence. On some machines the kernel changes from
 * the first way to the second within a run.
 */
#include "tlbflush.h"

#include <sys/param.h>

struct delivery {
	int64_t least, most; /* interrupts of a responder; -1: the kernel does not count them */
	int64_t interrupts;  /* of all responders */
	int64_t reached;     /* responders with an interrupt for each flush */
	int64_t gaps, slept, proofs, stale;
};

/* Whether the kernel counts an interrupt for each operation and responder, unless may_broadcast().
 */
static bool is_interrupt(void)
{
	return KLAT_ARCH_SHOOTDOWN_INTERRUPTS || options.operation == MEMBARRIER;
}

/* A flush without an interrupt needs a proof, and sleepers give none. */
static bool may_broadcast(const struct state *state)
{
	return klat_arch_broadcast_cpus() && state->proves;
}

/* Where these interrupts are counted. A shootdown without a row of its own may still be a function
 * call. */
static const char *row_of(void)
{
	return is_interrupt() && options.operation != MEMBARRIER ? "TLB" : "CAL";
}

/* The interrupts for flushes among those of row_of(). Function calls also have other causes. A
 * kernel makes one for each flush or for none. */
static int64_t flush_interrupts(int64_t delivered, int64_t expected)
{
	const bool calls =
		KLAT_ARCH_SHOOTDOWN_CALLS && klat_is_met(KLAT_MOSTLY, delivered, expected);

	if (!is_interrupt() && !calls)
		return 0;
	return MIN(delivered, expected);
}

/*
 * On a machine with broadcast, the kernel checks about every 32 scheduler ticks whether the process
 * has enough active CPUs. From then on it broadcasts. So flush for 32 ticks before the first
 * iteration. A scheduler tick is 10 ms at most.
 */
int settle_delivery(struct klat_worker *initiator, char *pages)
{
	struct klat_run *run = initiator->run;
	const int64_t until_ns = klat_now_ns() + 350000000;
	int err = 0;

	if (klat_arch_broadcast_cpus() <= 1 || run->cpu_count < klat_arch_broadcast_cpus() ||
	    options.operation == MEMBARRIER)
		return 0;
	while (!err && klat_now_ns() < until_ns) {
		klat_rest(initiator);
		touch_pages(pages);
		err = operate(pages) ?: restore(pages);
	}
	klat_interrupts_restart(run);
	return err;
}

static struct delivery sum_up(struct klat_run *run, int64_t expected)
{
	const struct state *state = run->state;
	struct delivery sum = { .least = INT64_MAX, .gaps = INT64_MAX, .proofs = INT64_MAX };

	for (int64_t r = 0; r < options.responders; r++) {
		const struct klat_worker *worker = klat_worker_find(run, "responder", r);
		int64_t delivered = klat_interrupts(run, row_of(), worker->cpu);

		/* The wakeup of a thread can be a function call, too. */
		if (options.operation == MEMBARRIER && delivered > 0)
			delivered -= MIN(worker->voluntary, delivered);
		sum.least = MIN(sum.least, delivered);
		sum.most = MAX(sum.most, delivered);
		sum.gaps = MIN(sum.gaps, state->responders[r].interrupted);
		sum.slept = MAX(sum.slept, state->responders[r].slept);
		sum.proofs = MIN(sum.proofs, state->responders[r].proofs);
		sum.stale = MAX(sum.stale, state->responders[r].stale);
		/* A responder that rests during restore() gets no interrupt. */
		if (delivered > 0 && options.operation == MPROTECT)
			delivered += worker->rests;
		sum.reached += klat_is_met(KLAT_MOSTLY, delivered, expected);
		sum.interrupts += flush_interrupts(delivered, expected);
	}
	return sum;
}

void verify_delivery(struct klat_run *run, int64_t expected)
{
	const struct state *state = run->state;
	const struct delivery sum = sum_up(run, expected);
	const bool sees_gaps = klat_timed() || KLAT_ARCH_HAS_MARK, is_counted = is_interrupt(),
		   membarrier = options.operation == MEMBARRIER,
		   all = sum.reached == options.responders, most_came = 2 * sum.least > expected;
	/* Without broadcasts, each flush has to interrupt each responder. */
	const bool must_interrupt = is_counted && (all || !may_broadcast(state));
	const bool records_way = !membarrier && sum.least >= 0 && (all || may_broadcast(state));

	klat_require(run,
		     { "responders_reached", sum.reached,
		       must_interrupt && sum.least >= 0 ? KLAT_EXACTLY : KLAT_COUNTED,
		       options.responders, .unless = !is_counted,
		       .reason = membarrier ? "not delivered: {got} of {wanted} responders got the "
					      "interrupts of membarrier()"
				 : most_came ? "{got} of {wanted} responders got 99 % of the "
					       "shootdowns: the kernel sends none to a CPU that "
					       "other work has taken from its responder"
				 : options.sleeping
					 ? "not delivered: {got} of {wanted} responders got the "
					   "shootdowns: a sleeping responder gets none"
					 : "not delivered: {got} of {wanted} responders got the "
					   "shootdowns: a hypervisor leaves out CPUs that it has "
					   "preempted, or flushes their TLBs itself" },
		     { "least_delivered", sum.least, KLAT_AT_LEAST, 0,
		       membarrier ? "/proc/interrupts does not count function calls: delivery "
				    "cannot be proved (see klat doctor)"
				  : "/proc/interrupts does not count TLB shootdowns: delivery "
				    "cannot be proved (see klat doctor)",
		       .unless = !is_counted },
		     { "expected", .got = expected },
		     /* Where the kernel counts no interrupts of flushes. */
		     { "most_calls", .got = sum.most, .unless = is_counted },
		     { klat_timed() ? "least_gaps" : "least_interrupted", sum.gaps,
		       must_interrupt ? KLAT_MOSTLY : KLAT_COUNTED, run->iterations,
		       "a responder saw {got} interruptions in {wanted} iterations",
		       .unless = options.sleeping || !sees_gaps },
		     { NULL, sum.slept, KLAT_RARELY, klat_observed(run),
		       "a responder slept during {got} of {wanted} operations",
		       .unless = options.sleeping },
		     { "proofs", sum.proofs, must_interrupt ? KLAT_COUNTED : KLAT_AT_LEAST,
		       least_proofs(klat_made(run)),
		       "a responder has {got} of {wanted} proofs that its TLB was flushed: "
		       "delivery is not proved",
		       .unless = !state->proves },
		     { "stale", sum.stale, KLAT_NEVER,
		       .reason = "stale: after {got} operations a responder could still access the "
				 "pages: its TLB was not flushed",
		       .unless = !state->proves },
		     /* The delivery of the run: see docs/runs.md. */
		     { "flushes", .got = expected * options.responders, .unless = !records_way },
		     { "flush_interrupts", .got = sum.interrupts, .unless = !records_way },
		     { NULL, sum.most, KLAT_AT_MOST, most_flushes(expected),
		       membarrier ? "other function calls interrupted a responder"
				  : "shootdowns of other processes reached a responder",
		       .disturbs = true, .unless = !is_counted });
}
