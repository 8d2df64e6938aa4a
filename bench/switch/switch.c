/* SPDX-License-Identifier: MIT */
/*
 * Two threads, or two processes, that take turns on one CPU. With --by yield a side calls
 * sched_yield(), and the other side of the same real-time priority runs. With --by futex a side
 * wakes the other one and waits.
 *
 * Timed: one switch, from a stamp of the side that leaves the CPU to the first stamp of the side
 * that runs next. The next switch goes the other way.
 * Not timed: the time between two switches.
 *
 * Traps:
 * - Half of a round trip hides a difference between its directions. So each switch has its stamps.
 * - A yield that returns without switching looks like a fast switch. So the kernel must have
 * counted a switch for each sample.
 * - The kernel looks up private and shared futexes on different paths. So threads use a shared one,
 *   too, and the two peers differ only in the address space.
 */
#include "klat.h"
#include "sync/sync.h"

#include <sched.h>

enum { SWITCH };

static struct options {
	int process, futex;
} options;

struct state {
	uint64_t start;             /* stamp of the side that left last */
	uint32_t turn KLAT_ALIGNED; /* how many switches have begun */
	uint32_t ready;             /* the second side has started */
	uint32_t resting;           /* the first side sleeps */
	int64_t unanswered;         /* timed yields that returned without a switch */
} KLAT_ALIGNED;

static const struct klat_option option_table[] = {
	{ "peer", "what the other side is", KLAT_CHOICE(process, "thread", "process") },
	{ "by", "how a side leaves the CPU: sched_yield(), or FUTEX_WAKE and FUTEX_WAIT",
	  KLAT_CHOICE(futex, "yield", "futex") },
};

static const struct klat_metric metrics[] = {
	[SWITCH] = { "switch", "from one side's call until the other side runs, on one CPU",
		     .path_length = true, KLAT_WINDOWS("take_turns", "leave"),
		     .taken_by = "first" },
};

/*
 * Leave the CPU until the turn differs from `own`; returns the first stamp after that. A yield can
 * return without a switch. If the first side rests, the second then sleeps as well. Otherwise the
 * other side may be asleep: wake it and yield again, every second time with a wait.
 */
static inline uint64_t leave(struct klat_worker *worker, bool futex, uint32_t own, int64_t i)
{
	struct state *state = worker->state;

	for (int tries = 0;;) {
		uint64_t end;

		if (!futex) {
			sched_yield();
		} else {
			sync_futex(&state->turn, FUTEX_WAKE, 1);
			sync_futex(&state->turn, FUTEX_WAIT, own);
		}
		end = klat_stamp_end(worker);
		if (__atomic_load_n(&state->turn, __ATOMIC_ACQUIRE) != own)
			return end;
		if (futex)
			continue;
		if (__atomic_load_n(&state->resting, __ATOMIC_ACQUIRE)) {
			klat_rest_begins(worker);
			sync_futex(&state->turn, FUTEX_WAIT, own);
			klat_rest_ends(worker);
			continue;
		}
		/* Both sides can be here. */
		__atomic_fetch_add(&state->unanswered, i >= -worker->run->lead, __ATOMIC_RELAXED);
		sync_futex(&state->turn, FUTEX_WAKE, 1);
		if (++tries % 2 == 0)
			sync_futex(&state->turn, FUTEX_WAIT, own);
	}
}

/* The second side sleeps: let it return to its yield. */
static void call_back(struct state *state)
{
	if (!options.futex) {
		sync_futex(&state->turn, FUTEX_WAKE, 1);
		sched_yield();
	}
}

/* Sleep: the thread that starts both sides may need this CPU to start the second. */
static int await_second(struct klat_worker *worker)
{
	struct state *state = worker->state;

	for (int tries = 0; !__atomic_load_n(&state->ready, __ATOMIC_ACQUIRE); tries++) {
		if (tries == 20000)
			return -ETIMEDOUT;
		klat_sleep(worker, 100000);
	}
	call_back(state);
	return 0;
}

/* The first side begins the switches with an even number, the second side the others. Only the
 * first rests; the second then sleeps. */
static int take_turns(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool futex = options.futex, alone = klat_planted(run, "alone");
	struct state *state = worker->state;
	uint64_t *samples = klat_series(run, SWITCH, 0);
	const bool second = worker != run->workers;

	if (second) {
		__atomic_store_n(&state->ready, 1, __ATOMIC_RELEASE);
		samples[-run->warmup] = leave(worker, futex, 0, -run->warmup) - state->start;
	} else if (await_second(worker)) {
		return -ETIMEDOUT;
	}
	for (int64_t i = klat_first(run); klat_goes_on(worker, &i); i++) {
		const uint32_t number = i + run->warmup;
		/* Alone, no side waits for the turn that begins. */
		const uint32_t own = alone ? number : number + 1;
		const int64_t next = alone ? i : i + 1;
		const int64_t rests = worker->rests;
		uint64_t end;

		if (number % 2 != second && !alone) {
			klat_iteration_of_others(worker, i);
			continue;
		}
		__atomic_store_n(&state->resting, !second, __ATOMIC_RELEASE);
		klat_iteration(worker, i);
		if (!second) {
			klat_rest(worker);
			if (worker->rests != rests)
				call_back(state);
			__atomic_store_n(&state->resting, 0, __ATOMIC_RELEASE);
		}
		worker->expected_switches += i >= -run->lead && !futex;
		state->start = klat_stamp_begin();
		klat_inject(run, i);
		__atomic_store_n(&state->turn, number + 1, __ATOMIC_RELEASE);
		end = leave(worker, futex, own, i);
		if (next < klat_end(run))
			samples[next] = end - state->start;
	}
	/* The other side still waits after the last switch that it began. */
	__atomic_store_n(&state->turn, klat_made(run) + 1, __ATOMIC_RELEASE);
	sync_futex(&state->turn, FUTEX_WAKE, 1);
	return 0;
}

static const struct klat_worker workers[] = {
	{ "first", "first side", .body = take_turns },
	{ "second", "second side", .body = take_turns },
};

static int setup(struct klat_run *run)
{
	struct state *state = run->state;

	if (sched_yield())
		return klat_error(run, errno, "sched_yield() failed: %m");
	run->workers[1].process = options.process;
	/* Each side begins every other switch. */
	run->workers[0].unsampled = run->workers[1].unsampled = -klat_observed(run) / 2;
	run->workers[0].most_sleeps = run->workers[1].most_sleeps = options.futex;
	state->ready = klat_planted(run, "alone");
	run->worker_count -= state->ready;
	return 0;
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const int64_t wanted = klat_observed(run);
	int64_t switches = 0, least = INT64_MAX;

	klat_for_each_worker(worker, run) {
		const int64_t own = worker->voluntary + worker->involuntary;

		switches += own;
		least = own < least ? own : least;
	}
	klat_require(
		run,
		{ "switches", switches, KLAT_AT_MOST, wanted + wanted / 100 + 10,
		  "other threads ran between the two sides", .disturbs = true },
		{ "unanswered", state->unanswered, KLAT_RARELY, wanted,
		  .reason = "sched_yield() did not switch {got} times in {wanted} iterations" },
		/* Each side leaves in every second iteration. */
		{ NULL, run->worker_count * least + 1, KLAT_MOSTLY, wanted,
		  .reason = "the kernel switched away from one side in at most {got} of {wanted} "
			    "iterations" });
}

const struct klat_benchmark klat_benchmark = {
	.name = "switch",
	.summary = "context switch between two threads, or processes, of one CPU",
	.description =
		"Two threads of the same priority take turns on one CPU. Each sample is one "
		"switch: from before one side calls sched_yield() to after the other side's call "
		"has returned. The next switch goes the other way. With --by futex the side that "
		"leaves wakes the other and waits, so a sample contains two more calls.\n\n"
		"With --peer process the second side has its own address space. The difference "
		"from --peer thread is the cost of the change: nothing else differs, because both "
		"use the kind of futex that processes can share. Cold caches and TLBs cost more "
		"later, but only in programs that use much memory.\n\n"
		"Evidence: the kernel counted a switch for each sample, and no yield returned "
		"without a switch. Two yielding threads alternate only under a real-time policy. "
		"Under --policy other a yield is a request.",
	.examples = "switch\tbetween two threads, by sched_yield()\n"
		    "switch --peer process\tbetween two processes\n"
		    "switch --by futex --policy other\tbetween ordinary threads",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.pairs = true,
	.faults = { "alone" },
	.setup = setup,
	.verify = verify,
};
