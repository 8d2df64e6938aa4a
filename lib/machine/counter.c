/* SPDX-License-Identifier: MIT */
/* The counter: floor, granularity, offsets between CPUs. */
#include "machine/machine.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

/* The rounded multiples of a smaller fractional step are nearly all integers. */
#define LEAST_FRACTIONAL_STEP 4

static uint64_t greatest_divisor(const uint64_t *gaps, int count)
{
	uint64_t divisor = 0;

	for (int i = 0; i < count; i++)
		for (uint64_t other = gaps[i], rest; other; other = rest) {
			rest = divisor % other;
			divisor = other;
		}
	return divisor;
}

/*
 * The step if the first of the ascending gaps is this multiple of it, or 0. A gap of m steps is m
 * times the step, rounded down or up: it leaves the step between (gap - 1) / m and (gap + 1) / m.
 */
static double fractional_step(const uint64_t *gaps, int count, uint64_t multiple)
{
	double low = (gaps[0] - 1.0) / multiple, high = (gaps[0] + 1.0) / multiple;

	for (int i = 0; i < count && low < high; i++) {
		const double fewest = ceil((gaps[i] - 1) / high), most = floor((gaps[i] + 1) / low);

		if (fewest < most)
			continue; /* the gap says little */
		low = fmax(low, (gaps[i] - 1) / most);
		high = fmin(high, (gaps[i] + 1) / most);
	}
	return low < high ? (low + high) / 2 : 0;
}

int64_t klat_counter_step(uint64_t *gaps, int count)
{
	const uint64_t divisor = greatest_divisor(gaps, count);

	if (divisor != 1)
		return divisor ?: 1;
	qsort(gaps, count, sizeof(*gaps), klat_compare_values);
	for (; !*gaps; count--)
		gaps++;
	for (uint64_t multiple = 1; *gaps > LEAST_FRACTIONAL_STEP * multiple; multiple++) {
		const double step = fractional_step(gaps, count, multiple);

		if (step)
			return ceil(step);
	}
	return 1;
}

static uint64_t gap_with_delay(uint64_t turns)
{
	const uint64_t begin = klat_stamp_begin();

	klat_take_turns(turns);
	return klat_stamp_begin() - begin;
}

int64_t klat_counter_quantum(void)
{
	enum { GAPS = 1000 };
	uint64_t gaps[GAPS], shortest = UINT64_MAX, most;

	for (int i = 0; i < 100; i++) {
		const uint64_t gap = gap_with_delay(0);

		shortest = gap < shortest ? gap : shortest;
	}
	/* Gaps of about one length would look like one step. */
	most = klat_turns_within(2 * shortest + 16, 1);
	for (uint64_t i = 0; i < GAPS; i++)
		gaps[i] = gap_with_delay(i * most / GAPS);
	return klat_counter_step(gaps, GAPS);
}

uint64_t klat_counter_floor(struct klat_worker *worker)
{
	uint64_t floor = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		uint64_t begin = klat_stamp_begin(), bracket = klat_stamp_end(worker) - begin;

		floor = MIN(floor, bracket);
	}
	return floor;
}

uint64_t klat_spin_excess(void)
{
	uint64_t floor = UINT64_MAX, excess = 0;
	const int lengths = 64;

	for (int i = 0; i < 1000; i++) {
		uint64_t begin = klat_stamp_begin(), bracket = klat_stamp_begin() - begin;

		floor = bracket < floor ? bracket : floor;
	}
	/* A spin ends at one of its own readings, so its excess depends on its length. Take the
	 * mean over lengths that differ by one tick. */
	for (int length = 1000; length < 1000 + lengths; length++) {
		uint64_t shortest = UINT64_MAX;

		for (int i = 0; i < 20; i++) {
			uint64_t begin = klat_stamp_begin(), bracket;

			klat_spin(length);
			bracket = klat_stamp_begin() - begin;
			shortest = bracket < shortest ? bracket : shortest;
		}
		excess += shortest > floor + length ? shortest - floor - length : 0;
	}
	return excess / lengths;
}

/*
 * Ping-pong over one cache line. The pinger's stamps p1 and p2 enclose the ponger's stamp q in real
 * time. The offset o = (ponger's counter - pinger's counter) is therefore in [q - p2, q - p1],
 * widened by a step, because a stamp is up to a step too small. Each round narrows the interval.
 */
enum { PING_PONG_ROUNDS = 200 };

struct ping_pong {
	pthread_barrier_t both_there;
	uint32_t turn KLAT_ALIGNED;
	uint64_t stamp;
	int ping_cpu KLAT_ALIGNED, pong_cpu;
	int ping_result, pong_result;
	struct klat_offset *offset;
	int64_t quantum;
} KLAT_ALIGNED;

static void *pong(void *argument)
{
	struct ping_pong *shared = argument;
	int err = klat_cpu_pin(shared->pong_cpu);

	pthread_barrier_wait(&shared->both_there);
	for (uint32_t turn = 1; turn <= 2 * PING_PONG_ROUNDS && !err; turn += 2) {
		err = klat_spin_until(NULL, &shared->turn, turn);
		if (err)
			break;
		shared->stamp = klat_stamp_begin();
		__atomic_store_n(&shared->turn, turn + 1, __ATOMIC_RELEASE);
	}
	shared->pong_result = err;
	return NULL;
}

static void *ping(void *argument)
{
	struct ping_pong *shared = argument;
	int err = klat_cpu_pin(shared->ping_cpu);

	pthread_barrier_wait(&shared->both_there);
	for (uint32_t turn = 1; turn <= 2 * PING_PONG_ROUNDS && !err; turn += 2) {
		uint64_t before = klat_stamp_begin(), after;
		struct klat_offset *offset = shared->offset;

		__atomic_store_n(&shared->turn, turn, __ATOMIC_RELEASE);
		err = klat_spin_until(NULL, &shared->turn, turn + 1);
		if (err)
			break;
		after = klat_stamp_begin();
		offset->low = MAX(offset->low, (int64_t)(shared->stamp - after) - shared->quantum);
		offset->high =
			MIN(offset->high, (int64_t)(shared->stamp - before) + shared->quantum);
	}
	shared->ping_result = err;
	return NULL;
}

int klat_counter_narrow_offset(int cpu_a, int cpu_b, const struct klat_policy *policy,
			       struct klat_offset *offset)
{
	struct ping_pong shared = { .ping_cpu = cpu_a,
				    .pong_cpu = cpu_b,
				    .offset = offset,
				    .quantum = klat_counter_quantum() };
	pthread_t ping_thread, pong_thread;
	int err;

	if (cpu_a == cpu_b) {
		*offset = (struct klat_offset){ 0, 0 };
		return 0;
	}
	/* Both threads start on the caller's CPUs. If that is one CPU, a thread that spins there
	 * keeps the other from starting. */
	pthread_barrier_init(&shared.both_there, NULL, 2);
	/* Under load, two ordinary threads may never run at the same time. Each round then
	 * contains a context switch. */
	err = klat_thread_create(&pong_thread, NULL, policy->policy, policy->priority, pong,
				 &shared);
	if (err)
		goto out;
	err = klat_thread_create(&ping_thread, NULL, policy->policy, policy->priority, ping,
				 &shared);
	if (err)
		pthread_barrier_wait(&shared.both_there);
	else
		pthread_join(ping_thread, NULL);
	pthread_join(pong_thread, NULL);
out:
	pthread_barrier_destroy(&shared.both_there);
	return err ?: shared.ping_result ?: shared.pong_result;
}

uint64_t klat_counter_offset_bound(const struct klat_offset *offsets, int count)
{
	int64_t bound = 0;

	for (int i = 0; i < count; i++) {
		if (offsets[i].low > offsets[i].high)
			return UINT64_MAX;
		for (int j = 0; j < count; j++)
			if (i != j)
				bound = MAX(bound, offsets[i].high - offsets[j].low);
	}
	return bound;
}
