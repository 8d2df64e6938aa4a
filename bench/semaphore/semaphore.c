/* SPDX-License-Identifier: MIT */
/* Items over semaphores: what can be chosen, the set-up and the evidence. sides.c has the event. */
#include "semaphore.h"

#include <errno.h>
#include <sched.h>

/*
 * Items without a sample at the beginning of each half of a stretch, at most a quarter of a short
 * one: the consumer slept during the other half, and its caches are cold.
 */
#define EARLY 4

static const char *const primitive_names[] = { [SYNC_POSIX] = "posix",
					       [SYNC_SYSV] = "sysv",
					       [SYNC_FUTEX] = "futex",
					       [SYNC_COND] = "cond",
					       [SYNC_EVENTFD] = "eventfd",
					       [SYNC_PIPE] = "pipe",
					       NULL };

struct options options = { .consumer_burn = 50000, .idle = 50000, .items = 50, .low_priority = 19 };

static const struct klat_option option_table[] = {
	{ "primitive", "the primitive behind the semaphores",
	  KLAT_CHOICE_OF(primitive, primitive_names) },
	{ "consumer-burn", "the consumer's work for each item",
	  KLAT_INTEGER(consumer_burn, 0, 10000000), .argument = "NS" },
	{ "idle", "extra work of the producer for each item, during which the consumer is idle",
	  KLAT_INTEGER(idle, 0, 10000000), .argument = "NS" },
	{ "items",
	  "items in a group with semaphores, and in one without; fewer if they take more than 40 "
	  "ms",
	  KLAT_INTEGER(items, 1, 100000) },
	{ "spin-before-sleep", "how long the consumer spins for the next item before it waits",
	  KLAT_INTEGER(spin, 0, 20000000), .argument = "NS" },
	{ "hog", "keep each CPU busy with a thread of SCHED_IDLE, or of SCHED_OTHER at nice 19",
	  KLAT_CHOICE(hog, "none", "idle", "nice19") },
	{ "sleeps",
	  "each: the run is invalid unless the consumer slept for each item; any: the evidence "
	  "counts the sleeps, and with --spin-before-sleep wake is not measured",
	  KLAT_CHOICE(any_sleeps, "each", "any") },
	{ "low-priority", "priority of the producer; --policy sets the consumer's",
	  KLAT_INTEGER(low_priority, 1, 98) },
};

static const struct klat_metric metrics[] = {
	[WAKE] = { "wake", "before the post to after the consumer's wait", .path_length = true,
		   KLAT_WINDOWS("produce", "take"),
		   .untraceable = "the producer continues to post while the consumer copies a "
				  "trace; explain item" },
	[ITEM] = { "item", "one item with semaphores, work included, on the producer's CPU",
		   .path_length = false, .taken_by = "producer" },
	[BARE] = { "bare", "the same work without semaphores", .path_length = false,
		   .untraceable = "its items have no semaphores; explain item" },
};

static const struct klat_published published[] = {
	{ "net_ticks", "hog=none", 16000, "ns",
	  "Linux guest, 2 CPUs, 800,000 items in 22 s, over those of Linux on metal" },
	{ "net_ticks", "hog=nice19", 3500, "ns",
	  "the same with a hog of low priority that kept the CPUs awake, 12 s" },
};

static int configure(struct klat_run *run)
{
	/* Only idle time makes the consumer sleep. */
	if (options.idle == 0 && !options.any_sleeps)
		return klat_usage(run, "--idle 0 leaves no time to sleep: give --sleeps any");
	run->low_priority = options.low_priority;
	klat_use_metric(run, ITEM, 1);
	klat_use_metric(run, BARE, 1);
	/* The offset between two counters can exceed the time in which a spinning consumer sees an
	 * item. */
	if (!options.any_sleeps || options.spin == 0) {
		klat_use_metric(run, WAKE, 1);
		if (!run->one_cpu)
			klat_bound_offset(run, WAKE);
	}
	return 0;
}

static int init_semaphores(struct klat_run *run)
{
	struct state *state = run->state;
	int kind = klat_planted(run, "free") ? SYNC_NONE : options.primitive;
	int err = 0;

	/* System V semaphores would outlive the run, but not a namespace. */
	if (options.primitive == SYNC_SYSV)
		err = klat_enter_namespace(run, CLONE_NEWIPC, "an IPC namespace");
	for (int i = 0; i < 2 && !err; i++) {
		sync_init(&state->nothing[i], SYNC_NONE, 0);
		err = sync_init(&state->semaphores[i], kind, i == SLOTS ? SLOT_COUNT : 0);
		if (err)
			return klat_error(run, -err, "cannot make a %s semaphore: %m",
					  primitive_names[options.primitive]);
	}
	return err;
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	int64_t period = options.consumer_burn * (run->one_cpu ? 2 : 1) + options.idle + 1;
	int err = init_semaphores(run);

	if (err)
		return err;
	state->spin = klat_planted(run, "awake") ? UINT64_MAX
						 : (uint64_t)klat_ns_to_ticks(run, options.spin);
	state->stretch = options.items;
	if (state->stretch > KLAT_SPIN_NS / period)
		state->stretch = KLAT_SPIN_NS / period ? KLAT_SPIN_NS / period : 1;
	state->early = state->stretch < 4 * EARLY ? state->stretch / 4 : EARLY;
	state->items = run->iterations +
		       (run->iterations + state->stretch - 1) / state->stretch * state->early;
	for (int i = 0; i < (run->one_cpu ? 1 : 2) && options.hog != HOG_NONE; i++) {
		state->hogs[i] = options.hog == HOG_IDLE
					 ? (struct klat_hog){ .policy = SCHED_IDLE }
					 : (struct klat_hog){ .policy = SCHED_OTHER, .nice = 19 };
		err = klat_hog_start(run, &state->hogs[i], run->cpus[i]);
		if (err)
			return err;
	}
	run->workers[0].sleeps = options.any_sleeps ? KLAT_COUNTED : KLAT_MOSTLY;
	run->workers[0].most_sleeps = 1;
	/* The producer of a slow consumer sleeps until a slot is free. */
	run->workers[1].most_sleeps = options.any_sleeps ? KLAT_ANY_SLEEPS : 0;
	return 0;
}

static const struct klat_worker workers[] = {
	{ "consumer", .body = consumer, .woken = true },
	{ "producer", .body = producer, .place = 1, .rank = KLAT_LOW },
};

static void teardown(struct klat_run *run)
{
	struct state *state = run->state;

	klat_hogs_read(state->hogs, 2);
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
	if (klat_timed()) {
		klat_count_mean(run, "net_ticks", net, run->iterations);
		klat_count_mean(run, "cpu_net_ticks", klat_ns_to_ticks(run, cpu), state->items);
	}
	klat_count(run, "sleeps_per_1000_items",
		   consumer->voluntary * 1000 / (klat_observed(run) + consumer->unsampled));
	if (reschedules >= 0)
		klat_count(run, "reschedules_per_1000_items", reschedules * 1000 / state->produced);
	if (interrupts >= 0)
		klat_count(run, "wake_interrupts_per_1000_items",
			   interrupts * 1000 / state->produced);
	klat_count(run, "stretch", state->stretch);
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;

	count_figures(run);
	klat_hogs_require(run, state->hogs, 2);
}

const struct klat_benchmark klat_benchmark = {
	.name = "semaphore",
	.summary = "items from a producer to a consumer over semaphores",
	.description = "A producer works on an item and posts it. A consumer waits for the item "
		       "and works on it for a shorter time, so it sleeps once for each item. One "
		       "semaphore counts items, another counts the free ones of 16 slots. Two "
		       "events are timed: the wakeup, from before the post to after the consumer's "
		       "wait, and the whole item, on the producer's CPU. Groups of --items items "
		       "with semaphores alternate with groups without. In the evidence, net_ticks "
		       "is the difference between the two means: the cost that semaphores add to "
		       "an item. cpu_net_ticks is the same for the CPU time of both threads.\n\n"
		       "The work is a fixed number of dependent multiplications, calibrated on "
		       "each CPU, so an interruption lengthens it. With --cpus 1,1 both threads "
		       "share a CPU, and the consumer preempts the producer. Without semaphores "
		       "one thread does the work of both.",
	.examples =
		"semaphore\ta POSIX semaphore between two CPUs\n"
		"semaphore --hog nice19\tthe same with CPUs that are never idle\n"
		"semaphore --cpus 1,1\tboth sides on one CPU\n"
		"semaphore --sleeps any --spin-before-sleep 10000000\ta consumer that never sleeps",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.needs_frequency = true,
	.faults = { "awake", "free" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};
