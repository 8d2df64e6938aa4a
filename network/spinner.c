/* SPDX-License-Identifier: MIT */
/*
 * The thread of low priority (L). It spins on the reader's CPU and writes a stamp in each turn; the
 * last one before the preemption begins the sample.
 */
#include "network.h"

#include <errno.h>
#include <sys/resource.h>

/* With --remote, turns of L between two readings of the clock: some 100 us. */
#define TURNS 4096

static int64_t involuntary_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

static bool forwards(void)
{
	char value[2] = "";

	klat_read_small("/proc/sys/net/ipv4/ip_forward", value, sizeof(value));
	return value[0] != '0';
}

static int give_up(struct klat_worker *worker)
{
	const struct options *o = worker->run->options;
	const struct state *state = worker->state;

	return klat_error(worker->run, ETIMEDOUT,
			  "no packet could be measured for %lld s, after %lld of %lld "
			  "(%lld came while the spinner did not run, %lld were stray): %s",
			  (long long)o->wait_for,
			  (long long)(worker->iteration + worker->run->warmup),
			  (long long)klat_made(worker->run),
			  (long long)__atomic_load_n(&state->unspun, __ATOMIC_RELAXED),
			  (long long)__atomic_load_n(&state->strays, __ATOMIC_RELAXED),
			  forwards() ? "is network/client sending, and is its route set?"
				     : "net.ipv4.ip_forward is 0 here, see --help");
}

/* A packet that comes during the rest preempts nobody. `resting` says so to H. */
static void rest_while_waiting(struct klat_worker *worker)
{
	struct state *state = worker->state;

	__atomic_store_n(&state->resting, true, __ATOMIC_RELAXED);
	klat_rest(worker);
	__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
	__atomic_store_n(&state->resting, false, __ATOMIC_RELAXED);
}

/*
 * Spin until H has read the packet. In the private network the sender limits the wait. With
 * --remote L limits it, and rests meanwhile.
 */
static int spin_until_read(struct klat_worker *worker, uint32_t generation, bool yields)
{
	const struct options *o = worker->run->options;
	const int64_t deadline =
		klat_clock_ns(CLOCK_MONOTONIC_COARSE) + o->wait_for * KLAT_NS_PER_S;
	struct state *state = worker->state;

	for (uint32_t turn = 1; __atomic_load_n(&state->done, __ATOMIC_ACQUIRE) != generation;
	     turn++) {
		__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
		if (__builtin_expect(yields, 0))
			klat_nap(50000);
		if (!o->remote || turn % TURNS)
			continue;
		rest_while_waiting(worker);
		if (klat_clock_ns(CLOCK_MONOTONIC_COARSE) > deadline)
			return give_up(worker);
	}
	return 0;
}

int spin_for_packets(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool yields = klat_planted(run, "yield");
	struct state *state = worker->state;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		const uint32_t generation = generation_of(run, i);
		int64_t switches;

		klat_iteration(worker, i);
		klat_rest(worker);
		switches = involuntary_switches();
		__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
		__atomic_store_n(&state->announced, generation, __ATOMIC_RELEASE);
		err = spin_until_read(worker, generation, yields);
		klat_stamp_end(worker); /* checks the CPU */
		switches = involuntary_switches() - switches;
		/* On one CPU the sender preempts L, too. With --remote, L may rest meanwhile. */
		if (klat_is_sample(run, i) && state->spun &&
		    (run->one_cpu ? switches > 0 : switches == 1))
			state->preempted++;
	}
	return err;
}
