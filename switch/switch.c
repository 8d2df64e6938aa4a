/* SPDX-License-Identifier: MIT */
/*
 * Two threads, or two processes, that take turns on one CPU. Timed, on every iteration: one switch,
 * from a stamp of the one that leaves to the first stamp of the other when it goes on; both are of
 * one CPU's counter. By yield that is sched_yield() between equals of a real-time class, which run
 * in turns; by futex it is waking the other and waiting. The next switch goes the other way. Not
 * timed: anything between two switches. The traps: half of a round trip hides that its two ways
 * differ, and a yield to nobody looks like a fast switch; so the kernel has to have counted one for
 * each sample. And a futex of one process is found by another path than one of two, so both peers
 * use the kind that two can share, and differ by the address space alone.
 */
#include "klat.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SWITCH
};
enum {
	THREAD,
	PROCESS
};
enum {
	YIELD,
	FUTEX
};
/* The two sides. Only the first rests, and the other sleeps meanwhile. */
enum {
	FIRST,
	SECOND
};

struct options {
	int peer, by;
};

struct state {
	uint64_t start;             /* stamp of the side that left last */
	uint32_t turn KLAT_ALIGNED; /* how many switches were begun */
	uint32_t ready;             /* the second side has started */
	uint32_t resting;           /* the first side sleeps */
	int64_t unanswered;         /* timed yields that came back with nobody gone on */
} KLAT_ALIGNED;

static const char *const peers[] = { "thread", "process", NULL };
static const char *const ways[] = { "yield", "futex", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "peer", "thread|process", "what the other side is", KLAT_CHOICE, AT(peer), 0, 0, peers,
	  false },
	{ "by", "yield|futex",
	  "how a side leaves the CPU: sched_yield(), or FUTEX_WAKE and FUTEX_WAIT", KLAT_CHOICE,
	  AT(by), 0, 0, ways, false },
};

static const struct options defaults = { 0 };

static const struct klat_metric metrics[] = {
	[SWITCH] = { "switch", "one side leaves until the other goes on, on their one CPU", true },
};

static int configure(struct klat_run *run)
{
	run->cpu_count = 1;
	klat_use_metric(run, SWITCH, 1);
	return 0;
}

/* Shared, not FUTEX_PRIVATE_FLAG, for threads too. */
static void wake(struct state *state)
{
	syscall(SYS_futex, &state->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_for_turn(struct state *state, uint32_t seen)
{
	syscall(SYS_futex, &state->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static uint32_t turn_of(struct state *state)
{
	return __atomic_load_n(&state->turn, __ATOMIC_ACQUIRE);
}

/* What a side would otherwise have to look up, or ask the library for, behind its start stamp. */
struct leaver {
	struct klat_worker *worker;
	struct state *state;
	int by;
	bool alone;
};

static struct leaver leaver_of(struct klat_worker *worker)
{
	return (struct leaver){ worker, worker->state,
				((const struct options *)worker->run->options)->by,
				klat_planted(worker->run, "alone") };
}

/*
 * Leave the CPU until the turn is no longer `own`; returns the first stamp after that. A yield that
 * comes back without a change found nobody to go on: while the first side rests, the second then
 * sleeps too; otherwise the other one is woken, in case it sleeps, and given two tries.
 */
static inline uint64_t leave(const struct leaver *leaver, uint32_t own, int64_t i)
{
	struct state *state = leaver->state;

	for (int tries = 0;;) {
		uint64_t end;

		if (leaver->by == YIELD) {
			sched_yield();
		} else {
			wake(state);
			wait_for_turn(state, leaver->alone ? own + 1 : own);
		}
		end = klat_stamp_end(leaver->worker);
		if (turn_of(state) != own || leaver->alone)
			return end;
		if (leaver->by == FUTEX)
			continue;
		if (__atomic_load_n(&state->resting, __ATOMIC_ACQUIRE)) {
			klat_rest_begins(leaver->worker);
			wait_for_turn(state, own);
			klat_rest_ends(leaver->worker);
			continue;
		}
		/* By both sides, which the turn does not order here. */
		__atomic_fetch_add(&state->unanswered, i >= -leaver->worker->run->lead,
				   __ATOMIC_RELAXED);
		wake(state);
		if (++tries % 2 == 0)
			wait_for_turn(state, own);
	}
}

/* Have the second side, which sleeps, back in its yield. */
static void call_back(const struct options *o, struct state *state)
{
	if (o->by == YIELD) {
		wake(state);
		sched_yield();
	}
}

static void rest(struct klat_worker *worker)
{
	struct state *state = worker->state;

	__atomic_store_n(&state->resting, 1, __ATOMIC_RELEASE);
	if (klat_rest(worker))
		call_back(worker->run->options, state);
	__atomic_store_n(&state->resting, 0, __ATOMIC_RELEASE);
}

/* Switches alternate: those with an even number are begun by the first side and end on the second.
 */
static void take_turns(struct klat_worker *worker, uint32_t side)
{
	const struct klat_run *run = worker->run;
	const struct leaver leaver = leaver_of(worker);
	const bool alone = leaver.alone;
	struct state *state = worker->state;
	uint64_t *samples = klat_series(run, SWITCH, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint32_t number = i + run->warmup;
		uint64_t end;

		klat_iteration(worker, i);
		if (number % 2 != side && !alone)
			continue;
		if (side == FIRST)
			rest(worker);
		worker->expected_switches += i >= -run->lead && leaver.by == YIELD;
		state->start = klat_stamp_begin();
		klat_inject(run, i);
		__atomic_store_n(&state->turn, number + 1, __ATOMIC_RELEASE);
		end = leave(&leaver, number + 1, i);
		if (alone)
			samples[i] = end - state->start;
		else if (i + 1 < klat_end(run))
			samples[i + 1] = end - state->start;
	}
	/* For the other side, which waits behind the last switch that it began. */
	__atomic_store_n(&state->turn, klat_made(run) + 1, __ATOMIC_RELEASE);
	wake(state);
}

static int first(struct klat_worker *worker)
{
	struct state *state = worker->state;

	/* Asleep, for the thread that starts both may need this CPU to start the second. */
	for (int tries = 0; !__atomic_load_n(&state->ready, __ATOMIC_ACQUIRE); tries++) {
		if (tries == 20000)
			return -ETIMEDOUT;
		klat_sleep(worker, 100000);
	}
	call_back(worker->run->options, state);
	take_turns(worker, FIRST);
	return 0;
}

static int second(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct leaver leaver = leaver_of(worker);
	struct state *state = worker->state;
	uint64_t end;

	__atomic_store_n(&state->ready, 1, __ATOMIC_RELEASE);
	end = leave(&leaver, 0, -run->warmup);
	klat_series(run, SWITCH, 0)[-run->warmup] = end - state->start;
	take_turns(worker, SECOND);
	return 0;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;

	klat_worker_add(run, "first", 0, KLAT_HIGH, first);
	if (klat_planted(run, "alone"))
		state->ready = 1;
	else
		klat_worker_add(run, "second", 0, KLAT_HIGH, second)->process = o->peer == PROCESS;
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
	/* Each side leaves in every second iteration; of an odd number one leaves once less. */
	if (!klat_is_enough(run->worker_count * least + 1, wanted))
		klat_invalid(
			run,
			"the kernel switched %lld times in %lld iterations, only %lld times away "
			"from one side",
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
		"Two equals on one CPU take turns. Each sample is one switch: from before one side "
		"calls sched_yield() to when it has returned on the other, which began its own "
		"call "
		"one switch earlier; the next one goes the other way. With --by futex the side "
		"that "
		"leaves wakes the other and waits, so that a sample holds two calls more.\n\n"
		"With --peer process the second side has an address space of its own. What "
		"changing "
		"it costs is the difference to --peer thread: nothing else differs, and both use "
		"the "
		"kind of futex that processes can share. What the switch costs after it has "
		"returned, in caches and TLB, shows only in programs that use much memory.\n\n"
		"Evidence: the kernel counted a switch for each sample, and no yield came back "
		"without the other side having gone on. A real-time policy is what makes two "
		"yielding threads alternate; under --policy other a yield is a request.",
	.examples = "switch\tbetween two threads, by sched_yield()\n"
		    "switch --peer process\tbetween two processes\n"
		    "switch --by futex --policy other\tas ordinary threads hand over",
	KLAT_OPTIONS(options, defaults),
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
