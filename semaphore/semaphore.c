/* SPDX-License-Identifier: MIT */
/*
 * A producer hands items to a consumer over two semaphores, free slots and items, and burns CPU
 * longer than the consumer does, so that the consumer sleeps once for each item. Timed: from before
 * the post to after the consumer's wait (wake), and on the producer's CPU each item from its end to
 * the next one's, with semaphores (item) and without (bare). Both run the same code, with the same
 * stamps and the same shared stores; without semaphores the calls do nothing. What the semaphores
 * cost is the difference. Not timed: what either side does between two stretches.
 *
 * The traps: a burn that spins until a time has come hides whatever interrupts it, so this is a
 * fixed amount of work, calibrated; and the same work takes longer on another day, so stretches
 * with and without semaphores take turns within the run, whose CPUs are in one state for both.
 */
#include "hog.h"
#include "klat.h"
#include "primitives.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define SLOT_COUNT 16
/* A real-time thread should not run for longer without a rest, see klat_rest(). */
#define STRETCH_NS 40000000
/*
 * Items at the beginning of each half of a stretch that are no sample: the consumer has slept for
 * the whole of the other half, and its caches are cold. Of short stretches a quarter at most.
 */
#define EARLY 4

enum {
	WAKE,
	ITEM,
	BARE
};
enum {
	EACH,
	ANY
};

struct options {
	int64_t consumer_burn, idle, spin, items, low_priority;
	int primitive, hog, sleeps;
};

/* CPU time of a side, in nanoseconds, in the timed part. */
struct spent {
	int64_t with, without;
};

struct state {
	struct semaphores semaphores;
	uint64_t slots[SLOT_COUNT] KLAT_ALIGNED; /* when each item was posted */
	uint32_t produced KLAT_ALIGNED;          /* items posted */
	uint32_t consumed KLAT_ALIGNED;          /* items taken */
	uint32_t made KLAT_ALIGNED;              /* the same without semaphores */
	uint32_t ready KLAT_ALIGNED;             /* half stretch that the consumer is ready for */
	uint32_t begun KLAT_ALIGNED;             /* that the producer has begun */
	uint32_t ended KLAT_ALIGNED;             /* that the consumer has ended */
	struct spent producer KLAT_ALIGNED, consumer KLAT_ALIGNED;
	const struct primitive *primitive;
	int64_t stretch, early; /* items in a row, and before them that are no sample */
	int64_t items; /* handed over in stretches of the timed part, early ones included */
	int64_t consumer_before; /* its CPU time where the observed part begins */
	uint64_t spin;           /* ticks that the consumer looks for an item before it sleeps */
	struct hog hogs[2];
	uint64_t sink;
};

static const char *const hogs[] = { "none", "idle", "nice19", NULL };
static const char *const sleeps[] = { "each", "any", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "primitive", "posix|sysv|futex|cond|eventfd|pipe", "what the semaphores are made of",
	  KLAT_CHOICE, AT(primitive), 0, 0, primitive_names, false },
	{ "consumer-burn", "NS", "the consumer's work for each item", KLAT_INTEGER,
	  AT(consumer_burn), 0, 10000000, NULL, false },
	{ "idle", "NS",
	  "how much longer the producer works for each item: what the consumer has left to idle",
	  KLAT_INTEGER, AT(idle), 0, 10000000, NULL, false },
	{ "items", "N",
	  "items handed over in a row, before as many are worked on without semaphores; fewer "
	  "where that would take over 40 ms",
	  KLAT_INTEGER, AT(items), 1, 100000, NULL, false },
	{ "spin-before-sleep", "NS",
	  "how long the consumer looks for the next item before it waits for it", KLAT_INTEGER,
	  AT(spin), 0, 20000000, NULL, false },
	{ "hog", "none|idle|nice19",
	  "keep the CPUs out of idle by a busy thread of SCHED_IDLE, or of SCHED_OTHER at nice 19, "
	  "on each",
	  KLAT_CHOICE, AT(hog), 0, 0, hogs, false },
	{ "sleeps", "each|any",
	  "each: a run in which the consumer did not sleep once for each item is invalid; any: it "
	  "counts, the evidence tells how often it slept, and with a spin there is no wake",
	  KLAT_CHOICE, AT(sleeps), 0, 0, sleeps, false },
	{ "low-priority", "N", "priority of the producer; the consumer has that of --policy",
	  KLAT_INTEGER, AT(low_priority), 1, 98, NULL, false },
};

static const struct options defaults = {
	.consumer_burn = 50000, .idle = 50000, .items = 50, .low_priority = 19
};

static const struct klat_metric metrics[] = {
	[WAKE] = { "wake", "before the post to after the consumer's wait, producer's CPU to its",
		   true },
	[ITEM] = { "item", "one item with semaphores, work included, on the producer's CPU",
		   false },
	[BARE] = { "bare", "the same work without semaphores", false },
};

static const struct klat_published published[] = {
	{ "net_ticks", "hog=none", 16000, "ns",
	  "Linux guest, 2 CPUs, 800,000 items in 22 s, over those of Linux on metal" },
	{ "net_ticks", "hog=nice19", 3500, "ns",
	  "the same with a hog of low priority that kept the CPUs awake, 12 s" },
};

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;

	/* Nothing else would make the consumer sleep. */
	if (o->idle == 0 && o->sleeps == EACH)
		return klat_usage(run, "--idle 0 leaves no time to sleep: give --sleeps any");
	run->low_priority = o->low_priority;
	klat_use_metric(run, ITEM, 1);
	klat_use_metric(run, BARE, 1);
	/* A hand-over that is seen by spinning takes no longer than two counters may differ. */
	if (o->sleeps == EACH || o->spin == 0) {
		klat_use_metric(run, WAKE, 1);
		if (!run->one_cpu)
			klat_bound_offset(run, WAKE);
	}
	run->cpu_count = 2;
	return 0;
}

/*
 * Each round needs the result of the one before: nothing of it can be left out, and nothing that
 * interrupts is hidden.
 */
static uint64_t burn(uint64_t rounds, uint64_t seed)
{
	while (rounds--) {
		seed = seed * UINT64_C(6364136223846793005) + 1;
		__asm__ volatile("" : "+r"(seed));
	}
	return seed;
}

/* Rounds of burn() in so many nanoseconds on this CPU: from the quickest of some tries. */
static uint64_t rounds_of(struct klat_worker *worker, int64_t ns)
{
	const uint64_t rounds = 1 << 14;
	struct state *state = worker->state;
	uint64_t quickest = UINT64_MAX;

	for (int i = 0; i < 50; i++) {
		uint64_t begin = klat_stamp_begin(), ticks;
		uint64_t result = burn(rounds, i);

		ticks = klat_stamp_end(worker) - begin;
		__atomic_store_n(&state->sink, result, __ATOMIC_RELAXED);
		quickest = ticks < quickest ? ticks : quickest;
	}
	return ns * worker->run->counter_khz / 1e6 * rounds / quickest;
}

static int64_t end_of_stretch(const struct klat_run *run, const struct state *state, int64_t i)
{
	int64_t end = i < 0 ? 0 : i < run->iterations ? run->iterations : klat_end(run);

	return end - i > state->stretch ? i + state->stretch : end;
}

/* Which half comes first changes from stretch to stretch, so that a drift falls on both. */
static bool with_first(const struct state *state, int64_t i)
{
	return i < 0 || i / state->stretch % 2 == 0;
}

/* The consumer's part of an item: wait for it, stamp, free its slot, work. */
static inline int take(struct klat_worker *worker, const struct primitive *primitive,
		       uint32_t number, uint64_t rounds, uint64_t *wake, uint64_t *seed)
{
	struct state *state = worker->state;
	int err = primitive->wait(&state->semaphores, ITEMS);
	uint64_t end = klat_stamp_end(worker);

	*wake = end - __atomic_load_n(&state->slots[number % SLOT_COUNT], __ATOMIC_ACQUIRE);
	if (!err)
		err = primitive->post(&state->semaphores, SLOTS);
	*seed = burn(rounds, *seed);
	return err;
}

/*
 * Items from `from` on, until `to`; alone, without semaphores. Alone on one CPU, this side does the
 * consumer's part too, of `taking` rounds.
 */
static int produce(struct klat_worker *worker, int64_t from, int64_t to, bool alone,
		   uint64_t rounds, uint64_t taking)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const struct primitive *primitive = alone ? &no_primitive : state->primitive;
	uint32_t *produced = alone ? &state->made : &state->produced;
	uint64_t *samples = klat_series(run, alone ? BARE : ITEM, 0), last = klat_stamp_begin(),
		 seed = last, unused;
	int err = 0;

	for (int64_t i = from - state->early; i < to && !err; i++) {
		const bool early = i < from;
		uint32_t number = *produced;
		uint64_t end;

		/* The observed part begins once. */
		if (alone || early)
			__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
		else
			klat_iteration(worker, i);
		seed = burn(rounds, seed);
		err = primitive->wait(&state->semaphores, SLOTS);
		/* The semaphore orders this; that is for those who cannot know. */
		__atomic_store_n(&state->slots[number % SLOT_COUNT], klat_stamp_begin(),
				 __ATOMIC_RELEASE);
		if (!alone && !early)
			klat_inject(run, i);
		if (!err)
			err = primitive->post(&state->semaphores, ITEMS);
		__atomic_store_n(produced, number + 1, __ATOMIC_RELEASE);
		if (alone && run->one_cpu)
			err = take(worker, primitive, number, taking, &unused, &seed);
		end = klat_stamp_end(worker);
		*(early ? &unused : &samples[i]) = end - last;
		last = end;
	}
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}

/* Begin half a stretch together with the consumer. On one CPU it has preempted whatever is here. */
static int begin_half(struct klat_worker *worker, uint32_t half)
{
	struct state *state = worker->state;
	int err = 0;

	klat_rest(worker);
	if (!worker->run->one_cpu)
		err = klat_spin_until(worker, &state->ready, half);
	__atomic_store_n(&state->begun, half, __ATOMIC_RELEASE);
	return err;
}

static int producer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t rounds = rounds_of(worker, o->consumer_burn + o->idle),
		 taking = run->one_cpu ? rounds_of(worker, o->consumer_burn) : 0;
	uint32_t half = 0;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err;) {
		int64_t end = end_of_stretch(run, state, i);

		for (int turn = 0; turn < 2 && !err; turn++) {
			bool hands_over = (turn == 0) == with_first(state, i);
			int64_t before;

			err = begin_half(worker, ++half);
			if (err)
				break;
			before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
			err = produce(worker, i, end, !hands_over, rounds, taking);
			if (klat_is_sample(run, i) && hands_over)
				state->items += end - i + state->early;
			if (klat_is_sample(run, i))
				*(hands_over ? &state->producer.with : &state->producer.without) +=
					klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
			if (!err && !run->one_cpu)
				err = klat_spin_until(worker, &state->ended, half);
		}
		i = end;
	}
	return err;
}

/* Whether the item was seen before the time was over. No PAUSE: see klat_spin_until(). */
static void look_for(const struct state *state, uint32_t number, uint64_t ticks)
{
	uint64_t begin = klat_ticks();

	while ((int32_t)(__atomic_load_n(&state->produced, __ATOMIC_ACQUIRE) - number) <= 0 &&
	       klat_ticks() - begin < ticks)
		;
}

static int consume(struct klat_worker *worker, int64_t from, int64_t to, bool alone,
		   uint64_t rounds)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const struct primitive *primitive = alone ? &no_primitive : state->primitive;
	uint64_t *wake = alone ? NULL : klat_series(run, WAKE, 0), seed = from, unused;
	int err = 0;

	/* Of one half that begins observed, those that are early are, too. */
	if (!alone && from > -run->lead)
		worker->unsampled += state->early;
	for (int64_t i = from - state->early; i < to && !err; i++) {
		const bool early = i < from;
		uint32_t number = state->consumed;

		state->consumed += !alone;
		if (alone || early)
			__atomic_store_n(&worker->iteration, i, __ATOMIC_RELAXED);
		else if (klat_iteration(worker, i))
			state->consumer_before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		if (state->spin && !alone)
			look_for(state, number, state->spin);
		err = take(worker, primitive, number, rounds, wake && !early ? &wake[i] : &unused,
			   &seed);
	}
	__atomic_store_n(&state->sink, seed, __ATOMIC_RELAXED);
	return err;
}

static int consume_half(struct klat_worker *worker, uint32_t half, int64_t from, int64_t to,
			bool takes, uint64_t rounds)
{
	struct state *state = worker->state;
	int64_t before;
	int err = 0;

	klat_rest(worker);
	__atomic_store_n(&state->ready, half, __ATOMIC_RELEASE);
	if (!takes)
		err = klat_spin_until(worker, &state->begun, half);
	if (err)
		return err;
	before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	err = consume(worker, from, to, !takes, rounds);
	if (klat_is_sample(worker->run, from))
		*(takes ? &state->consumer.with : &state->consumer.without) +=
			klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	__atomic_store_n(&state->ended, half, __ATOMIC_RELEASE);
	return err;
}

static int consumer(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	uint64_t rounds = rounds_of(worker, o->consumer_burn);
	uint32_t half = 0;
	int err = 0;

	/* On one CPU the consumer, of the higher priority, must not wait by spinning, and has
	 * nothing to do without semaphores. */
	if (run->one_cpu) {
		for (int64_t i = klat_first(run); i < klat_end(run) && !err;) {
			int64_t end = end_of_stretch(run, state, i);

			err = consume(worker, i, end, false, rounds);
			i = end;
		}
		state->consumer.with =
			(klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - state->consumer_before) *
			state->items / (klat_observed(run) + worker->unsampled);
		return err;
	}
	for (int64_t i = klat_first(run); i < klat_end(run) && !err;) {
		int64_t end = end_of_stretch(run, state, i);

		for (int turn = 0; turn < 2 && !err; turn++) {
			bool takes = (turn == 0) == with_first(state, i);

			err = consume_half(worker, ++half, i, end, takes, rounds);
		}
		i = end;
	}
	return err;
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	int64_t period = o->consumer_burn * (run->one_cpu ? 2 : 1) + o->idle + 1;
	int err = primitives[o->primitive].init(run, &state->semaphores, SLOT_COUNT);

	if (err == -ENOTSUP)
		return err;
	if (err)
		return klat_error(run, -err, "cannot make a %s semaphore: %s",
				  primitive_names[o->primitive], strerror(-err));
	state->spin = klat_planted(run, "awake") ? UINT64_MAX : o->spin * run->counter_khz / 1e6;
	state->primitive = klat_planted(run, "free") ? &no_primitive : &primitives[o->primitive];
	state->stretch = o->items;
	if (state->stretch > STRETCH_NS / period)
		state->stretch = STRETCH_NS / period ? STRETCH_NS / period : 1;
	state->early = state->stretch < 4 * EARLY ? state->stretch / 4 : EARLY;
	for (int i = 0; i < (run->one_cpu ? 1 : 2) && o->hog != HOG_NONE; i++) {
		err = hog_start(run, &state->hogs[i], o->hog, run->cpus[i]);
		if (err)
			return err;
	}
	klat_worker_add(run, "consumer", 0, KLAT_HIGH, consumer)->woken = true;
	klat_worker_add(run, "producer", 1, KLAT_LOW, producer);
	return 0;
}

static void teardown(struct klat_run *run)
{
	struct state *state = run->state;

	for (int i = 0; i < 2; i++)
		hog_end(&state->hogs[i]);
}

static void count_figures(struct klat_run *run)
{
	const struct state *state = run->state;
	const struct klat_worker *consumer = klat_worker_find(run, "consumer", 0);
	const uint64_t *item = klat_series(run, ITEM, 0), *bare = klat_series(run, BARE, 0);
	int64_t net = 0, cpu = state->producer.with - state->producer.without +
			       state->consumer.with - state->consumer.without;
	int64_t reschedules = klat_interrupts(run, "RES", consumer->cpu);
	int64_t interrupts = klat_wake_interrupts(run, consumer->cpu);

	for (int64_t i = 0; i < run->iterations; i++)
		net += (int64_t)(item[i] - bare[i]);
	klat_count(run, "net_ticks", net / run->iterations);
	klat_count(run, "cpu_net_ticks", cpu * run->counter_khz / 1e6 / state->items);
	klat_count(run, "sleeps_per_1000_items",
		   consumer->voluntary * 1000 / (klat_observed(run) + consumer->unsampled));
	if (reschedules >= 0)
		klat_count(run, "reschedules_per_1000_items", reschedules * 1000 / state->produced);
	if (interrupts >= 0)
		klat_count(run, "wake_interrupts_per_1000_items",
			   interrupts * 1000 / state->produced);
	klat_count(run, "stretch", state->stretch);
}

static void verify_hogs(struct klat_run *run)
{
	const struct state *state = run->state;
	int64_t got = 0;

	for (int i = 0; i < 2; i++) {
		const struct hog *hog = &state->hogs[i];

		if (!hog->started)
			continue;
		got += hog->cpu_ns;
		if (hog->error)
			klat_invalid(run, "the hog on CPU %d did not get its priority: %s",
				     hog->cpu, strerror(hog->error));
		else if (hog->cpu_ns < 1000000)
			klat_invalid(run, "the hog on CPU %d hardly ran", hog->cpu);
	}
	klat_count(run, "hog_ms", got / 1000000);
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;

	count_figures(run);
	if (o->hog != HOG_NONE)
		verify_hogs(run);
	if (o->sleeps == EACH)
		klat_verify_slept(run, "consumer");
	return 0;
}

static const struct klat_benchmark semaphore = {
	.name = "semaphore",
	.summary = "items from a producer to a consumer over semaphores",
	.description =
		"A producer works on an item and posts it, a consumer waits for it and works "
		"on it for a shorter time, so that it sleeps once for each: one semaphore "
		"counts items, one free slots, of which there are 16. Timed are the wake-up, from "
		"before the post to after the consumer's wait, and on the producer's CPU each item "
		"as a whole. Stretches of --items items with semaphores and without take turns; "
		"net_ticks, in the evidence, is the difference of their means, what an item costs "
		"more for being handed over, and cpu_net_ticks the same of the CPU time of both "
		"sides.\n\n"
		"The work is a fixed count of dependent multiplications, calibrated on each CPU, "
		"so "
		"that interruptions lengthen it. With --cpus 1,1 both sides share a CPU, the "
		"consumer preempts the producer, and without semaphores one does the work of both.",
	.examples =
		"semaphore\ta POSIX semaphore between two CPUs\n"
		"semaphore --hog nice19\tthe same with CPUs that are never idle\n"
		"semaphore --cpus 1,1\tboth sides on one CPU\n"
		"semaphore --sleeps any --spin-before-sleep 10000000\ta consumer that never sleeps",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.needs_frequency = true,
	.faults = { "awake", "free" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};

int main(int argc, char **argv)
{
	return klat_main(&semaphore, argc, argv);
}
